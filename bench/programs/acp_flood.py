"""An ACP agent that answers every prompt with a number of text updates, one write each.

`python acp_flood.py EVENTS BYTES`: so many updates of about so many bytes a line, then the end.
"""

import json
import os
import sys
from collections.abc import Callable


def main(events: int, size: int) -> None:
    out = sys.stdout.fileno()

    def say(message: dict[str, object]) -> None:
        os.write(out, json.dumps(message, separators=(",", ":")).encode() + b"\n")

    for line in sys.stdin.buffer:
        asked = json.loads(line)
        method, number = asked.get("method"), asked.get("id")
        if number is None:
            continue
        answer: dict[str, object] = {}
        if method == "initialize":
            answer = {"protocolVersion": 1, "agentCapabilities": {}, "authMethods": []}
        elif method == "session/new":
            answer = {"sessionId": "flood"}
        elif method == "session/prompt":
            _flood(say, events, size)
            answer = {"stopReason": "end_turn"}
        say({"jsonrpc": "2.0", "id": number, "result": answer})


def _flood(say: Callable[[dict[str, object]], None], events: int, size: int) -> None:
    filling = "x" * (size - 166)
    for number in range(events):
        content = {"type": "text", "text": f"{number:07d} {filling}"}
        update = {"sessionUpdate": "agent_message_chunk", "content": content}
        params = {"sessionId": "flood", "update": update}
        say({"jsonrpc": "2.0", "method": "session/update", "params": params})


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
