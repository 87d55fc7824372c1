"""A codec of a few words and its agent: enough to try what all process agents share."""

from __future__ import annotations

from tests.process.custody.harness import script
from turnkeeper.core import signals as s
from turnkeeper.core.commands import Abilities
from turnkeeper.core.effects import Answer, Intent, Interrupt
from turnkeeper.drivers.process import Command, ProcessAgent
from turnkeeper.ports import Opening
from turnkeeper.wire.codec import Codec, Frame, Heard


class LineCodec:
    """`hello` is asked `ask who`, owes `told`, and is then `ready`."""

    def __init__(self) -> None:
        self._run = ""
        self._rest = b""
        self._end = 0
        self._owed: list[Frame] = []
        self._now: list[s.AgentSignal] = []

    def open(self, run: str, conversation: str | None, cwd: str) -> list[Frame]:
        self._run = run
        return [Frame("hello", b"hello\n")]

    def begin(self, run: str, at: int) -> list[Frame]:
        if not self._run:
            self._end = at
        self._run = run
        self._now.append(s.Ready())
        return []

    def feed(self, data: bytes) -> list[Heard]:
        signals, self._now = self._now, []
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._end += len(line) + 1
            signals.append(self._line(line.decode()))
        return [Heard(self._run, tuple(signals), self._end)] if signals else []

    def _line(self, line: str) -> s.AgentSignal:
        word, _, rest = line.partition(" ")
        if word == "ask":
            self._owed.append(Frame("told", b"told me\n"))
            return s.Heartbeat()
        if word == "text":
            return s.Text(rest)
        known: dict[str, s.AgentSignal] = {
            "ready": s.Ready("c1"), "done": s.Finished(), "aborted": s.Aborted(),
            "tool": s.ToolStarted("t1", "work"), "tooled": s.ToolEnded("t1"),
        }  # fmt: skip
        return known.get(word, s.Broken("protocol_error", f"it said {line!r}"))

    def encode(self, frame: int, intent: Intent) -> list[Frame]:
        if isinstance(intent, Interrupt):
            return [Frame(str(frame), b"stop\n")]
        if isinstance(intent, Answer):
            return [Frame(str(frame), b"")]
        return [Frame(f"pre{frame}", b"note\n"), Frame(str(frame), f"say {intent.text}\n".encode())]

    def owed(self) -> list[Frame]:
        owed, self._owed = self._owed, []
        return owed


class LineAgent(ProcessAgent):
    abilities = Abilities(interrupt=True)
    argv: tuple[str, ...] = script("agent_lines.py")
    mark = ""

    def command(self, opening: Opening) -> Command:
        return Command(argv=self.argv, env={"MARK": self.mark})

    def codec(self, opening: Opening) -> Codec:
        return LineCodec()
