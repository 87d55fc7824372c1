"""Asking a node over its network API."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from tests.cli.house import House
from tests.helpers.terminal import TIMEOUT_S


def post(there: House, path: str, **body: Any) -> Any:
    """What it answers, which is no refusal."""
    token = (there.data / "token").read_text().strip()
    asked = urllib.request.Request(
        f"{there.url}{path}", json.dumps(body).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )  # fmt: skip
    with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as answer:
        return json.loads(answer.read())
