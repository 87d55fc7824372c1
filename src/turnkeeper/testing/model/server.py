"""The scripted model's HTTP server: loopback only, one thread a connection.

Decides which voice answers which path, and plays plans out on the socket. It must not know any
API's form. Invariant: when its block ends, every connection and thread of it has ended.
"""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NoReturn
from urllib.parse import urlsplit

from turnkeeper.testing.model import anthropic, gemini, openai
from turnkeeper.testing.model.exchange import ClientGone, Exchange, Stopped
from turnkeeper.testing.model.script import Plan, choose
from turnkeeper.testing.model.voices import Asked, Event, Json, Voice, shell_call

_VOICES: dict[str, Callable[[Asked, int], Voice]] = {
    "anthropic": anthropic.Anthropic,
    "responses": openai.Responses,
    "chat": openai.Chat,
    "gemini": gemini.Gemini,
}
HELD_LOOK_S = 0.02
_GEMINI = re.compile(r"/models/([^/:]+):(streamGenerateContent|generateContent)$")


def _read(path: str, body: Json) -> Asked | None:
    """Who is spoken to, and what was asked; None for a path that is no model's."""
    if path.endswith("/messages"):
        return anthropic.read(body)
    if path.endswith("/responses"):
        return openai.read_responses(body)
    if path.endswith("/chat/completions"):
        return openai.read_chat(body)
    if found := _GEMINI.search(path):
        return gemini.read(body, found.group(1), found.group(2).startswith("stream"))
    return None


class _Dropped(Exception):
    """We ended the connection on purpose."""


