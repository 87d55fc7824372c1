"""The agents that we know, and which of them are on this machine, ready to be used.

Decides where to look, what each is asked, and what to do about one that is not ready. It must not
start a turn, and reads no file of any agent: it asks the program itself, or sees that a file is
there. Invariant: every question is bounded; a program that hangs is told as such and is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from turnkeeper.custody.program import allowed_environment
from turnkeeper.drivers import claude, codex

ASK_S = 10.0
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?[\w.+-]*")

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
        version = ""
        if known.version:
            said = await self._ask(known, path, known.version)
            if said is None:
                todo = f"`{known.command[0]} {' '.join(known.version)}` said nothing in time"
                return Found(known.name, known.driver, "does not answer", path, todo=todo)
            number = _VERSION.search(said[1])
            version = number.group() if number else ""
        if await self._is_logged_in(known, path):
            return Found(known.name, known.driver, "ready", path, version)
        return Found(known.name, known.driver, "needs login", path, version, known.login)

    async def _is_logged_in(self, known: Known, path: str) -> bool:
        if any(self._environ.get(key) for key in known.keys) or self._has_file(known):
            return True
        if not known.logged_in:
            return False
        said = await self._ask(known, path, known.logged_in)
        return said is not None and said[0] == 0

    def _has_file(self, known: Known) -> bool:
        home = self._environ.get("HOME") or os.path.expanduser("~")
        return any(os.path.exists(os.path.join(home, file)) for file in known.files)

    async def _ask(
        self, known: Known, path: str, words: tuple[str, ...]
    ) -> tuple[int | None, str] | None:
        """Its exit code and what it said; none if it did not answer in time."""
        own = {name: self._environ[name] for name in known.variables if name in self._environ}
        env = allowed_environment(self._environ, own)
        return await asyncio.to_thread(_ask, (path, *words), env, self._ask_s)


def _ask(
    argv: tuple[str, ...], env: dict[str, str], within_s: float
) -> tuple[int | None, str] | None:
    try:
        process = subprocess.Popen(
            argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    except OSError:
        return None
    with process:
        try:
            said, _ = process.communicate(timeout=within_s)
        except subprocess.TimeoutExpired:
            return None
        finally:  # it, and what it started beside itself
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, said.decode("utf-8", "replace")
