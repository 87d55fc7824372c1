"""Whole trees die, confirmed: whatever they do against it, and whoever else dies first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.process.custody.agent_tree import KINDS
from tests.process.custody.harness import (
    HERE,
    Witness,
    agent,
    house,
    in_loop,
    kill_keeper,
    living_with,
    python,
    script,
    stand_still,
    wait_true,
    wait_true_blocking,
)
from turnkeeper.custody import procfs, record
from turnkeeper.custody.nurseries import RUN_NURSERY, SOURCE


@pytest.fixture
def mark() -> str:
    return uuid.uuid4().hex


@pytest.mark.parametrize("how", ["kill", "terminate"])
@pytest.mark.parametrize("kind", sorted(KINDS))
@in_loop
async def test_nothing_of_a_tree_survives(tmp_path: Path, mark: str, kind: str, how: str) -> None:
    async with house(tmp_path) as custodian:
        witness = Witness()
        hold = custodian.spawn(
            "p1", agent(*script("agent_tree.py", kind, mark), mark=mark), witness
        )
        await witness.wait_output(b"up\n")
        assert len(living_with(mark)) >= 2
        getattr(hold, how)()
        await witness.wait_gone()
        assert living_with(mark) == []


@in_loop
async def test_what_an_agent_leaves_when_it_exits_by_itself_is_ended_too(
    tmp_path: Path, mark: str
) -> None:
    async with house(tmp_path) as custodian:
        witness = Witness()
        code = "setsid sh -c 'sleep 100' & (setsid sh -c 'sleep 100' &) ; echo bye"
        custodian.spawn("p1", agent("sh", "-c", code, mark=mark), witness)
        await witness.wait_gone()
        assert living_with(mark) == []
    assert witness.output == b"bye\n"
    assert witness.of("exited") == [("exited", 0, None, "")]


SWEPT = """
import os, subprocess, sys
def start(word):
    code = "trap '' TERM; echo %s >&9; exec sleep 100" % word
    subprocess.Popen(["setsid", "sh", "-c", code], pass_fds=[9], env={**os.environ, "WORD": word})
read, write = os.pipe(); os.dup2(write, 9)
start(sys.argv[1] + "-server"); os.read(read, 100)
print("up", flush=True)
for line in sys.stdin:
    if line == "tool\\n":
        start(sys.argv[1] + "-tool"); os.read(read, 100)
    print("did", line, end="", flush=True)
