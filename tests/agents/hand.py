"""Speaks to a real program by hand: one turn, in its own protocol, and no more.

It is not a driver: it exists to show that the programs run here, with the least that can go wrong.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.agents.programs import Launch, Program

Json = dict[str, Any]


class Talk:
    """Lines of JSON to and from a program."""

    def __init__(self, launch: Launch, cwd: Path) -> None:
        pipe = subprocess.PIPE
        env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **launch.env}
        self._errors: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            launch.argv,
            cwd=cwd,
            env=env,
            stdin=pipe,
            stdout=pipe,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        self._lines: queue.Queue[Json | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._next_id = 0

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                self._lines.put(json.loads(line))
        self._lines.put(None)

    def send(self, value: Json) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(value) + "\n")
        self.process.stdin.flush()

    def hear(self, timeout_s: float = 30.0) -> Json:
        try:
            value = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError(f"nothing for {timeout_s:g} s\n{self.errors()}") from None
        if value is None:
            raise EOFError(f"it ended with {self.process.wait(10)}\n{self.errors()}")
        return value

    def call(
        self, method: str, params: Json, serve: Callable[[Json], None] = lambda _: None, **more: Any
    ) -> Json:
        """A JSON-RPC request; what comes before its answer goes to `serve`."""
        self._next_id += 1
        wanted = self._next_id
        self.send({**more, "id": wanted, "method": method, "params": params})
        while True:
            message = self.hear()
            if message.get("id") == wanted and "method" not in message:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                result: Json = message["result"]
                return result
            serve(message)

    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-3000:]

    def close(self) -> None:
        # The npm ones are a wrapper around a native program that would outlive it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._reader.join(10)
        for stream in (self.process.stdin, self.process.stdout, self._errors):
            try:
                stream.close()
            except OSError:
                continue


@dataclass
class Turn:
    """What came of one message."""

    text: str = ""
    asked: list[str] = field(default_factory=list)
    """The tools it wanted leave for, each of which was given."""
    ready_s: float = 0.0
    """From its start to where a message can be given."""
    first_s: float = 0.0
    """From its start to the first text."""
    total_s: float = 0.0


def take_turn(program: Program, launch: Launch, cwd: Path, text: str) -> Turn:
    began = time.monotonic()
    talk = Talk(launch, cwd)
    try:
        turn = {"claude": _claude, "codex": _codex, "acp": _acp}[program.driver](
            talk, cwd, text, began
        )
    finally:
        talk.close()
    turn.total_s = time.monotonic() - began
    return turn


def _note(turn: Turn, text: str, began: float) -> None:
    turn.text += text
    turn.first_s = turn.first_s or time.monotonic() - began


def _claude(talk: Talk, cwd: Path, text: str, began: float) -> Turn:
    turn = Turn()
    talk.send({"type": "user", "message": {"role": "user", "content": text}})
    while True:
        message = talk.hear()
        match message:
            case {"type": "stream_event", "event": {"delta": {"text": delta}}}:
                _note(turn, delta, began)
            case {"type": "control_request", "request_id": ref, "request": request}:
                turn.asked.append(request["tool_name"])
                allow = {"behavior": "allow", "updatedInput": request["input"]}
                answer = {"subtype": "success", "request_id": ref, "response": allow}
                talk.send({"type": "control_response", "response": answer})
            case {"type": "result"}:
                assert not message["is_error"], message
                return turn


def _codex(talk: Talk, cwd: Path, text: str, began: float) -> Turn:
    turn = Turn()
    talk.call("initialize", {"clientInfo": {"name": "hand", "title": "hand", "version": "0"}})
    talk.send({"method": "initialized"})
    thread = talk.call("thread/start", {"cwd": str(cwd)})["thread"]["id"]
    turn.ready_s = time.monotonic() - began
    over = False

    def serve(message: Json) -> None:
        nonlocal over
        match message:
            case {"method": "item/agentMessage/delta", "params": {"delta": delta}}:
                _note(turn, delta, began)
            case {"method": str(method), "id": ref} if method.endswith("requestApproval"):
                turn.asked.append(method)
                talk.send({"id": ref, "result": {"decision": "accept"}})
            case {"method": "turn/completed", "params": {"turn": {"status": status}}}:
                assert status == "completed", message
                over = True

    given = [{"type": "text", "text": text}]
    talk.call("turn/start", {"threadId": thread, "input": given}, serve)
    while not over:
        serve(talk.hear())
    return turn


def _acp(talk: Talk, cwd: Path, text: str, began: float) -> Turn:
    turn = Turn()

    def serve(message: Json) -> None:
        match message:
            case {
                "method": "session/update",
                "params": {"update": {"sessionUpdate": "agent_message_chunk", "content": content}},
            }:
                _note(turn, content["text"], began)
            case {"method": "session/request_permission", "id": ref, "params": params}:
                turn.asked.append(params["toolCall"].get("title", ""))
                allow = next(o for o in params["options"] if o["kind"] == "allow_once")
                outcome = {"outcome": "selected", "optionId": allow["optionId"]}
                talk.send({"jsonrpc": "2.0", "id": ref, "result": {"outcome": outcome}})

    capabilities = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
    params = {"protocolVersion": 1, "clientCapabilities": capabilities}
    talk.call("initialize", params, jsonrpc="2.0")
    session = talk.call("session/new", {"cwd": str(cwd), "mcpServers": []}, jsonrpc="2.0")
    turn.ready_s = time.monotonic() - began
    prompt = {"sessionId": session["sessionId"], "prompt": [{"type": "text", "text": text}]}
    ended = talk.call("session/prompt", prompt, serve, jsonrpc="2.0")
    assert ended["stopReason"] == "end_turn", ended
    return turn
