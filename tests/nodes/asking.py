"""Asking a node over its network API: quicker than by commands, which have tests of their own."""

from __future__ import annotations

import json
import secrets
import urllib.error
import urllib.request
from typing import Any

from tests.cli.house import House, wait_until
from tests.helpers.terminal import TIMEOUT_S
from tests.process.children.scene import log_of

EXISTS, NOT_NOW = 409, 503


def post(there: House, path: str, key: str = "", **body: Any) -> Any:
    """What it answers, which is no refusal."""
    token = (there.data / "token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    headers |= {"Idempotency-Key": key} if key else {}
    asked = urllib.request.Request(f"{there.url}{path}", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as answer:
        return json.loads(answer.read())


def send(there: House, session: str, text: str, agent: str = "demo", key: str = "") -> str:
    """A message to a session, which is made if there is none; its run. While the node of the
    session is gone it is asked again."""
    key = key or secrets.token_hex(8)

    def made() -> bool:
        try:
            post(there, "/v1/sessions", id=session, agent=agent)
        except urllib.error.HTTPError as refused:
            if refused.code not in (EXISTS, NOT_NOW):
                raise
            return refused.code == EXISTS
        return True

    def sent() -> Any:
        try:
            return post(there, f"/v1/sessions/{session}/messages", key, text=text)
        except urllib.error.HTTPError as refused:
            if refused.code != NOT_NOW:
                raise
            return None

    wait_until(f"there is {session}", made)
    return str(wait_until(f"{session} takes a message", sent)["run_id"])


def stop(there: House, run: str) -> None:
    post(there, f"/v1/runs/{run}/stop")


def endings(there: House, session: str) -> list[str]:
    """The runs that ended there, in the log's order."""
    return [one["run"] for one in log_of(there, session) if one["kind"] == "run.ended"]


def said(there: House, session: str, run: str) -> str:
    """What it said, from the log."""
    spoken = [x for x in log_of(there, session) if x["kind"] == "output.text" and x["run"] == run]
    return "".join(x["data"]["text"] for x in spoken)


def wait_waits(there: House, session: str, run: str) -> None:
    """Until the slow agent waits for its file."""
    wait_until(f"{run} waits", lambda: "waiting" in said(there, session, run))
