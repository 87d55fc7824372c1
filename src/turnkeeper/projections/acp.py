"""What happens in a session, in the words of the Agent Client Protocol, version 1.

Decides which `session/update` tells of which event, and how an ending answers a prompt. It must not
know lines, requests or who reads. Invariants: a run's ending is told in the words of the one table;
what came late is told to nobody; a tool call that was opened is closed, by the run's end at last.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from turnkeeper.core import events as e
from turnkeeper.core.errors import (
    UNKNOWN_AGENT,
    UNKNOWN_APPROVAL,
    UNKNOWN_RUN,
    UNKNOWN_SESSION,
    TurnkeeperError,
    ending_code,
)
from turnkeeper.core.outcome import Outcome, words_of
from turnkeeper.projections.calls import Call, Calls

Json = dict[str, Any]

VERSION = 1

INTERNAL = -32603
NOT_FOUND = -32002
AUTH_REQUIRED = -32000
"""Editors ask people to log in for it: nothing of ours may have that code."""

ALLOW, DENY = "allow", "deny"
OPTIONS = (
    {"optionId": ALLOW, "name": "Allow", "kind": "allow_once"},
    {"optionId": DENY, "name": "Deny", "kind": "reject_once"},
)
AGENT = "agent"
"""The one option of a session: whom it is with."""

KINDS: dict[str, str] = {
    **dict.fromkeys(("read", "view", "cat", "read_file", "notebookread"), "read"),
    **dict.fromkeys(
        ("edit", "write", "multiedit", "notebookedit", "write_file", "edit_file", "apply_patch"),
        "edit",
    ),
    **dict.fromkeys(("delete", "delete_file", "rm"), "delete"),
    **dict.fromkeys(("move", "rename", "mv"), "move"),
    **dict.fromkeys(("search", "grep", "glob", "find", "ls", "list_files"), "search"),
    **dict.fromkeys(("bash", "shell", "exec_command", "execute", "run", "command"), "execute"),
    **dict.fromkeys(("think", "todowrite"), "think"),
    **dict.fromkeys(("fetch", "webfetch", "websearch", "http"), "fetch"),
    **dict.fromkeys(("exitplanmode", "switch_mode"), "switch_mode"),
}
"""The kind of a tool, by its name; editors choose an icon by it."""

TITLE_CHARS = 200
PLACES = ("file_path", "path", "notebook_path")
"""Where a tool's input names a file."""


def hello(version: str) -> Json:
    """The answer to `initialize`."""
    return {
        "protocolVersion": VERSION,
        "agentCapabilities": {
            "loadSession": True,
            "promptCapabilities": {"image": False, "audio": False, "embeddedContext": True},
            "mcpCapabilities": {"http": False, "sse": False},
            "sessionCapabilities": {"list": {}, "resume": {}, "close": {}},
        },
        "agentInfo": {"name": "turnkeeper", "title": "Turnkeeper", "version": version},
        "authMethods": [],
    }


def config_options(agents: list[str], current: str) -> list[Json]:
    """Whom the session is with, and whom it could be with."""
    return [
        {
            "id": AGENT,
            "name": "Agent",
            "description": "Who takes the turns of this session",
            "type": "select",
            "currentValue": current,
            "options": [{"value": name, "name": name} for name in agents],
        }
    ]


# Endings -------------------------------------------------------------------------------------


def result_of(run: str, outcome: Outcome) -> Json | None:
    """What a prompt is answered; none if that ending is an error here."""
    words = words_of(outcome)
    if words.acp_error:
        return None
    return {"stopReason": words.acp, "_meta": {"turnkeeper": _meta_of(run, outcome)}}


def error_of(run: str, outcome: Outcome) -> Json:
    """The error that a prompt is answered with; `data.outcome` says how its run ended."""
    data = _meta_of(run, outcome)
    entry = ending_code(outcome.kind, outcome.reason)
    if entry is not None:
        data |= {"code": entry.code, "title": entry.title, "todo": entry.todo}
    message = outcome.detail or f"{outcome.kind.value} ({outcome.reason})"
    return {"code": INTERNAL, "message": message, "data": data}


