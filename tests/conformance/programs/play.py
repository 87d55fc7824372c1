"""What the scripted programs share: a message is a command, and a turn plays it.

It must not know any protocol: a `Voice` says in one what a turn does. The commands are those of the
scripted model (`say`, `stream N chunks`, `stall-before-headers`, `stall-after N`, `pings`,
`tool bash COMMAND`), and what a model cannot do: `ask COMMAND`, `withdraw`, `exit CODE`, `eof`,
`garbage`, `recall`, and `bytewise` or `glued` before any of them for how it is written. The last
line of a message counts. A command that a tool runs is in a session of its own and is left running
when the turn is interrupted, as the real programs do.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import uuid
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

Json = dict[str, Any]


class Interrupted(Exception):
    """The turn was asked to end."""


class Voice(ABC):
    """How one protocol says what happens in a turn."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.bytewise = False
        self.glued: bytes | None = None

    def line(self, said: Json) -> None:
        self.raw(json.dumps(said).encode() + b"\n")

    def raw(self, data: bytes) -> None:
        with self._lock:
            if self.glued is not None:
                self.glued += data
                return
            view = memoryview(data)
            while view:
                view = view[os.write(1, view[:1] if self.bytewise else view) :]

    def unglue(self) -> None:
        """Write what was held back, at once."""
        data, self.glued = self.glued, None
        if data is not None:
            self.raw(data)

    @abstractmethod
    def text(self, text: str) -> None: ...

    @abstractmethod
    def ping(self) -> None: ...

    @abstractmethod
    def tool_started(self, tool: str, command: str) -> None: ...

    @abstractmethod
    def tool_ended(self, tool: str, output: str) -> None: ...

    @abstractmethod
    def ask(self, ref: str, tool: str, command: str) -> None: ...

    @abstractmethod
    def withdraw(self, ref: str) -> None: ...

    @abstractmethod
    def end(self, text: str) -> None: ...

    @abstractmethod
    def abort(self) -> None: ...


class Memory:
    """Conversations, each in a file, in a folder of the program's own."""

    def __init__(
        self, folder: str = "conversations", before: str = "", after: str = "", mark: str = ""
    ) -> None:
        self._folder = Path(os.environ["HOME"], folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._before, self._after, self._mark = before, after, mark
        self.id = ""

    def begin(self) -> str:
        self.id = uuid.uuid4().hex
        self._file.touch()
        return self.id

    def resume(self, id: str) -> bool:
        self.id = id
        return self._file.exists()

    def note(self, text: str) -> None:
        self._write(text[:200].replace("\n", " "))

    def ended(self) -> None:
        """A turn is over, and came to its own end: said as the agent that is played says it."""
        if self._mark:
            self._write(self._mark)

    def _write(self, line: str) -> None:
        with self._file.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def recall(self) -> str:
        return self._file.read_text(encoding="utf-8")

    @property
    def _file(self) -> Path:
        return self._folder / f"{self._before}{self.id}{self._after}"


class Turn:
    """One message being played, in a thread of its own."""

    def __init__(self, voice: Voice, memory: Memory, text: str) -> None:
        self._voice = voice
        self._memory = memory
        self._text = text
        self._said = ""
        self._interrupted = threading.Event()
        self._answers: queue.Queue[bool | None] = queue.Queue()
        self._steers: queue.Queue[str] = queue.Queue()
        self._ref = f"q{uuid.uuid4().hex[:8]}"
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_on(self) -> bool:
        return self._thread.is_alive()

    def steer(self, text: str) -> None:
        self._memory.note(text)
        self._steers.put(text)

    def answer(self, allow: bool) -> None:
        self._answers.put(allow)

    def interrupt(self) -> None:
        self._interrupted.set()
        self._answers.put(None)

    def _run(self) -> None:
        command = self._text.strip().splitlines()[-1]
        how, _, rest = command.partition(" ")
        self._voice.bytewise = how == "bytewise"
        self._voice.glued = b"" if how == "glued" else None
        self._memory.note(command)
        try:
            self._play(rest if how in ("bytewise", "glued") else command)
            self._take_steers()
        except Interrupted:
            self._voice.abort()
        else:
            self._memory.ended()
            self._voice.end(self._said)
        self._voice.unglue()
        self._voice.bytewise = False

    def _say(self, text: str) -> None:
        self._said += text
        self._voice.text(text)

    def _wait(self, time_s: float | None = None) -> None:
        if self._interrupted.wait(time_s):
            raise Interrupted

    def _take_steers(self) -> None:
        while not self._steers.empty():
            self._say(f"(steered: {self._steers.get()})")

    def _play(self, command: str) -> None:
        word, _, rest = command.partition(" ")
        match word:
            case "say":
                self._say(rest)
            case "stream":
                self._stream(rest)
            case "stall-before-headers":
                self._wait()
            case "stall-after":
                self._stream(f"{rest} chunks 0")
                self._wait()
            case "pings":
                while True:
                    self._voice.ping()
                    self._wait(0.05)
            case "tool":
                self._tool(f"t{uuid.uuid4().hex[:6]}", rest.partition(" ")[2])
            case "ask":
                self._ask(rest)
            case "withdraw":
                self._voice.ask(self._ref, "t0", "true")
                self._wait(0.05)
                self._voice.withdraw(self._ref)
                self._say("never mind")
            case "recall":
                self._say(self._memory.recall())
            case _:
                self._fault(word, rest)

    def _fault(self, word: str, rest: str) -> None:
        match word:
            case "exit":
                self._say("partial")
                os._exit(int(rest))
            case "eof":
                self._say("partial")
                os.close(1)
                self._wait()
            case "garbage":
                self._voice.raw(b'{"half a line\n')
                self._wait()
            case _:
                self._say(f"{len(self._text)} characters")

    def _stream(self, rest: str) -> None:
        count, _, *more = rest.split()
        for number in range(int(count)):
            while more[1:2] == ["while"] and number >= int(count) * 9 // 10:
                if not os.path.exists(more[2]):
                    break
                self._wait(0.02)
            self._say(f"chunk-{number} ")
            self._take_steers()
            self._wait(float(more[0]) if more else 0.05)

    def _ask(self, command: str) -> None:
        tool = f"t{uuid.uuid4().hex[:6]}"
        self._voice.ask(self._ref, tool, command)
        answer = self._answers.get()
        if answer is None:
            raise Interrupted
        if answer:
            self._tool(tool, command)
        else:
            self._say("denied")

    def _tool(self, tool: str, command: str) -> None:
        self._voice.tool_started(tool, command)
        process = subprocess.Popen(
            command, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            text=True, start_new_session=True,
        )  # fmt: skip
        output: str | None = None
        while output is None:
            try:
                output, _ = process.communicate(timeout=0.02)
            except subprocess.TimeoutExpired:
                self._wait(0.0)
        self._voice.tool_ended(tool, output)
        self._say(f"tool-result-seen: {output.strip()}")


def lines() -> Any:
    """What is written to us, line by line."""
    for line in sys.stdin.buffer:
        yield json.loads(line)
