"""The three forms in which models are asked: Messages, Responses and Chat Completions.

Decides how a conversation is put to each. It must not know connections or turns. Invariant: what is
sent back of the model's own words is what its decoder gave, without what the API would refuse;
every call that is sent back is followed by its result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from turnkeeper.core.errors import InvalidValue
from turnkeeper.custody.program import check_words
from turnkeeper.drivers.tools import Result, Toolbox
from turnkeeper.net.types import HttpRequest, shown
from turnkeeper.wire.anthropic import MessagesDecoder
from turnkeeper.wire.model import StreamDecoder, ToolCall
from turnkeeper.wire.openai import ChatDecoder, ResponsesDecoder

Json = dict[str, Any]
ApiName = Literal["anthropic", "responses", "chat"]
MAX_TOKENS = 16_384
ANTHROPIC_VERSION = "2023-06-01"


class ChatOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator says of a model API agent."""

    api: ApiName = "anthropic"
    model: str
    url: str = ""
    """Where the API is, if not at its maker's; for OpenAI's two with the `/v1` at the end."""
    key_env: str = ""
    """The variable that holds the key, if not the usual one."""
    system: str = ""
    max_tokens: int = 0
    """Of one answer; 0 leaves it to the API (Messages needs a number, and gets one)."""
    thinking_tokens: int = 0
    """Messages only: a budget for thinking; 0 for none."""
    tools: Toolbox = Toolbox()
    cwd: str = ""
    """Where tools work if the session does not say."""
    env: dict[str, str] = {}
    """For commands, on top of the allow-list."""
    steps_max: int = 50
    """How often the model may be asked in one turn."""
    headers: dict[str, str] = {}
    extra: Json = {}
    """Further fields of each request, as the API names them."""

    def __post_init__(self) -> None:
        if self.api not in APIS:
            raise InvalidValue("api", self.api, f"the APIs are {', '.join(APIS)}")
        if not self.model:
            raise InvalidValue("model", self.model, "give the model's name")
        if self.steps_max < 1:
            raise InvalidValue("steps_max", self.steps_max, "give 1 or more")
        check_words("cwd", self.cwd)
        check_words("env", self.env)
        try:
            HttpRequest("POST", self.url or "https://localhost", self.headers)
        except ValueError as wrong:
            raise InvalidValue("url", shown(self.url), str(wrong)) from None


