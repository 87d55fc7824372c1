"""Writes page/src/data/wire.ts: the shapes of the API and of the events, as TypeScript has them.

Decides only how they are written there. Run it with `make diagram`; a test fails while the file is
stale.
"""

from __future__ import annotations

import types
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from turnkeeper import api
from turnkeeper.core import commands, diagnosis, outcome, rules
from turnkeeper.core import events as e
from turnkeeper.core.limits import Limits
from turnkeeper.gateway import known

FILE = Path(__file__).resolve().parents[1] / "page" / "src" / "data" / "wire.ts"

Struct = type[msgspec.Struct]

ASKED: tuple[Struct, ...] = (
    api.RulesIn, api.NewSession, api.TextPart, api.NewMessage, api.EditRun, api.Steer,
    api.Decision, api.Stop,
    *get_args(api.Incoming),
)  # fmt: skip
TOLD: tuple[Struct, ...] = (
    outcome.Sample, outcome.Seen, outcome.Outcome, commands.NextClock,
    api.SessionOut, api.AcceptedOut, api.OutcomeOut, api.RunOut, api.StopOut, api.HandedOut,
    api.ApprovalOut,
    api.AgentOut, api.SessionsOut, api.RunsOut, api.ApprovalsOut, api.AgentsOut,
    known.KnownAgentOut, known.KnownAgentsOut, api.Problem,
    diagnosis.ProcessSeen, diagnosis.ClockSeen, diagnosis.Diagnosis,
    *(shape for shape in get_args(api.Outgoing) if shape is not api.Events),
)  # fmt: skip
PARTS: tuple[Struct, ...] = (e.Parent, rules.Rules)

NAMES: dict[Any, str] = {
    str: "string", int: "number", float: "number", bool: "boolean", Any: "unknown",
    type(None): "null", msgspec.Raw: "unknown",
}  # fmt: skip


def render() -> str:
    lines = [
        "// The shapes of the API and of the events. Made from turnkeeper.api and",
        "// turnkeeper.core.events by `make diagram`; do not edit it by hand.",
        "",
    ]
    for shape in (*PARTS, *ASKED):
        lines += _interface(shape.__name__, shape, always=False)
    for shape in TOLD:
        lines += _interface(shape.__name__, shape, always=not shape.__struct_config__.omit_defaults)
    for fact in e.FACTS:
        lines += _interface(fact.__name__, fact, always=False)
    lines += ["export interface Facts {"]
    lines += [f"  {fact.kind!r}: {fact.__name__};" for fact in e.FACTS]
    lines += ["}", "", "export type Kind = keyof Facts;", "", *_tail()]
    return "\n".join(lines)


def _tail() -> Iterable[str]:
    yield "/** One fact of a session's log. */"
    yield "export type Event = {"
    yield "  [K in Kind]: {"
    yield "    seq: number; session: string; run: string | null;"
    yield "    kind: K; at: number; data: Facts[K];"
    yield "  };"
    yield "}[Kind];"
    yield ""
    yield 'export interface Events { type: "events"; session: string; events: Event[] }'
    yield ""
    yield f"export type Incoming = {_union(api.Incoming)};"
    yield f"export type Outgoing = {_union(api.Outgoing)};"
    yield ""


def _union(union: Any) -> str:
    return " | ".join(shape.__name__ for shape in get_args(union))


def _interface(name: str, shape: Struct, *, always: bool) -> Iterable[str]:
    """`always`: a field that has its default is written all the same."""
    yield f"export interface {name} {{"
    tag = shape.__struct_config__.tag
    if isinstance(tag, str) and shape in (*ASKED, *TOLD):
        yield f"  type: {_quoted(tag)};"
    for field in msgspec.structs.fields(shape):
        sign = ":" if field.required or always else "?:"
        yield f"  {field.name}{sign} {_shown(field.type)};"
    yield "}"
    yield ""


def _quoted(text: object) -> str:
    return msgspec.json.encode(text).decode()


def _shown(kind: Any) -> str:
    if kind in NAMES:
        return NAMES[kind]
    if kind is Limits:
        return "Record<string, number>"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return " | ".join(_quoted(one.value) for one in kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind.__name__
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _shown(inside[0])
    if origin is Literal:
        return " | ".join(_quoted(value) for value in inside)
    if origin in (Union, types.UnionType):
        return " | ".join(_shown(each) for each in inside if each is not msgspec.UnsetType)
    if origin is dict:
        return f"Record<string, {_shown(inside[1])}>"
    if origin in (tuple, list):
        one = _shown(inside[0])
        return f"({one})[]" if "|" in one else f"{one}[]"
    raise TypeError(f"nobody has said yet how {kind} is written")


def main() -> None:
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
