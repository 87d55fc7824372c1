"""A worker on plain pipes, heard through its real codec. Every wait is bounded."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, TypeVar

from turnkeeper.core.effects import Answer, Intent, Interrupt, Say, SteerIn
from turnkeeper.core.signals import BOUNDARY, AgentSignal, Heartbeat, Ready, Text
from turnkeeper.wire.worker import WorkerCodec

S = TypeVar("S", bound=AgentSignal)

FUNCTIONS = Path(__file__).with_name("functions.py")
BOUND_S = 30.0


class Sounded(NamedTuple):
    """A signal, whose run it was, and when it was heard."""

    run: str
    signal: AgentSignal
    at: float


class WorkerProcess:
    """One worker, from its start to its certain end."""

    def __init__(
        self, target: str, *options: str, heartbeat_s: float = 0.0, cwd: Path | None = None
    ) -> None:
        named = target if ":" in target or target.endswith(".py") else f"{FUNCTIONS}:{target}"
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "turnkeeper.worker", named,
             "--heartbeat-s", str(heartbeat_s), *options],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd,
        )  # fmt: skip
        self.heard: list[Sounded] = []
        self.errors = b""
        self._codec = WorkerCodec("s_1")
        self._news = threading.Condition()
        self._closed = False
        self._frame = 0
        self._threads = [
            threading.Thread(target=self._listen, daemon=True),
            threading.Thread(target=self._collect_errors, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait(BOUND_S)
        for thread in self._threads:
            thread.join(BOUND_S)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    # Speaking -----------------------------------------------------------------------------------

    def begin(self, run: str) -> None:
        for frame in self._codec.begin(run, 0):
            self.write(frame.data)

    def start(self, text: str = "", run: str = "r_1") -> None:
        """A turn, once the worker is ready for it."""
        self.begin(run)
        self.wait(Ready, run)
        self.give(Say(run, "m_1", text))

    def steer(self, text: str, run: str = "r_1") -> None:
        self.give(SteerIn(run, "m_2", text))

    def answer(self, ref: str, allow: bool, run: str = "r_1") -> None:
        self.give(Answer(run, ref, allow))

    def interrupt(self, run: str = "r_1") -> None:
        self.give(Interrupt(run))

    def give(self, *intents: Intent) -> None:
        """Frames, in one write."""
        data = b""
        for intent in intents:
            self._frame += 1
            data += b"".join(f.data for f in self._codec.encode(self._frame, intent))
        self.write(data)

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def close_stdin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    # Hearing ------------------------------------------------------------------------------------

    def wait(self, kind: type[S], run: str = "r_1", count: int = 1) -> S:
        """The signal of that kind; the last of `count`."""
        found: list[S] = []

        def there() -> bool:
            found[:] = [s.signal for s in self.heard if s.run == run and isinstance(s.signal, kind)]
            return len(found) >= count or self._closed

        with self._news:
            assert self._news.wait_for(there, BOUND_S), f"no {kind.__name__}: {self._state()}"
        assert len(found) >= count, f"no {kind.__name__} before the end: {self._state()}"
        return found[count - 1]

    def wait_text(self, text: str, run: str = "r_1") -> None:
        with self._news:
            there = self._news.wait_for(lambda: text in self.text(run) or self._closed, BOUND_S)
        assert there, self._state()
        assert text in self.text(run), self._state()

    def wait_end(self, run: str = "r_1") -> AgentSignal:
        """The turn's last word; fails if the process goes without one."""

        def word() -> AgentSignal | None:
            words = (s.signal for s in self.heard if s.run == run)
            return next((w for w in words if isinstance(w, BOUNDARY)), None)

        with self._news:
            self._news.wait_for(lambda: word() or self._closed, BOUND_S)
        found = word()
        assert found is not None, self._state()
        return found

    def wait_exit(self) -> int:
        code = self.process.wait(BOUND_S)
        for thread in self._threads:
            thread.join(BOUND_S)
        return code

    def wait_error(self, text: bytes) -> None:
        with self._news:
            assert self._news.wait_for(lambda: text in self.errors, BOUND_S), self._state()

    def text(self, run: str = "r_1") -> str:
        said = [s.signal for s in self.heard if s.run == run]
        return "".join(signal.text for signal in said if isinstance(signal, Text))

    def kept(self, kind: type[S], run: str = "r_1") -> S:
        """The first signal of that kind, which must have been heard."""
        return next(s.signal for s in self.heard if s.run == run and isinstance(s.signal, kind))

    def signals(self, run: str = "r_1") -> list[AgentSignal]:
        """All but the heartbeats."""
        said = [s.signal for s in self.heard if s.run == run]
        return [signal for signal in said if not isinstance(signal, Heartbeat)]

    def _state(self) -> str:
        return f"{self.heard[-10:]} stderr={self.errors[-2000:].decode(errors='replace')}"

    def _listen(self) -> None:
        assert self.process.stdout is not None
        while data := os.read(self.process.stdout.fileno(), 1 << 16):
            now = time.monotonic()
            with self._news:
                for group in self._codec.feed(data):
                    self.heard += [Sounded(group.run, signal, now) for signal in group.signals]
                self._news.notify_all()
        with self._news:
            self._closed = True
            self._news.notify_all()

    def _collect_errors(self) -> None:
        assert self.process.stderr is not None
        while data := os.read(self.process.stderr.fileno(), 1 << 16):
            with self._news:
                self.errors += data
                self._news.notify_all()


def one_turn(target: str, text: str = "") -> tuple[WorkerProcess, AgentSignal]:
    """A whole turn of a function, and how it ended. The worker is ended too."""
    with WorkerProcess(target) as worker:
        worker.start(text)
        word = worker.wait_end()
        worker.close_stdin()
        worker.wait_exit()
        return worker, word
