"""What can be asked at `/v1/responses`, and what of it is told back.

Decides which of OpenAI's parameters are taken, passed over or refused. It must not know who carries
anything out. Invariant: a parameter whose meaning cannot be kept is refused by its name; what is
told back was asked, or is what OpenAI's API says for what was not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from turnkeeper.core.errors import NOT_OFFERED, InvalidValue, TurnkeeperError
from turnkeeper.core.limits import check_patch
from turnkeeper.projections.responses_items import Json

ASKED = "openai.response"
"""The label of a message that keeps what was asked beside its text."""

Key = Annotated[str, Meta(min_length=1, max_length=64)]
Metadata = Annotated[dict[Key, Annotated[str, Meta(max_length=512)]], Meta(max_length=16)]
Name = Annotated[str, Meta(max_length=300)]
Short = Annotated[str, Meta(max_length=1000)]


class Asked(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What somebody sends us."""


class ConversationParam(Asked, kw_only=True):
    id: Name


class Reasoning(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True
):
    effort: Short | None = None
    summary: Short | None = None
    generate_summary: Short | None = None
    context: Short | None = None
    mode: Short | None = None


class Options(Asked, kw_only=True):
    """What OpenAI's API has no word for. With `on_disconnect` = cancel, the run is stopped if
    whoever waits for it leaves."""

    deadline_s: float | None = None
    limits: dict[str, float] = {}
    when_busy: Literal["queue", "interrupt"] = "queue"
    on_disconnect: Literal["go_on", "cancel"] = "go_on"
    cwd: Annotated[str, Meta(max_length=4096)] = ""


class NewResponse(Asked, kw_only=True):
    """`model` is an agent's name. Which fields do what: docs/how-to/openai-responses.md."""

    model: Name | None = None
    input: str | list[dict[str, Any]] | None = None
    instructions: str | None = None
    previous_response_id: Name | None = None
    conversation: Name | ConversationParam | None = None
    background: bool | None = None
    stream: bool | None = None
    metadata: Metadata | None = None
    turnkeeper: Options | None = None
    # told back, and nothing else
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    reasoning: Reasoning | None = None
    parallel_tool_calls: bool | None = None
    truncation: Literal["auto", "disabled"] | None = None
    service_tier: Short | None = None
    prompt_cache_key: Short | None = None
    safety_identifier: Short | None = None
    user: Short | None = None
    # passed over
    include: list[str] | None = None
    stream_options: dict[str, Any] | None = None
    prompt_cache_retention: Short | None = None
    prompt_cache_options: dict[str, Any] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    # only with the value that changes nothing
    store: bool | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    text: dict[str, Any] | None = None
    top_logprobs: int | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    prompt: dict[str, Any] | None = None
    context_management: list[dict[str, Any]] | None = None
    moderation: dict[str, Any] | None = None
    image: dict[str, Any] | None = None
    access_programs: dict[str, Any] | None = None

    @property
    def options(self) -> Options:
        return self.turnkeeper or Options()

    @property
    def conversation_id(self) -> str | None:
        given = self.conversation
        return given.id if isinstance(given, ConversationParam) else given


def not_offered(field: str, why: str) -> TurnkeeperError:
    return TurnkeeperError(NOT_OFFERED, f"{field} is not offered: {why}", field=field)


NEVER: Mapping[str, str] = {
    "max_output_tokens": "an agent's tokens are not counted here; bound its time with"
    " turnkeeper.deadline_s",
    "max_tool_calls": "an agent's tools are its own; approvals can be asked for them",
    "prompt": "there are no stored prompts; send the text",
    "context_management": "an agent keeps its own context",
    "moderation": "nothing is moderated here",
    "image": "agents are sent text",
    "access_programs": "there are none",
}


def check(asked: NewResponse) -> None:
    """Raises for what cannot be kept."""
    for field, why in NEVER.items():
        if getattr(asked, field):
            raise not_offered(field, why)
    if asked.store is False:
        raise not_offered("store", "whatever is run is in a log; leave it out, or give true")
    if asked.tools:
        raise not_offered("tools", "an agent brings its own; give none")
    if asked.tool_choice not in (None, "auto"):
        raise not_offered("tool_choice", "an agent chooses by itself; give auto")
    if asked.top_logprobs:
        raise not_offered("top_logprobs", "agents do not tell them; give 0")
    form = (asked.text or {}).get("format")
    if form is not None and form != {"type": "text"}:
        raise not_offered("text.format", 'agents answer in words; give {"type": "text"}')
    if asked.previous_response_id is not None and asked.conversation is not None:
        told = "give previous_response_id or conversation, not both"
        raise InvalidValue("conversation", asked.conversation_id, told)
    if "\0" in asked.options.cwd:
        raise InvalidValue("turnkeeper.cwd", asked.options.cwd, "a folder's name has no NUL")
    if asked.metadata and ASKED in asked.metadata:
        raise InvalidValue("metadata", ASKED, "this name is taken; use another")


def limits_of(asked: NewResponse) -> dict[str, float]:
    """The limits of the message."""
    options = asked.options
    given = dict(options.limits)
    wanted = options.deadline_s
    if wanted is not None and given.setdefault("deadline_s", wanted) != wanted:
        told = f"turnkeeper.limits.deadline_s is {given['deadline_s']:g}; give one of them"
        raise InvalidValue("turnkeeper.deadline_s", wanted, told)
    try:
        return check_patch(given)
    except InvalidValue as refused:
        raise refused.under("turnkeeper") from None


# What is told back ---------------------------------------------------------------------------


class Echo(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What was asked of a response beside its text; the defaults are those of OpenAI's API."""

    previous_response_id: str | None = None
    instructions: str | None = None
    background: bool = False
    temperature: float = 1.0
    top_p: float = 1.0
    reasoning: Reasoning = Reasoning()
    parallel_tool_calls: bool = True
    truncation: str = "disabled"
    service_tier: str = "default"
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    user: str | None = None
    verbosity: str | None = None

    def fields(self) -> Json:
        """As a response tells them."""
        text: Json = {"format": {"type": "text"}}
        if self.verbosity is not None:
            text["verbosity"] = self.verbosity
        reasoning = {"effort": None, "summary": None, **msgspec.to_builtins(self.reasoning)}
        told = {name: getattr(self, name) for name in self.__struct_fields__}
        del told["verbosity"]
        return {
            **told,
            "reasoning": reasoning, "text": text, "store": True, "tools": [],
            "tool_choice": "auto", "top_logprobs": 0, "max_output_tokens": None,
            "max_tool_calls": None, "presence_penalty": 0, "frequency_penalty": 0,
        }  # fmt: skip


_echo = msgspec.json.Decoder(Echo)


def labels_of(asked: NewResponse) -> dict[str, str]:
    """What a message keeps of what was asked: the metadata, and the rest in one label."""
    verbosity = (asked.text or {}).get("verbosity")
    given = {
        name: value
        for name in Echo.__struct_fields__
        if (value := getattr(asked, name, None)) is not None
    }
    if isinstance(verbosity, str):
        given["verbosity"] = verbosity
    said = msgspec.json.encode(Echo(**given))
    labels = dict(asked.metadata or {})
    return labels if said == b"{}" else {**labels, ASKED: said.decode()}


def echo_of(labels: Mapping[str, str]) -> Echo:
    kept = labels.get(ASKED)
    return Echo() if kept is None else _echo.decode(kept)


def metadata_of(labels: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in labels.items() if name != ASKED}