class Api(ABC):
    """One form of asking. Stateless: a conversation is a list of what this form calls its items."""

    base: str
    path: str
    key_env: str

    def __init__(self, options: ChatOptions) -> None:
        self.options = options
        self.url = (options.url or self.base).rstrip("/") + self.path
        self.key_env = options.key_env or type(self).key_env

    @property
    def needs_key(self) -> bool:
        """A server of one's own may want none; unless one is named for it."""
        return not self.options.url or bool(self.options.key_env)

    def request(self, items: Sequence[Json], key: str) -> HttpRequest:
        body = {
            "model": self.options.model, "stream": True, **self._body(items), **self.options.extra,
        }  # fmt: skip
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        headers |= {**(self._credentials(key) if key else {}), **self.options.headers}
        return HttpRequest("POST", self.url, headers, msgspec.json.encode(body))

    @abstractmethod
    def decoder(self) -> StreamDecoder: ...

    @abstractmethod
    def _body(self, items: Sequence[Json]) -> Json: ...

    def _credentials(self, key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"}

    def user(self, text: str) -> list[Json]:
        return [{"role": "user", "content": text}]

    def assistant(self, text: str) -> list[Json]:
        """What the model had said when it was interrupted."""
        return [{"role": "assistant", "content": text}]

    def spoken(self, decoder: StreamDecoder) -> list[Json]:
        """The model's whole answer, as the next request repeats it."""
        return decoder.turn()

    @abstractmethod
    def results(self, results: Sequence[tuple[ToolCall, Result]]) -> list[Json]:
        """What tools came to, for the model."""


class Messages(Api):
    base = "https://api.anthropic.com"
    path = "/v1/messages"
    key_env = "ANTHROPIC_API_KEY"

    def decoder(self) -> StreamDecoder:
        return MessagesDecoder()

    def _credentials(self, key: str) -> dict[str, str]:
        return {"x-api-key": key}

    def request(self, items: Sequence[Json], key: str) -> HttpRequest:
        made = super().request(items, key)
        headers = {"anthropic-version": ANTHROPIC_VERSION, **made.headers}
        return HttpRequest(made.method, made.url, headers, made.body)

    def _body(self, items: Sequence[Json]) -> Json:
        options = self.options
        thinking = options.thinking_tokens
        body: Json = {
            "max_tokens": (options.max_tokens or MAX_TOKENS) + thinking,
            "messages": list(items),
        }
        if thinking:
            body["thinking"] = {"type": "enabled", "budget_tokens": thinking}
        if options.system:
            body["system"] = options.system
        tools = [
            {"name": spec.name, "description": spec.description, "input_schema": spec.schema}
            for spec in options.tools.specs
        ]
        return {**body, "tools": tools} if tools else body

    def results(self, results: Sequence[tuple[ToolCall, Result]]) -> list[Json]:
        content = [
            {
                "type": "tool_result",
                "tool_use_id": call.id,
                "content": [{"type": "text", "text": result.output or "(no output)"}],
                "is_error": not result.ok,
            }
            for call, result in results
        ]
        return [{"role": "user", "content": content}]


class Responses(Api):
    base = "https://api.openai.com/v1"
    path = "/responses"
    key_env = "OPENAI_API_KEY"

    def decoder(self) -> StreamDecoder:
        return ResponsesDecoder()

    def _body(self, items: Sequence[Json]) -> Json:
        options = self.options
        body: Json = {"store": False, "input": list(items)}
        if options.system:
            body["instructions"] = options.system
        if options.max_tokens:
            body["max_output_tokens"] = options.max_tokens
        tools = [
            {"type": "function", "name": spec.name, "description": spec.description,
             "parameters": spec.schema, "strict": True}
            for spec in options.tools.specs
        ]  # fmt: skip
        return {**body, "tools": tools} if tools else body

    def spoken(self, decoder: StreamDecoder) -> list[Json]:
        """Nothing is stored there, so ids mean nothing, and thoughts count only if they are whole
        (encrypted)."""
        return [
            {key: value for key, value in item.items() if key not in ("id", "status")}
            for item in decoder.turn()
            if item.get("type") != "reasoning" or item.get("encrypted_content")
        ]

    def results(self, results: Sequence[tuple[ToolCall, Result]]) -> list[Json]:
        return [
            {"type": "function_call_output", "call_id": call.id, "output": result.output}
            for call, result in results
        ]


class ChatCompletions(Api):
    base = "https://api.openai.com/v1"
    path = "/chat/completions"
    key_env = "OPENAI_API_KEY"

    def decoder(self) -> StreamDecoder:
        return ChatDecoder()

    def _body(self, items: Sequence[Json]) -> Json:
        options = self.options
        system = [{"role": "system", "content": options.system}] if options.system else []
        body: Json = {"messages": [*system, *items]}
        if options.max_tokens:
            # The maker renamed it; others know the old name only.
            body["max_tokens" if options.url else "max_completion_tokens"] = options.max_tokens
        tools = [
            {"type": "function", "function": {"name": spec.name, "description": spec.description,
                                              "parameters": spec.schema}}
            for spec in options.tools.specs
        ]  # fmt: skip
        return {**body, "tools": tools} if tools else body

    def results(self, results: Sequence[tuple[ToolCall, Result]]) -> list[Json]:
        return [
            {"role": "tool", "tool_call_id": call.id, "content": result.output}
            for call, result in results
        ]


APIS: dict[ApiName, type[Api]] = {
    "anthropic": Messages,
    "responses": Responses,
    "chat": ChatCompletions,
}
