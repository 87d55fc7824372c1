"""The agents of `turnkeeper demo`: one for each thing that goes wrong with agents.

Decides who is in the cast and how short their clocks are. It must not know how they are run.
Invariant: each shows its one thing by itself, whatever it is told, in less than a minute; and each
takes the requests of the demo agent as well, so that a session can go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CAST: Mapping[str, Mapping[str, Any]] = {
    "demo": {"driver": "demo"},
    "staller": {
        "driver": "demo", "plays": "stall after 5", "limits": {"idle_s": 20, "first_output_s": 20},
    },
    "stubborn": {"driver": "demo", "plays": "stubborn", "limits": {"drain_s": 2, "term_s": 2}},
    "builder": {"driver": "demo", "plays": "build 45", "limits": {"tool_s": 10, "idle_s": 10}},
    "asker": {"driver": "demo", "plays": "ask"},
    "parent": {"driver": "python", "target": "turnkeeper.worker.demo:parent", "mcp": True},
    "forker": {
        "driver": "python", "target": "turnkeeper.worker.demo:forker",
        "limits": {"drain_s": 2, "term_s": 2}, "sample_s": 1,
    },
}  # fmt: skip
"""`staller` falls silent, `stubborn` ignores Stop, `builder` is quiet and at work, `asker` wants
leave, `parent` starts runs below its own, and what `forker` starts hides from its parent."""
