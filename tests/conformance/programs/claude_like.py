"""A program that speaks Claude Code's stream-json, as far as the driver needs it."""

from __future__ import annotations

import os
import sys
import uuid

from tests.conformance.programs.play import Json, Memory, Turn, Voice, lines


class ClaudeVoice(Voice):
    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self._memory = memory

    def init(self) -> None:
        self.line({"type": "system", "subtype": "init", "session_id": self._memory.id})

    def text(self, text: str) -> None:
        delta = {"type": "text_delta", "text": text}
        event = {"type": "content_block_delta", "index": 0, "delta": delta}
        self.line({"type": "stream_event", "event": event, "parent_tool_use_id": None})

    def ping(self) -> None:
        self.line({"type": "stream_event", "event": {"type": "ping"}, "parent_tool_use_id": None})

    def tool_started(self, tool: str, command: str) -> None:
        use = {"type": "tool_use", "id": tool, "name": "Bash", "input": {"command": command}}
        self.line({"type": "assistant", "message": {"content": [use]}})
        event = {"type": "message_start", "message": {}}
        self.line({"type": "stream_event", "event": event, "parent_tool_use_id": None})

    def tool_ended(self, tool: str, output: str) -> None:
        result = {"type": "tool_result", "tool_use_id": tool, "content": output}
        self.line({"type": "user", "message": {"role": "user", "content": [result]}})

    def ask(self, ref: str, tool: str, command: str) -> None:
        request = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": command}}
        self.line({"type": "control_request", "request_id": ref, "request": request})

    def withdraw(self, ref: str) -> None:
        self.line({"type": "control_cancel_request", "request_id": ref})

    def end(self, text: str) -> None:
        self._result(False, "completed", text)

    def abort(self) -> None:
        self._result(True, "aborted_streaming", "")

    def _result(self, is_error: bool, reason: str, text: str) -> None:
        self.line({
            "type": "result", "subtype": "success", "is_error": is_error, "num_turns": 1,
            "terminal_reason": reason, "result": text, "session_id": self._memory.id,
        })  # fmt: skip


def refuse_to_resume(voice: ClaudeVoice, id: str) -> None:
    told = f"No conversation found with session ID: {id}"
    voice.line({
        "type": "result", "subtype": "error_during_execution", "is_error": True, "num_turns": 0,
        "errors": [told], "session_id": id,
    })  # fmt: skip
    sys.exit(1)


def main() -> None:
    place = "".join(c if c.isascii() and c.isalnum() else "-" for c in os.getcwd())
    word = '{"type": "assistant", "message": {"content": [{"type": "text", "text": "…"}]}}'
    mark = f'{{"type": "user"}}\n{word}'
    memory = Memory(f".claude/projects/{place}", after=".jsonl", mark=mark)
    voice = ClaudeVoice(memory)
    argv = sys.argv
    if "--resume" in argv:
        id = argv[argv.index("--resume") + 1]
        if not memory.resume(id):
            refuse_to_resume(voice, id)
    else:
        memory.begin()
    turn: Turn | None = None
    for said in lines():
        match said:
            case {"type": "user", "message": {"content": text}}:
                voice.line({**said, "isReplay": True, "uuid": uuid.uuid4().hex})
                if turn is not None and turn.is_on:
                    turn.steer(text)
                else:
                    voice.init()
                    turn = Turn(voice, memory, text)
                    turn.start()
            case {"type": "control_request", "request_id": id, "request": request}:
                control(voice, id, request, turn)
            case {"type": "control_response", "response": {"response": {"behavior": choice}}}:
                if turn is not None:
                    turn.answer(choice == "allow")


def control(voice: ClaudeVoice, id: str, request: Json, turn: Turn | None) -> None:
    response = {"subtype": "success", "request_id": id, "response": {}}
    voice.line({"type": "control_response", "response": response})
    if request["subtype"] == "interrupt" and turn is not None and turn.is_on:
        turn.interrupt()


if __name__ == "__main__":
    main()
