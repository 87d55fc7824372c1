"""A hold tells that a frame was taken before anything that the agent said after it."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

from tests.process.custody.harness import Witness, in_loop, wait_true
from turnkeeper.custody import frames
from turnkeeper.custody.hold import Hold
from turnkeeper.custody.program import Program


class House:
    """As much of a custodian as a hold needs."""

    epoch = 1

    def __init__(self, place: Path) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._place = place

    def directory_of(self, name: str) -> int:
        return os.open(self._place, os.O_RDONLY | os.O_DIRECTORY)

    def keeper_of(self, name: str) -> tuple[int, int] | None:
        return None

    def answered(self, hold: Hold) -> None: ...

    def search(self, hold: Hold) -> None: ...

    def tend(self, name: str) -> None: ...

    def again(self, hold: Hold, first: bytes) -> None: ...

    def forget_hold(self, hold: Hold) -> None: ...


class Ear(Witness):
    """Also remembers when output came."""

    def on_output(self, data: bytes, end: int) -> None:
        super().on_output(data, end)
        self._note("output", data)


def held(place: Path, program: Program | None) -> tuple[Hold, Ear, socket.socket]:
    """A hold on a keeper that is played by whoever has the other socket."""
    ear = Ear()
    hold = Hold(House(place), "p1", ear, 0, program)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    hold.write("7", b"steer\n")
    hold.connected(ours, frames.pack(frames.ATTACH, bytes(16)))
    return hold, ear, theirs


HELLO = frames.pack(frames.HELLO, b"1 1 1 1 5 0")
TAKEN = frames.pack(frames.TAKEN, b"7")


@in_loop
async def test_what_was_taken_in_a_former_life_is_told_before_what_was_said_since(
    tmp_path: Path,
) -> None:
    (tmp_path / "out").write_bytes(b"said\n")
    hold, ear, keeper = held(tmp_path, None)
    keeper.send(HELLO)
    await wait_true(lambda: hold.keeper is not None)
    hold.poll()
    assert ear.heard == []
    keeper.send(TAKEN + frames.pack(frames.ECHOED))
    await ear.wait_for("output")
    assert ear.heard == [("taken", "7"), ("output", b"said\n")]
    hold.detach()
    keeper.close()


@in_loop
async def test_a_keeper_is_asked_for_an_echo_after_all_that_is_said_again(tmp_path: Path) -> None:
    hold, _, keeper = held(tmp_path, None)
    said = frames.Inbox().feed(keeper.recv(1 << 16))
    assert [kind for kind, _ in said] == [frames.ATTACH, frames.WRITE, frames.ECHO]
    hold.detach()
    keeper.close()


@in_loop
async def test_a_poll_hears_what_was_taken_before_it_reads_what_was_said(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"")
    hold, ear, keeper = held(tmp_path, Program(argv=("x",), cwd="/", env={}))
    keeper.send(HELLO)
    await ear.wait_for("started")
    keeper.send(TAKEN)
    (tmp_path / "out").write_bytes(b"said\n")
    hold.poll()
    assert ear.heard == [("started",), ("taken", "7"), ("output", b"said\n")]
    hold.detach()
    keeper.close()


@in_loop
async def test_a_bell_that_is_heard_while_reading_is_not_forgotten(tmp_path: Path) -> None:
    spool = tmp_path / "out"
    spool.write_bytes(b"one\n")
    hold, ear, keeper = held(tmp_path, Program(argv=("x",), cwd="/", env={}))
    keeper.send(HELLO)
    await ear.wait_output(b"one\n")
    for number in range(2, 50):
        said = b"%d\n" % number
        with spool.open("ab") as file:
            file.write(said)
        keeper.send(frames.number(frames.BELL, spool.stat().st_size))
        await ear.wait_output(said)
    hold.detach()
    keeper.close()
