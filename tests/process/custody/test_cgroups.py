"""Where a cgroup can be made, the kernel ends the tree in one stroke; the walk confirms it."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.custody.harness import (
    Witness,
    agent,
    empty,
    in_loop,
    kill_keeper,
    living_with,
    nursery_above,
    script,
    stand_still,
    wait_nursery_gone,
)
from turnkeeper.custody import procfs
from turnkeeper.custody.client import Custodian


@pytest.fixture
def cgroup() -> Iterator[Path]:
    mounts = procfs.read("/proc/self/mounts").decode().splitlines()
    places = [line.split()[1] for line in mounts if line.split()[2] == "cgroup2"]
    own = Path(places[0]) / f"turnkeeper-test-{uuid.uuid4().hex}" if places else None
    try:
        assert own is not None
        own.mkdir()
        assert (own / "cgroup.kill").exists()
    except (OSError, AssertionError) as why:
        pytest.skip(f"needs a place to make cgroups in: {why}")
    yield own
    own.rmdir()


@in_loop
async def test_a_tree_is_killed_by_its_cgroup(tmp_path: Path, cgroup: Path) -> None:
    mark = uuid.uuid4().hex
    custodian = Custodian(tmp_path, linger_s=0.05, cgroup=cgroup)
    witness = Witness()
    hold = custodian.spawn("p1", agent(*script("agent_tree.py", "all", mark), mark=mark), witness)
    await witness.wait_output(b"up\n")
    (own,) = [cgroup / name for name in os.listdir(cgroup) if name.endswith("-p1")]
    assert len((own / "cgroup.procs").read_text().split()) >= 5
    hold.kill()
    await witness.wait_gone()
    assert living_with(mark) == []
    assert not own.exists()
    await empty(custodian)
    custodian.close()
    await wait_nursery_gone(tmp_path)


@in_loop
async def test_with_a_cgroup_nothing_is_left_in_doubt_when_keeper_and_nursery_are_killed(
    tmp_path: Path, cgroup: Path
) -> None:
    mark = uuid.uuid4().hex
    custodian = Custodian(tmp_path, linger_s=0.05, cgroup=cgroup)
    witness = Witness()
    hold = custodian.spawn("p1", agent(*script("agent_tree.py", "all", mark), mark=mark), witness)
    await witness.wait_output(b"up\n")
    nursery = nursery_above(hold)
    stand_still(nursery)
    kill_keeper(hold)
    os.kill(nursery, signal.SIGKILL)
    await witness.wait_gone()
    assert living_with(mark) == []
    detail = witness.of("broken")[0][2]
    assert "its control group was ended and is empty" in detail
    assert "would not" not in detail
    assert custodian.forget("p1")
    custodian.close()
    await wait_nursery_gone(tmp_path)


@in_loop
async def test_where_none_can_be_made_custody_goes_on_without(tmp_path: Path) -> None:
    custodian = Custodian(tmp_path / "c", linger_s=0.05, cgroup=tmp_path / "no" / "such" / "place")
    witness = Witness()
    hold = custodian.spawn("p1", agent("cat"), witness)
    await witness.wait_for("started")
    hold.kill()
    await witness.wait_gone()
    custodian.close()
    await wait_nursery_gone(tmp_path / "c")
