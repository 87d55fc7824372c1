"""From the first byte to the last word: starting, speaking, exiting, and being taken up again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from pathlib import Path

import pytest

from tests.helpers.leaks import left_behind
from tests.process.custody.harness import (
    Witness,
    agent,
    house,
    in_loop,
    kill_keeper,
    python,
    wait_nursery_gone,
    wait_true_blocking,
)
from turnkeeper.core.errors import InvalidValue
from turnkeeper.custody import frames, procfs
from turnkeeper.custody.client import Custodian
from turnkeeper.custody.program import Program

ECHO = ("cat",)


@in_loop
async def test_a_frame_goes_in_output_comes_out_and_a_kill_is_confirmed(tmp_path: Path) -> None:
    async with house(tmp_path / "c") as custodian:
        witness = Witness()
        hold = custodian.spawn("p1", agent(*ECHO), witness)
        hold.write("1", b"hello\n")
        await witness.wait_output(b"hello\n")
        await witness.wait_for("taken")
        assert [kept.alive for kept in custodian.list()] == [True]
        hold.kill()
        await witness.wait_gone()
    assert [what[0] for what in witness.heard if what[0] != "taken"] == [
        "started",
        "exited",
        "gone",
    ]
    assert witness.of("exited") == [("exited", None, signal.SIGKILL, "")]
    assert witness.end == len(b"hello\n")


@in_loop
async def test_an_end_that_is_heard_of_while_what_is_readable_is_read_is_told(
    tmp_path: Path,
) -> None:
    async with house(tmp_path) as custodian:
        witness = Witness()
        hold = custodian.spawn("p1", agent("sh", "-c", "read x; echo said; exit 3"), witness)
        await witness.wait_for("started")
        pid, _ = hold.keeper or (0, 0)
        hold.write("1", b"go\n")
        wait_true_blocking(lambda: procfs.stat(pid) is None)
        hold.poll()
        assert witness.output == b"said\n"
        await witness.wait_gone()
    assert witness.of("exited") == [("exited", 3, None, "")]


@in_loop
async def test_a_program_that_exits_at_once_is_told_with_its_code_and_its_stderr(
    tmp_path: Path,
) -> None:
    async with house(tmp_path) as custodian:
        witness = Witness()
        program = agent("sh", "-c", "echo said; echo no key given >&2; exit 3")
        custodian.spawn("p1", program, witness)
        await witness.wait_gone()
    assert witness.output == b"said\n"
    assert witness.of("exited") == [("exited", 3, None, "no key given\n")]


@pytest.mark.parametrize(
    ("argv", "cwd", "told"),
    [
        (("no-such-program",), "/", "there is no program no-such-program on PATH"),
        (("./no-such-program",), "/", "there is no program ./no-such-program"),
        (("/etc/passwd",), "/", "/etc/passwd may not be executed"),
        (("cat",), "/no-such-directory", "its working directory /no-such-directory"),
        (("cat",), "/etc/passwd", "its working directory /etc/passwd"),
    ],
)
@in_loop
async def test_what_cannot_be_started_is_told_with_what_to_do(
    tmp_path: Path, argv: tuple[str, ...], cwd: str, told: str
) -> None:
    async with house(tmp_path) as custodian:
        witness = Witness()
        custodian.spawn("p1", agent(*argv, cwd=cwd), witness)
        await witness.wait_gone()
    ((_, reason, detail, retry),) = witness.of("broken")
    assert (reason, retry) == ("spawn_failed", False)
    assert detail.startswith(told)
    assert not witness.of("started")


@in_loop
async def test_a_script_without_its_interpreter_and_one_without_a_first_line_are_told_apart(
    tmp_path: Path,
) -> None:
    told = []
    async with house(tmp_path / "c") as custodian:
        for name, text in (("a", "#!/no/such/interpreter\n"), ("b", "echo hello\n")):
            path = tmp_path / name
            path.write_text(text)
            path.chmod(0o755)
            witness = Witness()
            custodian.spawn(name, agent(str(path)), witness)
            await witness.wait_gone()
            told.append(witness.of("broken")[0][2])
    assert "the interpreter that it names is not" in told[0]
    assert "A script needs a first line" in told[1]


@in_loop
async def test_only_what_is_allowed_or_given_by_name_is_in_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    monkeypatch.setenv("LC_TIME", "C")
    code = "import os, sys; sys.stdout.write(repr(sorted(os.environ)) + '\\n')"
    async with house(tmp_path) as custodian:
        witness = Witness()
        custodian.spawn("p1", agent(*python(code), env={"GIVEN": "yes"}), witness)
        await witness.wait_gone()
    names = json.loads(witness.output.decode().replace("'", '"'))
    assert {"GIVEN", "LC_TIME", "PATH", "TURNKEEPER_CUSTODY"} <= set(names)
    assert "SOME_API_KEY" not in names
    assert not [name for name in names if name.startswith("PYTEST")]


@in_loop
async def test_its_files_are_its_owners_alone_and_its_socket_path_may_be_long(
    tmp_path: Path,
) -> None:
    root = tmp_path / ("long-" * 20) / ("longer-" * 20)
    async with house(root) as custodian:
        witness = Witness()
        hold = custodian.spawn("p" * 100, agent(*ECHO), witness)
        await witness.wait_for("started")
        place = root / "p" / ("p" * 100)
        assert place.stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_mode & 0o777 for path in place.iterdir()} == {0o600}
        hold.kill()
        await witness.wait_gone()


@in_loop
async def test_a_name_is_used_once(tmp_path: Path) -> None:
    async with house(tmp_path) as custodian:
        first, second = Witness(), Witness()
        hold = custodian.spawn("p1", agent(*ECHO), first)
        await first.wait_for("started")
        custodian.spawn("p1", agent(*ECHO), second)
        await second.wait_gone()
        assert second.of("broken")[0][1] == "spawn_failed"
        hold.write("1", b"still here\n")
        await first.wait_output(b"still here\n")
        with pytest.raises(InvalidValue):
            custodian.spawn("../p2", agent(*ECHO), second)
    with pytest.raises(InvalidValue):
        Program(argv=())


@in_loop
async def test_what_was_never_there_is_gone(tmp_path: Path) -> None:
    async with house(tmp_path) as custodian:
        witness = Witness()
        custodian.attach("p1", 0, witness)
        await witness.wait_gone()
    assert witness.heard == [("gone",)]


@in_loop
async def test_a_process_is_taken_up_where_the_last_hold_stopped_reading(tmp_path: Path) -> None:
    async with house(tmp_path) as custodian:
        first, second = Witness(), Witness()
        hold = custodian.spawn("p1", agent(*ECHO), first)
        hold.write("1", b"one\n")
        await first.wait_output(b"one\n")
        hold.detach()
        again = custodian.attach("p1", 4, second)
        again.write("1", b"one\n")  # resent, dropped, and said to be taken
        again.write("2", b"two\n")
        await second.wait_output(b"two\n")
        again.kill()
        await second.wait_gone()
    assert second.of("taken") == [("taken", "1"), ("taken", "2")]
    assert (bytes(first.output), bytes(second.output)) == (b"one\n", b"two\n")
    assert second.end == 8
    assert not first.of("gone"), "a hold that was let go hears no more"


@in_loop
async def test_one_that_is_over_is_told_to_whoever_comes_later(tmp_path: Path) -> None:
    async with house(tmp_path) as custodian:
        first = Witness()
        custodian.spawn("p1", agent("sh", "-c", "echo word; echo why >&2; exit 7"), first)
        await first.wait_gone()
        for _ in range(2):
            later = Witness()
            custodian.attach("p1", 2, later)
            await later.wait_gone()
            assert later.output == b"rd\n"
            assert later.heard == [("exited", 7, None, "why\n"), ("gone",)]
        assert custodian.forget("p1")
        later = Witness()
        custodian.attach("p1", 0, later)
        await later.wait_gone()
        assert later.heard == [("gone",)]


@in_loop
async def test_the_newest_server_has_it_and_an_older_one_is_cut_off(tmp_path: Path) -> None:
    async with house(tmp_path) as older, house(tmp_path) as newer:
        first, second, third = Witness(), Witness(), Witness()
        hold = older.spawn("p1", agent(*ECHO), first)
        await first.wait_for("started")
        again = newer.attach("p1", 0, second)
        again.write("1", b"mine\n")
        await second.wait_output(b"mine\n")
        await first.wait_for("broken")
        assert "another server has taken over" in first.of("broken")[0][2]
        hold.write("2", b"stale\n")
        older.attach("p1", 0, third)
        await third.wait_for("broken")
        assert "another server has taken over" in third.of("broken")[0][2]
        again.write("3", b"still mine\n")
        await second.wait_output(b"still mine\n")
        again.kill()
        await second.wait_gone()
    assert second.output == b"mine\nstill mine\n"
    assert not first.of("gone")


@in_loop
async def test_an_agent_that_closes_its_stdin_is_deaf_not_gone(tmp_path: Path) -> None:
    async with house(tmp_path) as custodian:
        witness = Witness()
        code = "import os, time; os.close(0); os.write(1, b'up\\n')\nwhile True: time.sleep(60)"
        hold = custodian.spawn("p1", agent(*python(code)), witness)
        await witness.wait_output(b"up\n")
        hold.write("1", b"hello?\n")
        await witness.wait_for("broken")
        assert witness.of("broken")[0][1] == "protocol_error"
        hold.kill()
        await witness.wait_gone()


@in_loop
async def test_processes_of_two_data_directories_know_nothing_of_each_other(
    tmp_path: Path,
) -> None:
    async with house(tmp_path / "a") as ours, house(tmp_path / "b") as theirs:
        mine, other = Witness(), Witness()
        kept = ours.spawn("p1", agent(*ECHO), mine)
        lost = theirs.spawn("p1", agent(*ECHO), other)
        await mine.wait_for("started")
        await other.wait_for("started")
        nursery = kill_keeper(lost)
        await other.wait_gone()
        os.kill(nursery, signal.SIGKILL)
        again = Witness()
        theirs.spawn("p2", agent("true"), again)  # a new nursery, which looks for strays
        await again.wait_gone()
        kept.write("1", b"untouched\n")
        await mine.wait_output(b"untouched\n")
        assert [one.name for one in ours.list()] == ["p1"]
        await asyncio.sleep(0)


@in_loop
async def test_a_frame_that_a_dying_server_sent_by_half_is_never_written(tmp_path: Path) -> None:
    async with house(tmp_path) as custodian:
        first, second = Witness(), Witness()
        hold = custodian.spawn("p1", agent(*ECHO), first)
        await first.wait_for("started")
        hold.detach()
        whole = frames.pack(frames.WRITE, frames.join([b"1", b"half of a line and the rest\n"]))
        attach = frames.pack(frames.ATTACH, custodian.epoch.to_bytes(8, "little") + bytes(8))
        place = os.open(tmp_path / "p" / "p1", os.O_RDONLY)
        with socket.socket(socket.AF_UNIX) as dying:
            dying.connect(f"/proc/self/fd/{place}/ctl")
            dying.sendall(attach + whole[:-10])
        os.close(place)
        again = custodian.attach("p1", 0, second)
        again.write("2", b"whole\n")
        await second.wait_output(b"\n")
        assert second.output == b"whole\n"
        again.write("1", b"half of a line and the rest\n")
        await second.wait_output(b"rest\n")
        assert second.output == b"whole\nhalf of a line and the rest\n"


@in_loop
async def test_an_agent_has_its_three_pipes_and_no_descriptor_of_ours(tmp_path: Path) -> None:
    code = "import os, sys; sys.stdout.write(' '.join(sorted(os.listdir('/proc/self/fd'))) + '\\n')"
    async with house(tmp_path) as custodian:
        witness = Witness()
        custodian.spawn("p1", agent(*python(code)), witness)
        await witness.wait_gone()
    assert witness.output.split()[:3] == [b"0", b"1", b"2"]
    assert len(witness.output.split()) == 4, "and the one that reads the directory"


@in_loop
async def test_no_signal_is_ignored_or_blocked_when_an_agent_begins(tmp_path: Path) -> None:
    async with house(tmp_path) as custodian:
        witness = Witness()
        custodian.spawn(
            "p1", agent("grep", "-E", "Sig(Ign|Blk)|^Umask", "/proc/self/status"), witness
        )
        await witness.wait_gone()
    told = dict(line.split(":\t") for line in witness.output.decode().splitlines())
    of_the_c_library = 0b11 << 31
    assert int(told["SigIgn"], 16) & ~of_the_c_library == int(told["SigBlk"], 16) == 0
    ours = procfs.read("/proc/self/status").decode()
    assert f"Umask:\t{told['Umask']}\n" in ours


@in_loop
async def test_what_is_over_for_long_is_forgotten(tmp_path: Path) -> None:
    async with house(tmp_path) as custodian:
        over, living = Witness(), Witness()
        custodian.spawn("p1", agent("true"), over)
        custodian.spawn("p2", agent(*ECHO), living)
        await over.wait_gone()
        await living.wait_for("started")
        custodian.purge(older_s=3600)
        assert [kept.name for kept in custodian.list()] == ["p1", "p2"]
        custodian.purge(older_s=-1)
        assert [kept.name for kept in custodian.list()] == ["p2"]


def test_whoever_starts_a_nursery_is_reaped_though_the_loop_has_ended(tmp_path: Path) -> None:
    async def begin_and_leave() -> set[int]:
        custodian = Custodian(tmp_path, linger_s=0.05)
        before = children()
        custodian.spawn("p1", agent(*ECHO), Witness())
        begun = children() - before
        custodian.close()
        return begun

    def children() -> set[int]:
        return {one.pid for one in procfs.descendants(os.getpid())}

    with left_behind() as complaints:
        begun = asyncio.run(begin_and_leave())
        assert begun
        wait_true_blocking(lambda: not begun & children())
    assert complaints == []
    asyncio.run(wait_nursery_gone(tmp_path))
