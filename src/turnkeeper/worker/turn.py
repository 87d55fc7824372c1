"""What a function is given: its message, and the ways to answer it.

Decides what each word of the public API says on the wire. It must not know pipes. Invariant:
whatever is said is written before the call returns, so that a crash right after it loses nothing;
after the turn is over, nothing can be said in its name.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Iterator
from types import TracebackType
from typing import Any, TypeVar

from turnkeeper.worker.call import Call, Stopped
from turnkeeper.worker.child import (
    PROGRESS_S,
    Asking,
    Child,
    ChildResult,
    result,
    started,
)
from turnkeeper.worker.fault import headline
from turnkeeper.worker.stdio import Outlet, pieces, plain, shortened

T = TypeVar("T")


class Said:
    """It is said already. Awaiting it lets the event loop breathe, so that a stop can come in."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, None]:
        return asyncio.sleep(0).__await__()


_SAID = Said()


class Tool:
    """One use of a tool, as watchers see it: `with` or `async with` it around the work. Leaving it
    by an exception says that it failed."""

    def __init__(self, turn: BaseTurn, name: str, input: Any) -> None:
        self._turn = turn
        self._name = str(name)
        self._input = input
        self.id = turn._name("t")
        self.output = ""
        """What came of it; set it before leaving."""

    def progress(self, text: str = "") -> Said:
        """It is getting on. Keeps the tool's clock from running out."""
        for piece in pieces(text) if text else ("",):
            self._turn._send("ToolProgress", tool=self.id, text=piece)
        return _SAID

    def __enter__(self) -> Tool:
        self._turn._send("ToolStarted", tool=self.id, name=self._name, input=plain(self._input))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        output = self.output or (headline(error) if error is not None else "")
        fields = {"tool": self.id, "ok": error is None, "output": shortened(str(output))}
        self._turn._send("ToolEnded", even_if_stopped=True, **fields)

    async def __aenter__(self) -> Tool:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, _)


class BaseTurn:
    """What functions of every kind can do with their turn."""

    def __init__(self, call: Call, outlet: Outlet, text: str) -> None:
        self._call = call
        self._outlet = outlet
        self.text = text
        """The message."""

    @property
    def run(self) -> str:
        """The id of this run: new for every turn."""
        return self._call.run

    @property
    def session(self) -> str:
        """The id of the conversation: the same in every turn of it, whatever process it is in."""
        return self._call.session

    @property
    def stopped(self) -> bool:
        """Somebody or some clock has ended this turn: clean up and return."""
        return self._call.stopped

    def say(self, text: str) -> Said:
        """A part of the answer."""
        for piece in pieces(_text_of(text, "say")):
            self._send("Text", text=piece)
        return _SAID

    def think(self, text: str) -> Said:
        """A part of the reasoning; shown apart from the answer."""
        for piece in pieces(_text_of(text, "think")):
            self._send("Thinking", text=piece)
        return _SAID

    def tool(self, name: str, input: Any = None) -> Tool:
        """A tool at work: `with turn.tool("search", {"q": q}) as tool`, or `async with`."""
        return Tool(self, name, input)

    def stop_child(self, child: Child) -> Said:
        """Stop it, and all that it has started. `wait_child` tells its end."""
        self._send("StopChild", child=child.run)
        return _SAID

    def _child_ref(self, key: str | None) -> str:
        return self._name("c") if key is None else f"{self._call.run}.k.{key}"

    def _name(self, letter: str) -> str:
        return f"{self._call.run}.{letter}{self._call.number()}"

    def _send(self, kind: str, *, even_if_stopped: bool = False, **fields: Any) -> None:
        if self._call.over:
            raise RuntimeError(f"the turn {self._call.run} is over: nothing more can be said in it")
        if not even_if_stopped:
            self._heed()
        self._outlet.send(self._call.run, kind, **fields)

    def _heed(self) -> None:
        """Where a plain function notices that it was stopped."""


