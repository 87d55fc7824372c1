"""What all process agents share: a codec on custody, under the real runtime too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.process.custody.harness import house, in_loop
from tests.process.custody.linecodec import LineAgent
from turnkeeper.core import signals as s
from turnkeeper.core.effects import Answer, Interrupt, Say
from turnkeeper.core.limits import Limits
from turnkeeper.ports import Opening

WAIT_S = 20.0


def opening(run: str = "r1", turn_pos: int = 0) -> Opening:
    return Opening("r1.1", "s1", run, None, "/", Limits(), turn_pos)


class Sink:
    """Remembers what was said, by whom and up to where."""

    def __init__(self) -> None:
        self.groups: list[s.Group] = []
        self._changed = asyncio.Event()

    def __call__(self, group: s.Group) -> None:
        self.groups.append(group)
        self._changed.set()

    def of(self, kind: type[s.Signal], run: str | None = None) -> list[Any]:
        return [
            signal
            for group in self.groups
            for signal in group.signals
            if isinstance(signal, kind) and run in (None, group.run)
        ]

    async def wait_until(self, fact: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not fact():
                self._changed.clear()
                await self._changed.wait()

    async def wait_for(self, kind: type[s.Signal], count: int = 1) -> None:
        await self.wait_until(lambda: len(self.of(kind)) >= count)


@in_loop
async def test_two_turns_on_one_process_are_heard_in_order_and_belong_to_their_runs(
    tmp_path: Path,
) -> None:
    async with house(tmp_path) as custodian:
        sink = Sink()
        link = LineAgent(custodian).open(opening(), sink)
        await sink.wait_for(s.Ready)
        assert sink.of(s.Ready) == [s.Ready("c1")]
        link.write(1, Say("r1", "m1", "hello there"))
        await sink.wait_for(s.Finished)
        assert sink.of(s.Taken) == [s.Taken(1)], "told once, when its last frame is through"
        link.ready_for("r2")
        await sink.wait_for(s.Ready, 2)
        link.write(2, Say("r2", "m2", "again"))
        link.write(3, Answer("r2", "q", True))
        await sink.wait_for(s.Finished, 2)
        await sink.wait_for(s.Taken, 3)
        assert sink.of(s.Text, "r1") == [s.Text("hello there")]
        assert sink.of(s.Text, "r2") == [s.Text("again")]
        positions = [group.pos for group in sink.groups]
        assert positions == sorted(positions)
        assert positions[-1] == sum(
            map(len, ("ask who\n", "ready\n", "text hello there\ndone\n", "text again\ndone\n"))
        )
        link.kill()
        await sink.wait_for(s.Gone)


@in_loop
async def test_an_exit_in_mid_turn_is_told_with_its_code_and_last_words(tmp_path: Path) -> None:
    async with house(tmp_path) as custodian:
        sink = Sink()
        link = LineAgent(custodian).open(opening(), sink)
        await sink.wait_for(s.Ready)
        link.write(1, Say("r1", "m1", "die"))
        await sink.wait_for(s.Gone)
    exited = s.Exited(4, "it exited with code 4; its last words: no more")
    assert sink.of(s.Exited) == [exited]
    assert isinstance(sink.groups[-1].signals[0], s.Gone)


@in_loop
async def test_a_program_that_is_not_there_is_broken_and_gone(tmp_path: Path) -> None:
    async with house(tmp_path) as custodian:
        sink = Sink()
        agent = LineAgent(custodian)
        agent.argv = ("no-such-agent",)
        agent.open(opening(), sink)
        await sink.wait_for(s.Gone)
    assert sink.of(s.Broken)[0].reason == "spawn_failed"


@pytest.mark.parametrize("stored", [0, 1, 3, 40])
@in_loop
async def test_after_a_restart_only_what_was_not_stored_is_told(
    tmp_path: Path, stored: int
) -> None:
    """The core has stored the first `stored` groups; a new driver goes on from there."""
    async with house(tmp_path) as custodian:
        first, second = Sink(), Sink()
        link = LineAgent(custodian).open(opening(), first)
        await first.wait_for(s.Ready)
        link.write(1, Say("r1", "m1", "count 200"))
        await first.wait_for(s.Text, 50)
        link.detach()
        known = [g for g in first.groups if not isinstance(g.signals[0], s.Taken)][:stored]
        pos = known[-1].pos if known else 0
        again = LineAgent(custodian).reattach(opening(), pos, second)
        again.write(1, Say("r1", "m1", "count 200"))  # the core says it again; it is not done again
        await second.wait_for(s.Finished)
        told = [x for g in known for x in g.signals if isinstance(x, s.Text)] + second.of(s.Text)
        assert told == [s.Text(str(n)) for n in range(200)]
        assert second.of(s.Ready) == [s.Ready("c1")], "it is ready, and that is told"
        assert second.of(s.Taken) == [s.Taken(1)]
        assert all(group.pos >= pos for group in second.groups)
        again.kill()
        await second.wait_for(s.Gone)


@in_loop
async def test_a_later_turn_is_taken_up_from_its_own_beginning(tmp_path: Path) -> None:
    async with house(tmp_path) as custodian:
        first, second = Sink(), Sink()
        link = LineAgent(custodian).open(opening(), first)
        await first.wait_for(s.Ready)
        link.write(1, Say("r1", "m1", "one"))
        await first.wait_for(s.Finished)
        turn_pos = first.groups[-1].pos
        link.ready_for("r2")
        link.detach()
        again = LineAgent(custodian).reattach(opening("r2", turn_pos), turn_pos, second)
        await second.wait_for(s.Ready)
        again.write(2, Say("r2", "m2", "two"))
        await second.wait_for(s.Finished)
        assert second.of(s.Text) == [s.Text("two")]
        assert second.groups[-1].pos == turn_pos + len("text two\ndone\n")
        again.kill()
        await second.wait_for(s.Gone)


@in_loop
async def test_nothing_left_is_gone_after_a_restart(tmp_path: Path) -> None:
    async with house(tmp_path) as custodian:
        sink = Sink()
        LineAgent(custodian).reattach(opening(), 0, sink)
        await sink.wait_for(s.Gone)
    assert [group.signals for group in sink.groups] == [(s.Gone(),)]


@in_loop
async def test_the_process_is_looked_at_while_a_run_is_on_and_not_after(tmp_path: Path) -> None:
    async with house(tmp_path) as custodian:
        sink = Sink()
        link = LineAgent(custodian, sample_s=0.02).open(opening(), sink)
        await sink.wait_for(s.Sampled, 3)
        link.write(1, Say("r1", "m1", "hello"))
        await sink.wait_for(s.Finished)
        link.write(2, Say("r1", "m1", "more"))
        await sink.wait_for(s.Finished, 2)
        seen = len(sink.of(s.Sampled))
        link.write(3, Say("r1", "m1", "count 100"))
        await sink.wait_for(s.Finished, 3)
        assert len(sink.of(s.Sampled)) == seen
        link.kill()
        await sink.wait_for(s.Gone)


@in_loop
async def test_an_interrupt_is_written_like_any_frame(tmp_path: Path) -> None:
    async with house(tmp_path) as custodian:
        sink = Sink()
        link = LineAgent(custodian).open(opening(), sink)
        await sink.wait_for(s.Ready)
        link.write(1, Say("r1", "m1", "hang"))
        await sink.wait_for(s.Text)
        link.write(2, Interrupt("r1"))
        await sink.wait_for(s.Aborted)
        link.sweep()
        await sink.wait_for(s.Swept)
        link.kill()
        await sink.wait_for(s.Gone)
