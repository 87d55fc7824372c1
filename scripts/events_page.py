"""Writes docs/reference/events.md: every kind of event with its fields, from the structs.

Decides only how they are shown. Run it with `make diagram`; a test fails while the committed page
is stale.
"""

from __future__ import annotations

import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from turnkeeper.core import events as e
from turnkeeper.core.limits import Limits
from turnkeeper.core.outcome import Kind, Outcome, Sample, Seen
from turnkeeper.core.rules import Rules

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "events.md"

PARTS: tuple[type[msgspec.Struct], ...] = (e.Parent, Rules, Outcome, Seen, Sample)

PLAIN: dict[type[e.Fact], str] = {
    e.SessionCreated: "The session exists, and this is its agent.",
    e.RunStarted: "It is this run's turn, under these limits.",
    e.AttemptReady: "The agent can take the message. `conversation` is its own id to resume by.",
    e.OutputText: "A piece of the agent's answer.",
    e.OutputThinking: "A piece of the agent's thinking.",
    e.ToolStartedFact: "The agent began to use a tool.",
    e.ToolProgressFact: "A tool got on.",
    e.ToolEndedFact: "A tool call is over.",
    e.ApprovalRequested: "The agent wants a person's leave; after `expires_at` it is denied.",
    e.ApprovalSettled: "A question is settled, once. `answer`: whether the agent is owed it.",
    e.ContextLostFact: "The agent could not go on with this conversation, and began a fresh one.",
    e.ChildStarted: "This run started a run in another session.",
    e.ChildEnded: "A run that this one started has ended.",
}
"""What a fact means whose own docstring does not say it to a stranger."""


def render() -> str:
    lines = [*_head(), *_contents()]
    for fact in e.FACTS:
        lines += _fact(fact)
    lines += ["## Parts", "", "Structures that are used in several events.", ""]
    for part in PARTS:
        lines += [f"### {part.__name__}", "", _told(part), "", *_fields(part), ""]
    return "\n".join(lines).rstrip() + "\n"


def _head() -> Iterable[str]:
    yield "# Events"
    yield ""
    yield "Made from `turnkeeper.core.events` by `make diagram`; do not edit it by hand."
    yield ""
    yield "A session's log is a list of events, numbered 1, 2, 3 … without a gap. What is not in"
    yield "the log did not happen. Each event is one line of JSON with these keys; `v` and `pos`"
    yield "are there only where their row says so, the others always:"
    yield ""
    yield "| key | type | meaning |"
    yield "|---|---|---|"
    yield "| `seq` | integer | its number in the session's log, and the cursor to watch from |"
    yield "| `session` | string | the session |"
    yield "| `run` | string or null | the run it is about |"
    yield "| `kind` | string | one of those below |"
    yield "| `at` | number | wall time, in seconds since 1970 |"
    yield "| `data` | object | the fields below |"
    yield "| `v` | integer | the version of the data's shape; only if it is not 1 |"
    yield "| `pos` | integer | how far the agent's stream is consumed with it; only if not 0 |"
    yield ""
    yield "A field that is left out of `data` has its default. The other way round it is no rule:"
    yield "a field that has its default is mostly left out, and may be written all the same. In"
    yield "Python every field is there."
    yield ""
    yield "Whatever was ever written can be read: a changed shape gets a new version, and an old"
    yield "one is brought up to date when it is read."
    yield ""


def _contents() -> Iterable[str]:
    yield "| kind | what is now true |"
    yield "|---|---|"
    for fact in e.FACTS:
        anchor = fact.kind.replace(".", "")
        yield f"| [{fact.kind}](#{anchor}) | {_told(fact)} |"
    yield ""


def _fact(fact: type[e.Fact]) -> Iterable[str]:
    yield f"## {fact.kind}"
    yield ""
    yield f"{_told(fact)} Version {fact.version}. In Python: `events.{fact.__name__}`."
    yield ""
    yield from _fields(fact)
    yield ""


def _told(struct: type[msgspec.Struct]) -> str:
    plain = PLAIN.get(struct) if issubclass(struct, e.Fact) else None
    own = struct.__dict__.get("__doc__")
    return " ".join((plain or own or "").split())


def _fields(struct: type[msgspec.Struct]) -> Iterable[str]:
    yield "| field | type | default |"
    yield "|---|---|---|"
    for field in msgspec.structs.fields(struct):
        yield f"| `{field.name}` | {_shown(field.type)} | {_default(field)} |"


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if isinstance(value, msgspec.Struct):
        return "empty"
    return f"`{msgspec.json.encode(value).decode()}`"


_NAMES: dict[Any, str] = {
    str: "string", int: "integer", float: "number", bool: "boolean", Any: "any JSON",
    type(None): "null", Limits: "[limits](limits.md)",
    Kind: "[outcome](../errors/README.md): " + ", ".join(f'`"{kind.value}"`' for kind in Kind),
}  # fmt: skip


def _shown(kind: Any) -> str:
    if kind in _NAMES:
        return _NAMES[kind]
    if kind in PARTS:
        return f"[{kind.__name__}](#{kind.__name__.lower()})"
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Literal:
        return " or ".join(f'`"{value}"`' for value in inside)
    if origin in (Union, types.UnionType):
        return " or ".join(_shown(each) for each in inside)
    if origin is dict:
        return f"object of {_shown(inside[1])}s"
    if origin is tuple:
        return f"list of {_shown(inside[0])}s"
    raise TypeError(f"nobody has said yet how {kind} is shown")


def main() -> None:
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
