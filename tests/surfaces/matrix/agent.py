"""An ACP agent that ends its turns in whichever way the prompt names."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

Json = dict[str, Any]
SESSION = "matrix"


def say(told: Json) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **told}) + "\n")
    sys.stdout.flush()


def update(told: Json) -> None:
    say({"method": "session/update", "params": {"sessionId": SESSION, "update": told}})


def text(words: str) -> None:
    update({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": words}})


def play(number: Any, deed: str) -> bool:
    """What the prompt asks for; whether the turn is over."""
    if deed != "silent":
        text("here ")
    match deed:
        case "max_tokens" | "max_turn_requests" | "refusal" | "end_turn":
            say({"id": number, "result": {"stopReason": deed}})
            return True
        case "error":
            say({"id": number, "error": {"code": -32000, "message": "it cannot"}})
            return True
        case "exit":
            os._exit(3)
        case "garbage":
            say({"id": number, "result": {"stopReason": 7}})
        case "flood":
            while True:
                text("x" * 60_000)
        case "orphan":
            os.kill(os.getppid(), signal.SIGKILL)
        case "tool":
            call = {"toolCallId": "t1", "title": "nap", "status": "in_progress", "kind": "other"}
            update({"sessionUpdate": "tool_call", **call})
        case _:
            pass
    return False


def main() -> None:
    running: Any = None
    for line in sys.stdin:
        asked = json.loads(line)
        number, method = asked.get("id"), asked.get("method")
        if method == "initialize":
            if "mute" in sys.argv:
                signal.pause()
            say({"id": number, "result": {"protocolVersion": 1, "agentCapabilities": {}}})
        elif method == "session/new":
            say({"id": number, "result": {"sessionId": SESSION}})
            if "deaf" in sys.argv:
                signal.pause()
        elif method == "session/prompt":
            deed = asked["params"]["prompt"][0]["text"].split()[0]
            running = None if play(number, deed) else number
        elif method == "session/cancel" and running is not None:
            say({"id": running, "result": {"stopReason": "cancelled"}})
            running = None


if __name__ == "__main__":
    main()
