"""A program that speaks Codex's app-server protocol, as far as the driver needs it."""

from __future__ import annotations

import sys
import uuid
from typing import Any

from tests.conformance.programs.play import Json, Memory, Turn, Voice, lines

APPROVAL = 1000


class CodexVoice(Voice):
    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self._memory = memory
        self._item = ""
        self.turn: str = ""

    def reply(self, id: Any, result: Json) -> None:
        self.line({"id": id, "result": result})

    def tell(self, method: str, **params: Any) -> None:
        told = {"threadId": self._memory.id, "turnId": self.turn, **params}
        self.line({"method": method, "params": told})

    def begin(self) -> None:
        self.turn, self._item = uuid.uuid4().hex, uuid.uuid4().hex

    def turn_told(self, method: str, status: str) -> None:
        turn: Json = {"id": self.turn, "status": status, "items": [], "error": None}
        self.line({"method": method, "params": {"threadId": self._memory.id, "turn": turn}})

    def text(self, text: str) -> None:
        self.tell("item/agentMessage/delta", itemId=self._item, delta=text)

    def ping(self) -> None:
        self.tell("thread/tokenUsage/updated", tokenUsage={})

    def tool_started(self, tool: str, command: str) -> None:
        item = {"type": "commandExecution", "id": tool, "command": command, "status": "inProgress"}
        self.tell("item/started", item=item)
        self._item = uuid.uuid4().hex

    def tool_ended(self, tool: str, output: str) -> None:
        item = {
            "type": "commandExecution", "id": tool, "status": "completed",
            "aggregatedOutput": output,
        }  # fmt: skip
        self.tell("item/completed", item=item)

    def ask(self, ref: str, tool: str, command: str) -> None:
        params = {"threadId": self._memory.id, "turnId": self.turn, "itemId": tool}
        method = "item/commandExecution/requestApproval"
        self.line({"id": APPROVAL, "method": method, "params": {**params, "command": command}})

    def withdraw(self, ref: str) -> None:
        self.tell("serverRequest/resolved", requestId=APPROVAL)

    def end(self, text: str) -> None:
        self.turn_told("turn/completed", "completed")

    def abort(self) -> None:
        self.turn_told("turn/completed", "interrupted")


def main() -> None:
    assert "app-server" in sys.argv
    mark = '{"type": "event_msg", "payload": {"type": "task_complete"}}'
    memory = Memory(".codex/sessions/2026/02/01", "rollout-2026-02-01T08-30-00-", ".jsonl", mark)
    voice = CodexVoice(memory)
    turn: Turn | None = None
    for said in lines():
        match said:
            case {"method": "initialize", "id": id}:
                voice.reply(id, {"userAgent": "scripted"})
            case {"method": "thread/start", "id": id}:
                voice.reply(id, {"thread": {"id": memory.begin()}})
            case {"method": "thread/resume", "id": id, "params": {"threadId": thread}}:
                if memory.resume(thread):
                    voice.reply(id, {"thread": {"id": thread}})
                else:
                    fault = {"code": -32600, "message": f"no rollout found for {thread}"}
                    voice.line({"id": id, "error": fault})
            case {"method": "turn/start", "id": id, "params": {"input": [{"text": text}]}}:
                if turn is not None and turn.is_on:
                    turn.steer(text)
                    voice.reply(id, {"turn": {"id": voice.turn}})
                    continue
                voice.begin()
                voice.reply(id, {"turn": {"id": voice.turn}})
                voice.turn_told("turn/started", "inProgress")
                turn = Turn(voice, memory, text)
                turn.start()
            case {"method": "turn/interrupt", "id": id}:
                voice.reply(id, {})
                if turn is not None:
                    turn.interrupt()
            case {"id": 1000, "result": {"decision": decision}}:
                if turn is not None:
                    turn.answer(decision == "accept")


if __name__ == "__main__":
    main()
