"""Reading what is asked: bodies, query strings and headers, each within its bound.

Decides which bytes are a request we can take. It must not know what the request is for. Invariant:
what is wrong is refused with the name of its field before anything is done; no more of a body is
kept than may be asked.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from functools import cache
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.types import Receive

from turnkeeper.core.errors import BUSY, TOO_LARGE, WRONG_MEDIA, InvalidValue
from turnkeeper.gateway.answers import NotAllowed, Refusal

_T = TypeVar("_T")
_S = TypeVar("_S", bound=msgspec.Struct)

RawHeaders = Iterable[tuple[bytes, bytes]]

CLOSE = (b"connection", b"close")

_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`(?: - at `\$\.?(.*?)`)?", re.S)
_MISSING = re.compile(r"Object missing required field `(.*?)`(?: - at `\$\.?(.*?)`)?", re.S)
_AT = re.compile(r"(.*) - at `(?:key in )?\$\.?(.*)`", re.S)
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]|\[\.\.\.\]")

_KEY = re.compile(r"[\x21-\x7e]{1,256}")
_PYTHON = {"str": str, "int": int, "float": float, "bool": bool, "array": list, "object": dict}


class Gone(Exception):
    """Whoever asked is no longer there."""


# Bodies --------------------------------------------------------------------------------------


async def read_body(headers: RawHeaders, receive: Receive, most: int, within_s: float) -> bytes:
    """The whole body. One that is too large is refused as early as that can be seen."""
    told = _length(headers)
    if told is not None and told > most:
        raise _too_large(f"a body of {told} bytes", most)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(within_s):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Gone
                part: bytes = message.get("body", b"")
                size += len(part)
                if size > most:
                    raise _too_large("the body", most)
                parts.append(part)
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        told_late = f"the body did not come within {within_s:g} s"
        raise Refusal(BUSY, told_late, status=408, headers=[CLOSE]) from None


def _too_large(what: str, most: int) -> Refusal:
    return Refusal(TOO_LARGE, f"{what} is more than {most} bytes", most=most)


def _length(headers: RawHeaders) -> int | None:
    given = header(headers, b"content-length")
    return int(given) if given is not None and given.isascii() and given.isdigit() else None


def check_media(headers: RawHeaders) -> None:
    """A body that says it is something else than JSON is not guessed at."""
    given = header(headers, b"content-type")
    if given is None:
        raise Refusal(WRONG_MEDIA, "the body has no Content-Type", field="Content-Type")
    kind, _, parameters = given.lower().partition(";")
    charset = parameters.strip().removeprefix("charset=").strip('" ')
    if kind.strip() != "application/json" or charset not in ("", "utf-8", "utf8"):
        told = f"the body is {given[:80]!r}"
        raise Refusal(WRONG_MEDIA, told, field="Content-Type")


def decode(body: bytes, decoder: msgspec.json.Decoder[_T]) -> _T:
    """The body in its shape, or a refusal that names the field."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as wrong:
        raise _named(str(wrong), lambda: msgspec.json.decode(body), decoder.type) from None
    except UnicodeDecodeError:
        raise NotAllowed("body", "the body is not UTF-8") from None
    except msgspec.DecodeError as wrong:
        raise NotAllowed("body", f"the body is not JSON: {wrong}") from None
    except RecursionError:
        raise NotAllowed("body", "the body is nested too deeply") from None


def _named(told: str, whole: Any, shape: Any) -> NotAllowed:
    """What was wrong, with the field that it was wrong in, and its value if it can be shown."""
    for pattern, words in ((_UNKNOWN, "is not known here"), (_MISSING, "is missing")):
        found = pattern.fullmatch(told)
        if found:
            field = ".".join(part for part in (found[2], found[1]) if part)
            return NotAllowed(field, f"{field[:80]} {words}")
    found = _AT.fullmatch(told)
    if not found or not found[2]:
        return NotAllowed("body", f"the body is not allowed: {told}")
    field, value = _walk(found[2], found[1], whole)
    why = found[1]
    if why.startswith(("Invalid enum value", "Invalid value")):
        choices = _choices(shape).get(field.rpartition(".")[2])
        why = f"give one of {', '.join(choices)}" if choices else why
    return NotAllowed(field, f"{field} = {_shown(value)} is not allowed: {why}")


