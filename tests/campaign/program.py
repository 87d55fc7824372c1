"""The scripted agents that are programs: `python -m tests.campaign.program acp|claude`.

Decides how a turn plays its steps, and that steering and the turn's end never cross: under one lock
a message is either taken into the turn or begins the next one. It must not know the server.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from itertools import count
from typing import Any

from tests.campaign import marks, steps
from tests.conformance.programs.acp_like import AcpVoice
from tests.conformance.programs.claude_like import ClaudeVoice, refuse_to_resume
from tests.conformance.programs.play import Interrupted, Json, Memory, Voice, lines

TOOL = "sh -c 'sleep {seconds}; echo {said}'"


class Turn:
    """One message being played, in a thread of its own."""

    def __init__(self, voice: Voice, lock: threading.Lock, text: str) -> None:
        self._voice = voice
        self._lock = lock
        self._script = steps.read(text)
        self._said = ""
        self._counted = 0
        self._asked = count(1)
        self._answers: queue.Queue[bool | None] = queue.Queue()
        self._interrupted = threading.Event()
        self.is_over = False

    def start(self) -> None:
        marks.leave(self._script.token, "run")
        threading.Thread(target=self._play, daemon=True).start()

    def steer(self, text: str) -> None:
        """A further message, taken into this turn: read, and no more is asked of it."""
        marks.leave(steps.read(text).token, "steered")

    def answer(self, allow: bool) -> None:
        self._answers.put(allow)

    def interrupt(self) -> None:
        self._interrupted.set()
        self._answers.put(None)

    def _play(self) -> None:
        try:
            for step in self._script.steps:
                self._step(step)
        except Interrupted:
            self._close(self._voice.abort)
        else:
            marks.leave(self._script.token, "end")
            self._close(lambda: self._voice.end(self._said))

    def _close(self, say: Any) -> None:
        with self._lock:
            self.is_over = True
            say()

    def _say(self, text: str) -> None:
        self._said += text
        self._voice.text(text)

    def _wait(self, ms: int) -> None:
        if self._interrupted.wait(ms / 1000):
            raise Interrupted

    def _step(self, step: steps.Step) -> None:
        match step.word:
            case "count":
                for _, word in steps.numbered(self._script, self._counted, step):
                    self._say(word)
                    self._wait(step.ms)
                self._counted += step.number
            case "tool":
                self._tool(f"t{next(self._asked)}", step.ms)
            case "ask":
                self._ask(step.ms)
            case "deaf":
                time.sleep(step.ms / 1000)
            case "exit":
                self._say(steps.PARTIAL)
                os._exit(steps.EXIT_CODE)
            case other:
                raise ValueError(other)

    def _ask(self, ms: int) -> None:
        tool = f"t{next(self._asked)}"
        self._voice.ask(f"{self._script.token}-{tool}", tool, self._script.token)
        allowed = self._answers.get()
        if allowed is None:
            raise Interrupted
        if allowed:
            self._tool(tool, ms)
        else:
            self._say(f"{steps.DENIED} ")

    def _tool(self, tool: str, ms: int) -> None:
        """A child in a session of its own, which is left running when the turn is interrupted."""
        command = TOOL.format(seconds=ms / 1000, said=steps.TOOLED)
        marks.leave(self._script.token, "tool")
        self._voice.tool_started(tool, command)
        process = subprocess.Popen(
            command, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        while process.poll() is None:
            self._wait(5)
        assert process.stdout is not None
        output = process.stdout.read()
        self._voice.tool_ended(tool, output)
        self._say(f"{output.strip()} ")


class Desk:
    """What the protocols share: the turn that is on, and the lock around its end."""

    def __init__(self, voice: Voice) -> None:
        self.voice = voice
        self.lock = threading.Lock()
        self.turn: Turn | None = None

    @property
    def is_busy(self) -> bool:
        return self.turn is not None and not self.turn.is_over

    def begin(self, text: str) -> None:
        self.turn = Turn(self.voice, self.lock, text)
        self.turn.start()


# The Agent Client Protocol -----------------------------------------------------------------------


class Acp(AcpVoice):
    """Every question has a number of its own."""

    def __init__(self, memory: Memory) -> None:
        super().__init__(memory)
        self._questions = count(1000)

    def ask(self, ref: str, tool: str, command: str) -> None:
        call = {"toolCallId": tool, "title": command, "kind": "execute", "status": "pending"}
        options = [
            {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
            {"optionId": "no", "name": "Reject", "kind": "reject_once"},
        ]
        params = {"sessionId": self._memory.id, "toolCall": call, "options": options}
        method, id = "session/request_permission", next(self._questions)
        self.line({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


def speak_acp() -> None:
    memory = Memory()
    voice = Acp(memory)
    desk = Desk(voice)
    for said in lines():
        with desk.lock:
            _acp_line(said, memory, voice, desk)


def _acp_line(said: Json, memory: Memory, voice: Acp, desk: Desk) -> None:
    turn = desk.turn
    match said:
        case {"method": "initialize", "id": id}:
            voice.reply(id, {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}})
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
            desk.begin(text)
        case {"method": "session/cancel"}:
            if turn is not None:
                turn.interrupt()
        case {"id": int(), "result": {"outcome": outcome}}:
            if turn is not None and outcome["outcome"] == "selected":
                turn.answer(outcome["optionId"] == "yes")


# Claude Code's stream-json -----------------------------------------------------------------------


def speak_claude() -> None:
    memory = Memory()
    voice = ClaudeVoice(memory)
    if "--resume" in sys.argv:
        id = sys.argv[sys.argv.index("--resume") + 1]
        if not memory.resume(id):
            refuse_to_resume(voice, id)
    else:
        memory.begin()
    desk = Desk(voice)
    for said in lines():
        with desk.lock:
            _claude_line(said, voice, desk)


def _claude_line(said: Json, voice: ClaudeVoice, desk: Desk) -> None:
    turn = desk.turn
    match said:
        case {"type": "user", "message": {"content": text}}:
            voice.line({**said, "isReplay": True, "uuid": "u"})
            if turn is not None and desk.is_busy:
                turn.steer(text)
            else:
                voice.init()
                desk.begin(text)
        case {"type": "control_request", "request_id": id, "request": request}:
            response = {"subtype": "success", "request_id": id, "response": {}}
            voice.line({"type": "control_response", "response": response})
            if request["subtype"] == "interrupt" and turn is not None and desk.is_busy:
                turn.interrupt()
        case {"type": "control_response", "response": {"response": {"behavior": choice}}}:
            if turn is not None:
                turn.answer(choice == "allow")


if __name__ == "__main__":
    {"acp": speak_acp, "claude": speak_claude}[sys.argv[1]]()
