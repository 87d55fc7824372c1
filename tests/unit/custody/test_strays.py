"""Who has a place, how a tree is recognised without its keeper, and who is named as the cause."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.process.custody.harness import wait_true_blocking
from turnkeeper.custody import place, procfs, reaper, record
from turnkeeper.custody.strays import Strays, recognise
from turnkeeper.custody.told import Told


def test_a_claim_is_read_as_it_was_written_and_nonsense_is_none() -> None:
    claim = place.Claim((12, 34), (5, 6), "some-boot", b"/sys/fs/cgroup/x y")
    found = place.decode(claim.encode())
    assert found is not None
    assert (found.keeper, found.nursery) == ((12, 34), (5, 6))
    assert (found.boot, found.cgroup) == ("some-boot", b"/sys/fs/cgroup/x y")
    for nonsense in (b"", b"keeper 1\n", b"keeper a b\nnursery 1 1\nboot x\ncgroup \n"):
        assert place.decode(nonsense) is None


def test_a_nursery_of_another_boot_or_another_start_is_dead() -> None:
    pid, start = place.own_key()
    boot = place.boot_id()
    assert place.Claim((1, 1), (pid, start), boot, b"").nursery_now() is not None
    assert place.Claim((1, 1), (pid, start + 1), boot, b"").nursery_now() is None
    assert place.Claim((1, 1), (pid, start), "another", b"").nursery_now() is None


def test_what_was_last_seen_of_a_tree_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert place.recall(str(tmp_path)) == (None, set())
    own = procfs.stat(os.getpid())
    assert own is not None
    trace = place.Trace()
    trace.note([own, own])
    trace.note([own])
    looked_at, known = place.recall(str(tmp_path))
    assert looked_at is not None
    assert known == {reaper.key(own)}


def test_a_place_appears_with_its_claim_is_used_once_and_can_be_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    claim = place.Claim(place.own_key(), (1, 1), place.boot_id(), b"")
    directory = place.settle("p1", claim)
    with pytest.raises(OSError, match=r"not empty|exists"):
        place.settle("p1", claim)
    assert place.names() == ["p1"]
    found = place.claim_of("p/p1")
    assert found is not None
    assert found.keeper == place.own_key()
    assert place.is_kept("p/p1")
    assert not place.is_abandoned("p/p1")
    place.unsettle("p/p1", directory)
    assert place.names() == []
    assert not place.is_kept("p/p1")
    assert not place.is_abandoned("p/p1")
    os.close(directory)


@contextmanager
def _running(argv: list[str], env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """It has said a line; it and all of its session is killed at the end, each by its pid."""
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            for one in procfs.everybody():
                if one.session == process.pid and one.alive:
                    os.kill(one.pid, signal.SIGKILL)


def _wait_recognised(tag: str, count: int) -> list[procfs.Stat]:
    """As many as are expected; one that is in the middle of an exec is not seen at once."""
    wait_true_blocking(lambda: len(recognise(tag.encode(), set())) >= count)
    return recognise(tag.encode(), set())


LEADER = """
import os, subprocess, sys
nameless = subprocess.Popen(["sleep", "60"], env={})
print(nameless.pid, flush=True)
if sys.argv[1] == "stays": nameless.wait()
tagged = subprocess.Popen(["sleep", "60"])
"""


def test_one_without_environment_is_recognised_by_a_session_that_the_tree_began() -> None:
    tag = uuid.uuid4().hex
    env = {"TURNKEEPER_CUSTODY": tag, "PATH": os.environ["PATH"]}
    for what in ("stays", "goes"):
        with _running([sys.executable, "-c", LEADER, what], env) as leader:
            if what == "goes":
                leader.wait()
            found = _wait_recognised(tag, 2)
            environments = [procfs.read(f"/proc/{one.pid}/environ") for one in found]
            assert b"" in environments, "the one that has none"
            assert len(found) == 2
            assert recognise(tag[:-1].encode(), set()) == [], "the tag of another"


def test_a_session_that_somebody_else_began_is_not_of_the_tree() -> None:
    """Its leader lives and bears no tag: that may be somebody's terminal."""
    tag = uuid.uuid4().hex
    code = (
        "import subprocess, sys; env = {'TURNKEEPER_CUSTODY': sys.argv[1]}\n"
        "child = subprocess.Popen(['/bin/sleep', '60'], env=env); print(flush=True); child.wait()"
    )
    with _running([sys.executable, "-c", code, tag], {}) as leader:
        found = _wait_recognised(tag, 1)
        assert [one.session for one in found] == [leader.pid]
        assert leader.pid not in [one.pid for one in found]


def test_what_was_seen_in_the_tree_is_ended_and_counted(tmp_path: Path) -> None:
    code = "import time; print(flush=True); time.sleep(60)"
    with _running([sys.executable, "-c", code], {}) as process:
        one = procfs.stat(process.pid)
        assert one is not None
        (tmp_path / place.TREE).write_text(f"0.0\n{one.pid} {one.start}\n")
        strays = Strays(uuid.uuid4().hex.encode(), str(tmp_path), None)
        rounds = 0
        while not strays.end():
            rounds += 1
            assert rounds < 1000
        assert process.wait(10) == -signal.SIGKILL
    assert strays.found == 1
    told = strays.told()
    assert "1 process of its tree was found and ended" in told
    assert "would not have been recognised" in told


def _blame(told: Told, said: record.Exit) -> str:
    told.blame(said)
    return said.cause


def test_a_signal_is_blamed_only_for_what_it_led_to() -> None:
    told = Told()
    assert _blame(told, record.Exit(record.EXITED, signal=15)) == ""
    told.by = 15
    assert _blame(told, record.Exit(record.EXITED, code=0)) == record.TOLD, "told, then it exited"
    late = Told()
    late.exited()
    late.by = 15
    assert _blame(late, record.Exit(record.EXITED, code=0)) == "", "it had exited by itself"
    assert _blame(late, record.Exit(record.EXITED, signal=15)) == record.TOLD, "of that signal"
    assert _blame(late, record.Exit(record.EXITED, code=143)) == record.TOLD, "in other words"
    orphan = record.Exit(record.EXITED, signal=9)
    orphan.cause = record.ORPHANED
    assert _blame(told, orphan) == record.ORPHANED