@cache
def _choices(shape: Any) -> dict[str, list[str]]:
    """The fields of a shape, and of what is in it, that have a few values to choose from."""
    found: dict[str, list[str]] = {}
    left = [msgspec.inspect.type_info(shape)]
    while left:
        kind = left.pop()
        if isinstance(kind, msgspec.inspect.UnionType):
            left += kind.types
        elif isinstance(kind, msgspec.inspect.ListType):
            left.append(kind.item_type)
        elif isinstance(kind, msgspec.inspect.StructType):
            if kind.tag is not None:
                found.setdefault(kind.tag_field or "type", []).append(str(kind.tag))
            for field in kind.fields:
                left.append(field.type)
                options = _options(field.type)
                if options:
                    found.setdefault(field.encode_name, options)
    return found


def _options(kind: msgspec.inspect.Type) -> list[str]:
    if isinstance(kind, msgspec.inspect.UnionType):
        return [option for one in kind.types for option in _options(one)]
    if isinstance(kind, msgspec.inspect.LiteralType):
        return [str(value) for value in kind.values]
    if isinstance(kind, msgspec.inspect.EnumType):
        return [str(one.value) for one in kind.cls]
    return []


def _walk(path: str, told: str, whole: Any) -> tuple[str, object]:
    """The value at a path, and the path with the name of the entry that a `[...]` hides."""
    try:
        value = whole()
    except (ValueError, RecursionError):
        return path.replace("[...]", ""), "…"
    named = ""
    got = _PYTHON.get(told.rpartition("got `")[2].rstrip("`"))
    for name, index in _STEP.findall(path):
        if name:
            named = f"{named}.{name}" if named else name
            value = value.get(name) if isinstance(value, dict) else None
        elif index:
            named += f"[{index}]"
            value = value[int(index)] if isinstance(value, list) else None
        elif isinstance(value, dict):
            suspects = [k for k, v in value.items() if got is None or isinstance(v, got)]
            key = suspects[0] if suspects else "…"
            named, value = f"{named}.{key}", value.get(key)
    return named, value


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:77] + "..."


# Query strings -------------------------------------------------------------------------------


def decode_query(raw: bytes, shape: type[_S]) -> _S:
    """The query in its shape; what is given twice, or is no text, is refused."""
    if not raw:
        return shape()
    lists, given = _lists_in(shape), dict[str, Any]()
    try:
        pairs = parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100
        )
    except ValueError:
        raise NotAllowed("query", "the query is not text in UTF-8, or too long") from None
    for name, value in pairs:
        if name in lists:
            given.setdefault(name, []).append(value)
        elif name in given:
            raise InvalidValue(name, value, "it is given twice")
        else:
            given[name] = value
    try:
        return msgspec.convert(given, shape, strict=False)
    except msgspec.ValidationError as wrong:
        raise _named(str(wrong), lambda: given, shape) from None


@cache
def _lists_in(shape: type[msgspec.Struct]) -> frozenset[str]:
    """The names that may be given several times."""
    fields = msgspec.structs.fields(shape)
    kinds = {field.encode_name: msgspec.inspect.type_info(field.type) for field in fields}
    return frozenset(
        name for name, kind in kinds.items() if isinstance(kind, msgspec.inspect.ListType)
    )


# Headers -------------------------------------------------------------------------------------


def header(headers: RawHeaders, name: bytes) -> str | None:
    """The value of a header; the first, if there are several."""
    for key, value in headers:
        if key == name:
            return value.decode("latin-1")
    return None


def sole(headers: RawHeaders, name: bytes) -> str | None:
    """The value of a header that means nothing if it is given twice: then it is empty."""
    given = [value for key, value in headers if key == name]
    if not given:
        return None
    return given[0].decode("latin-1") if len(given) == 1 else ""


def idempotency_key(headers: RawHeaders) -> str | None:
    given = [value.decode("latin-1") for key, value in headers if key == b"idempotency-key"]
    if not given:
        return None
    if len(given) > 1 or not _KEY.fullmatch(given[0]):
        told = "give 1 to 256 visible ASCII characters, once"
        raise InvalidValue("Idempotency-Key", given[0], told)
    return given[0]
