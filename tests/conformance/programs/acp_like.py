"""A program that speaks the Agent Client Protocol, as far as the driver needs it."""

from __future__ import annotations

from typing import Any

from tests.conformance.programs.play import Json, Memory, Turn, Voice, lines

PERMISSION = 1000


class AcpVoice(Voice):
    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self._memory = memory
        self.prompt: Any = None

    def reply(self, id: Any, result: Json) -> None:
        self.line({"jsonrpc": "2.0", "id": id, "result": result})

    def update(self, update: Json) -> None:
        params = {"sessionId": self._memory.id, "update": update}
        self.line({"jsonrpc": "2.0", "method": "session/update", "params": params})

    def text(self, text: str) -> None:
        content = {"type": "text", "text": text}
        self.update({"sessionUpdate": "agent_message_chunk", "content": content})

    def ping(self) -> None:
        self.update({"sessionUpdate": "usage_update", "used": 1, "size": 2})

    def tool_started(self, tool: str, command: str) -> None:
        self.update({
            "sessionUpdate": "tool_call", "toolCallId": tool, "title": command, "kind": "execute",
            "status": "in_progress", "rawInput": {"command": command},
        })  # fmt: skip

    def tool_ended(self, tool: str, output: str) -> None:
        content = [{"type": "content", "content": {"type": "text", "text": output}}]
        self.update({
            "sessionUpdate": "tool_call_update", "toolCallId": tool, "status": "completed",
            "content": content,
        })  # fmt: skip

    def ask(self, ref: str, tool: str, command: str) -> None:
        call = {"toolCallId": tool, "title": command, "kind": "execute", "status": "pending"}
        options = [
            {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
            {"optionId": "no", "name": "Reject", "kind": "reject_once"},
        ]
        params = {"sessionId": self._memory.id, "toolCall": call, "options": options}
        method = "session/request_permission"
        self.line({"jsonrpc": "2.0", "id": PERMISSION, "method": method, "params": params})

    def withdraw(self, ref: str) -> None:
        """The protocol has no word for it: the turn just goes on."""

    def end(self, text: str) -> None:
        self.reply(self.prompt, {"stopReason": "end_turn"})

    def abort(self) -> None:
        self.reply(self.prompt, {"stopReason": "cancelled"})


def main() -> None:
    memory = Memory()
    voice = AcpVoice(memory)
    turn: Turn | None = None
    for said in lines():
        match said:
            case {"method": "initialize", "id": id}:
                able = {"loadSession": True}
                voice.reply(id, {"protocolVersion": 1, "agentCapabilities": able})
            case {"method": "session/new", "id": id}:
                voice.reply(id, {"sessionId": memory.begin()})
            case {"method": "session/load", "id": id, "params": {"sessionId": session}}:
                if memory.resume(session):
                    voice.reply(id, {})
                else:
                    fault = {"code": -32602, "message": f"no session {session}"}
                    voice.line({"jsonrpc": "2.0", "id": id, "error": fault})
            case {"method": "session/prompt", "id": id, "params": {"prompt": [{"text": text}]}}:
                voice.prompt = id
                turn = Turn(voice, memory, text)
                turn.start()
            case {"method": "session/cancel"}:
                if turn is not None:
                    turn.interrupt()
            case {"id": 1000, "result": {"outcome": outcome}}:
                if turn is not None and outcome["outcome"] == "selected":
                    turn.answer(outcome["optionId"] == "yes")


if __name__ == "__main__":
    main()