"""


@in_loop
async def test_a_sweep_ends_what_the_turn_started_and_spares_the_agent_and_its_servers(
    tmp_path: Path, mark: str
) -> None:
    async with house(tmp_path) as custodian:
        witness = Witness()
        program = agent(sys.executable, "-u", "-c", SWEPT, mark, mark=mark)
        hold = custodian.spawn("p1", program, witness)
        await witness.wait_output(b"up\n")
        hold.turn_begins("r1")
        hold.write("1", b"tool\n")
        await witness.wait_output(b"did tool\n")
        hold.turn_begins("r1")  # said again after a restart: the tool is still the turn's
        assert living_with(f"WORD={mark}-tool")
        hold.sweep()
        await witness.wait_for("swept")
        assert living_with(f"WORD={mark}-tool") == []
        assert living_with(f"WORD={mark}-server")
        hold.write("2", b"next\n")
        await witness.wait_output(b"did next\n")
        hold.sweep()
        await witness.wait_until(lambda: len(witness.of("swept")) == 2)
        hold.kill()
        await witness.wait_gone()
        assert living_with(mark) == []


@pytest.mark.parametrize("how", ["kill", "terminate"])
@in_loop
async def test_a_frozen_agent_takes_no_frame_blocks_nobody_and_can_be_ended(
    tmp_path: Path, how: str
) -> None:
    async with house(tmp_path) as custodian:
        witness, other = Witness(), Witness()
        code = "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"
        hold = custodian.spawn("p1", agent(*python(code), term_s=5.0), witness)
        await witness.wait_output(b"\n")
        stand_still(int(witness.output))
        hold.write("1", b"x" * 10_000_000 + b"\n")
        hold.sample()
        await witness.wait_for("sample")
        assert witness.samples[0].state == "stopped"
        neighbour = custodian.spawn("p2", agent("cat"), other)
        neighbour.write("1", b"free\n")
        await other.wait_output(b"free\n")
        assert not witness.of("taken")
        getattr(hold, how)()
        await witness.wait_gone(4.0)
        assert not witness.of("taken")
        ended_by = signal.SIGKILL if how == "kill" else signal.SIGTERM
        assert witness.of("exited")[0][2] == ended_by, "it is woken to hear that it is to go"


@in_loop
async def test_a_keeper_killed_with_sigkill_takes_its_whole_tree_along_and_the_truth_is_told(
    tmp_path: Path, mark: str
) -> None:
    async with house(tmp_path) as custodian:
        witness = Witness()
        argv = script("agent_tree.py", "all", mark)
        hold = custodian.spawn("p1", agent(*argv, mark=mark), witness)
        await witness.wait_output(b"up\n")
        kill_keeper(hold)
        await witness.wait_gone()
        assert living_with(mark) == []
        ((_, reason, detail, retry),) = witness.of("broken")
        assert (reason, retry) == ("internal", True)
        assert "its keeper was killed" in detail
        later = Witness()
        custodian.attach("p1", 0, later)
        await later.wait_gone()
        assert later.of("broken")[0][1] == "internal"


@in_loop
async def test_a_frozen_keeper_is_killed_when_it_does_not_confirm(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnkeeper.custody.hold.KEEPER_GRACE_S", 0.3)
    async with house(tmp_path) as custodian:
        witness = Witness()
        hold = custodian.spawn("p1", agent(*script("agent_tree.py", "deaf", mark)), witness)
        await witness.wait_output(b"up\n")
        assert hold.keeper is not None
        os.kill(hold.keeper[0], signal.SIGSTOP)
        hold.kill()
        await witness.wait_gone()
        assert living_with(mark) == []


@in_loop
async def test_keepers_outlive_a_nursery_killed_with_sigkill_and_a_new_one_sees_to_them(
    tmp_path: Path, mark: str
) -> None:
    async with house(tmp_path) as custodian:
        first, second = Witness(), Witness()
        hold = custodian.spawn(
            "p1", agent(*script("agent_tree.py", "setsid", mark), mark=mark), first
        )
        await first.wait_output(b"up\n")
        assert hold.keeper is not None
        keeper = procfs.stat(hold.keeper[0])
        assert keeper is not None
        os.kill(keeper.ppid, signal.SIGKILL)
        hold.write("1", b"alive?\n")
        await first.wait_output(b"echo alive?\n")
        custodian.spawn("p2", agent("true"), second)
        await second.wait_gone()
        assert second.of("exited")[0][1] == 0
        kill_keeper(hold)  # nobody above it knows it: the tag in the environment is what is left
        await first.wait_gone()
        assert living_with(mark) == []
        assert "its keeper was killed" in first.of("broken")[0][2]


def test_a_nursery_whose_server_died_before_it_was_ready_stays_for_the_next_one(
    tmp_path: Path,
) -> None:
    (tmp_path / "p").mkdir()
    directory, (reading, writing) = os.open(tmp_path, os.O_RDONLY), os.pipe()
    os.close(reading)
    words = (SOURCE, str(tmp_path), str(directory), "id", "1", "0.3")
    with (tmp_path / "nursery.log").open("wb") as log:
        subprocess.run(
            [sys.executable, "-I", "-S", "-E", "-c", RUN_NURSERY, *words], check=True,
            stdin=subprocess.DEVNULL, stdout=writing, stderr=log, pass_fds=[directory],
        )  # fmt: skip
    lock = tmp_path / "nursery.1.lock"
    wait_true_blocking(lambda: lock.exists() and bool(lock.read_bytes()))
    pid = int(lock.read_bytes().split()[0])
    wait_true_blocking(lambda: procfs.stat(pid) is None)
    assert (tmp_path / "nursery.log").read_bytes() == b"", "it left by itself, and did not fall"
    os.close(writing)
    os.close(directory)


def _lone_server(root: Path, mark: str, orphan_s: float) -> subprocess.Popen[bytes]:
    argv = [sys.executable, str(HERE / "lone_server.py"), str(root), mark, str(orphan_s)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=HERE.parents[2])


def test_without_a_server_for_orphan_s_nothing_of_the_tree_is_left(
    tmp_path: Path, mark: str
) -> None:
    with _lone_server(tmp_path, mark, 1.0) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"up\n"
        server.kill()
        server.wait()
    assert len(living_with(mark)) >= 5, "the tree outlives its server at first"
    wait_true_blocking(lambda: living_with(mark) == [])
    place = tmp_path / "p" / "p1"
    wait_true_blocking((place / record.NAME).exists)
    said = record.decode((place / record.NAME).read_bytes())
    assert (said.how, said.cause) == (record.EXITED, "orphaned")
    wait_true_blocking(lambda: not (tmp_path / "nursery.1").exists())


@in_loop
async def test_the_dead_mans_switch_waits_while_a_server_is_there(
    tmp_path: Path, mark: str
) -> None:
    async with house(tmp_path) as custodian:
        first, second = Witness(), Witness()
        program = agent("cat", mark=mark, orphan_s=0.5)
        hold = custodian.spawn("p1", program, first)
        await first.wait_for("started")
        ticks = Witness()
        slow = custodian.spawn("p2", agent("sh", "-c", "sleep 0.8"), ticks)
        await ticks.wait_gone()
        assert slow.name == "p2"
        assert living_with(mark), "a connected server is a server"
        hold.detach()
        await wait_true(lambda: living_with(mark) == [])
        custodian.attach("p1", 0, second)
        await second.wait_gone()
        assert second.heard == [("gone",)], "no word of an exit: it was lost, and that is told"
