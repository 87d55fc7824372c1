"""What a server says of a program that is to be in custody, and what it wants to hear of it.

Decides which of the server's environment an agent gets, and how a failed start is put into words.
It must not know any agent. Invariant: nothing of the environment is handed on but what is listed
here or given by name.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import Literal, Protocol

import msgspec

from turnkeeper.core.errors import InvalidValue
from turnkeeper.core.outcome import Sample
from turnkeeper.custody import frames

ALLOWED = frozenset(
    "PATH HOME LANG LANGUAGE TERM TMPDIR USER LOGNAME SHELL TZ COLORTERM"
    " HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY http_proxy https_proxy all_proxy no_proxy"
    " SSL_CERT_FILE SSL_CERT_DIR NODE_EXTRA_CA_CERTS REQUESTS_CA_BUNDLE CURL_CA_BUNDLE".split()
)
ALLOWED_PREFIXES = ("LC_", "XDG_")

MIB = 1024 * 1024


class Caps(msgspec.Struct, frozen=True, kw_only=True):
    """How much an agent may write. At `backlog_bytes` that no server has read it is made to wait;
    a turn that writes `output_bytes` is broken off."""

    backlog_bytes: int = 64 * MIB
    output_bytes: int = 1024 * MIB


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What to start. `env` is added to what is allowed of the server's own environment."""

    argv: tuple[str, ...]
    cwd: str = "/"
    env: dict[str, str] = {}
    caps: Caps = Caps()
    orphan_s: float = 60.0
    term_s: float = 5.0

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0]:
            raise InvalidValue("argv", self.argv, "give a program and its arguments")
        check_words("argv", self.argv)
        check_words("cwd", self.cwd)
        check_words("env", self.env)


def check_words(field: str, given: str | tuple[str, ...] | dict[str, str]) -> None:
    """`InvalidValue`, if the system could not hand this to a program. Of variables only the name
    is told: what they hold may be secret."""
    if isinstance(given, dict):
        for name, word in given.items():
            if not name or "=" in name:
                raise InvalidValue(field, name, "a variable's name has no = and some text")
            for part in (name, word):
                _check_word(field, part, name)
    elif isinstance(given, str):
        _check_word(field, given, given)
    else:
        for word in given:
            _check_word(field, word, given)


def _check_word(field: str, word: str, shown: object) -> None:
    if "\0" in word:
        raise InvalidValue(field, shown, "no program can be given a NUL; leave it out")
    try:
        os.fsencode(word)
    except UnicodeEncodeError:
        raise InvalidValue(field, shown, "this is not Unicode text (a lone surrogate)") from None


Breakage = Literal["protocol_error", "spawn_failed", "output_limit", "internal"]


class Holder(Protocol):
    """Hears what happens to one process. Called on the event loop; returns at once."""

    def on_started(self) -> None:
        """Its program runs."""

    def on_output(self, data: bytes, end: int) -> None:
        """The next bytes of its stdout; `end` is how many there have been since its start."""

    def on_taken(self, frame_id: str) -> None:
        """That frame is through, whole."""

    def on_sample(self, sample: Sample) -> None:
        """What it is doing."""

    def on_swept(self) -> None:
        """Nothing that the turn started is left."""

    def on_broken(self, reason: Breakage, detail: str, retry: bool) -> None:
        """Its streams are of no further use."""

    def on_exited(self, code: int | None, signal: int | None, stderr_tail: str) -> None:
        """It ended, and all that it wrote has been delivered."""

    def on_gone(self) -> None:
        """Nothing of its tree is left. The last call."""


def allowed_environment(environ: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """What an agent gets: the harmless part of ours, and what is given by name."""
    kept = {
        name: value
        for name, value in environ.items()
        if name in ALLOWED or name.startswith(ALLOWED_PREFIXES)
    }
    return {**kept, **given}


def explain_not_started(program: Program | None, stage: str, number: int) -> str:
    """Why a program could not be started, and what to do."""
    why = os.strerror(number) if number else "unknown"
    if program is None:
        return f"it could not be started ({stage}: {why})"
    name, cwd = program.argv[0], program.cwd
    if stage == "cwd":
        return f"its working directory {cwd} cannot be entered: {why}. Make it, or name another"
    if stage != "exec":
        return f"{name} could not be started ({stage}: {why})"
    if number == errno.ENOENT and "/" in name:
        exists = os.path.exists(os.path.join(cwd, name))
        if exists:
            return f"{name} is there, but the interpreter that it names is not. Install that"
        return f"there is no program {name}. Install it, or correct its path"
    if number == errno.ENOENT:
        path = program.env.get("PATH", os.environ.get("PATH", ""))
        return f"there is no program {name} on PATH ({path}). Install it, or give its full path"
    if number == errno.EACCES:
        return f"{name} may not be executed: {why}. Make it executable (chmod +x), or name another"
    if number == errno.ENOEXEC:
        return f"{name} is no program: {why}. A script needs a first line like #!/bin/sh"
    if number == errno.E2BIG:
        return f"{name} was given more arguments and environment than the system takes: {why}"
    return f"{name} could not be executed: {why}"


def decode_sample(body: bytes) -> Sample:
    """What the keeper saw of a process, from its words."""
    busy, state, cpu_s, io_bytes, children, waits, *sockets = [
        part.decode("utf-8", "replace") for part in frames.split(body)
    ]
    return Sample(
        busy=busy == "1",
        state=state,
        cpu_s=float(cpu_s),
        io_bytes=int(io_bytes),
        children=int(children),
        waiting_in=waits,
        sockets=tuple(sockets),
    )
