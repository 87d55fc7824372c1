"""The agents that we know, and which of them are on this machine, ready to be used.

Decides where to look, what each is asked, and what to do about one that is not ready. It must not
start a turn, and reads no file of any agent: it asks the program itself, or sees that a file is
there. Invariant: every question is bounded in time and in what is read of the answer; nothing that
a program started outlives it; and what is told of one that does not answer is what it did.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from turnkeeper.custody.program import Program, allowed_environment
from turnkeeper.custody.question import Answer, ask
from turnkeeper.drivers import claude, codex

ASK_S = 10.0
ANSWER_KIB = 8
"""No version and no login is told in more words than that."""
_VERSION = re.compile(r"\d{1,9}\.\d{1,9}(?:\.\d{1,9})?[\w.+-]{0,40}", re.ASCII)

State = Literal["ready", "not installed", "needs login", "does not answer"]


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that people may have. `logged_in` is a question that it answers with exit code 0;
    `keys` are variables, and `files` files in the home, any of which will do instead."""

    name: str
    driver: Literal["claude", "codex", "acp"]
    command: tuple[str, ...]
    version: tuple[str, ...] = ("--version",)
    logged_in: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    """Its own variables, which it gets where Turnkeeper has them."""
    install: str
    login: str


KNOWN: tuple[Known, ...] = (
    Known(
        name="claude", driver="claude", command=claude.COMMAND, logged_in=("auth", "status"),
        keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
        variables=claude.VARIABLES, install="npm install -g @anthropic-ai/claude-code",
        login=claude.ADVICE,
    ),
    Known(
        name="codex", driver="codex", command=codex.COMMAND, logged_in=("login", "status"),
        keys=("CODEX_API_KEY",), variables=codex.VARIABLES, install="npm install -g @openai/codex",
        login="Run `codex login`; a provider of your own in its config.toml may need none",
    ),
    Known(
        name="gemini", driver="acp", command=("gemini", "--acp"),
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"), files=(".gemini/oauth_creds.json",),
        variables=("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_CLOUD_PROJECT"),
        install="npm install -g @google/gemini-cli",
        login="Run `gemini` and log in, or set GEMINI_API_KEY for Turnkeeper",
    ),
    Known(
        name="opencode", driver="acp", command=("opencode", "acp"),
        files=(".local/share/opencode/auth.json", ".config/opencode/opencode.json"),
        variables=("OPENCODE_CONFIG",), install="npm install -g opencode-ai",
        login="Run `opencode auth login`, or name a provider in its settings",
    ),
    Known(
        name="claude-agent-acp", driver="acp", command=("claude-agent-acp",),
        keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
        files=(".claude/.credentials.json",), variables=claude.VARIABLES,
        install="npm install -g @agentclientprotocol/claude-agent-acp", login=claude.ADVICE,
    ),
    Known(
        name="codex-acp", driver="acp", command=("codex-acp",), version=(),
        keys=("CODEX_API_KEY", "OPENAI_API_KEY"), files=(".codex/auth.json",),
        variables=codex.VARIABLES, install="npm install -g @zed-industries/codex-acp",
        login="Run `codex login`, or set OPENAI_API_KEY for Turnkeeper",
    ),
)  # fmt: skip


class _NoAnswer(Exception):
    """What a program did instead of answering."""


class Found(msgspec.Struct, frozen=True):
    """How a known agent is on this machine. `todo` says what to do if it is not ready."""

    name: str
    driver: str
    state: State
    path: str = ""
    version: str = ""
    todo: str = ""


def spec_of(known: Known) -> dict[str, Any]:
    """Its table, as an operator would write it."""
    return {"driver": known.driver, "command": known.command, "variables": known.variables}


async def detect(
    known: Sequence[Known] = KNOWN,
    *,
    environ: Mapping[str, str] | None = None,
    ask_s: float = ASK_S,
) -> list[Found]:
    """All of them, asked at the same time."""
    look = _Look(os.environ if environ is None else environ, ask_s)
    return list(await asyncio.gather(*(look.at(one) for one in known)))


class _Look:
    """One look at this machine."""

    def __init__(self, environ: Mapping[str, str], ask_s: float) -> None:
        self._environ = environ
        self._ask_s = ask_s

    async def at(self, known: Known) -> Found:
        path = shutil.which(known.command[0], path=self._environ.get("PATH"))
        if path is None:
            return Found(known.name, known.driver, "not installed", todo=known.install)
        try:
            version = await self._version(known, path) if known.version else ""
            ready = await self._is_logged_in(known, path)
        except _NoAnswer as told:
            return Found(known.name, known.driver, "does not answer", path, todo=str(told))
        if ready:
            return Found(known.name, known.driver, "ready", path, version)
        return Found(known.name, known.driver, "needs login", path, version, known.login)

    async def _version(self, known: Known, path: str) -> str:
        answer = await self._ask(known, path, known.version)
        number = _VERSION.search(answer.said.decode("utf-8", "replace"))
        if number is None:
            told = f"printed no version and exited with code {answer.code}"
            raise _NoAnswer(f"`{known.command[0]} {' '.join(known.version)}` {told}")
        return number.group()

    async def _is_logged_in(self, known: Known, path: str) -> bool:
        if any(self._environ.get(key) for key in known.keys) or self._has_file(known):
            return True
        if not known.logged_in:
            return False
        return (await self._ask(known, path, known.logged_in)).code == 0

    def _has_file(self, known: Known) -> bool:
        home = self._environ.get("HOME") or os.path.expanduser("~")
        return any(os.path.exists(os.path.join(home, file)) for file in known.files)

    async def _ask(self, known: Known, path: str, words: tuple[str, ...]) -> Answer:
        """What it answers by itself; else `_NoAnswer` says what it did instead."""
        own = {name: self._environ[name] for name in known.variables if name in self._environ}
        env = allowed_environment(self._environ, own)
        program = Program(argv=(path, *words), cwd=".", env=env)
        answer = await ask(program, within_s=self._ask_s, most_bytes=ANSWER_KIB * 1024)
        said = f"`{known.command[0]} {' '.join(words)}`"
        match answer.how:
            case "ended":
                return answer
            case "late":
                raise _NoAnswer(f"{said} did not answer in {self._ask_s:g} s, and was ended")
            case "too much":
                raise _NoAnswer(f"{said} printed more than {ANSWER_KIB} KiB, and was ended")
            case "not started":
                raise _NoAnswer(answer.detail)
