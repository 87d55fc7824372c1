"""A turn's clean-up: when it may say that nothing is left."""

from __future__ import annotations

import time

import pytest

from turnkeeper.custody import procfs, reaper
from turnkeeper.custody.turn import Turn

AGENT = 7


def process(pid: int, state: str) -> procfs.Stat:
    fields = [state.encode(), b"1", b"1", b"1", *[b"0"] * 15, b"100"]
    return procfs.Stat(pid, fields)


class Looks:
    """What one look after the other finds; the last one is found again and again."""

    def __init__(self, *looks: list[procfs.Stat]) -> None:
        self._looks = list(looks)

    def __call__(self, root: int) -> list[procfs.Stat]:
        found = self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]
        return [process(AGENT, "S"), *found]


def sweeping(patch: pytest.MonkeyPatch, *looks: list[procfs.Stat]) -> Turn:
    patch.setattr(procfs, "descendants", Looks(*looks))
    patch.setattr(reaper, "send", lambda one, signal: True)
    turn = Turn(AGENT)
    turn.sweep(60.0)
    return turn


def test_an_orphan_that_moved_behind_a_looks_back_is_not_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parent_died = [process(8, "Z")]
    orphan = [process(9, "S")]
    turn = sweeping(monkeypatch, parent_died, orphan, [])
    assert [turn.sweep_on(time.monotonic()) for _ in range(4)] == [False, False, False, True]
    assert turn.sweep_at is None


def test_one_that_forks_and_dies_at_every_look_is_not_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hops = [[process(pid, "Z")] for pid in range(10, 20)]
    turn = sweeping(monkeypatch, *hops, [])
    assert [turn.sweep_on(time.monotonic()) for _ in range(12)] == [False] * 11 + [True]


def test_the_dead_that_nobody_reaps_hold_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = sweeping(monkeypatch, [process(8, "Z")])
    assert [turn.sweep_on(time.monotonic()) for _ in range(2)] == [False, True]
