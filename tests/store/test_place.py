"""The data directory: its modes, its lock, its token, and the server that can be found in it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from turnkeeper.core.errors import DATA_IN_USE, InvalidValue, TurnkeeperError
from turnkeeper.place import Place


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def holder(path: Path, *, shared: bool = False, url: str = "") -> subprocess.Popen[str]:
    """A process that holds the place until its stdin ends. It holds it when this returns."""
    program = f"""
        import sys
        from pathlib import Path
        from turnkeeper.place import Place
        place = Place(Path({str(path)!r}))
        held = place.hold(shared={shared}, what="the test's server")
        if {url!r}:
            place.announce({url!r})
        print("held", flush=True)
        sys.stdin.read()
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_looking_at_a_place_makes_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path / "data")
    assert place.read_token() is None
    assert place.server() is None
    assert not place.path.exists()


def test_a_place_and_its_files_are_for_this_user_alone(tmp_path: Path) -> None:
    place = Place(tmp_path / "deep" / "data")
    with place.hold():
        place.make_token()
        place.announce("http://127.0.0.1:1")
        assert mode(place.path) == 0o700
        assert {mode(path) for path in place.path.iterdir()} == {0o600}


def test_a_directory_of_ours_that_is_open_to_others_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.mkdir(mode=0o755)
    Place(path).make()
    assert mode(path) == 0o700


def test_a_directory_with_other_things_in_it_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "else").touch()
    tmp_path.chmod(0o755)
    Place(tmp_path).make()
    assert mode(tmp_path) == 0o755


def test_a_directory_in_which_everybody_may_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "else").touch()
    tmp_path.chmod(0o777)
    with pytest.raises(InvalidValue, match="everybody may write there"):
        Place(tmp_path).hold()


def test_a_second_holder_is_told_who_has_the_place(tmp_path: Path) -> None:
    first = holder(tmp_path)
    try:
        with pytest.raises(TurnkeeperError) as refused:
            Place(tmp_path).hold()
    finally:
        end(first)
    assert refused.value.entry is DATA_IN_USE
    assert str(tmp_path) in str(refused.value)
    assert f"process {first.pid} (the test's server)" in str(refused.value)


def test_a_second_holder_in_the_same_process_is_refused_too(tmp_path: Path) -> None:
    with Place(tmp_path).hold(), pytest.raises(TurnkeeperError, match=str(os.getpid())):
        Place(tmp_path).hold()


def test_several_share_a_place_and_keep_out_whoever_wants_it_alone(tmp_path: Path) -> None:
    first, second = holder(tmp_path, shared=True), holder(tmp_path, shared=True)
    try:
        with pytest.raises(TurnkeeperError) as refused:
            Place(tmp_path).hold()
    finally:
        end(first)
        end(second)
    assert refused.value.fields["pids"] == sorted([first.pid, second.pid])


def test_nobody_shares_a_place_that_is_held_alone(tmp_path: Path) -> None:
    with Place(tmp_path).hold(), pytest.raises(TurnkeeperError, match="TK-516"):
        Place(tmp_path).hold(shared=True)


def test_a_place_that_was_released_can_be_held_again(tmp_path: Path) -> None:
    held = Place(tmp_path).hold()
    held.release()
    held.release()
    Place(tmp_path).hold().release()


def test_a_holder_that_was_killed_keeps_nobody_out(tmp_path: Path) -> None:
    end(holder(tmp_path, url="http://127.0.0.1:1"))
    place = Place(tmp_path)
    assert place.server() is None
    with place.hold():
        assert place.server() is None


def test_the_server_that_holds_a_place_is_found_until_it_ends(tmp_path: Path) -> None:
    place = Place(tmp_path)
    first = holder(tmp_path, url="http://127.0.0.1:7433")
    try:
        assert place.server() == "http://127.0.0.1:7433"
    finally:
        end(first)
    assert place.server() is None


def test_a_server_that_has_withdrawn_is_not_found(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.hold():
        place.announce("http://127.0.0.1:7433")
        place.withdraw()
        assert place.server() is None


def test_an_announcement_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.hold():
        (tmp_path / "server").write_bytes(b"\x00{")
        assert place.server() is None


def test_whoever_looks_for_the_server_keeps_nobody_from_holding_the_place(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.hold().release()
    place.announce("http://127.0.0.1:1")
    with ThreadPoolExecutor(1) as others:
        looking = others.submit(lambda: [place.server() for _ in range(3000)])
        while not looking.done():
            place.hold().release()
            place.announce("http://127.0.0.1:1")
    assert set(looking.result()) <= {None, "http://127.0.0.1:1"}


def test_a_token_is_made_once_and_kept(tmp_path: Path) -> None:
    made = Place(tmp_path).make_token()
    assert len(made) > 32
    assert Place(tmp_path).make_token() == made
    assert Place(tmp_path).read_token() == made


def test_all_who_make_a_token_at_once_get_the_same(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as many:
        made = set(many.map(lambda _: Place(tmp_path).make_token(), range(64)))
    assert len(made) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["token"]


def test_an_empty_token_is_no_token(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.token.touch()
    assert place.read_token() is None
    assert place.make_token() == place.read_token()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("file", "it is a file; give a directory"),
        ("file/data", "a part of it is a file"),
        ("a\0b", "no NUL"),
        ("x" * 300, "too long"),
        ("y/" * 3000, "too long"),
    ],
)
def test_a_path_that_cannot_be_a_place_is_refused_by_name(
    tmp_path: Path, name: str, told: str
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidValue, match=told) as refused:
        Place(tmp_path / name).make()
    assert refused.value.field == "data"


def test_a_child_that_was_forked_does_not_hold_the_place(tmp_path: Path) -> None:
    place = Place(tmp_path / "data")
    held = place.hold()
    ready, go_on = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(ready[1], b"x")
        os.read(go_on[0], 1)
        os._exit(0)
    try:
        assert os.read(ready[0], 1)
        held.release()
        place.hold().release()
    finally:
        os.write(go_on[1], b"x")
        os.waitpid(child, 0)


def test_a_place_whose_holder_died_is_free_though_its_forked_child_lives(tmp_path: Path) -> None:
    program = f"""
        import os, sys
        from pathlib import Path
        from turnkeeper.place import Place
        held = Place(Path({str(tmp_path / "data")!r})).hold()
        if os.fork() == 0:
            print("forked", flush=True)
            sys.stdin.read()
        else:
            os._exit(0)
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert parent.stdout is not None
    assert parent.stdin is not None
    try:
        assert parent.stdout.readline() == "forked\n"
        parent.wait(20)
        Place(tmp_path / "data").hold().release()
    finally:
        parent.stdin.close()
        parent.stdout.close()
