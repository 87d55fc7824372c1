"""Watching: everyone reads the one log by cursor; nobody misses, repeats or delays anything."""

from __future__ import annotations

import asyncio

import pytest

from tests.helpers.shell import FakeStore, event, settle
from turnkeeper.core.errors import GAP
from turnkeeper.core.events import Event, OutputText
from turnkeeper.ports import Batch
from turnkeeper.runtime import fanout
from turnkeeper.runtime.fanout import TAIL_BYTES, TAIL_EVENTS, CutOff, Fanout, Watcher
from turnkeeper.testing.virtual import run


class Log:
    """A session's log that is stored first and published then, as the actor does it."""

    def __init__(self, behind_max: int = 100) -> None:
        self.store = FakeStore()
        self.fanout = Fanout(self.store, behind_max)
        self.head = 0
        self._epoch = 0

    async def write(self, count: int, *, publish: bool = True, words: str = "x") -> list[Event]:
        if not self._epoch:
            self._epoch = await self.store.claim("s_1")
        events = [event(self.head + n, OutputText(words)) for n in range(1, count + 1)]
        self.head += count
        await self.store.append(Batch("s_1", self._epoch, events, unfinished=True))
        if publish:
            self.fanout.publish("s_1", events)
        return events


async def take(watcher: Watcher, count: int) -> list[int]:
    """The numbers of the next so many events."""
    seen: list[int] = []
    while len(seen) < count:
        seen += [found.seq for found in await watcher.next()]
    return seen


def test_a_watcher_gets_what_was_there_and_then_what_comes() -> None:
    async def main() -> None:
        log = Log()
        await log.write(5)
        watcher = await log.fanout.watch("s_1")
        assert await take(watcher, 5) == [1, 2, 3, 4, 5]
        await log.write(2)
        assert await take(watcher, 2) == [6, 7]

    run(main())


@pytest.mark.parametrize("after", [0, 1, 4, 5])
def test_a_watcher_joins_after_its_cursor_without_gap_or_repetition(after: int) -> None:
    async def main() -> None:
        log = Log()
        await log.write(5)
        watcher = await log.fanout.watch("s_1", after)
        await log.write(5)
        assert await take(watcher, 10 - after) == list(range(after + 1, 11))

    run(main())


def test_who_joins_finds_more_than_was_told_and_those_who_wait_get_it_too() -> None:
    async def main() -> None:
        log = Log()
        await log.write(2)
        first = await log.fanout.watch("s_1")
        assert await take(first, 2) == [1, 2]
        waiting = asyncio.ensure_future(take(first, 3))
        await settle()
        await log.write(3, publish=False)  # another node did
        second = await log.fanout.watch("s_1")
        log.fanout.announce("s_1", 5)
        assert await take(second, 5) == [1, 2, 3, 4, 5]
        async with asyncio.timeout(1.0):
            assert await waiting == [3, 4, 5]

    run(main())


def test_live_and_replay_are_the_same_events() -> None:
    async def main() -> None:
        log = Log()
        live = await log.fanout.watch("s_1")
        seen: list[Event] = []
        for _ in range(20):
            await log.write(3)
            seen += await live.next()
        replay = await log.fanout.watch("s_1")
        again: list[Event] = []
        while len(again) < 60:
            again += await replay.next()
        assert seen == again == await log.store.log("s_1")

    run(main())


def test_a_watcher_that_joins_between_storing_and_publishing_sees_the_event_once() -> None:
    async def main() -> None:
        log = Log()
        events = await log.write(3, publish=False)
        watcher = await log.fanout.watch("s_1")
        assert await take(watcher, 3) == [1, 2, 3]
        log.fanout.publish("s_1", events)
        await log.write(1)
        assert await take(watcher, 1) == [4]

    run(main())


def test_a_watcher_that_replays_while_more_is_written_misses_nothing() -> None:
    async def main() -> None:
        log = Log(behind_max=10_000)
        await log.write(3000)
        watcher = await log.fanout.watch("s_1")
        seen: list[int] = []
        while len(seen) < 4000:
            seen += [found.seq for found in await watcher.next()]
            if log.head < 4000:
                await log.write(100)
        assert seen == list(range(1, 4001))

    run(main())


def test_watchers_of_another_session_are_not_woken() -> None:
    async def main() -> None:
        log = Log()
        other = await log.fanout.watch("s_2")
        waiting = asyncio.ensure_future(other.next())
        await log.write(3)
        await settle()
        assert not waiting.done()
        other.close()
        assert await waiting == []

    run(main())


def test_a_watcher_that_reads_too_slowly_is_cut_off_with_its_cursor_and_can_come_back() -> None:
    async def main() -> None:
        log = Log(behind_max=10)
        slow = await log.fanout.watch("s_1")
        await log.write(2)
        assert await take(slow, 2) == [1, 2]
        for _ in range(11):
            await log.write(1)
        with pytest.raises(CutOff) as cut:
            await slow.next()
        assert (cut.value.cursor, cut.value.head) == (2, 13)
        assert cut.value.entry is GAP
        back = await log.fanout.watch("s_1", cut.value.cursor)
        assert await take(back, 11) == list(range(3, 14))

    run(main())


