"""What is going on, as one watcher of each session sees it: how clients know what to do next.

Decides nothing, and nothing is judged by it. It must not know how events come.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

Hint = Callable[[str], None]


class Scene:
    def __init__(self, hint: Hint) -> None:
        self._hint = hint
        self.waiting: Counter[str] = Counter()
        """How many runs of a session have not ended."""
        self.running: dict[str, str] = {}
        self.ended: set[str] = set()
        self.questions: asyncio.Queue[str] = asyncio.Queue()

    def see(self, event: dict[str, Any]) -> None:
        session, run, kind, data = event["session"], event["run"], event["kind"], event["data"]
        self._hint(kind)
        match kind:
            case "message.accepted" if not data.get("steered"):
                self.waiting[session] += 1
            case "run.requeued":
                self.waiting[session] += 1
            case "run.started":
                self.running[session] = run
            case "run.ended":
                self.waiting[session] -= 1
                self.ended.add(run)
            case "approval.requested":
                self.questions.put_nowait(data["approval"])
            case _:
                pass
