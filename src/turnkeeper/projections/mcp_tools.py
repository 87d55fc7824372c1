"""The tools that the MCP server offers, and what each tells: runs, in the words of the one table.

Decides names, arguments and the shape of what is told. It must not know who carries a call out.
Invariants: how a run ended is told in the words of `core.outcome` alone; a wait that is over is
told as "still running", never as an ending; no tool answers an approval.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from turnkeeper.core.errors import TurnkeeperError, ending_code
from turnkeeper.core.outcome import Outcome, words_of

WAIT_MAX_S = 300.0

RunId = Annotated[str, Meta(min_length=1, max_length=256, description="The run's id: r_…")]
Key = Annotated[
    str,
    Meta(min_length=1, max_length=200,
         description="Makes asking again harmless: the same key is the same run"),
]  # fmt: skip
Seconds = Annotated[float, Meta(ge=0, le=WAIT_MAX_S)]
Text = Annotated[str, Meta(min_length=1, max_length=1_000_000)]


class Arguments(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """What a tool is called with."""


class StartRun(Arguments, kw_only=True, frozen=True, tag="start_run", tag_field="tool"):
    """Give an agent something to do. Gives the run's id at once; wait_run tells what came of it.
    Started from within a run, it ends no later than that run and is stopped with it."""

    text: Annotated[Text, Meta(description="What the agent is to do")]
    agent: Annotated[str, Meta(max_length=128, description="The agent of a new session")] | None = (
        None
    )
    session: (
        Annotated[str, Meta(max_length=128, description="An existing session, to go on with it")]
        | None
    ) = None
    title: Annotated[str, Meta(max_length=500)] = ""
    cwd: Annotated[str, Meta(max_length=4096, description="The folder of a new session")] = ""
    deadline_s: (
        Annotated[float, Meta(gt=0, description="The run ends then, whatever happens")] | None
    ) = None
    wait_s: Annotated[Seconds, Meta(description="Wait for its end so long before answering")] = 0.0
    key: Key | None = None


class WaitRun(Arguments, kw_only=True, frozen=True, tag="wait_run", tag_field="tool"):
    """Wait for a run's end, for so long. Tells how it ended and what it said; or that it is still
    running, and then it goes on: wait again."""

    run: RunId
    timeout_s: Seconds = 30.0


class GetRun(Arguments, kw_only=True, frozen=True, tag="get_run", tag_field="tool"):
    """How a run is doing: its state and phase; how it ended and what it said, if it has ended."""

    run: RunId


class ListRuns(Arguments, kw_only=True, frozen=True, tag="list_runs", tag_field="tool"):
    """The runs, the newest first. Within a run: those that it has started, and those below them."""

    state: Literal["queued", "running", "ended", "unfinished"] | None = None
    session: Annotated[str, Meta(max_length=128)] | None = None
    parent: RunId | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 20


class SteerRun(Arguments, kw_only=True, frozen=True, tag="steer_run", tag_field="tool"):
    """Say something more to a running run, in the middle of its turn. Refused if it has ended, or
    if its agent cannot take more: then start another run in its session."""

    run: RunId
    text: Text
    key: Key | None = None


class StopRun(Arguments, kw_only=True, frozen=True, tag="stop_run", tag_field="tool"):
    """Stop a run and all that it has started. Stopping one that has ended changes nothing."""

    run: RunId


class ListAgents(Arguments, kw_only=True, frozen=True, tag="list_agents", tag_field="tool"):
    """The agents that a run can be started with."""


ToolCall = StartRun | WaitRun | GetRun | ListRuns | SteerRun | StopRun | ListAgents

_TOOLS: tuple[tuple[type[Arguments], str, dict[str, bool]], ...] = (
    (StartRun, "Start a run", {}),
    (WaitRun, "Wait for a run", {"readOnlyHint": True}),
    (GetRun, "Look at a run", {"readOnlyHint": True}),
    (ListRuns, "List runs", {"readOnlyHint": True}),
    (SteerRun, "Steer a run", {"destructiveHint": False}),
    (StopRun, "Stop a run", {"destructiveHint": True, "idempotentHint": True}),
    (ListAgents, "List agents", {"readOnlyHint": True}),
)


def _name(shape: type[Arguments]) -> str:
    return str(shape.__struct_config__.tag)


NAMES = frozenset(_name(shape) for shape, _, _ in _TOOLS)

_OUTCOME = {
    "type": ["object", "null"],
    "description": "How it ended; null while it has not",
    "properties": {
        "kind": {"enum": ["completed", "failed", "cancelled", "timed_out", "lost"]},
        "reason": {"type": "string"},
        "detail": {"type": "string"},
        "code": {"type": ["string", "null"]},
    },
    "required": ["kind", "reason", "detail"],
}
_RUN: dict[str, Any] = {
    "type": "object",
    "properties": {
        "run": {"type": "string"},
        "session": {"type": "string"},
        "agent": {"type": "string"},
        "state": {"enum": ["queued", "running", "ended"]},
        "phase": {"type": "string"},
        "parent": {"type": ["string", "null"]},
        "asked": {"type": "string", "description": "How its message begins"},
        "outcome": _OUTCOME,
        "answer": {"type": ["string", "null"], "description": "What it said, once it has ended"},
        "successor": {"type": ["string", "null"]},
    },
    "required": ["run", "session", "state", "outcome"],
}
_LIST = {"type": "object", "properties": {"runs": {"type": "array", "items": _RUN}},
         "required": ["runs"]}  # fmt: skip
_STEERED = {"type": "object", "properties": {"run": {"type": "string"},
            "message": {"type": "string"}}, "required": ["run", "message"]}  # fmt: skip
_STOPPED = {"type": "object", "properties": {"run": {"type": "string"},
            "state": {"enum": ["stopping", "ended"]}, "changed": {"type": "boolean"}},
            "required": ["run", "state", "changed"]}  # fmt: skip
_AGENTS = {"type": "object", "properties": {"agents": {"type": "array", "items": {
           "type": "object", "properties": {"name": {"type": "string"}}}}},
           "required": ["agents"]}  # fmt: skip
_TELLS: dict[str, dict[str, Any]] = {
    "start_run": _RUN, "wait_run": _RUN, "get_run": _RUN, "list_runs": _LIST,
    "steer_run": _STEERED, "stop_run": _STOPPED, "list_agents": _AGENTS,
}  # fmt: skip


def _schema(shape: type[Arguments]) -> dict[str, Any]:
    _, components = msgspec.json.schema_components([shape])
    (found,) = components.values()
    properties = {name: told for name, told in found["properties"].items() if name != "tool"}
    required = [name for name in found.get("required", []) if name != "tool"]
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": required} if required else schema


def _tool(shape: type[Arguments], title: str, hints: dict[str, bool]) -> dict[str, Any]:
    name = _name(shape)
    return {
        "name": name,
        "title": title,
        "description": " ".join((shape.__doc__ or "").split()),
        "inputSchema": _schema(shape),
        "outputSchema": _TELLS[name],
        "annotations": {"openWorldHint": False, **hints},
    }


TOOLS: list[dict[str, Any]] = [_tool(*one) for one in _TOOLS]


def read_call(name: str, arguments: Any) -> ToolCall:
    """The call in its shape; `msgspec.ValidationError`, naming the argument, if it is not."""
    given = {**arguments, "tool": name} if isinstance(arguments, dict) else arguments
    return msgspec.convert(given, ToolCall)  # type: ignore[no-any-return]


# What is told ----------------------------------------------------------------------------------


def outcome_told(outcome: Outcome | None) -> dict[str, Any] | None:
    """How a run ended, in the words of the one table."""
    if outcome is None:
        return None
    entry = ending_code(outcome.kind, outcome.reason)
    return {
        "kind": words_of(outcome).api,
        "reason": outcome.reason,
        "detail": outcome.detail,
        "code": entry.code if entry is not None else None,
    }


def sentence(call: ToolCall, told: dict[str, Any]) -> str:
    """What is told, for a model to read."""
    match call:
        case StartRun() | WaitRun() | GetRun():
            return _about_run(call, told)
        case ListRuns():
            lines = [f"{one['run']} ({one['agent']}): {_state(one)}" for one in told["runs"]]
            return "\n".join(lines) or "there are no such runs"
        case SteerRun():
            return f"run {told['run']} was told"
        case StopRun():
            changed = "" if told["changed"] else " (it was before)"
            return f"run {told['run']} is {told['state']}{changed}"
        case ListAgents():
            return "\n".join(one["name"] for one in told["agents"]) or "there are no agents"


def _about_run(call: ToolCall, told: dict[str, Any]) -> str:
    outcome = told["outcome"]
    if outcome is None:
        more = "; the wait is over, and the run goes on" if isinstance(call, WaitRun) else ""
        return f"run {told['run']} of session {told['session']} is {_state(told)}{more}"
    end = f"run {told['run']} ended: {outcome['kind']} ({outcome['reason']}). {outcome['detail']}"
    return f"{end.strip()}\n\n{told['answer']}" if told.get("answer") else end.strip()


def _state(told: dict[str, Any]) -> str:
    outcome = told["outcome"]
    if outcome is not None:
        return f"{outcome['kind']} ({outcome['reason']})"
    return "still running" if told["state"] == "running" else str(told["state"])


def refusal(refused: TurnkeeperError) -> dict[str, Any]:
    """A call that was refused: the model is told why, and what to do."""
    entry = refused.entry
    told = {"code": entry.code, "title": entry.title, "detail": refused.what, "todo": entry.todo}
    return {"content": [{"type": "text", "text": str(refused)}],
            "isError": True, "_meta": {"turnkeeper/problem": told}}  # fmt: skip
