"""The web page's files, as they were built into the package.

Decides how browsers may keep them and what they may do with them. It must not know what the page
does. Invariants: the files hold no secret, so they need no token, and the page comes with none: it
takes its token from the part of the address that browsers keep to themselves; nothing of the page
comes from elsewhere, and no script or style stands in it; only files that were there at the first
request are served, by their whole names.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from turnkeeper.core.errors import NO_SUCH_PLACE, WRONG_HOST, WRONG_ORIGIN
from turnkeeper.gateway.answers import TEXT, Answer, Refusal
from turnkeeper.gateway.asked import header
from turnkeeper.gateway.table import Call, Endpoint, Told

BUILT: Final = Path(__file__).resolve().parents[1] / "page"
"""Where `make page` puts what it builds."""

ASSETS: Final = "/assets/"

POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    b" base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
    b" require-trusted-types-for 'script'; trusted-types 'none'"
)

FOR_EVER: Final = b"public, max-age=31536000, immutable"
"""An asset is named after what is in it: another content has another name."""

MEDIA: Final = {
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".svg": b"image/svg+xml",
    ".png": b"image/png",
}
PACKED: Final = (".html", ".js", ".css", ".svg")

NOT_BUILT: Final = b"""Turnkeeper is here. Its page is not built: run `make page` in its sources.

/openapi.json   everything that can be asked, for programs
/v1/sessions    conversations with agents
/v1/runs        turns: queued, running, ended
/v1/approvals   what agents want to be allowed
/v1/agents      who can be talked to
/v1/ws          a WebSocket: events and commands
/healthz        it lives
/readyz         it is ready for work
/metrics        for Prometheus
"""


class File(msgspec.Struct, frozen=True):
    """One file, ready to be sent."""

    body: bytes
    packed: bytes | None
    media: bytes
    tag: bytes


@cache
def files_in(folder: Path) -> Mapping[str, File]:
    """Name -> file: `index.html`, and the assets by their own names. Read once."""
    index = folder / "index.html"
    if not index.is_file():
        return {}
    paths = [index, *sorted((folder / "assets").glob("*"))]
    return {path.name: _read(path) for path in paths if path.suffix in MEDIA}


def _read(path: Path) -> File:
    body = path.read_bytes()
    packed = gzip.compress(body, 9, mtime=0) if path.suffix in PACKED else None
    tag = b'"' + hashlib.sha256(body).hexdigest()[:32].encode() + b'"'
    return File(body, packed, MEDIA[path.suffix], tag)


async def page(call: Call) -> Answer:
    file = files_in(call.gate.page or BUILT).get("index.html")
    if file is None:
        return Answer(200, NOT_BUILT, TEXT)
    return _answer(call, file, b"no-cache")


async def asset(call: Call) -> Answer:
    name = call.id
    file = None if name == "index.html" else files_in(call.gate.page or BUILT).get(name)
    if file is None:
        raise Refusal(NO_SUCH_PLACE, f"the page has no part {name[:80]!r}")
    return _answer(call, file, FOR_EVER)


def _answer(call: Call, file: File, keep: bytes) -> Answer:
    headers = [
        (b"cache-control", keep), (b"etag", file.tag), (b"vary", b"accept-encoding"),
        (b"content-security-policy", POLICY), (b"cross-origin-opener-policy", b"same-origin"),
        (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
    ]  # fmt: skip
    known = (header(call.headers, b"if-none-match") or "").encode("latin-1", "replace")
    if file.tag in known:
        return Answer(304, b"", file.media, headers)
    takes = header(call.headers, b"accept-encoding") or ""
    if file.packed is not None and "gzip" in takes:
        return Answer(200, file.packed, file.media, [*headers, (b"content-encoding", b"gzip")])
    return Answer(200, file.body, file.media, headers)


_KEPT = {"ETag": "of this content"}
_SAME = Told("", "it is as you have it")

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "GET", "/", page, "The page", None,
        {200: Told("text/html", "the page, or (not built) a few lines for people", _KEPT,
                   or_else=("text/plain",)), 304: _SAME},
        (WRONG_HOST, WRONG_ORIGIN), query=None,
    ),
    Endpoint(
        "GET", f"{ASSETS}{{id}}", asset, "A part of the page", None,
        {200: Told("text/javascript", "the part", _KEPT,
                   or_else=("text/css", "image/svg+xml", "image/png")), 304: _SAME},
        (NO_SUCH_PLACE, WRONG_HOST, WRONG_ORIGIN), query=None,
    ),
)  # fmt: skip
