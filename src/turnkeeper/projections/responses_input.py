"""The `input` of a response: what an agent is told, and which questions are answered.

Decides how a list of items becomes one message's text. It must not know sessions. Invariant: what
an agent could not be told is refused with its place; nothing that was said is dropped silently but
what the agent itself has said or done before.
"""

from __future__ import annotations

from typing import Any

import msgspec

from turnkeeper.core.errors import InvalidValue
from turnkeeper.projections.responses_asked import not_offered
from turnkeeper.projections.responses_items import approval_of

ROLES = ("user", "assistant", "system", "developer")
TEXTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
ITEMS_MAX = 10_000

ITS_OWN = frozenset({"reasoning", "mcp_call", "mcp_approval_request", "mcp_list_tools"})
"""Items of an answer that come back with the history: the agent's own doings, no words to it."""


class Answer(msgspec.Struct, frozen=True):
    """The answer to a question of an agent."""

    approval: str
    allow: bool
    note: str = ""


class Said(msgspec.Struct, frozen=True):
    """What is to be done: `text` goes to the agent, or `answers` are given."""

    text: str = ""
    answers: tuple[Answer, ...] = ()


def read(given: str | list[dict[str, Any]] | None, instructions: str | None) -> Said:
    """What the input says; or a refusal that names the place."""
    blocks: list[tuple[str, str]] = []
    answers: list[Answer] = []
    if isinstance(given, str):
        blocks.append(("user", given))
    elif given is not None:
        if len(given) > ITEMS_MAX:
            raise InvalidValue("input", f"{len(given)} items", f"give at most {ITEMS_MAX}")
        for number, item in enumerate(given):
            _item(item, f"input[{number}]", blocks, answers)
    if answers:
        if blocks:
            told = "answer a question, or say something: not both in one request"
            raise InvalidValue("input", "both", told)
        return Said(answers=tuple(answers))
    if not any(text.strip() for role, text in blocks if role == "user"):
        raise InvalidValue("input", _shown(given), "say something: text, or a message of a user")
    if instructions is not None and instructions.strip():
        blocks.insert(0, ("system", instructions))
    return Said(text=_text(blocks))


def _shown(given: object) -> object:
    return given if given is None or isinstance(given, str) else f"{type(given).__name__}"


def _text(blocks: list[tuple[str, str]]) -> str:
    """One message. Where others than its user speak in it, each is named."""
    if all(role == "user" for role, _ in blocks):
        return "\n\n".join(text for _, text in blocks)
    return "\n\n".join(f"[{role}]\n{text}" for role, text in blocks)


def _item(
    item: dict[str, Any], where: str, blocks: list[tuple[str, str]], answers: list[Answer]
) -> None:
    kind = item.get("type") or "message"
    if kind == "message":
        role = item.get("role")
        if role not in ROLES:
            raise InvalidValue(f"{where}.role", role, f"one of {', '.join(ROLES)}")
        blocks.append((role, _content(item.get("content"), f"{where}.content")))
    elif kind == "mcp_approval_response":
        answers.append(_answer(item, where))
    elif not isinstance(kind, str) or kind not in ITS_OWN:
        told = "send messages, or mcp_approval_response"
        raise not_offered(f"{where}.type", f"an agent is not told {str(kind)[:80]!r}; {told}")


def _content(content: object, where: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise InvalidValue(where, content, "give text, or a list of parts")
    found: list[str] = []
    for number, part in enumerate(content):
        place = f"{where}[{number}]"
        kind = part.get("type") if isinstance(part, dict) else None
        field = TEXTS.get(kind) if isinstance(kind, str) else None
        if field is None:
            told = f"agents are sent text, not {str(kind)[:80]!r}; give input_text"
            raise not_offered(f"{place}.type", told)
        text = part.get(field)
        if not isinstance(text, str):
            raise InvalidValue(f"{place}.{field}", text, "give text")
        found.append(text)
    return "\n\n".join(found)


def _answer(item: dict[str, Any], where: str) -> Answer:
    question, allow = item.get("approval_request_id"), item.get("approve")
    approval = approval_of(question) if isinstance(question, str) else None
    if approval is None:
        told = "give the id of an mcp_approval_request: mcpr_…"
        raise InvalidValue(f"{where}.approval_request_id", question, told)
    if not isinstance(allow, bool):
        raise InvalidValue(f"{where}.approve", allow, "give true or false")
    note = item.get("reason")
    return Answer(approval, allow, note if isinstance(note, str) else "")
