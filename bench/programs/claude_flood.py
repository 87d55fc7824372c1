"""A Claude-like agent (stream-json) that answers every message with a number of text deltas.

`python claude_flood.py EVENTS BYTES [Claude's own arguments]`: so many deltas of about so many
bytes a line, one write each, then the result.
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
        if asked.get("type") == "control_request":
            answer = {"subtype": "success", "request_id": asked["request_id"], "response": {}}
            say({"type": "control_response", "response": answer})
        elif asked.get("type") == "user":
            say({"type": "system", "subtype": "init", "session_id": "flood", "tools": []})
            _flood(say, events, size)
            say({
                "type": "result", "subtype": "success", "is_error": False, "session_id": "flood",
                "result": "done", "num_turns": 1, "duration_ms": 1, "duration_api_ms": 1,
                "total_cost_usd": 0.0, "usage": {"input_tokens": 1, "output_tokens": 1},
                "uuid": "00000000-0000-4000-8000-000000000002",
            })  # fmt: skip


def _flood(say: Callable[[dict[str, object]], None], events: int, size: int) -> None:
    filling = "x" * (size - 216)
    for number in range(events):
        delta = {"type": "text_delta", "text": f"{number:07d} {filling}"}
        say({
            "type": "stream_event", "uuid": "00000000-0000-4000-8000-000000000001",
            "session_id": "flood", "parent_tool_use_id": None,
            "event": {"type": "content_block_delta", "index": 0, "delta": delta},
        })  # fmt: skip


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
