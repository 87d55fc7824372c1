"""Frames, records, spools, environment and words: each without a process of its own."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.core.errors import InvalidValue
from turnkeeper.custody import evidence, frames, launch, procfs, reaper, record
from turnkeeper.custody.client import SOURCE
from turnkeeper.custody.program import (
    Program,
    allowed_environment,
    decode_sample,
    explain_not_started,
)  # fmt: skip
from turnkeeper.custody.spool import Feed, Spool, drain
from turnkeeper.drivers.process import explain_exit

bodies = st.binary(max_size=50)


@given(st.lists(st.tuples(st.integers(0, 255), bodies), max_size=8), st.data())
def test_frames_are_the_same_however_their_bytes_are_split(
    said: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    stream = b"".join(frames.pack(kind, body) for kind, body in said)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    inbox, heard = frames.Inbox(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        heard += inbox.feed(stream[start:end])
    assert heard == said


def test_a_frame_larger_than_allowed_is_refused_before_it_is_there() -> None:
    with pytest.raises(ValueError, match="at most 10"):
        frames.Inbox(10).feed((11).to_bytes(4, "little") + b"w")


@given(st.lists(bodies, max_size=8))
def test_parts_are_joined_and_split(parts: list[bytes]) -> None:
    assert frames.split(frames.join(parts)) == parts


def test_a_part_that_reaches_beyond_its_frame_is_refused() -> None:
    with pytest.raises(ValueError, match="beyond"):
        frames.split(b"\x05\x00\x00\x00abc")


def test_a_number_is_carried_by_a_frame() -> None:
    ((kind, body),) = frames.Inbox().feed(frames.number(frames.BELL, 1 << 40))
    assert (kind, frames.as_number(body)) == (frames.BELL, 1 << 40)


def test_a_spec_survives_the_wire() -> None:
    spec = launch.Spec()
    spec.name, spec.tag, spec.epoch = "p1", b"x:p1", 7
    spec.argv, spec.env, spec.cwd = [b"a", b"", b"\xff"], [b"A=b=c"], b"/tmp"
    spec.orphan_s, spec.term_s, spec.backlog_bytes, spec.output_bytes = 0.1, 1e-3, 5, 6
    again = launch.decode(spec.encode())
    assert [getattr(again, name) for name in launch.Spec.__slots__] == [
        getattr(spec, name) for name in launch.Spec.__slots__
    ]


def test_the_exit_record_is_read_as_it_was_written_and_its_space_is_taken_before(
    tmp_path: Path,
) -> None:
    place = os.open(tmp_path, os.O_RDONLY)
    try:
        record.reserve(place)
        assert (tmp_path / record.RESERVED).stat().st_size == record.SIZE
        assert record.read(place) is None
        said = record.Exit(record.EXITED, code=3)
        said.cause, said.detail, said.lost = "", "two\nlines", 12
        said.tail = b"x" * 9000 + b"\n\nlast \xff words\n"
        record.write(place, said)
        found = record.read(place)
    finally:
        os.close(place)
    assert found is not None
    assert (found.how, found.code, found.signal, found.lost) == (record.EXITED, 3, None, 12)
    assert found.detail == "two lines"
    assert found.tail == said.tail[-record.TAIL_BYTES :]
    assert not (tmp_path / record.RESERVED).exists()


def test_a_record_that_says_nothing_is_a_lost_keeper() -> None:
    assert record.decode(b"").how == record.KEEPER_LOST


def test_a_spool_keeps_what_the_disk_does_not_take_and_the_end_in_memory(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.write(writing, b"a" * 5000 + b"end")
    os.close(writing)
    spool = Spool(str(tmp_path / "out"))
    drain(reading, spool)
    os.close(reading)
    assert spool.written == 5003
    assert spool.tail == b"a" * 4093 + b"end"
    spool.release(5000)
    assert spool.released in (0, 4096), "in whole blocks, where the file system can"
    assert (tmp_path / "out").stat().st_size == 5003


def test_frames_are_written_whole_in_order_and_once_for_each_id() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    feed = Feed(writing)
    big = b"b" * 300_000
    assert feed.offer(b"1", b"a") is False
    assert feed.offer(b"2", big) is False
    assert feed.offer(b"3", b"") is False
    assert feed.pump() == [b"1"]
    assert feed.offer(b"1", b"a") is True
    assert feed.offer(b"2", big) is False
    got, through = b"", []
    while len(got) < 300_001:
        got += os.read(reading, 65536)
        through += feed.pump()
    assert got == b"a" + big
    assert through == [b"2", b"3"]
    assert not feed.waiting
    os.close(reading)
    feed.offer(b"4", b"x")
    with pytest.raises(BrokenPipeError):
        feed.pump()
    feed.close()


def test_only_the_harmless_part_of_the_environment_is_handed_on() -> None:
    ours = {"PATH": "/bin", "LC_ALL": "C", "XDG_DATA_HOME": "/x", "https_proxy": "p", "KEY": "s"}
    assert allowed_environment(ours, {"GIVEN": "1", "PATH": "/own"}) == {
        "PATH": "/own", "LC_ALL": "C", "XDG_DATA_HOME": "/x", "https_proxy": "p", "GIVEN": "1",
    }  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [
        {"argv": ()},
        {"argv": ("",)},
        {"argv": ("a\0b",)},
        {"argv": ("a",), "cwd": "/\0"},
        {"argv": ("a",), "env": {"A=B": "c"}},
        {"argv": ("a",), "env": {"": "c"}},
    ],
)
def test_a_program_that_cannot_be_one_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidValue):
        Program(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stage", "number", "told"),
    [
        ("cwd", errno.ENOENT, "its working directory /here cannot be entered"),
        ("fork", errno.EAGAIN, "prog could not be started (fork:"),
        ("exec", errno.EACCES, "prog may not be executed"),
        ("exec", errno.ENOEXEC, "prog is no program"),
        ("exec", errno.E2BIG, "prog was given more arguments"),
        ("exec", errno.EIO, "prog could not be executed"),
        ("exec", errno.ENOENT, "there is no program prog on PATH"),
    ],
)
def test_a_failed_start_is_put_into_words(stage: str, number: int, told: str) -> None:
    program = Program(argv=("prog",), cwd="/here")
    assert explain_not_started(program, stage, number).startswith(told)
    assert explain_not_started(None, stage, number)


def test_an_exit_is_put_into_words() -> None:
    assert explain_exit(1, None, " why \n") == "it exited with code 1; its last words: why"
    assert explain_exit(None, 9, "") == "it was ended by SIGKILL"
    assert explain_exit(None, 63, "") == "it was ended by signal 63"


@pytest.mark.parametrize(
    ("kernel", "people"),
    [
        ("0100007F:1F90", "127.0.0.1:8080"),
        ("0000000000000000FFFF00000100007F:0050", "127.0.0.1:80"),
        ("00000000000000000000000001000000:01BB", "[0:0:0:0:0:0:0:1]:443"),
    ],
)
def test_addresses_are_read_as_the_kernel_writes_them(kernel: str, people: str) -> None:
    assert evidence.address(kernel) == people


def test_a_sample_survives_the_wire() -> None:
    own = procfs.stat(os.getpid())
    assert own is not None
    look = evidence.Look(os.getpid(), [own], set())
    said = decode_sample(frames.join(evidence.describe(os.getpid(), look, True)))
    assert said.busy
    assert said.state in evidence.STATES.values()
    assert said.cpu_s >= 0
    assert said.children == 0


def test_a_process_that_is_no_longer_that_process_gets_no_signal() -> None:
    own = procfs.stat(os.getpid())
    assert own is not None
    own.start += 1
    assert reaper.send(own, 9) is False, "we would not be here"
    assert procfs.stat(1 << 30) is None
    assert procfs.descendants(1 << 30) == []


@pytest.mark.parametrize("module", ["asker", "nursery"])
def test_a_small_process_loads_little(module: str) -> None:
    """Each of these costs more to load than the process needs for its work."""
    code = (
        f"import sys; sys.path.append({SOURCE!r}); import turnkeeper.custody.{module};"
        " print({'asyncio', 'enum', 'json', 're', 'socket', 'subprocess', 'typing'}"
        " & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-E", "-c", code], capture_output=True, text=True, timeout=30
    )
    assert (done.stdout.strip(), done.stderr) == ("set()", "")
