"""A tree of runs is stopped whole, survives its server, and each end in it is told once."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from tests.helpers.load import Stopwatch
from tests.process.children.scene import (
    DRAIN_S,
    TERM_S,
    begin,
    below,
    children_house,
    ended,
    living,
    marks,
    post,
    runs,
    text_of,
    told,
    until,
)

WIDTHS = [4, 4]
CHILDREN = 20
LEAVES = 16
STOP_S = DRAIN_S + TERM_S + 1.0
"""A stop is promised to take no longer, whatever the agents do; time for which the machine let
processes wait is not counted (`Stopwatch`)."""


pytestmark = pytest.mark.timeout(300)


def plan(where: Path, *, deaf: bool = False) -> str:
    return json.dumps({"widths": WIDTHS, "where": str(where), "name": "0", "deaf": deaf})


def test_stopping_the_root_of_a_tree_leaves_no_run_open_and_no_process_alive(
    tmp_path: Path,
) -> None:
    where = tmp_path / "marks"
    where.mkdir()
    with children_house(tmp_path) as home:
        load = [begin(home, "chatter", "go")[0] for _ in range(2)]
        root, session = begin(home, "tree", plan(where, deaf=True))
        until("every leaf waits", lambda: len(marks(where, "waits")) == LEAVES)
        assert len(below(home, root)) == CHILDREN
        standing_by = {int(pid) for pid in marks(where, "root")}
        assert len(standing_by) == 1
        assert standing_by < living(tmp_path)
        assert len(living(tmp_path)) == 2 * (CHILDREN + 1)
        watch = Stopwatch()
        assert post(home, f"/v1/runs/{root}/stop")[0] == 200
        until("no process lives", lambda: living(tmp_path) <= standing_by)
        until("no run is open", lambda: all(run["outcome"] for run in below(home, root)))
        assert watch.s < STOP_S
        found = below(home, root)
        assert len(found) == CHILDREN
        assert {run["outcome"]["kind"] for run in found} == {"cancelled"}
        assert {run["outcome"]["reason"] for run in found} == {"parent_ended"}
        assert ended(home, root)["reason"] == "stopped"
        sessions = {session, *(run["session"] for run in found)}
        until("every end is told", lambda: sum(told(home, sessions)[1].values()) == CHILDREN)
        started, over = told(home, sessions)
        assert set(over.values()) == {1}
        assert started == over
        assert all(home.get(f"/v1/runs/{run}")["state"] == "running" for run in load)


def test_every_childs_result_is_delivered_once_though_the_server_was_killed(
    tmp_path: Path,
) -> None:
    where = tmp_path / "marks"
    where.mkdir()
    with children_house(tmp_path) as home:
        root, session = begin(home, "tree", plan(where))
        until("some leaves wait", lambda: len(marks(where, "waits")) >= 3)
        home.process.send_signal(signal.SIGKILL)
        home.process.wait(20)
    with children_house(tmp_path) as home:
        until("every leaf waits", lambda: len(marks(where, "waits")) == LEAVES)
        home.process.send_signal(signal.SIGKILL)
        home.process.wait(20)
        (where / "go").touch()
    with children_house(tmp_path) as home:
        assert ended(home, root)["kind"] == "completed"
        said = text_of(home, session, root)
        leaves = [f"<0.{i}.{j}>" for i in range(4) for j in range(4)]
        assert re.findall(r"<[^>]*>", said) == leaves
        found = below(home, root)
        # What was lost unseen is run again, for the same message.
        assert len({run["message"] for run in found}) == CHILDREN
        sessions = {session, *(run["session"] for run in found)}
        until("every end is told", lambda: sum(told(home, sessions)[1].values()) >= CHILDREN)
        started, over = told(home, sessions)
        assert started == over
        assert set(over.values()) == {1}
        assert not runs(home, state="unfinished")
        assert len(marks(where, "waits")) == LEAVES