class Turn(BaseTurn):
    """The turn of an async function or async generator. A stop cancels it, as `asyncio` does."""

    def __init__(self, call: Call, outlet: Outlet, text: str, rung: asyncio.Event) -> None:
        super().__init__(call, outlet, text)
        self._rung = rung
        self.steering = Steering(self)
        """Messages that were sent into this running turn: `async for text in turn.steering`."""

    async def ask(self, tool: str, input: Any = None) -> bool:
        """May I? Waits for a person; no answer in time means no."""
        return await self._ask(tool, input, "tool")

    async def propose(self, plan: str) -> bool:
        """Shall I do it like this? Waits for a person, who is shown the plan."""
        return await self._ask("plan", {"plan": str(plan)}, "plan")

    async def _ask(self, tool: str, input: Any, what: str) -> bool:
        ref = self._name("q")
        self._call.open_question(ref)
        try:
            self._send("Asked", ref=ref, tool=str(tool), input=plain(input), what=what)
            return await self._wait_for(lambda: self._call.answer_to(ref))
        finally:
            if self._call.drop_question(ref) is None and not self._call.over:
                self._send("Withdrawn", ref=ref)

    async def start(self, text: str, **how: Any) -> Child:
        """Give another agent something to do: a run below this one, which ends no later and is
        stopped with it. `agent` for a new session, or `session`; `key`, `cwd`, `when_busy` and
        `limits` if need be. `ChildRefused` says why not."""
        asking = Asking(text, **how)
        ref = self._child_ref(asking.key)
        self._send("StartChild", **asking.fields(ref))
        return started(ref, await self._wait_for(lambda: self._call.child_of(ref)))

    async def wait_child(self, child: Child, timeout_s: float | None = None) -> ChildResult | None:
        """What came of it; none if it is still running when the time is up."""
        loop = asyncio.get_running_loop()
        until = None if timeout_s is None else loop.time() + timeout_s
        async with self.tool("wait_child", {"run": child.run}) as tool:
            while True:
                left_s = PROGRESS_S if until is None else min(PROGRESS_S, until - loop.time())
                try:
                    async with asyncio.timeout(max(0.0, left_s)):
                        ended = await self._wait_for(lambda: self._call.end_of_child(child.ref))
                except TimeoutError:
                    if until is not None and loop.time() >= until:
                        tool.output = "still running"
                        return None
                    tool.progress("still running")
                    continue
                tool.output = str(ended["outcome"])
                return result(ended)

    async def _wait_for(self, look: Callable[[], T | None]) -> T:
        while (found := look()) is None:
            self._rung.clear()
            if (found := look()) is None:
                await self._rung.wait()
        return found


class Steering:
    """What was sent into a running turn of an async function, in order."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    def poll(self) -> str | None:
        """The next message if there is one."""
        return self._turn._call.next_steered()

    def __aiter__(self) -> Steering:
        return self

    async def __anext__(self) -> str:
        return await self._turn._wait_for(self.poll)


class SyncTurn(BaseTurn):
    """The turn of a plain function or generator. A stop raises `Stopped` at its next use."""

    def __init__(self, call: Call, outlet: Outlet, text: str) -> None:
        super().__init__(call, outlet, text)
        self.steering = SyncSteering(self)
        """Messages that were sent into this running turn; `for` gives those that are there now."""

    def ask(self, tool: str, input: Any = None) -> bool:
        """May I? Waits for a person; no answer in time means no."""
        return self._ask(tool, input, "tool")

    def propose(self, plan: str) -> bool:
        """Shall I do it like this? Waits for a person, who is shown the plan."""
        return self._ask("plan", {"plan": str(plan)}, "plan")

    def _ask(self, tool: str, input: Any, what: str) -> bool:
        ref, call = self._name("q"), self._call
        call.open_question(ref)
        try:
            self._send("Asked", ref=ref, tool=str(tool), input=plain(input), what=what)
            with call.news:
                call.news.wait_for(lambda: call.stopped or call.answer_to(ref) is not None)
            self._heed()
            return call.answer_to(ref) is True
        finally:
            if call.drop_question(ref) is None and not call.over:
                self._send("Withdrawn", even_if_stopped=True, ref=ref)

    def start(self, text: str, **how: Any) -> Child:
        """As `Turn.start`: a run below this one."""
        call, asking = self._call, Asking(text, **how)
        ref = self._child_ref(asking.key)
        self._send("StartChild", **asking.fields(ref))
        with call.news:
            call.news.wait_for(lambda: call.stopped or call.child_of(ref) is not None)
        self._heed()
        return started(ref, call.child_of(ref) or {})

    def wait_child(self, child: Child, timeout_s: float | None = None) -> ChildResult | None:
        """What came of it; none if it is still running when the time is up."""
        call = self._call
        until = None if timeout_s is None else time.monotonic() + timeout_s
        with self.tool("wait_child", {"run": child.run}) as tool:
            while (ended := call.end_of_child(child.ref)) is None:
                left_s = PROGRESS_S if until is None else min(PROGRESS_S, until - time.monotonic())
                with call.news:
                    told = call.news.wait_for(
                        lambda: call.stopped or call.end_of_child(child.ref) is not None,
                        timeout=max(0.0, left_s),
                    )
                self._heed()
                if not told and until is not None and time.monotonic() >= until:
                    tool.output = "still running"
                    return None
                if not told:
                    tool.progress("still running")
            tool.output = str(ended["outcome"])
            return result(ended)

    def sleep(self, seconds: float) -> None:
        """Like `time.sleep`, but a stop ends it."""
        with self._call.news:
            self._call.news.wait_for(lambda: self._call.stopped, timeout=seconds)
        self._heed()

    def _heed(self) -> None:
        if self._call.stopped:
            raise Stopped(f"the turn {self._call.run} was stopped")


class SyncSteering:
    """What was sent into a running turn of a plain function, in order."""

    def __init__(self, turn: SyncTurn) -> None:
        self._turn = turn

    def poll(self) -> str | None:
        """The next message if there is one."""
        self._turn._heed()
        return self._turn._call.next_steered()

    def __iter__(self) -> Iterator[str]:
        while (text := self.poll()) is not None:
            yield text


def _text_of(text: object, verb: str) -> str:
    if not isinstance(text, str):
        raise TypeError(f"turn.{verb} takes text, not {type(text).__name__}; wrap it in str()")
    return text
