"""Takes pictures of every view of the page for docs/images/page: `make pictures`.

Decides which scenes are shown. It starts a demo of its own, and a Chromium before it. Each view is
taken in light, in dark and as wide as a phone; and there is one that moves.
"""

from __future__ import annotations

import json
import struct
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect

from tests.page.house import House, Person, browser
from tests.tidy.source import REPO

WHERE = REPO / "docs" / "images" / "page"
WIDE = {"width": 1200, "height": 750}
PHONE = {"width": 390, "height": 760}
FRAME_MS = 600

QUICK = {"idle_s": 8, "tool_s": 8, "first_output_s": 8}


def main() -> None:
    WHERE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data, browser() as chrome:
        house = House(Path(data) / "data")
        house.start()
        try:
            run = _set_the_scene(chrome, house)
            for name, size, colours in (
                ("light", WIDE, "light"), ("dark", WIDE, "dark"), ("phone", PHONE, "light"),
            ):  # fmt: skip
                _take_all(chrome, house, run, name, size, colours)
            _film(chrome, house)
        finally:
            house.end()


def _person(chrome: Browser, house: House, size: Any, colours: Any) -> Person:
    context = chrome.new_context(viewport=size, color_scheme=colours, reduced_motion="reduce")
    return Person(house, context, context.new_page()).come()


def _ask(person: Person, path: str, body: object) -> Any:
    token = (person.house.data / "token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    url = person.house.url + path
    return person.context.request.post(url, headers=headers, data=json.dumps(body)).json()


def _say(person: Person, session: str, text: str, **more: object) -> str:
    told = _ask(person, f"/v1/sessions/{session}/messages", {"text": text, **more})
    return str(told["run_id"])


def _set_the_scene(chrome: Browser, house: House) -> str:
    """Sessions in every state; the run whose timeline is shown."""
    person = _person(chrome, house, WIDE, "light")
    for session, agent, title in (
        ("notes", "demo", "Tidy the notes"), ("report", "demo", "Quarterly report"),
        ("release", "builder", "Build the release"), ("cleanup", "asker", "Clean up old files"),
        ("import", "demo", "Import the orders"), ("server", "forker", "Start the test server"),
        ("trouble", "demo", "Why is the query slow?"),
    ):  # fmt: skip
        _ask(person, "/v1/sessions", {"agent": agent, "id": session, "title": title})
    for text in ("hello", "think 0.5", "tool 1", "fail", "refuse", "exit"):
        _wait(person, _say(person, "report", text))
    stuck = _say(person, "trouble", "stuck tool", limits=QUICK)
    _wait(person, stuck)
    _wait(person, _say(person, "trouble", "hello"))
    for text in ("think 1", "tool 1"):
        _wait(person, _say(person, "notes", text))
    _say(person, "release", "build 600", limits={"tool_s": 3600})
    _say(person, "cleanup", "Delete what nobody has read since spring")
    _say(person, "server", "go")
    _say(person, "import", "long 100000")
    _say(person, "import", "then count the orders")
    _say(person, "import", "and tell me which are late")
    expect(person.page.locator(".sessions .line")).to_have_count(7)
    person.context.close()
    return stuck


def _wait(person: Person, run: str) -> None:
    token = (person.house.data / "token").read_text().strip()
    url = f"{person.house.url}/v1/runs/{run}/wait?timeout_s=60"
    person.context.request.get(url, headers={"Authorization": f"Bearer {token}"})


def _take_all(chrome: Browser, house: House, run: str, name: str, size: Any, colours: Any) -> None:
    person = _person(chrome, house, size, colours)
    page = person.page
    for view, where, shown in (
        ("sessions", "#/", ".line"), ("session", "#/s/import", ".queue li"),
        ("ending", "#/s/trouble", ".ending.good"), ("approval", "#/s/cleanup", ".approval.open"),
        ("tools", "#/s/notes", ".row-tool"),
        ("run", f"#/s/trouble/r/{run}", ".facts"), ("inbox", "#/inbox", ".approval.open"),
        ("overview", "#/overview", ".outcomes"), ("new", "#/new", ".agents label"),
    ):  # fmt: skip
        page.goto(house.url + "/" + where)
        expect(page.locator(shown).first).to_be_visible()
        _settle(page)
        page.screenshot(path=WHERE / f"{view}-{name}.png")
    page.keyboard.press("Control+k")
    expect(page.locator(".palette")).to_be_visible()
    _settle(page)
    page.screenshot(path=WHERE / f"commands-{name}.png")
    person.context.close()


def _settle(page: Page) -> None:
    """Lists and clocks have come in."""
    page.wait_for_timeout(700)


# The one that moves --------------------------------------------------------------------------


def _film(chrome: Browser, house: House) -> None:
    """An agent stalls, is seen to, is timed out with the cause, and the next message works."""
    person = _person(chrome, house, {"width": 900, "height": 520}, "light")
    limits = {"idle_s": 6}
    _ask(person, "/v1/sessions", {"agent": "demo", "id": "film", "title": "Ask", "limits": limits})
    page = person.page
    page.goto(f"{house.url}/#/s/film")
    expect(page.locator("#say")).to_be_visible()
    frames = [page.screenshot()]
    person.say("stall after 5")
    over = page.locator(".ending.out-timed_out")
    while over.count() == 0:
        frames.append(_frame(page))
    frames += [page.screenshot()] * 3
    person.say("hello")
    while page.locator(".ending.good").count() == 0:
        frames.append(_frame(page))
    frames += [page.screenshot()] * 4
    (WHERE / "stall.png").write_bytes(moving(frames, FRAME_MS))
    person.context.close()


def _frame(page: Page) -> bytes:
    page.wait_for_timeout(FRAME_MS)
    return page.screenshot()


def moving(frames: list[bytes], each_ms: int) -> bytes:
    """Pictures of one size as one that moves: PNG with the chunks of APNG. A frame that is the same
    as the one before only makes that one last longer."""
    distinct: list[list[Any]] = []
    for frame in frames:
        if distinct and distinct[-1][0] == frame:
            distinct[-1][1] += each_ms
        else:
            distinct.append([frame, each_ms])
    first = dict(_chunks(distinct[0][0]))
    width, height = struct.unpack(">II", first[b"IHDR"][:8])
    out = [b"\x89PNG\r\n\x1a\n", _chunk(b"IHDR", first[b"IHDR"])]
    out.append(_chunk(b"acTL", struct.pack(">II", len(distinct), 0)))
    number = 0
    for index, (frame, lasts_ms) in enumerate(distinct):
        control = struct.pack(">IIIIIHHBB", number, width, height, 0, 0, lasts_ms, 1000, 0, 0)
        out.append(_chunk(b"fcTL", control))
        number += 1
        pixels = b"".join(data for kind, data in _chunks(frame) if kind == b"IDAT")
        if index == 0:
            out.append(_chunk(b"IDAT", pixels))
        else:
            out.append(_chunk(b"fdAT", struct.pack(">I", number) + pixels))
            number += 1
    return b"".join([*out, _chunk(b"IEND", b"")])


def _chunks(picture: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 8
    while at < len(picture):
        (length,) = struct.unpack(">I", picture[at : at + 4])
        yield picture[at + 4 : at + 8], picture[at + 8 : at + 8 + length]
        at += 12 + length


def _chunk(kind: bytes, data: bytes) -> bytes:
    check = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)


if __name__ == "__main__":
    main()
