"""The connection to one remote agent: its card, its answers, its streams.

Decides how A2A is put into requests of the hardened client, and which of them may be sent twice. It
must not know turns. Invariant: a message is sent once, whatever happens to it; only questions about
a task are asked again. Nothing secret is in what is raised.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping
from urllib.parse import urlsplit

import msgspec

from turnkeeper.core.errors import InvalidValue
from turnkeeper.drivers import a2a_wire as w
from turnkeeper.net.http import HttpClient, HttpFailure, HttpLimits, HttpRequest, OnWait
from turnkeeper.net.types import shown
from turnkeeper.wire.sse import Event, Events, TooLarge

WELL_KNOWN = "/.well-known/agent-card.json"
CARD_LIMITS = HttpLimits(first_byte_s=20, idle_s=20, deadline_s=60, body_bytes=4 * 1024 * 1024)
ASK_LIMITS = HttpLimits(first_byte_s=20, idle_s=20, deadline_s=60)


class A2AOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator says of a remote agent."""

    url: str
    """Where it is: its host, for the card at the usual place; or the card's own address."""
    endpoint: str = ""
    """Where it is spoken to, if the card's word is not to be taken for it."""
    key_env: str = ""
    """The variable that holds a bearer token for it, if it wants one."""
    headers: dict[str, str] = {}
    poll_s: float = 1.0
    """How often an agent that does not stream is asked how it goes."""

    def __post_init__(self) -> None:
        for key in ("url", "endpoint"):
            value = getattr(self, key)
            try:
                if value or key == "url":
                    HttpRequest("POST", value, self.headers)
            except ValueError as wrong:
                raise InvalidValue(key, shown(value), str(wrong)) from None

    @property
    def card_url(self) -> str:
        path = urlsplit(self.url).path
        return self.url if path.endswith(".json") else self.url.rstrip("/") + WELL_KNOWN


class NoKey(Exception):
    """The variable that should hold the token is not set."""


class Remote:
    """One remote agent, for as many conversations as there are."""

    def __init__(
        self, options: A2AOptions, client: HttpClient, environ: Mapping[str, str] | None = None
    ) -> None:
        self.options = options
        self.client = client
        self._environ = os.environ if environ is None else environ
        self._card: w.Card | None = None

    @property
    def card(self) -> w.Card:
        assert self._card is not None, "its card was fetched when it was opened"
        return self._card

    def headers(self) -> dict[str, str]:
        options = self.options
        key = self._environ.get(options.key_env, "").strip() if options.key_env else ""
        if options.key_env and not key:
            raise NoKey(f"{options.key_env} is not set. Set it in the environment of the server.")
        given = {"Authorization": f"Bearer {key}"} if key else {}
        return {**given, **options.headers}

    async def fetch_card(self, on_wait: OnWait | None = None) -> None:
        where = self.options.card_url
        request = HttpRequest("GET", where, self.headers(), idempotent=True)
        answer = await self.client.send(request, limits=CARD_LIMITS, on_wait=on_wait)
        self._card = w.read_card(answer.body, where, self.options.endpoint)

    async def ask(
        self, method: w.Method, params: w.Json, limits: HttpLimits = ASK_LIMITS
    ) -> w.Word:
        """One answer. A question about a task may be asked twice, and a cancel said twice; a
        message may not."""
        request = self._request(method, params, idempotent=method in ("get", "cancel"))
        return w.read_answer((await self.client.send(request, limits=limits)).body)

    async def stream(
        self, method: w.Method, params: w.Json, limits: HttpLimits, on_wait: OnWait
    ) -> AsyncGenerator[w.Word | None, None]:
        """Words as they come; none for a sign of life. It is over when the other side says so."""
        request = self._request(method, params, idempotent=method == "subscribe")
        events = Events()
        async with self.client.stream(request, limits=limits, on_wait=on_wait) as stream:
            if "event-stream" not in stream.headers.get("content-type", ""):
                body = b"".join([chunk async for chunk in stream.chunks()])
                yield w.read_answer(body)
                return
            async for chunk in stream.chunks():
                for item in events.feed(chunk):
                    if isinstance(item, TooLarge):
                        raise w.Nonsense(f"an event of more than {item.event_max} bytes")
                    yield w.read_answer(item.data) if isinstance(item, Event) else None

    def _request(self, method: w.Method, params: w.Json, *, idempotent: bool) -> HttpRequest:
        card = self.card
        headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream, application/json",
            "A2A-Version": card.version,
            **self.headers(),
        }
        body = w.request(card.version, method, params)
        return HttpRequest("POST", card.endpoint, headers, body, idempotent=idempotent)


def explain(failure: HttpFailure, options: A2AOptions) -> str:
    """Why a request came to nothing, and what to do."""
    if failure.status in (401, 403):
        named = options.key_env or "key_env (the variable that holds its token)"
        return f"{failure}. It wants credentials: set {named}."
    if failure.status == 404:
        return f"{failure}. Check the url."
    return str(failure)
