"""What callers give, checked before it is kept or sent.

Decides what cannot be sent at all. It must not know what the server allows, which the server says.
Invariant: what is refused here names its field.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping

import msgspec

from turnkeeper import api
from turnkeeper.core.errors import InvalidValue
from turnkeeper.core.given import text as text
from turnkeeper.core.rules import check_rules

_KEY = re.compile(r"[\x21-\x7e]{1,256}")
_encoder = msgspec.json.Encoder()


def encode(asked: msgspec.Struct) -> bytes:
    """As it goes over the network; what cannot go is refused."""
    try:
        return _encoder.encode(asked)
    except (TypeError, ValueError) as wrong:
        raise InvalidValue("body", type(asked).__name__, str(wrong)) from None


def name(field: str, value: object) -> str:
    """An id, for a path: there has to be something."""
    if not text(field, value) or value in (".", ".."):
        raise InvalidValue(field, value, "give an id")
    return str(value)


def cursor(field: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidValue(field, value, "give the number of the last event you have, or 0")
    return value


def seconds(field: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise InvalidValue(field, value, "give a number of seconds, or none")
    return float(value)


def key(value: object) -> str:
    """The given idempotency key, or a new one."""
    if value is None:
        return f"k_{secrets.token_hex(16)}"
    if not isinstance(value, str) or not _KEY.fullmatch(value):
        raise InvalidValue("key", value, "give 1 to 256 visible ASCII characters, or none")
    return value


def limits(value: object) -> dict[str, float]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidValue("limits", value, "give a table of limits, as {'idle_s': 60}")
    for limit, given in value.items():
        text("limits", limit)
        seconds(f"limits.{limit}", given)
    return dict(value)


def rules(value: object) -> api.RulesIn:
    found = check_rules(value or {})
    return api.RulesIn(allow=list(found.allow), ask=list(found.ask), deny=list(found.deny))


def yes_or_no(field: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidValue(field, value, "give true or false")
    return value


def query(given: Mapping[str, object]) -> dict[str, str | list[str]]:
    """What is asked for in a list; what is none is left out."""
    found: dict[str, str | list[str]] = {}
    for field, value in given.items():
        if isinstance(value, list):
            found[field] = [text(field, one) for one in value]
        elif isinstance(value, int) and not isinstance(value, bool):
            found[field] = str(value)
        elif value is not None:
            found[field] = text(field, value)
    return found