def _meta_of(run: str, outcome: Outcome) -> Json:
    return {"outcome": words_of(outcome).api, "reason": outcome.reason, "run": run}


def refusal_of(refused: TurnkeeperError) -> Json:
    """A refusal as a JSON-RPC error."""
    entry = refused.entry
    code = entry.rpc
    if entry in (UNKNOWN_SESSION, UNKNOWN_RUN, UNKNOWN_APPROVAL, UNKNOWN_AGENT):
        code = NOT_FOUND
    elif code == AUTH_REQUIRED:
        code = INTERNAL
    data: Json = {"code": entry.code, "message": refused.what, "todo": entry.todo}
    field = refused.fields.get("field")
    if isinstance(field, str):
        data["field"] = field
    return {"code": code, "message": str(refused), "data": data}


# Updates -------------------------------------------------------------------------------------


class Told:
    """Makes updates of the events of a session, in their order. A `replay` has people's messages
    too: whoever sent them knows them otherwise."""

    def __init__(self, *, replay: bool = False) -> None:
        self._replay = replay
        self._texts: dict[str, str] = {}
        """Messages that were not shown yet."""
        self._message: dict[str, str] = {}
        """Run -> its message."""
        self._calls: dict[str, Calls] = {}
        """Run -> its tool calls."""
        self._block: tuple[str | None, str, str] = (None, "", "")
        """Whose words the last ones were, of what kind, and what that piece is called."""
        self._spoke: set[str] = set()

    def updates(self, event: e.Event) -> list[Json]:
        data, run = event.data, event.run or ""
        match data:
            case e.MessageAccepted() if self._replay:
                self._accepted(data)
                return []
            case e.MessageEdited() if data.message in self._texts:
                self._texts[data.message] = data.text
                return []
            case e.RunStarted() | e.MessageSteered():
                return self._person(data.message)
            case e.OutputText(text=text):
                self._spoke.add(run)
                return self._words(event, "agent_message_chunk", text)
            case e.OutputThinking(text=text):
                return self._words(event, "agent_thought_chunk", text)
            case e.ToolStartedFact():
                return [self._tool_started(run, data)]
            case e.ToolProgressFact():
                return self._tool_progress(run, data)
            case e.ToolEndedFact():
                return self._tool_ended(run, data)
            case e.ApprovalRequested():
                return self._leave_asked(run, data)
            case e.ApprovalSettled():
                return self._leave_settled(run, data)
            case e.RunEnded():
                return self._ended(event, data)
            case _:
                return []

    def rest(self) -> list[Json]:
        """Messages that wait for their run: the end of a replay."""
        return [update for message in list(self._texts) for update in self._person(message)]

    def question(self, approval: str) -> Json:
        """What `session/request_permission` asks, without its session."""
        call = next(c.asked[approval] for c in self._calls.values() if approval in c.asked)
        shown = {**_told_of(call), "status": "pending"}
        if call.is_plan:
            shown |= {"kind": "switch_mode", "content": [_content(_plan_of(call.fact.input))]}
        return {"toolCall": shown, "options": list(OPTIONS)}

    # People ----------------------------------------------------------------------------------

    def _accepted(self, data: e.MessageAccepted) -> None:
        self._texts[data.message] = data.text
        if not data.steered:
            self._message[data.run] = data.message

    def _person(self, message: str) -> list[Json]:
        text = self._texts.pop(message, None)
        if not text:
            return []
        self._block = (None, "", "")
        return [_chunk("user_message_chunk", message, text)]

    # The agent -------------------------------------------------------------------------------

    def _words(self, event: e.Event, kind: str, text: str) -> list[Json]:
        if not text:
            return []
        run, known, name = self._block
        if (run, known) != (event.run, kind):
            name = f"{event.run}.{event.seq}"
            self._block = (event.run, kind, name)
        return [_chunk(kind, name, text)]

    def _of(self, run: str) -> Calls:
        return self._calls.setdefault(run, Calls(run))

    def _tool_started(self, run: str, data: e.ToolStartedFact) -> Json:
        self._block = (None, "", "")
        call, is_known = self._of(run).start(data)
        kind = "tool_call_update" if is_known else "tool_call"
        return {"sessionUpdate": kind, **_told_of(call), "status": "in_progress"}

    def _tool_progress(self, run: str, data: e.ToolProgressFact) -> list[Json]:
        call = self._of(run).open.get(data.tool)
        return [] if call is None else [_update(call, "in_progress", data.text)]

    def _tool_ended(self, run: str, data: e.ToolEndedFact) -> list[Json]:
        call = self._of(run).open.pop(data.tool, None)
        status = "completed" if data.ok else "failed"
        return [] if call is None else [_update(call, status, data.output)]

    def _leave_asked(self, run: str, data: e.ApprovalRequested) -> list[Json]:
        call, is_known = self._of(run).ask(data)
        if is_known:
            return [_update(call, "pending")]
        return [{"sessionUpdate": "tool_call", **_told_of(call), "status": "pending"}]

    def _leave_settled(self, run: str, data: e.ApprovalSettled) -> list[Json]:
        call, is_over = self._of(run).settle(data)
        if call is None:
            return []
        if is_over:
            return [_update(call, "failed", f"{data.decision} {data.note}".strip())]
        was_open = call in self._of(run).open.values()
        return [_update(call, "in_progress")] if was_open and call.allowed else []

    def _ended(self, event: e.Event, data: e.RunEnded) -> list[Json]:
        run = event.run or ""
        found = self._person(self._message.pop(run, ""))
        if run not in self._spoke and data.text:
            found += self._words(event, "agent_message_chunk", data.text)
        calls = self._calls.pop(run, Calls(run))
        found += [_update(call, "failed") for call in calls.open.values()]
        for call in calls.wanted.values():
            found.append(_update(call, "completed" if call.allowed else "failed"))
        self._spoke.discard(run)
        self._block = (None, "", "")
        return found


