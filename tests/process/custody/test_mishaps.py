"""What nobody should do, and somebody does: the data directory is removed, the nursery is stopped
or killed, a keeper is sent a signal, an agent closes its standard output and goes on."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.load import Stopwatch
from tests.process.custody.harness import (
    Witness,
    agent,
    house,
    in_loop,
    kill_keeper,
    living_with,
    nursery_above,
    python,
    script,
    stand_still,
    wait_true,
)
from tests.process.worker import long_functions
from turnkeeper import Turnkeeper
from turnkeeper.custody import procfs
from turnkeeper.custody.client import Custodian
from turnkeeper.custody.place import claim_of


@pytest.fixture
def mark() -> str:
    return uuid.uuid4().hex


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """That process stands still, and goes on afterwards if it is there."""
    stand_still(pid)
    try:
        yield
    finally:
        now = procfs.stat(pid)
        if now is not None and now.state == "T":
            os.kill(pid, signal.SIGCONT)


# The data directory is removed ---------------------------------------------------------------


@in_loop
async def test_a_start_in_a_directory_that_was_removed_is_told_with_what_to_do(
    tmp_path: Path,
) -> None:
    root = tmp_path / "custody"
    custodian = Custodian(root, linger_s=0.05)
    shutil.rmtree(root)
    for name in ("p1", "p2"):
        witness = Witness()
        custodian.spawn(name, agent("cat"), witness)
        await witness.wait_gone()
        ((_, reason, detail, _),) = witness.of("broken")
        assert reason == "spawn_failed"
        assert f"{root} was removed" in detail
        assert "restart Turnkeeper" in detail, "what to do"
    assert custodian.list() == []
    custodian.close()
    assert not root.exists()


@in_loop
async def test_a_turn_goes_on_and_its_end_is_told_when_the_directory_is_removed(
    tmp_path: Path, mark: str
) -> None:
    root = tmp_path / "custody"
    custodian = Custodian(root, linger_s=0.05)
    witness, other = Witness(), Witness()
    code = "for line in iter(input, 'end'): print('did', line)\nraise SystemExit(3)"
    hold = custodian.spawn("p1", agent(*python(code), mark=mark), witness)
    await witness.wait_for("started")
    shutil.rmtree(root)
    hold.write("1", b"work\n")
    await witness.wait_output(b"did work\n")
    custodian.spawn("p2", agent("cat"), other)
    await other.wait_gone()
    assert other.of("broken")[0][1] == "spawn_failed"
    hold.write("2", b"end\n")
    await witness.wait_gone()
    assert witness.of("exited") == [("exited", 3, None, "")]
    assert not witness.of("broken")
    assert living_with(mark) == []
    custodian.close()


@in_loop
async def test_what_no_server_can_come_back_to_is_ended_when_it_is_let_go(
    tmp_path: Path, mark: str
) -> None:
    custodian = Custodian(tmp_path / "custody", linger_s=0.05)
    witness = Witness()
    argv = script("agent_tree.py", "all", mark)
    custodian.spawn("p1", agent(*argv, mark=mark, orphan_s=60.0), witness)
    await witness.wait_output(b"up\n")
    shutil.rmtree(tmp_path / "custody")
    custodian.close()
    await wait_true(lambda: living_with(mark) == [])


@in_loop
async def test_leaving_after_the_data_directory_was_removed_raises_nothing_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    functions = Path(long_functions.__file__)
    slow = {
        "driver": "python", "target": f"{functions.stem}:sleeps", "cwd": str(functions.parent),
    }  # fmt: skip
    processes = tmp_path / "data" / "custody" / "p"
    limits = {"drain_s": 0.2, "term_s": 0.3}
    async with Turnkeeper(agents={"slow": slow}, data=tmp_path / "data", limits=limits) as tk:
        run = await tk.send(None, "60", agent="slow")
        async for event in run:
            if event.kind == "tool.started":
                break
        (place,) = processes.iterdir()
        claim = claim_of(str(place))
        assert claim is not None
        tree = [claim.keeper[0], *(one.pid for one in procfs.descendants(claim.keeper[0]))]
        assert len(tree) > 1
        shutil.rmtree(tmp_path / "data")
    await wait_true(lambda: not any(_lives(pid) for pid in tree))


def _lives(pid: int) -> bool:
    now = procfs.stat(pid)
    return now is not None and now.alive


@pytest.mark.parametrize("what", ["custody", "custody/p/p1"])
@in_loop
async def test_a_keeper_that_is_killed_after_its_directory_was_removed_takes_its_tree_along(
    tmp_path: Path, mark: str, what: str
) -> None:
    custodian = Custodian(tmp_path / "custody", linger_s=0.05)
    witness = Witness()
    argv = script("agent_tree.py", "all", mark)
    hold = custodian.spawn("p1", agent(*argv, mark=mark), witness)
    await witness.wait_output(b"up\n")
    shutil.rmtree(tmp_path / what)
    kill_keeper(hold)
    await witness.wait_gone()
    await wait_true(lambda: living_with(mark) == [])
    ((_, reason, detail, _),) = witness.of("broken")
    assert reason == "internal"
    assert "its keeper" in detail
    assert not witness.of("started")[1:], "it is not started a second time"
    custodian.close()


@in_loop
async def test_what_still_runs_without_its_directory_is_not_said_to_be_gone(
    tmp_path: Path, mark: str
) -> None:
    async with house(tmp_path) as custodian:
        first, second = Witness(), Witness()
        argv = script("agent_tree.py", "setsid", mark)
        hold = custodian.spawn("p1", agent(*argv, mark=mark), first)
        await first.wait_output(b"up\n")
        shutil.rmtree(tmp_path / "p" / "p1")
        custodian.attach("p1", 0, second)
        await second.wait_gone()
        await first.wait_gone()
        assert living_with(mark) == []
        assert "its directory is not there" in second.of("broken")[0][2]
        hold.detach()


@in_loop
async def test_a_directory_that_was_moved_is_used_where_it_is(tmp_path: Path) -> None:
    async with house(tmp_path / "old") as custodian:
        first, second = Witness(), Witness()
        hold = custodian.spawn("p1", agent("cat"), first)
        await first.wait_for("started")
        os.rename(tmp_path / "old", tmp_path / "new")
        os.kill(nursery_above(hold), signal.SIGKILL)
        custodian.spawn("p2", agent("true"), second)
        await second.wait_gone()
        assert second.of("exited")[0][1] == 0
        assert [kept.name for kept in custodian.list()] == ["p1", "p2"]
        os.rename(tmp_path / "new", tmp_path / "old")


def _use_up_descriptors() -> list[int]:
    taken: list[int] = []
    with contextlib.suppress(OSError):
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    return taken


@in_loop
async def test_descriptors_that_are_used_up_are_a_failed_start_and_no_end_of_what_runs(
    tmp_path: Path, mark: str
) -> None:
    async with house(tmp_path) as custodian:
        first, second, third = Witness(), Witness(), Witness()
        hold = custodian.spawn("p1", agent("cat", mark=mark), first)
        await first.wait_for("started")
        hold.detach()
        taken = _use_up_descriptors()
        try:
            custodian.spawn("p2", agent("cat"), second)
            again = custodian.attach("p1", 0, third)
            await second.wait_gone()
            assert second.of("broken")[0][1] == "spawn_failed"
            assert "Too many open files" in second.of("broken")[0][2]
            assert not third.of("gone")
        finally:
            for fd in taken:
                os.close(fd)
        again.write("1", b"here\n")
        await third.wait_output(b"here\n")
        assert living_with(mark)


# The nursery is stopped ----------------------------------------------------------------------


@in_loop
async def test_a_stopped_nursery_delays_the_next_start_by_no_more_than_its_bound(
    tmp_path: Path, mark: str
) -> None:
    async with house(tmp_path) as custodian:
        first, second, third = Witness(), Witness(), Witness()
        hold = custodian.spawn("p1", agent("cat"), first)
        await first.wait_for("started")
        with stopped(nursery_above(hold)):
            watch = Stopwatch()
            other = custodian.spawn("p2", agent("cat", mark=mark), second)
            other.write("1", b"hello\n")
            await second.wait_output(b"hello\n")
            assert watch.s < 3.0
            watch = Stopwatch()
            custodian.spawn("p3", agent("true"), third)
            await third.wait_gone()
            assert watch.s < 1.0, "the one that answers is used from now on"
            other.kill()
            await second.wait_gone()
            assert custodian.forget("p2")
        late = Witness()
        custodian.spawn("p4", agent("true"), late)
        await late.wait_gone()
        hold.write("1", b"still here\n")
        await first.wait_output(b"still here\n")
        hold.kill()
        await first.wait_gone()
        assert living_with(mark) == [], "what was given up is not started when the nursery wakes"
        assert [kept.name for kept in custodian.list()] == ["p1", "p3", "p4"]


@in_loop
async def test_when_no_nursery_answers_that_is_told_within_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnkeeper.custody.nurseries.ANSWER_S", 0.3)
    async with house(tmp_path) as custodian:
        nurseries: list[int] = []
        while True:
            witness = Witness()
            hold = custodian.spawn(f"p{len(nurseries)}", agent("cat"), witness)
            await witness.wait_until(lambda w=witness: bool(w.of("started") or w.of("broken")))  # type: ignore[misc]
            if witness.of("broken"):
                break
            nurseries.append(nursery_above(hold))
            stand_still(nurseries[-1])
        for pid in nurseries:
            os.kill(pid, signal.SIGCONT)
        ((_, reason, detail, _),) = witness.of("broken")
        assert reason == "spawn_failed"
        assert f"process {nurseries[0]}" in detail or f"process {nurseries[-1]}" in detail
        await witness.wait_gone()


@in_loop
async def test_a_keeper_killed_under_a_stopped_nursery_takes_its_whole_tree_along(
    tmp_path: Path, mark: str
) -> None:
    async with house(tmp_path) as custodian:
        first, other = Witness(), Witness()
        argv = script("agent_tree.py", "all", mark)
        hold = custodian.spawn("p1", agent(*argv, mark=mark), first)
        neighbour = custodian.spawn("p2", agent("cat"), other)
        await first.wait_output(b"up\n")
        await other.wait_for("started")
        with stopped(nursery_above(hold)):
            kill_keeper(hold)
            await first.wait_gone()
            assert living_with(mark) == []
            ((_, reason, detail, _),) = first.of("broken")
            assert reason == "internal"
            assert "none is left" in detail
            neighbour.write("1", b"untouched\n")
            await other.wait_output(b"untouched\n")


# The nursery is killed, and a keeper too -----------------------------------------------------


@in_loop
async def test_keeper_and_nursery_killed_together_leave_nothing_and_no_more_is_said_than_known(
    tmp_path: Path, mark: str
) -> None:
    async with house(tmp_path) as custodian:
        witness = Witness()
        argv = script("agent_tree.py", "all", mark)
        hold = custodian.spawn("p1", agent(*argv, mark=mark), witness)
        await witness.wait_output(b"up\n")
        hold.turn_begins("r1")
        hold.sample()
        await witness.wait_for("sample")
        assert hold.keeper is not None
        stand_still(hold.keeper[0])  # or it has a new nursery before it is killed
        os.kill(nursery_above(hold), signal.SIGKILL)
        kill_keeper(hold)
        await witness.wait_gone()
        assert living_with(mark) == [], "one without environment was seen at the last look"
        ((_, reason, detail, retry),) = witness.of("broken")
        assert (reason, retry) == ("internal", True)
        assert "its keeper was killed, and so was the nursery above it" in detail
        assert "were found and ended" in detail
        assert "would not have been recognised" in detail
        assert "all that it kept" not in detail


@in_loop
async def test_a_process_that_left_no_trace_is_not_said_to_be_ended(
    tmp_path: Path, mark: str
) -> None:
    """It cleared its environment, has a session of its own, and was started after the last look."""
    async with house(tmp_path) as custodian:
        witness = Witness()
        hold = custodian.spawn("p1", agent(*script("agent_tree.py", "nameless", mark)), witness)
        await witness.wait_output(b"up\n")
        nursery = nursery_above(hold)
        stand_still(nursery)
        kill_keeper(hold)
        os.kill(nursery, signal.SIGKILL)
        await witness.wait_gone()
        detail = witness.of("broken")[0][2]
        assert "would not have been recognised" in detail
        left = living_with(mark)
        assert len(left) <= 1
        for pid in left:
            os.kill(pid, signal.SIGKILL)


@in_loop
async def test_a_keeper_whose_nursery_was_killed_is_under_a_new_one_without_being_asked(
    tmp_path: Path, mark: str
) -> None:
    async with house(tmp_path) as custodian:
        witness = Witness()
        hold = custodian.spawn("p1", agent("cat", mark=mark), witness)
        await witness.wait_for("started")
        log = tmp_path / "nursery.1.lock"
        before = log.read_text()
        os.kill(nursery_above(hold), signal.SIGKILL)
        await wait_true(lambda: log.read_text() not in ("", before))
        hold.write("1", b"alive\n")
        await witness.wait_output(b"alive\n")
        place = tmp_path / "p" / "p1"
        await wait_true(lambda: (place / "tree").stat().st_size > 0)
        hold.detach()  # no server is needed for what follows
        kill_keeper(hold)
        await wait_true((place / "exit").exists)
        assert living_with(mark) == []
        assert "its keeper was killed" in (place / "exit").read_text()


@in_loop
async def test_what_was_kept_before_the_machine_was_restarted_is_known_to_be_gone(
    tmp_path: Path,
) -> None:
    async with house(tmp_path) as custodian:
        place = tmp_path / "p" / "p1"
        place.mkdir()
        (place / "lock").write_text("keeper 1 1\nnursery 1 1\nboot some-other\ncgroup \n")
        witness = Witness()
        custodian.attach("p1", 0, witness)
        await witness.wait_gone()
        detail = witness.of("broken")[0][2]
        assert "the machine was restarted" in detail
        assert "would not" not in detail


# A keeper is sent a signal -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["SIGTERM", "SIGQUIT", "SIGUSR1", "SIGALRM", "SIGRTMIN"])
@in_loop
async def test_a_keeper_that_is_told_to_go_says_so_and_does_not_blame_the_agent(
    tmp_path: Path, mark: str, name: str
) -> None:
    async with house(tmp_path) as custodian:
        witness, later = Witness(), Witness()
        argv = script("agent_tree.py", "all", mark)
        hold = custodian.spawn("p1", agent(*argv, mark=mark), witness)
        await witness.wait_output(b"up\n")
        assert hold.keeper is not None
        os.kill(hold.keeper[0], getattr(signal, name))
        await witness.wait_gone()
        assert living_with(mark) == []
        ((_, reason, detail, _),) = witness.of("broken")
        assert reason == "internal"
        assert f"its keeper was told to go by {name}" in detail
        assert not witness.of("exited"), "that was not the agent's own doing"
        custodian.attach("p1", 0, later)
        await later.wait_gone()
        assert later.of("broken") == witness.of("broken")


@in_loop
async def test_an_agent_that_dies_of_the_same_signal_as_its_keeper_is_not_blamed(
    tmp_path: Path,
) -> None:
    """As when everything in a control group is told to go."""
    async with house(tmp_path) as custodian:
        witness = Witness()
        hold = custodian.spawn("p1", agent("cat"), witness)
        await witness.wait_for("started")
        assert hold.keeper is not None
        keeper = hold.keeper[0]
        (cat,) = procfs.children(keeper)
        stand_still(keeper)
        os.kill(cat, signal.SIGTERM)
        os.kill(keeper, signal.SIGTERM)
        os.kill(keeper, signal.SIGCONT)
        await witness.wait_gone()
        assert "told to go by SIGTERM" in witness.of("broken")[0][2]
        assert not witness.of("exited")


@in_loop
async def test_a_keeper_that_is_told_to_go_while_it_ends_its_tree_changes_nothing(
    tmp_path: Path, mark: str
) -> None:
    async with house(tmp_path) as custodian:
        witness = Witness()
        argv = script("agent_tree.py", "deaf", mark)
        hold = custodian.spawn("p1", agent(*argv, mark=mark, term_s=1.5), witness)
        await witness.wait_output(b"up\n")
        assert hold.keeper is not None
        hold.write("1", b"word\n")
        hold.terminate()
        await witness.wait_output(b"echo word\n")
        os.kill(hold.keeper[0], signal.SIGTERM)
        await witness.wait_gone()
        assert witness.of("exited") == [("exited", None, signal.SIGKILL, "")]
        assert not witness.of("broken")


@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP", "SIGWINCH"])
@in_loop
async def test_a_signal_that_is_not_meant_for_a_keeper_does_nothing(
    tmp_path: Path, name: str
) -> None:
    async with house(tmp_path) as custodian:
        witness = Witness()
        hold = custodian.spawn("p1", agent("cat"), witness)
        await witness.wait_for("started")
        assert hold.keeper is not None
        os.kill(hold.keeper[0], getattr(signal, name))
        hold.write("1", b"here\n")
        await witness.wait_output(b"here\n")
        hold.kill()
        await witness.wait_gone()
        assert witness.of("exited") == [("exited", None, signal.SIGKILL, "")]


# The agent closes its standard output ----------------------------------------------------------

MUTE = """
import os, sys, time
os.write(1, b"so far\\n")
os.close(1)
os.close(2) if sys.argv[1] == "both" else None
while True: time.sleep(60)
"""


@pytest.mark.parametrize("what", ["one", "both"])
@in_loop
async def test_an_agent_that_closed_its_stdout_and_goes_on_is_broken(
    tmp_path: Path, mark: str, what: str
) -> None:
    async with house(tmp_path) as custodian:
        witness, again = Witness(), Witness()
        hold = custodian.spawn("p1", agent(*python(MUTE, what), mark=mark), witness)
        await witness.wait_for("broken", 6.0)
        assert witness.output == b"so far\n"
        ((_, reason, detail, _),) = witness.of("broken")
        assert reason == "protocol_error"
        assert "closed its standard output" in detail
        hold.detach()
        hold = custodian.attach("p1", 0, again)
        assert (await again.wait_for("broken"))[2] == detail, "told to the next server too"
        hold.terminate()
        await again.wait_gone()
        assert living_with(mark) == []


@in_loop
async def test_an_agent_that_exits_soon_after_it_closed_its_stdout_has_exited(
    tmp_path: Path,
) -> None:
    code = "import os, time; os.write(1, b'bye\\n'); os.close(1); time.sleep(0.7); os._exit(3)"
    async with house(tmp_path) as custodian:
        witness = Witness()
        custodian.spawn("p1", agent(*python(code)), witness)
        await witness.wait_gone()
    assert witness.output == b"bye\n"
    assert witness.of("exited") == [("exited", 3, None, "")]
    assert not witness.of("broken")
