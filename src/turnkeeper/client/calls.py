"""Requests over HTTP: one try, or as many as the caller's patience allows.

Decides how a request is put and what its answer is read as. It must not know what it is for.
Invariants: what is sent again is the same, with the same key; every question ends within
`request_s`; an answer that is not a Turnkeeper's is told as such.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from turnkeeper.client.address import Address, Query
from turnkeeper.client.backoff import Backoff
from turnkeeper.client.options import Options
from turnkeeper.client.reach import Reach
from turnkeeper.client.trouble import ClientClosed, Hitch, foreign, from_failure
from turnkeeper.core.errors import UNREACHABLE, TurnkeeperError
from turnkeeper.net.http import HttpAnswer, HttpClient, HttpFailure, HttpLimits, HttpRequest
from turnkeeper.net.types import shown

T = TypeVar("T")

WRITE_S = 60.0
IDLE_S = 30.0
AGENT = "turnkeeper-client"


@dataclass(frozen=True, slots=True)
class Call:
    """One request. `harmless`: taking it twice is answered as taking it once."""

    method: str
    path: str
    query: Query = field(default_factory=dict)
    body: bytes = b""
    key: str | None = None
    harmless: bool = True
    wait_s: float = 0.0
    """So long the server itself waits before it answers."""


@dataclass(slots=True)
class Tries:
    """What became of the tries before the last one."""

    maybe_taken: bool = False


class Calls:
    """Everything that is asked of one server over HTTP."""

    def __init__(
        self,
        address: Address,
        options: Options,
        ssl_context: ssl.SSLContext | None,
        environ: Mapping[str, str],
    ) -> None:
        self.address = address
        self.reach = Reach("it is tried again")
        self.on_found: Callable[[], None] = lambda: None
        """Called when the server answers after it could not be reached."""
        self._options = options
        self._http = HttpClient(ssl_context=ssl_context, environ=environ)
        self._closed = False
        self._decoders: dict[Any, msgspec.json.Decoder[Any]] = {}

    async def aclose(self) -> None:
        self._closed = True
        await self._http.aclose()

    async def ask(self, call: Call, shape: type[T], tries: Tries | None = None) -> T:
        """The answer in its shape; while there is none for now it is asked again, for as long as
        `request_s`. `tries` is for a call that is not harmless: its refusal may be due to itself.
        """
        return self.read(call, await self._asked(call, tries or Tries()), shape)

    async def _asked(self, call: Call, tries: Tries) -> HttpAnswer:
        options, loop = self._options, asyncio.get_running_loop()
        until = loop.time() + options.request_s
        backoff = Backoff(options.retry_first_s, options.retry_longest_s)
        told, before = f"{shown(self.address.http(call.path))}: no answer", ""
        while True:
            try:
                async with asyncio.timeout_at(until):
                    return await self.once(call)
            except Hitch as hitch:
                tries.maybe_taken = tries.maybe_taken or hitch.maybe_taken
                before = f"; before that, {hitch}"
                wait_s = max(backoff.next_s(), hitch.wait_s)
                if loop.time() + wait_s >= until:
                    raise hitch.final from None
            except TimeoutError:
                told += f" within {options.request_s:g} s (request_s){before}"
                raise TurnkeeperError(UNREACHABLE, told) from None
            await asyncio.sleep(wait_s)

    async def plain(self, call: Call) -> HttpAnswer:
        """Whatever the answer is, of any status, tried once. Raises the error that stands."""
        try:
            return await self._send(call)
        except HttpFailure as failure:
            if failure.kind == "status" and failure.status is not None and not failure.permanent:
                return HttpAnswer(failure.status, {}, failure.body)
            told = from_failure(failure, shown(self.address.http(call.path)))
            raise told.final if isinstance(told, Hitch) else told from None

    async def once(self, call: Call, on_sent: Callable[[], None] | None = None) -> HttpAnswer:
        """One try: an answer of success, a `Hitch`, or the `TurnkeeperError` that stands."""
        try:
            answer = await self._send(call, on_sent)
        except HttpFailure as failure:
            told = from_failure(failure, shown(self.address.http(call.path)))
            if isinstance(told, Hitch) and not told.reached:
                self.reach.lost(str(told))
            elif failure.kind == "status":
                self._found()
            raise told from None
        self._found()
        return answer

    def read(self, call: Call, answer: HttpAnswer, shape: type[T]) -> T:
        decoder = self._decoders.get(shape)
        if decoder is None:
            decoder = self._decoders[shape] = msgspec.json.Decoder(shape)
        try:
            told: T = decoder.decode(answer.body)
        except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
            where = shown(self.address.http(call.path))
            raise foreign(where, f"answered {answer.status} in other words: {wrong}") from None
        return told

    async def _send(self, call: Call, on_sent: Callable[[], None] | None = None) -> HttpAnswer:
        if self._closed:
            raise ClientClosed
        url = self.address.http(call.path, call.query)
        headers = {"User-Agent": AGENT, "Accept": "application/json", **self.address.headers}
        if call.body:
            headers["Content-Type"] = "application/json"
        if call.key is not None:
            headers["Idempotency-Key"] = call.key
        request = HttpRequest(call.method, url, headers, call.body, idempotent=call.harmless)
        try:
            return await self._http.send(request, limits=self._limits(call), on_sent=on_sent)
        except HttpFailure:
            if self._closed:
                raise ClientClosed from None
            raise

    def _limits(self, call: Call) -> HttpLimits:
        options = self._options
        first_byte_s = options.answer_s + call.wait_s
        return HttpLimits(
            connect_s=options.connect_s,
            connect_tries=1,
            write_s=WRITE_S,
            first_byte_s=first_byte_s,
            idle_s=IDLE_S,
            deadline_s=2 * (options.connect_s + WRITE_S + first_byte_s + IDLE_S),
            refused_tries=1,
        )

    def _found(self) -> None:
        if self.reach.trouble is not None:
            self.reach.found()
            self.on_found()
