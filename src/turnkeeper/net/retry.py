"""Decides whether a failed request is tried again, and after how long.

Pure: time and chance are fed in. It must not know sockets. Invariant: what may have been taken is
sent again only if the request is idempotent; and no wait goes beyond the time that is left.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal

from turnkeeper.net.types import HttpFailure, HttpLimits, HttpRequest

REFUSED = frozenset({429, 529})
"""Statuses that say: not now, and nothing was done."""
UNAVAILABLE = 503
"""Says so too if it says when to come again; without that, something behind it may have acted."""

SPENT = frozenset(
    "insufficient_quota credit_balance_exhausted organization_spend_limit_exceeded"
    " project_spend_limit_exceeded organization_usage_limit_exceeded billing_hard_limit_reached"
    " billing_not_active exceeded_current_quota_error".split()
)
"""Codes that say: this account has used up what it may. Their words are no guide: some say the same
of a limit that is over in a minute."""
_CODE = re.compile(rb'"(?:code|type)"\s*:\s*"(\w{1,64})"')

LONGEST_BACKOFF_S = 30.0


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """How long the other side asks us to wait: milliseconds, seconds or an HTTP date."""
    in_ms = _number(headers.get("retry-after-ms", ""))
    if in_ms is not None:
        return in_ms / 1000
    value = headers.get("retry-after", "").strip()
    seconds = _number(value)
    if seconds is not None:
        return seconds
    try:
        until = parsedate_to_datetime(value)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return max(0.0, (until - now).total_seconds())


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d{1,9}(\.\d{1,6})?", text.strip()) else None


def taken_by_status(status: int, retry_after: float | None) -> bool:
    """May a request that was answered so have been acted on?"""
    if status in REFUSED or (status == UNAVAILABLE and retry_after is not None):
        return False
    return status >= 500


def is_spent(body: bytes) -> bool:
    """Does this answer say that the account, and not the moment, is why?"""
    return any(code.decode() in SPENT for code in _CODE.findall(body))


def is_final(status: int, headers: Mapping[str, str], body: bytes) -> bool:
    """It says: not now; and that coming again would not help."""
    if status not in REFUSED and status != UNAVAILABLE:
        return False
    return headers.get("x-should-retry", "").strip().lower() == "false" or is_spent(body)


def why_waiting(failure: HttpFailure) -> Literal["rate_limited", "overloaded", "unreachable"]:
    if failure.kind != "status":
        return "unreachable"
    return "rate_limited" if failure.status == 429 else "overloaded"


def wait_before_retry_s(
    failure: HttpFailure, request: HttpRequest, limits: HttpLimits, *, left_s: float, chance: float
) -> float | None:
    """Seconds to wait before the next try, or None: the failure stands. `failure.tries` counts the
    tries so far, this one included; `chance` is in 0..1."""
    if failure.permanent or failure.kind == "deadline":
        return None
    if failure.maybe_taken and not request.idempotent:
        return None
    match failure.kind:
        case "status":
            again = not limits.refused_tries or failure.tries < limits.refused_tries
            wait_s = _after_status(failure, chance) if again else None
        case "connect":
            again = failure.tries < limits.connect_tries
            wait_s = _backoff_s(0.2, failure.tries, chance) if again else None
        case "lost" | "first_byte" | "idle" | "write":
            wait_s = 0.0 if request.idempotent and failure.tries < limits.lost_tries else None
        case _:
            wait_s = None
    return wait_s if wait_s is not None and wait_s < left_s else None


def _after_status(failure: HttpFailure, chance: float) -> float | None:
    if failure.status not in REFUSED and failure.status != UNAVAILABLE:
        return None
    # Never less than a backoff that grows: a server that says "0" for ever is not asked in a loop.
    return max(failure.retry_after_s or 0.0, _backoff_s(0.5, failure.tries, chance))


def _backoff_s(first_s: float, tries: int, chance: float) -> float:
    doubled_s = first_s * float(2 ** min(tries - 1, 10))
    return min(LONGEST_BACKOFF_S, doubled_s) * (0.5 + chance / 2)