class LoopbackModel:
    """A model on 127.0.0.1, for as long as its block lasts."""

    def __init__(self, port: int = 0, on_request: Callable[[Exchange], None] | None = None) -> None:
        self._changed = threading.Condition()
        self._exchanges: list[Exchange] = []
        self._errors_given: dict[str, int] = {}
        self._on_request = on_request
        self._server = _Server(port, self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def requests(self) -> list[Exchange]:
        """Everything that was asked so far, in order."""
        with self._changed:
            return list(self._exchanges)

    def __enter__(self) -> LoopbackModel:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        for exchange in self.requests:
            exchange.stop()
        self._server.end_connections()
        self._server.server_close()
        for exchange in self.requests:
            exchange.end("stopped")

    def wait_request(self, command: str, *, nth: int = 1, timeout_s: float = 30.0) -> Exchange:
        """The nth request whose command begins so, once it has come."""

        def found() -> list[Exchange]:
            return [e for e in self._exchanges if e.asked and e.command.startswith(command)]

        with self._changed:
            if not self._changed.wait_for(lambda: len(found()) >= nth, timeout_s):
                seen = [e.command for e in self._exchanges if e.asked]
                raise TimeoutError(f"no request {nth} for {command!r} in {timeout_s:g} s: {seen}")
            return found()[nth - 1]

    # For its connections --------------------------------------------------------------------

    def note(
        self, method: str, path: str, headers: dict[str, str], body: Any, asked: Asked | None
    ) -> tuple[Exchange, Plan]:
        plan = choose(asked.texts, asked.tool_result) if asked else Plan("")
        with self._changed:
            exchange = Exchange(len(self._exchanges) + 1, method, path, body, asked)
            exchange.command, exchange.headers = plan.command, headers
            self._exchanges.append(exchange)
            self._changed.notify_all()
        if self._on_request is not None:
            self._on_request(exchange)
        return exchange, plan

    def is_refused(self, plan: Plan) -> bool:
        """An error is due; with `times`, only so often."""
        if plan.status == 200:
            return False
        with self._changed:
            given = self._errors_given.get(plan.command, 0)
            self._errors_given[plan.command] = given + 1
        return plan.times is None or given < plan.times


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True
    request_queue_size = 128

    def __init__(self, port: int, model: LoopbackModel) -> None:
        self.model = model
        self._open: set[socket.socket] = set()
        self.to_reset: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", port), _Connection)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        if request in self.to_reset:
            self.to_reset.discard(request)
            self.close_request(request)  # with no FIN before it, it is an RST
        else:
            super().shutdown_request(request)

    def end_connections(self) -> None:
        """Wakes the threads that wait for a further request on an idle connection."""
        with self._lock:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no news; its exchange has noted it."""


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    exchange: Exchange
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._note(None)
        self._json(200, None)

    def do_GET(self) -> None:
        self._note(None)
        if urlsplit(self.path).path.endswith("/models"):
            listed = {"id": "scripted", "object": "model", "type": "model", "created": 0}
            self._json(200, {"object": "list", "data": [listed], "models": []})
        else:
            self._json(404, {"error": {"message": "scripted: no such path"}})

    def do_POST(self) -> None:
        body = self._body()
        path = urlsplit(self.path).path
        asked = _read(path, body) if isinstance(body, dict) else None
        plan = self._note(body, asked)
        if path.endswith(("/count_tokens", ":countTokens")):
            tokens = max(1, len(json.dumps(body)) // 4)
            self._json(200, {"input_tokens": tokens, "totalTokens": tokens})
        elif asked is None:
            self._json(404, {"error": {"message": "scripted: no such path"}})
        else:
            self._play(plan, asked, _VOICES[asked.api](asked, self.exchange.number))

    def _note(self, body: Any, asked: Asked | None = None) -> Plan:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.exchange, plan = self.server.model.note(self.command, self.path, headers, body, asked)
        return plan

    def _body(self) -> Any:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            raw = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                raw += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            return json.loads(raw or b"{}")
        except ValueError:
            return None

    # Playing a plan -------------------------------------------------------------------------

    def _play(self, plan: Plan, asked: Asked, voice: Voice) -> None:
        try:
            if self.server.model.is_refused(plan):
                extra = {"Retry-After": plan.retry_after} if plan.retry_after else {}
                self._json(plan.status, voice.error(plan.status), extra, ending="refused")
                return
            if plan.breaks_at < 0 or (plan.breaks and not asked.stream):
                self._break_off(plan, voice, begun=False)
            if asked.stream:
                self._stream(plan, asked, voice)
            else:
                self._say(plan, asked, voice, lambda _: None)
                self._json(200, voice.whole())
        except (ClientGone, ConnectionError):
            self.exchange.end("client_gone")
            self.close_connection = True
        except Stopped:
            self.exchange.end("stopped")
            self.close_connection = True
        except _Dropped:
            self.exchange.end("dropped")

    def _stream(self, plan: Plan, asked: Asked, voice: Voice) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self._events(voice.begin())
        self._say(plan, asked, voice, self._events)
        self._events(voice.end())
        self.wfile.write(b"0\r\n\r\n")
        self.exchange.end("answered")

    def _say(
        self, plan: Plan, asked: Asked, voice: Voice, out: Callable[[list[Event]], None]
    ) -> None:
        if plan.thinking:
            out(voice.thinking(plan.thinking))
        for number, chunk in enumerate(plan.chunks):
            if plan.breaks and number == plan.breaks_at and asked.stream:
                self._break_off(plan, voice, begun=True)
            while plan.is_held(number):
                self.exchange.pause(self.connection, HELD_LOOK_S)
            out(voice.text(chunk))
            if plan.delay_s and asked.stream:
                self.exchange.pause(self.connection, plan.delay_s)
        if plan.tool is not None:
            if plan.tool.name is None:
                out(voice.tool(*shell_call(asked.tools, plan.tool.input)))
            else:
                out(voice.tool(plan.tool.name, plan.tool.input))

    def _break_off(self, plan: Plan, voice: Voice, *, begun: bool) -> None:
        """Returns only if a stall was released."""
        match plan.breaks:
            case "pings" if begun:
                self.exchange.mark_stalled()
                while not self.exchange.is_released(self.connection, plan.every_s):
                    self._events(voice.ping())
            case "stall" | "pings":
                self.exchange.hold(self.connection)
            case "drop":
                self._drop(reset=False)
            case "rst":
                self._drop(reset=True)
            case None:
                pass

    def _drop(self, *, reset: bool) -> NoReturn:
        self.close_connection = True
        if reset:
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.server.to_reset.add(self.connection)
        else:
            self.connection.shutdown(socket.SHUT_RDWR)
        raise _Dropped

    def _events(self, events: list[Event]) -> None:
        text = "".join(map(_as_text, events)).encode()
        if text:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))

    def _json(
        self, status: int, value: Any, extra: dict[str, str] | None = None, ending: Any = "answered"
    ) -> None:
        text = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.send_header("request-id", f"req_{self.exchange.number}")
        for name, given in (extra or {}).items():
            self.send_header(name, given)
        self.end_headers()
        self.wfile.write(text)
        self.exchange.end(ending)


def _as_text(event: Event) -> str:
    name, data = event
    if data is None:
        return ": ping\n\n"
    shown = data if isinstance(data, str) else json.dumps(data)
    return f"event: {name}\ndata: {shown}\n\n" if name else f"data: {shown}\n\n"
