"""An agent that has no login or no key says so in its own words: these are told apart here.

Decides whether an agent's complaint is about that, and adds what to do. It must not know protocols
or processes. Invariant: the agent's own words are kept; what it did not complain of is not touched.
"""

from __future__ import annotations

import re

import msgspec

from turnkeeper.core import signals as s
from turnkeeper.ports import Sink

_COMPLAINT = re.compile(
    r"not logged in|please run /login|run `?\w+ login|log ?in required|must be logged in"
    r"|authentication[ _](required|failed|error)|auth(entication)? method|unauthori[sz]ed|\b401\b"
    r"|(invalid|incorrect|no|missing|set an?)( \w+)? (api|auth)[ _-]?(key|token)"
    r"|(api|auth)[ _-]?(key|token) (is )?(not|missing|invalid|required)"
    r"|missing environment variable|api_key.{0,40}(not set|missing|required|must be)",
    re.IGNORECASE,
)


_COMPLAINTS = frozenset({s.Failed, s.Broken, s.Exited})


def is_about_login(words: str) -> bool:
    """The agent complains that it has no login or no key."""
    return _COMPLAINT.search(words) is not None


def advised(sink: Sink, advice: str) -> Sink:
    """The sink, told what to do where the agent complains that it has no login."""

    def take(group: s.Group) -> None:
        if not _COMPLAINTS.isdisjoint(map(type, group.signals)):
            signals = tuple(_advise(signal, advice) for signal in group.signals)
            group = msgspec.structs.replace(group, signals=signals)
        sink(group)

    return take


def _advise(signal: s.AgentSignal, advice: str) -> s.AgentSignal:
    match signal:
        case s.Failed(detail=detail) if is_about_login(detail):
            return s.Failed(_joined(detail, advice))
        case s.Broken(reason="spawn_failed" | "protocol_error", detail=detail) if is_about_login(
            detail
        ):
            return s.Broken("agent_error", _joined(detail, advice))
        case s.Exited(code=code, detail=detail) if code and is_about_login(detail):
            return s.Broken("agent_error", _joined(detail, advice))
        case _:
            return signal


def _joined(words: str, advice: str) -> str:
    return f"{words.rstrip().rstrip('.')}. {advice}" if advice else words