def test_a_watcher_that_is_just_not_too_slow_is_not_cut_off() -> None:
    async def main() -> None:
        log = Log(behind_max=10)
        watcher = await log.fanout.watch("s_1")
        for _ in range(10):
            await log.write(1)
        assert await take(watcher, 10) == list(range(1, 11))

    run(main())


def test_a_watcher_that_was_cut_off_stays_cut_off() -> None:
    async def main() -> None:
        log = Log(behind_max=1)
        slow = await log.fanout.watch("s_1")
        await log.write(5)
        for _ in range(2):
            with pytest.raises(CutOff):
                await slow.next()

    run(main())


def test_one_stuck_watcher_delays_nobody() -> None:
    async def main() -> None:
        log = Log(behind_max=50)
        stuck = await log.fanout.watch("s_1")
        quick = await log.fanout.watch("s_1")
        seen: list[int] = []
        for _ in range(200):
            await log.write(1)
            seen += [found.seq for found in await quick.next()]
        assert seen == list(range(1, 201))
        assert stuck.is_cut
        assert asyncio.get_running_loop().time() == 0.0

    run(main())


def test_what_is_kept_for_watchers_is_bounded() -> None:
    async def main() -> None:
        log = Log(behind_max=10**9)
        stuck = await log.fanout.watch("s_1")
        for _ in range(5):
            await log.write(TAIL_EVENTS)
        kept = log.fanout._tails["s_1"].pieces
        assert sum(len(piece.events) for piece in kept) == TAIL_EVENTS
        assert await take(stuck, 5 * TAIL_EVENTS) == list(range(1, 5 * TAIL_EVENTS + 1))

    run(main())


def test_what_everybody_has_read_is_not_kept() -> None:
    async def main() -> None:
        log = Log(behind_max=10**9)
        quick, slow = await log.fanout.watch("s_1"), await log.fanout.watch("s_1")
        for _ in range(10):
            await log.write(10)
            await quick.next()
        assert [piece.first for piece in log.fanout._tails["s_1"].pieces] == [*range(1, 101, 10)]
        assert await take(slow, 100) == list(range(1, 101))
        await log.write(1)
        assert [piece.first for piece in log.fanout._tails["s_1"].pieces] == [101]

    run(main())


def test_with_much_kept_for_all_only_the_newest_is_kept_of_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fanout, "KEPT_BYTES", 2000)

    async def main() -> None:
        log = Log(behind_max=10**9)
        slow = await log.fanout.watch("s_1")
        for _ in range(20):
            await log.write(2, words="x" * 1500)
        assert [piece.first for piece in log.fanout._tails["s_1"].pieces] == [39]
        assert await take(slow, 40) == list(range(1, 41))

    run(main())


def test_nothing_is_kept_where_nobody_watches() -> None:
    async def main() -> None:
        log = Log()
        watcher = await log.fanout.watch("s_1")
        await log.write(10)
        watcher.close()
        await log.write(10)
        assert log.fanout._tails == {}

    run(main())


def test_closing_a_watcher_ends_its_reader() -> None:
    async def main() -> None:
        log = Log()
        await log.write(2)
        watcher = await log.fanout.watch("s_1")
        seen = []
        async for found in watcher:
            seen.append(found.seq)
            if found.seq == 2:
                asyncio.get_running_loop().call_soon(watcher.close)
        assert seen == [1, 2]

    run(main())


def test_closing_the_fanout_ends_every_reader() -> None:
    async def main() -> None:
        log = Log()
        readers = [asyncio.ensure_future((await log.fanout.watch("s_1")).next()) for _ in range(3)]
        await settle()
        log.fanout.close()
        assert await asyncio.gather(*readers) == [[], [], []]

    run(main())


def test_a_watcher_that_cannot_begin_is_not_kept() -> None:
    async def main() -> None:
        log = Log()
        log.store.down = True
        with pytest.raises(Exception, match="it is down"):
            await log.fanout.watch("s_1")
        assert log.fanout._tails == {}

    run(main())


def test_what_is_kept_for_watchers_is_bounded_in_bytes_too() -> None:
    async def main() -> None:
        log = Log()
        watcher = await log.fanout.watch("s_1")
        for _ in range(40):
            await log.write(1, words="x" * (TAIL_BYTES // 4))
        kept = log.fanout._tails["s_1"].pieces
        assert 0 < sum(len(line) for piece in kept for line in piece.lines) <= TAIL_BYTES
        assert await take(watcher, 40) == list(range(1, 41))

    run(main())


def test_whatever_is_kept_for_one_who_is_slow_each_reads_on_from_its_own_cursor() -> None:
    async def main() -> None:
        log = Log()
        await log.write(3)
        slow = await log.fanout.watch("s_1", 1)
        for count in (1, 4, 2, 7, 1):
            await log.write(count)
        watchers = [await log.fanout.watch("s_1", after) for after in range(3, log.head)]
        log.store.down = True  # all of that is in memory
        for watcher in watchers:
            left = range(watcher.cursor + 1, log.head + 1)
            assert await take(watcher, len(left)) == [*left]
        log.store.down = False
        assert await take(slow, log.head - 1) == [*range(2, log.head + 1)]

    run(main())
