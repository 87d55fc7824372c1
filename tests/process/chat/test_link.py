"""The links of model APIs and remote agents keep to the rules of `ports.Link`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.process.a2a.server import a2a_server
from tests.process.chat.harness import KEY, in_loop, options_for
from turnkeeper.core import effects as f
from turnkeeper.core import signals as s
from turnkeeper.core.limits import Limits
from turnkeeper.drivers.a2a import A2AAgent, A2AOptions
from turnkeeper.drivers.chat import ChatAgent
from turnkeeper.drivers.chat_link import TaskLink
from turnkeeper.ports import Opening
from turnkeeper.testing.model import LoopbackModel

WAIT_S = 20.0
KINDS = ["chat", "a2a"]
each_kind = pytest.mark.parametrize("kind", KINDS)
SILENT = {"chat": "stall-after 2", "a2a": "hold 2"}
LONG = {"chat": "stream 20 chunks 0.005", "a2a": "stream 20"}


class Heard:
    """Everything that a link reported."""

    def __init__(self) -> None:
        self.groups: list[s.Group] = []
        self._changed = asyncio.Event()
        self.link: TaskLink

    def sink(self, group: s.Group) -> None:
        self.groups.append(group)
        self._changed.set()

    @property
    def signals(self) -> list[s.AgentSignal]:
        found = [signal for group in self.groups for signal in group.signals]
        return [signal for signal in found if not isinstance(signal, s.Heartbeat | s.Conversation)]

    @property
    def text(self) -> str:
        return "".join(signal.text for signal in self.signals if isinstance(signal, s.Text))

    async def wait(self, kind: type[s.Signal]) -> None:
        await self.wait_until(lambda: any(isinstance(signal, kind) for signal in self.signals))

    async def wait_until(self, fact: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not fact():
                self._changed.clear()
                await self._changed.wait()

    def say(self, text: str, frame: int = 1, run: str = "r_1") -> None:
        self.link.write(frame, f.Say(run, f"m_{frame}", text))


@asynccontextmanager
async def opened(kind: str, place: Path) -> AsyncIterator[Heard]:
    """A link that is ready."""
    heard = Heard()
    opening = Opening("r_1.1", "s_1", "r_1", None, str(place), Limits())
    with LoopbackModel() as model:
        async with a2a_server() as server:
            agent: ChatAgent | A2AAgent
            if kind == "chat":
                agent = ChatAgent(options_for(model, "anthropic"), environ={"MODEL_KEY": KEY})
            else:
                agent = A2AAgent(A2AOptions(url=server.url), environ={})
            heard.link = agent.open(opening, heard.sink)
            await heard.wait(s.Ready)
            try:
                yield heard
            finally:
                heard.link.detach()
                await agent.aclose()


@each_kind
@in_loop
async def test_a_kill_at_any_moment_is_confirmed_once_and_nothing_follows(
    kind: str, tmp_path: Path
) -> None:
    for ticks in (0, 1, 2, 5, 20):
        async with opened(kind, tmp_path) as heard:
            heard.say(SILENT[kind])
            for _ in range(ticks):
                await asyncio.sleep(0.001)
            heard.link.kill()
            heard.link.kill()
            await heard.wait(s.Gone)
            heard.link.write(2, f.Interrupt("r_1"))
            heard.link.sweep()
            heard.link.terminate()
            heard.link.kill()
            heard.link.resume()
            heard.link.poll()
            await asyncio.sleep(0.01)
            assert heard.signals.count(s.Gone()) == 1
            assert heard.signals[-1] == s.Gone()


@each_kind
@in_loop
async def test_an_idle_link_goes_when_it_is_asked_to(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as heard:
        heard.link.terminate()
        await heard.wait(s.Gone)


@each_kind
@in_loop
async def test_a_link_that_is_asked_to_go_in_the_middle_of_a_turn_goes(
    kind: str, tmp_path: Path
) -> None:
    async with opened(kind, tmp_path) as heard:
        heard.say(SILENT[kind])
        await heard.wait(s.Text)
        heard.link.terminate()
        await heard.wait(s.Gone)
        assert not any(isinstance(signal, s.BOUNDARY) for signal in heard.signals)


@each_kind
@in_loop
async def test_a_kill_does_not_wait_for_a_store_that_is_behind(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as heard:
        heard.say(SILENT[kind])
        heard.link.pause()
        heard.link.kill()
        await heard.wait(s.Gone)


@each_kind
@in_loop
async def test_every_frame_is_taken_once_and_a_repeated_one_is_not_played_again(
    kind: str, tmp_path: Path
) -> None:
    async with opened(kind, tmp_path) as heard:
        heard.say("say hello")
        heard.say("say hello")
        await heard.wait(s.Finished)
        assert heard.signals.count(s.Taken(1)) == 2
        assert heard.text == "hello"


@each_kind
@in_loop
async def test_while_it_is_paused_nothing_is_told_and_nothing_is_lost(
    kind: str, tmp_path: Path
) -> None:
    async with opened(kind, tmp_path) as heard:
        heard.link.pause()
        heard.say(LONG[kind])
        await heard.wait_until(lambda: heard.signals[-1] == s.Taken(1))
        for _ in range(20):
            await asyncio.sleep(0.005)
        assert heard.signals == [s.Ready(heard_conversation(heard)), s.Taken(1)]
        heard.link.resume()
        await heard.wait(s.Finished)
        assert heard.text.split()[::19] == [heard.text.split()[0], heard.text.split()[-1]]
        assert len(heard.text.split()) == 20


def heard_conversation(heard: Heard) -> str | None:
    return next(x.conversation for x in heard.signals if isinstance(x, s.Ready))


@each_kind
@in_loop
async def test_an_interrupt_of_another_run_or_after_the_end_is_ignored(
    kind: str, tmp_path: Path
) -> None:
    async with opened(kind, tmp_path) as heard:
        heard.say(LONG[kind])
        heard.link.write(2, f.Interrupt("r_0"))
        await heard.wait(s.Finished)
        heard.link.write(3, f.Interrupt("r_1"))
        await heard.wait_until(lambda: heard.signals[-1] == s.Taken(3))
        await asyncio.sleep(0.01)
        assert not any(isinstance(signal, s.Aborted) for signal in heard.signals)
        assert heard.signals[-1] == s.Taken(3)


@each_kind
@in_loop
async def test_an_interrupted_turn_is_aborted_and_the_next_one_is_heard_as_its_own(
    kind: str, tmp_path: Path
) -> None:
    async with opened(kind, tmp_path) as heard:
        heard.say(SILENT[kind])
        await heard.wait(s.Text)
        heard.link.write(2, f.Interrupt("r_1"))
        await heard.wait(s.Aborted)
        heard.link.sweep()
        await heard.wait(s.Swept)
        heard.link.ready_for("r_2")
        heard.say("say next", 3, "r_2")
        await heard.wait(s.Finished)
        assert {g.run for g in heard.groups if s.Text("next") in g.signals} == {"r_2"}


@each_kind
@in_loop
async def test_a_link_that_is_let_go_of_says_no_more(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as heard:
        heard.say(LONG[kind])
        await heard.wait(s.Text)
        heard.link.detach()
        before = len(heard.groups)
        heard.link.kill()
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert len(heard.groups) == before
