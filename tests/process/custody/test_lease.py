"""The time that a node has its agents for: they end with it, whatever their server does."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest

from tests.process.custody.harness import (
    Witness,
    agent,
    empty,
    house,
    in_loop,
    living_with,
    script,
    wait_nursery_gone,
    wait_true,
)
from turnkeeper.custody import lease, record
from turnkeeper.custody.client import Custodian
from turnkeeper.custody.place import PROCESSES

LONG_S = 600.0


@pytest.fixture
def mark() -> str:
    return uuid.uuid4().hex


def said_of(root: Path, name: str) -> record.Exit:
    directory = os.open(root / PROCESSES / name, os.O_RDONLY)
    try:
        said = record.read(directory)
    finally:
        os.close(directory)
    assert said is not None
    return said


async def leave(custodian: Custodian, root: Path) -> None:
    await empty(custodian)
    custodian.close()
    await wait_nursery_gone(root)


@in_loop
async def test_a_tree_dies_with_the_time_of_its_node_though_its_server_is_there(
    tmp_path: Path, mark: str
) -> None:
    lease.write(str(tmp_path), 1.0)
    custodian, witness = Custodian(tmp_path, linger_s=0.05, leased=True), Witness()
    custodian.spawn("p1", agent(*script("agent_tree.py", "all", mark), mark=mark), witness)
    await witness.wait_for("started")
    await witness.wait_gone()
    assert living_with(mark) == []
    assert said_of(tmp_path, "p1").cause == record.ORPHANED
    assert "lease_s" in said_of(tmp_path, "p1").detail
    await leave(custodian, tmp_path)


@in_loop
async def test_a_time_that_is_said_anew_goes_on(tmp_path: Path, mark: str) -> None:
    lease.write(str(tmp_path), 2.0)
    over_at = lease.now() + 2.0
    custodian, witness = Custodian(tmp_path, linger_s=0.05, leased=True), Witness()
    hold = custodian.spawn("p1", agent("cat", mark=mark), witness)
    lease.write(str(tmp_path), LONG_S)
    await wait_true(lambda: lease.now() > over_at)
    hold.write("f1", b"alive\n")
    await witness.wait_output(b"alive")
    assert not witness.of("gone")
    await leave(custodian, tmp_path)


@in_loop
async def test_without_a_time_nothing_is_started_for_long(tmp_path: Path, mark: str) -> None:
    custodian = Custodian(tmp_path, linger_s=0.05, leased=True)
    witness = Witness()
    custodian.spawn("p1", agent("cat", mark=mark), witness)
    await witness.wait_gone()
    assert living_with(mark) == []
    await leave(custodian, tmp_path)


@in_loop
async def test_where_there_are_no_nodes_a_time_that_somebody_left_there_means_nothing(
    tmp_path: Path, mark: str
) -> None:
    lease.write(str(tmp_path), 0.0)
    async with house(tmp_path) as custodian:
        witness = Witness()
        hold = custodian.spawn("p1", agent("cat", mark=mark), witness)
        hold.write("f1", b"hello\n")
        await witness.wait_output(b"hello")
