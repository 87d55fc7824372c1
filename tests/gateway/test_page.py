"""The page's files: who gets them, how they are kept, and what they may do in a browser."""

import gzip
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from tests.gateway.house import House, play
from turnkeeper.gateway.page import MEDIA, POLICY

TOKENS = {"t-admin": "admin"}
SCRIPT = "console.log(1)\n" * 200


@pytest.fixture
def built(tmp_path: Path) -> Path:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<!doctype html><title>Turnkeeper</title>")
    (tmp_path / "assets" / "index-abc123.js").write_text(SCRIPT)
    (tmp_path / "assets" / "index-abc123.css").write_text("body{}")
    (tmp_path / "assets" / "notes.txt").write_text("not for anybody")
    (tmp_path / "secret.js").write_text("not an asset")
    return tmp_path


def test_the_page_needs_no_token_and_may_do_nothing_but_be_itself(built: Path) -> None:
    async def scene(home: House) -> None:
        told = await home.ask("GET", "/")
        assert (told.status, told.headers["content-type"]) == (200, MEDIA[".html"].decode())
        policy = told.headers["content-security-policy"]
        assert policy == POLICY.decode()
        assert "unsafe" not in policy
        assert told.headers["referrer-policy"] == "no-referrer"
        assert told.headers["cache-control"] == "no-cache"

    play(scene, tokens=TOKENS, page=built)


def test_the_page_is_not_shown_under_a_foreign_name(built: Path) -> None:
    async def scene(home: House) -> None:
        for path in ("/", "/assets/index-abc123.js"):
            assert (await home.ask("GET", path, Host="evil.example")).status == 421

    play(scene, tokens=TOKENS, page=built)


def test_a_part_is_kept_for_ever_and_comes_packed_to_who_takes_it(built: Path) -> None:
    async def scene(home: House) -> None:
        plain = await home.ask("GET", "/assets/index-abc123.js")
        assert plain.body.decode() == SCRIPT
        assert "immutable" in plain.headers["cache-control"]
        assert plain.headers["content-type"].startswith("text/javascript")
        packed = await home.ask("GET", "/assets/index-abc123.js", Accept_Encoding="br, gzip")
        assert packed.headers["content-encoding"] == "gzip"
        assert gzip.decompress(packed.body).decode() == SCRIPT
        assert len(packed.body) < len(plain.body)

    play(scene, tokens=TOKENS, page=built)


def test_who_has_it_is_not_sent_it_again(built: Path) -> None:
    async def scene(home: House) -> None:
        first = await home.ask("GET", "/")
        again = await home.raw(
            b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
            b"if-none-match: " + first.headers["etag"].encode() + b"\r\n\r\n"
        )
        assert (again.status, again.body) == (304, b"")

    play(scene, page=built)


@pytest.mark.parametrize(
    "name", ["nope.js", "notes.txt", "index.html", "..%2findex.html", "..%2fsecret.js", "secret.js"]
)
def test_nothing_but_the_parts_of_the_page_is_there(built: Path, name: str) -> None:
    async def scene(home: House) -> None:
        assert (await home.ask("GET", f"/assets/{name}")).status == 404

    play(scene, page=built)


def test_without_a_built_page_people_are_told_so(tmp_path: Path) -> None:
    async def scene(home: House) -> None:
        told = await home.ask("GET", "/")
        assert told.status == 200
        assert b"make page" in told.body

    play(scene, page=tmp_path)


class Found(msgspec.Struct, frozen=True):
    name: str
    state: Literal["ready", "not installed", "needs login", "does not answer"] = "needs login"
    driver: str = "acp"
    version: str = "1.0"
    todo: str = "log in"


def test_known_agents_are_told_with_what_to_do_and_whether_they_are_served() -> None:
    async def look() -> list[Found]:
        return [Found("demo", "ready"), Found("other")]

    async def scene(home: House) -> None:
        first, second = (await home.get("/v1/agents/known"))["items"]
        assert (first["served"], first["state"]) == (True, "ready")
        assert (second["served"], second["todo"]) == (False, "log in")

    play(scene, known=look)