def _chunk(kind: str, message: str, text: str) -> Json:
    content = {"type": "text", "text": text}
    return {"sessionUpdate": kind, "messageId": message, "content": content}


def _update(call: Call, status: str, text: str = "") -> Json:
    update = {"sessionUpdate": "tool_call_update", "toolCallId": call.id, "status": status}
    if not text:
        return update
    return {**update, "content": [_content(text)]}


def _content(text: str) -> Json:
    return {"type": "content", "content": {"type": "text", "text": text}}


def _plan_of(given: Any) -> str:
    plan = given.get("plan") if isinstance(given, dict) else given
    return plan if isinstance(plan, str) else ""


def _told_of(call: Call) -> Json:
    return {"toolCallId": call.id, **_shown(call.fact)}


def _shown(call: e.ToolStartedFact) -> Json:
    """A tool call for people: what it is called, its kind, its input, the files that it names."""
    given: Json = call.input if isinstance(call.input, dict) else {}
    told = call.input if isinstance(call.input, str) else next(_texts_of(given), "")
    title = " ".join(f"{call.name} {told}".split())
    shown: Json = {
        "title": title if len(title) <= TITLE_CHARS else title[: TITLE_CHARS - 1] + "…",
        "kind": KINDS.get(call.name.lower(), "other"),
        "_meta": {"turnkeeper": {"tool": call.name}},
    }
    if call.input is not None:
        shown["rawInput"] = call.input
    places = [given[key] for key in PLACES if isinstance(given.get(key), str)]
    if any(place.startswith("/") for place in places):
        shown["locations"] = [{"path": place} for place in places if place.startswith("/")]
    return shown


def _texts_of(given: Json) -> Iterator[str]:
    return (value for value in given.values() if isinstance(value, str))
