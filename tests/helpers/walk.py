"""A person who follows a document: types its commands, compares what is shown, saves its files.

The `console` blocks of a document are one sitting at two terminals.

- A line after `$ ` is typed, with the lines after `> ` that go on with it. What stands below it is
  shown; `…` is anything. A command that only looks is typed again until it shows that.
- A server (`turnkeeper serve` or `demo`) has the first terminal for itself, and runs on there until
  a block that begins with `^C`. Everything else is typed at the second one.
- A `^C` in the last line of what is shown is typed when the rest of it is there.
- `r_…` and `a_…` in a command are the run and the question that were shown last.
- A block whose first line is a comment with the name of a file is saved under that name.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tests.helpers.curl import curl_on_path
from tests.helpers.ports import free_port
from tests.helpers.terminal import COMMAND, TIMEOUT_S, Terminal, terminal

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
FILE = re.compile(r"# ([\w.-]+\.\w+)\n")
SERVES = re.compile(r"turnkeeper (serve|demo)\b")
LOOKS = re.compile(
    r"turnkeeper (ps|show|sessions|approvals|events|doctor|export)\b|curl (?!.*--json)", re.S
)
NAMES = {
    "r_…": re.compile(r"\br_[0-9a-f]{16}(?:-\d+)?(?![\d-]|\.\d)"),
    "a_…": re.compile(r"\ba_[0-9a-f.]{16,}"),
}
"""A process is named after the first run that it had, with a number: that is no run."""
PORT = "7433"

KEEPING = """
cd "$WALK/folder" && . "$WALK/state" || exit 99
set -a
eval "$1"
code=$?
export -p > "$WALK/state"
exit $code
"""
"""What one command sets, the next one knows, as in one shell."""


class Step(NamedTuple):
    """Something typed, and what is shown then."""

    typed: str
    shown: str


def blocks(text: str) -> list[tuple[str, str]]:
    """The kind and the content of each."""
    return BLOCK.findall(text)


def steps(session: str) -> Iterator[Step]:
    """What a `console` block tells."""
    for part in re.split(r"^\$ ", session, flags=re.M)[1:]:
        first, *rest = part.split("\n")
        while rest and rest[0].startswith("> "):
            first += "\n" + rest.pop(0)[2:]
        yield Step(first, "\n".join(rest))


def looks_like(shown: str, happened: str) -> bool:
    """Whether that is what happened; `…` is anything, and as a line of its own, any lines or none:
    what a server logs comes before or after what it says."""
    lines = _trimmed(shown).splitlines(keepends=True)
    pattern = "".join(r"(?:.*?\n)?" if line == "…\n" else _pattern(line) for line in lines)
    return re.fullmatch(pattern, _trimmed(happened), re.S) is not None


def _pattern(line: str) -> str:
    return ".*?".join(re.escape(part) for part in line.split("…"))


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


class Walker:
    """Where the walk goes, and how far it has come."""

    def __init__(self, where: Path) -> None:
        self.folder = where / "folder"
        self._where = where
        self._code = 0
        self._names: dict[str, str] = {}
        self._port = str(free_port())
        self._server: Terminal | None = None
        self.folder.mkdir(parents=True)
        (where / "state").write_text("")
        home = where / "home"
        home.mkdir()
        path = f"{Path(COMMAND).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = {
            "WALK": str(where),
            "HOME": str(home),
            "XDG_DATA_HOME": f"{home}/.local/share",
            "XDG_CONFIG_HOME": f"{home}/.config",
            "PATH": curl_on_path(path, where / "bin"),
        }

    def follow(self, text: str) -> None:
        """Do all that a document tells, in its order."""
        for kind, block in blocks(text.replace(PORT, self._port)):
            named = FILE.match(block)
            if kind == "console":
                self._sit_down(block)
            elif named is not None:
                (self.folder / named[1]).write_text(block)

    def _sit_down(self, block: str) -> None:
        if block.startswith("^C\n"):
            self.end_server()
        for step in steps(block):
            if step.typed == "echo $?":
                assert _trimmed(step.shown) == str(self._code), "exit code"
            elif SERVES.match(step.typed):
                self._serve(step)
            else:
                self._type(step)

    # The first terminal ----------------------------------------------------------------------

    def _serve(self, step: Step) -> None:
        assert self._server is None, "a server has that terminal"
        self._server = Terminal(self._shell(f"exec {step.typed}"), self._environment)
        self._wait_shown(self._server, step)

    def end_server(self) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        try:
            server.type("\x03")
            assert server.wait_end() == 0, server.text
        finally:
            server.close()

    # The second terminal ---------------------------------------------------------------------

    def _type(self, step: Step) -> None:
        until = time.monotonic() + TIMEOUT_S
        happened = self._once(step)
        while not looks_like(step.shown, happened):
            again = LOOKS.match(step.typed) and time.monotonic() < until
            assert again, f"$ {step.typed}\n{happened}\n-- but it is told as\n{step.shown}"
            happened = self._once(step)
        for sign, pattern in NAMES.items():
            if found := pattern.findall(happened):
                self._names[sign] = found[-1]

    def _once(self, step: Step) -> str:
        shown, ctrl_c, _ = step.shown.rpartition("^C")
        with terminal(self._shell(step.typed), **self._environment) as at:
            if ctrl_c:
                self._wait_shown(at, Step(step.typed, shown))
                at.type("\x03")
            code = at.wait_end()
            self._code = 128 - code if code < 0 else code
            return step.shown if ctrl_c else at.text

    def _shell(self, typed: str) -> list[str]:
        for sign, name in self._names.items():
            typed = typed.replace(sign, name)
        assert "…" not in typed, f"nobody knows what to type: {typed}"
        return ["sh", "-c", KEEPING, "sh", typed]

    def _wait_shown(self, at: Terminal, step: Step) -> None:
        while not (at.text and looks_like(step.shown.rstrip() + "…", at.text)):
            assert at.read(), f"$ {step.typed}\n{at.text}\n-- but it is told as\n{step.shown}"

    def end_everything(self) -> None:
        """The server; and agents, which would wait for the next one."""
        server, self._server = self._server, None
        if server is not None:
            server.type("\x03")
            server.wait_end()
            server.close()
        for pid in processes_of(self._where):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextmanager
def walker(where: Path) -> Iterator[Walker]:
    one = Walker(where)
    try:
        yield one
    finally:
        one.end_everything()


def processes_of(where: Path) -> list[int]:
    """Those that have that place in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if os.fsencode(where) in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found
