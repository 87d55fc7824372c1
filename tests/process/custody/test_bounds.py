"""Bounds: the server that is behind, the turn that writes too much, the disk that is full, and what
is seen of a tree from outside."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.custody.harness import Witness, agent, house, in_loop, python, wait_true
from turnkeeper.custody import frames
from turnkeeper.custody.program import Caps

MIB = 1 << 20
FLOOD = """
import os, sys
left, n = int(sys.argv[1]), 0
while left > 0:
    line = b"%d %s\\n" % (n, b"z" * 4000); n += 1
    data = line[:left]; left -= len(data)
    while data: data = data[os.write(1, data):]
os.write(2, b"done")
sys.stdin.readline()
"""


def flood_of(size: int) -> bytes:
    lines, length, n = [], 0, 0
    while length < size:
        lines.append(b"%d %s\n" % (n, b"z" * 4000))
        length += len(lines[-1])
        n += 1
    return b"".join(lines)[:size]


@in_loop
async def test_an_agent_waits_for_a_server_that_is_behind_and_goes_on_when_it_reads(
    tmp_path: Path,
) -> None:
    async with house(tmp_path) as custodian:
        witness, marker = Witness(), Witness()
        program = agent(*python(FLOOD, str(4 * MIB)), caps=Caps(backlog_bytes=MIB))
        hold = custodian.spawn("p1", program, witness)
        hold.pause()
        spool = tmp_path / "p" / "p1" / "out"
        await wait_true(lambda: spool.exists() and spool.stat().st_size >= MIB)
        other = custodian.spawn("p2", agent("cat"), marker)
        other.write("1", b"a while later\n")
        await marker.wait_output(b"a while later\n")
        assert spool.stat().st_size < 2 * MIB
        assert not witness.output
        hold.resume()
        await witness.wait_until(lambda: witness.end == 4 * MIB)
        assert witness.output == flood_of(4 * MIB)
        hold.kill()
        await witness.wait_gone()


LAST_WORDS = """
import os, sys
data = b"w" * int(sys.argv[1])
while data: data = data[os.write(1, data):]
sys.stdin.readline()
os.write(1, b"last words")
"""


@in_loop
async def test_what_is_left_in_the_pipe_of_a_dead_agent_is_not_lost(tmp_path: Path) -> None:
    async with house(tmp_path) as custodian:
        witness = Witness()
        program = agent(*python(LAST_WORDS, str(MIB)), caps=Caps(backlog_bytes=MIB))
        hold = custodian.spawn("p1", program, witness)
        hold.pause()
        spool = tmp_path / "p" / "p1" / "out"
        await wait_true(lambda: spool.exists() and spool.stat().st_size == MIB)
        hold.write("1", b"go\n")
        await wait_true((tmp_path / "p" / "p1" / "exit").exists)
        hold.resume()
        await witness.wait_gone()
        assert witness.output == b"w" * MIB + b"last words"
        assert witness.of("exited") == [("exited", 0, None, "")]


@in_loop
async def test_what_is_readable_can_be_had_at_once_also_while_paused(tmp_path: Path) -> None:
    async with house(tmp_path) as custodian:
        witness = Witness()
        hold = custodian.spawn("p1", agent("cat"), witness)
        await witness.wait_for("started")
        hold.pause()
        hold.write("1", b"an answer\n")
        spool = tmp_path / "p" / "p1" / "out"
        await wait_true(lambda: spool.stat().st_size == 10)
        assert not witness.output
        hold.poll()
        assert witness.output == b"an answer\n"


@in_loop
async def test_a_turn_that_writes_more_than_the_cap_is_broken_off(tmp_path: Path) -> None:
    async with house(tmp_path) as custodian:
        witness, again = Witness(), Witness()
        caps = Caps(backlog_bytes=MIB, output_bytes=2 * MIB)
        hold = custodian.spawn("p1", agent(*python(FLOOD, str(9 * MIB)), caps=caps), witness)
        hold.turn_begins("r1")
        ((_, reason, detail, retry),) = [await witness.wait_for("broken")]
        assert (reason, retry) == ("output_limit", False)
        assert "in one turn" in detail
        assert 2 * MIB <= witness.end < 3 * MIB
        hold.detach()
        hold = custodian.attach("p1", witness.end, again)
        assert (await again.wait_for("broken"))[1] == "output_limit", "told to the next server too"
        hold.terminate()
        await again.wait_gone()


@in_loop
async def test_a_new_turn_may_write_again(tmp_path: Path) -> None:
    async with house(tmp_path) as custodian:
        witness = Witness()
        hold = custodian.spawn("p1", agent("cat", caps=Caps(output_bytes=MIB)), witness)
        for turn in range(4):
            hold.turn_begins(f"r{turn}")
            hold.write(str(turn), b"w" * (MIB // 2) + b"\n")
            await witness.wait_until(lambda n=turn: witness.end == (n + 1) * (MIB // 2 + 1))  # type: ignore[misc]
        assert not witness.of("broken")


@in_loop
async def test_consumed_space_is_given_back_and_what_follows_keeps_its_place(
    tmp_path: Path,
) -> None:
    async with house(tmp_path) as custodian:
        witness, again = Witness(), Witness()
        hold = custodian.spawn("p1", agent(*python(FLOOD, str(3 * MIB))), witness)
        await witness.wait_until(lambda: witness.end == 3 * MIB)
        spool = tmp_path / "p" / "p1" / "out"
        hold.consumed(2 * MIB)
        await wait_true(lambda: spool.stat().st_blocks * 512 < 3 * MIB // 2)
        assert spool.stat().st_size == 3 * MIB
        hold.detach()
        custodian.attach("p1", 2 * MIB, again)
        await again.wait_until(lambda: again.end == 3 * MIB)
        assert again.output == flood_of(3 * MIB)[2 * MIB :]
        early = Witness()
        custodian.attach("p1", MIB, early)
        assert "is given back" in (await early.wait_for("broken"))[2]


@in_loop
async def test_a_frame_that_is_too_large_is_refused_and_breaks_nothing_else(
    tmp_path: Path,
) -> None:
    async with house(tmp_path) as custodian:
        witness = Witness()
        hold = custodian.spawn("p1", agent("cat"), witness)
        hold.write("1", bytes(frames.FRAME_MAX + 1))
        assert (await witness.wait_for("broken"))[1] == "protocol_error"
        hold.write("2", b"x" * 10_000_000 + b"\n")
        await witness.wait_for("taken")
        await witness.wait_until(lambda: witness.end == 10_000_001)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(place)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"needs leave to mount a small disk: {mounted.stderr.decode()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@in_loop
async def test_on_a_full_disk_the_agent_waits_and_nothing_is_lost(small_disk: Path) -> None:
    async with house(small_disk) as custodian:
        witness = Witness()
        hold = custodian.spawn("p1", agent(*python(FLOOD, str(6 * MIB))), witness)
        while witness.end < 6 * MIB:
            await wait_true(lambda: os.statvfs(small_disk).f_bavail == 0 or witness.end == 6 * MIB)
            before = witness.end
            hold.consumed(before)
            await wait_true(lambda n=before: witness.end > n or n == 6 * MIB)  # type: ignore[misc]
        assert witness.output == flood_of(6 * MIB)
        assert not witness.of("broken")
        hold.kill()
        await witness.wait_gone()


@in_loop
async def test_a_full_disk_does_not_keep_a_kill_from_being_confirmed(
    small_disk: Path,
) -> None:
    async with house(small_disk) as custodian:
        witness = Witness()
        hold = custodian.spawn("p1", agent(*python(FLOOD, str(6 * MIB))), witness)
        await wait_true(lambda: os.statvfs(small_disk).f_bavail == 0)
        hold.kill()
        await witness.wait_gone()
        assert bytes(witness.output) == flood_of(6 * MIB)[: witness.end]


BURN = "import subprocess, sys\n" + (
    "child = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdout=subprocess.PIPE)\n"
    "child.stdout.readline()\nprint('up', flush=True)\nchild.wait()"
)


@pytest.mark.parametrize(
    ("code", "busy"),
    [
        ("print('up', flush=True)\nwhile True: pass", True),
        ("import time; print('up', flush=True); time.sleep(1000)", False),
    ],
)
@in_loop
async def test_a_tool_that_burns_a_cpu_is_seen_at_work_and_one_that_sleeps_is_not(
    tmp_path: Path, code: str, busy: bool
) -> None:
    async with house(tmp_path) as custodian:
        witness = Witness()
        hold = custodian.spawn("p1", agent(sys.executable, "-u", "-c", BURN, code), witness)
        hold.turn_begins("r1")
        await witness.wait_output(b"up\n")
        for looks in range(1, 30):
            hold.sample()
            await witness.wait_until(lambda n=looks: len(witness.samples) == n)  # type: ignore[misc]
            burnt_s = witness.samples[-1].cpu_s - witness.samples[0].cpu_s
            if looks >= 3 and (burnt_s >= 0.05 or not busy):
                break
            clock = Witness()
            custodian.spawn(f"clock{looks}", agent("sleep", "0.3"), clock)
            await clock.wait_gone()
    first, *later = witness.samples
    assert any(sample.busy for sample in later) is busy
    assert all(sample.children == 1 for sample in later)
    assert (later[-1].cpu_s >= first.cpu_s + 0.05) is busy
    assert any(sample.state == "running" for sample in later) is busy


@in_loop
async def test_a_server_that_the_agent_had_before_the_turn_is_no_tool_at_work(
    tmp_path: Path,
) -> None:
    burning = "print('up', flush=True)\nwhile True: pass"
    async with house(tmp_path) as custodian:
        witness = Witness()
        hold = custodian.spawn("p1", agent(sys.executable, "-u", "-c", BURN, burning), witness)
        await witness.wait_output(b"up\n")
        for turn in ("", "r1"):
            if turn:
                hold.turn_begins(turn)
            for _ in range(2):
                seen = len(witness.samples)
                clock = Witness()
                custodian.spawn(f"clock{turn}{seen}", agent("sleep", "0.3"), clock)
                await clock.wait_gone()
                hold.sample()
                await witness.wait_until(lambda n=seen: len(witness.samples) > n)  # type: ignore[misc]
    assert [sample.busy for sample in witness.samples] == [False, True, False, False]


@in_loop
async def test_the_sockets_of_a_tree_are_seen(tmp_path: Path) -> None:
    code = (
        "import socket, sys\nlistening = socket.create_server(('127.0.0.1', 0))\n"
        "there = socket.create_connection(listening.getsockname())\n"
        "print(listening.getsockname()[1], flush=True)\nsys.stdin.read()"
    )
    async with house(tmp_path) as custodian:
        witness = Witness()
        hold = custodian.spawn("p1", agent(sys.executable, "-u", "-c", code), witness)
        await witness.wait_output(b"\n")
        hold.sample()
        await witness.wait_for("sample")
    port = int(witness.output)
    assert f"listening 127.0.0.1:{port}" in witness.samples[0].sockets
    assert f"established 127.0.0.1:{port}" in witness.samples[0].sockets
