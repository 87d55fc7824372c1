"""A remote agent that does what it is told, in both versions of A2A, on a real socket.

It runs in the test's own loop, keeps its tasks when connections go, and counts what it was sent.
What a message makes it do: `say X`, `think X`, `stream N`, `hold N` (silent after N pieces, until
it is released or cancelled), `drop N` (the connection ends after N pieces; the task waits),
`ask X`, `fail X`, `reject X`, `auth X`, `message X` (no task), `status X` (the answer comes with
the last status), `mute` (no answer at all), `early` (the connection ends before an answer),
`garbage`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

Json = dict[str, Any]
TERMINAL = ("completed", "failed", "canceled", "rejected")


class Drop(Exception):
    """The connection is to be closed."""


class Task:
    def __init__(self, id: str, context: str, command: str) -> None:
        self.id, self.context, self.command = id, context, command
        self.state, self.note, self.heard = "submitted", "", ""
        self.pieces: list[str] = []
        self.watchers: list[asyncio.Queue[Json | None]] = []
        self.released = asyncio.Event()
        self.held = asyncio.Event()
        self.worker: asyncio.Task[None] | None = None


class A2AServer:
    def __init__(self, version: str = "1.0", *, streams: bool = True) -> None:
        self.version = version
        self.streams = streams
        self.cancels = True
        self.resubscribes = True
        self.url = ""
        self.card: Json | None = None
        self.messages: list[Json] = []
        self.calls: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.tasks: dict[str, Task] = {}
        self.connections: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}
        self.closing = asyncio.Event()
        self._numbers = itertools.count(1)
        self._changed = asyncio.Event()

    async def wait_task(self, held: bool = True) -> Task:
        """The latest task, once it holds still."""
        while not self.tasks:
            self._changed.clear()
            await self._changed.wait()
        task = list(self.tasks.values())[-1]
        if held:
            await task.held.wait()
        return task

    async def wait_call(self, method: str, count: int = 1) -> None:
        while self.calls.count(method) < count:
            self._changed.clear()
            await self._changed.wait()

    # A task -----------------------------------------------------------------------------------

    async def work(self, task: Task) -> None:
        word, _, rest = task.command.partition(" ")
        self.status(task, "working")
        match word:
            case "think":
                self.status(task, "working", rest)
                self.piece(task, "thought")
            case "stream":
                for number in range(int(rest)):
                    self.piece(task, f"piece-{number} ")
                    await asyncio.sleep(0)
            case "hold" | "drop":
                for number in range(int(rest)):
                    self.piece(task, f"piece-{number} ")
                await self.hold(task)
                self.piece(task, "released")
            case "ask":
                self.status(task, "input-required", rest)
                await self.hold(task)
                self.piece(task, f"heard: {task.heard}")
            case "fail" | "reject" | "auth":
                state = {"fail": "failed", "reject": "rejected", "auth": "auth-required"}[word]
                self.status(task, state, rest)
                return
            case "status":
                self.status(task, "completed", rest)
                return
            case _:
                self.piece(task, rest or "ok")
        self.status(task, "completed")

    async def hold(self, task: Task) -> None:
        task.held.set()
        await task.released.wait()

    def piece(self, task: Task, text: str) -> None:
        task.pieces.append(text)
        artifact = {"artifactId": "answer", "parts": [self._part(text)]}
        more = len(task.pieces) > 1
        event = {"taskId": task.id, "contextId": task.context, "artifact": artifact, "append": more}
        self._publish(task, "artifactUpdate", "artifact-update", event)

    def status(self, task: Task, state: str, text: str = "") -> None:
        task.state, task.note = state, text
        event = {"taskId": task.id, "contextId": task.context, "status": self._status(task)}
        self._publish(task, "statusUpdate", "status-update", event)
        if state in (*TERMINAL, "input-required", "auth-required"):
            for watcher in task.watchers:
                watcher.put_nowait(None)

    def _publish(self, task: Task, wrapped: str, kind: str, event: Json) -> None:
        for watcher in task.watchers:
            watcher.put_nowait(self._shaped(wrapped, kind, event))

    # Its words --------------------------------------------------------------------------------

    def _shaped(self, wrapped: str, kind: str, value: Json) -> Json:
        return {wrapped: value} if self.version == "1.0" else {"kind": kind, **value}

    def _part(self, text: str) -> Json:
        return {"text": text} if self.version == "1.0" else {"kind": "text", "text": text}

    def _message(self, text: str, context: str) -> Json:
        role = "ROLE_AGENT" if self.version == "1.0" else "agent"
        message = {"messageId": "a", "role": role, "contextId": context}
        return {**message, "parts": [self._part(text)]}

    def _status(self, task: Task) -> Json:
        state = task.state
        if self.version == "1.0":
            state = f"TASK_STATE_{state.upper().replace('-', '_')}"
        status: Json = {"state": state}
        if task.note:
            status["message"] = self._message(task.note, task.context)
        return status

    def _task(self, task: Task) -> Json:
        value: Json = {"id": task.id, "contextId": task.context, "status": self._status(task)}
        if task.pieces:
            parts = [self._part(text) for text in task.pieces]
            value["artifacts"] = [{"artifactId": "answer", "parts": parts}]
        return value if self.version == "1.0" else {"kind": "task", **value}

    def default_card(self) -> Json:
        card: Json = {"name": "scripted", "capabilities": {"streaming": self.streams}}
        where = f"{self.url}/a2a"
        if self.version == "1.0":
            interface = {"url": where, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
            return {**card, "supportedInterfaces": [interface]}
        return {**card, "url": where, "preferredTransport": "JSONRPC", "protocolVersion": "0.3.0"}

    # Its connections --------------------------------------------------------------------------

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections[writer] = asyncio.current_task()
        try:
            while True:
                await self._request(reader, writer)
        except (Drop, asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        pairs = (line.split(": ", 1) for line in lines[1:] if line)
        headers = {name.lower(): value for name, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.headers.append(headers)
        if lines[0].startswith("GET"):
            self._json(writer, self.card if self.card is not None else self.default_card())
            return
        asked = json.loads(body)
        method = asked["method"]
        self.calls.append(method)
        self._changed.set()
        try:
            await self._call(method, asked["params"], writer)
        except KeyError:
            self._error(writer, -32001, "Task not found")

    async def _call(self, method: str, params: Json, writer: asyncio.StreamWriter) -> None:
        match method:
            case "message/stream" | "SendStreamingMessage":
                await self._stream(self._begin(params, writer), writer)
            case "message/send" | "SendMessage":
                task = self._begin(params, writer)
                await asyncio.sleep(0)
                self._json(writer, self._answer(self._wrapped(task)))
            case "tasks/get" | "GetTask":
                self._json(writer, self._answer(self._task(self.tasks[params["id"]])))
            case "tasks/cancel" | "CancelTask":
                self._cancel(self.tasks[params["id"]], writer)
            case "tasks/resubscribe" | "SubscribeToTask":
                task = self.tasks[params["id"]]
                if not self.resubscribes or task.state in TERMINAL:
                    self._error(writer, -32004, "not supported")
                else:
                    await self._stream(task, writer)

    def _cancel(self, task: Task, writer: asyncio.StreamWriter) -> None:
        if not self.cancels or task.state in TERMINAL:
            self._error(writer, -32002, "Task cannot be canceled")
            return
        if task.worker is not None:
            task.worker.cancel()
        self.status(task, "canceled")
        self._json(writer, self._answer(self._task(task)))

    def _begin(self, params: Json, writer: asyncio.StreamWriter) -> Task:
        message = params["message"]
        self.messages.append(message)
        text = message["parts"][0]["text"]
        if message.get("taskId"):
            task = self.tasks[message["taskId"]]
            task.heard = text
            task.released.set()
            return task
        number = next(self._numbers)
        context = message.get("contextId") or f"ctx {number}"
        if text.startswith("early"):
            raise Drop
        task = Task(f"task-{number}", context, text)
        if not text.startswith(("mute", "message", "garbage")):
            self.tasks[task.id] = task
            task.worker = asyncio.ensure_future(self.work(task))
        self._changed.set()
        return task

    def _wrapped(self, task: Task) -> Json:
        return {"task": self._task(task)} if self.version == "1.0" else self._task(task)

    async def _stream(self, task: Task, writer: asyncio.StreamWriter) -> None:
        if task.command.startswith("mute"):
            await self.closing.wait()
            raise Drop
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")
        writer.write(b"Transfer-Encoding: chunked\r\n\r\n")
        if task.command.startswith("garbage"):
            self._event(writer, b"{not json")
        elif task.command.startswith("message"):
            said = self._message(task.command.partition(" ")[2], task.context)
            shaped = {"message": said} if self.version == "1.0" else {"kind": "message", **said}
            self._event(writer, json.dumps(self._answer(shaped)).encode())
        else:
            await self._watch(task, writer)
        writer.write(b"0\r\n\r\n")

    async def _watch(self, task: Task, writer: asyncio.StreamWriter) -> None:
        watcher: asyncio.Queue[Json | None] = asyncio.Queue()
        task.watchers.append(watcher)
        first = self._answer(self._wrapped(task))
        self._event(writer, json.dumps(first).encode())
        pieces = 0
        try:
            while (event := await watcher.get()) is not None:
                self._event(writer, json.dumps(self._answer(event)).encode())
                await writer.drain()
                pieces += "artifact" in str(event.keys()) + str(event.get("kind"))
                word, _, rest = task.command.partition(" ")
                if word == "drop" and pieces == int(rest) and not task.released.is_set():
                    raise Drop
        finally:
            task.watchers.remove(watcher)

    def _event(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        event = b"data: " + data + b"\n\n"
        writer.write(b"%x\r\n%s\r\n" % (len(event), event))

    def _answer(self, result: Json) -> Json:
        return {"jsonrpc": "2.0", "id": 1, "result": result}

    def _error(self, writer: asyncio.StreamWriter, code: int, message: str) -> None:
        error = {"code": code, "message": message}
        self._json(writer, {"jsonrpc": "2.0", "id": 1, "error": error})

    def _json(self, writer: asyncio.StreamWriter, value: Json) -> None:
        body = json.dumps(value).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        writer.write(head.encode() + b"\r\n\r\n" + body)


@asynccontextmanager
async def a2a_server(version: str = "1.0", *, streams: bool = True) -> AsyncIterator[A2AServer]:
    made = A2AServer(version, streams=streams)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()
        made.closing.set()
        for task in made.tasks.values():
            for watcher in task.watchers:
                watcher.put_nowait(None)
            if task.worker is not None:
                task.worker.cancel()
                with suppress(asyncio.CancelledError):
                    await task.worker
        for writer in made.connections:
            writer.close()
        served = [serving for serving in made.connections.values() if serving is not None]
        if served:
            await asyncio.wait(served)
