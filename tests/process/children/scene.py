"""A server with agents that start others, and how the tree is looked at from outside."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.cli.house import House, house
from tests.tidy.source import REPO

NAMES = ("tree", "chatter", "hang", "impatient", "greedy", "deep", "late_child", "twice", "echo")
SOON_S = 100.0
"""Longer than anything here may take on a machine with a lot to do."""

DRAIN_S = TERM_S = 1.0

MARK = "TREE_OF"
"""What every process of a tree has in its environment, whatever else it does."""

MORE = {"greedy": "children_max = 3", "deep": "depth_max = 2"}


def write_config(folder: Path) -> Path:
    file = Path(__file__).with_name("functions.py")
    lines = ["[limits]", f"drain_s = {DRAIN_S}", f"term_s = {TERM_S}", ""]
    for name in (*NAMES, "may_not"):
        lines += [f"[agents.{name}]", 'driver = "python"', f'target = "{file}:{name}"',
                  f"paths = ['{REPO}']", MORE.get(name, "")]  # fmt: skip
        lines += ["mcp = true", ""] if name != "may_not" else [""]
        if name == "tree":
            lines += [f"env = {{ {MARK} = '{folder}' }}", ""]
    lines += ["[agents.demo]", 'driver = "demo"', ""]
    path = folder / "turnkeeper.toml"
    path.write_text("\n".join(lines))
    return path


@contextmanager
def children_house(folder: Path) -> Iterator[House]:
    """A server on `folder`, made anew or taken up again."""
    with house(folder / "data", "--config", write_config(folder)) as home:
        yield home


def post(home: House, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
    """What the server answers, refusals too."""
    token = (home.data / "token").read_text().strip()
    data = json.dumps({} if body is None else body).encode()
    told = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", **headers}
    asked = urllib.request.Request(home.url + path, data=data, headers=told)
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as refused:
        return refused.code, json.loads(refused.read())


def begin(home: House, agent: str, text: str, **fields: Any) -> tuple[str, str]:
    """A run of a new session with that agent: the run and the session."""
    status, session = post(home, "/v1/sessions", {"agent": agent})
    assert status == 201, session
    path = f"/v1/sessions/{session['id']}/messages"
    status, sent = post(home, path, {"text": text, **fields})
    assert status == 202, sent
    return str(sent["run_id"]), str(session["id"])


def runs(home: House, **query: str) -> list[Any]:
    asked = "&".join(f"{name}={value}" for name, value in {"limit": "500", **query}.items())
    return list(home.get(f"/v1/runs?{asked}")["items"])


def below(home: House, root: str) -> list[Any]:
    """Every run that it or one below it started."""
    found: list[Any] = []
    waiting = [root]
    while waiting:
        children = runs(home, parent=waiting.pop())
        found += children
        waiting += [child["id"] for child in children]
    return found


def until(what: str, is_so: Callable[[], Any], within_s: float = SOON_S) -> Any:
    """What it gives, once that is something."""
    ends_at = time.monotonic() + within_s
    while time.monotonic() < ends_at:
        found = is_so()
        if found:
            return found
        time.sleep(0.03)
    raise AssertionError(f"never: {what}")


def ended(home: House, run: str) -> Any:
    return until(f"{run} ends", lambda: home.get(f"/v1/runs/{run}")["outcome"])


def log_of(home: House, session: str) -> list[Any]:
    """All events of a session so far."""
    token = (home.data / "token").read_text().strip()
    head = home.get(f"/v1/sessions/{session}")["seq"]
    asked = urllib.request.Request(
        f"{home.url}/v1/sessions/{session}/events", headers={"Authorization": f"Bearer {token}"}
    )
    found: list[Any] = []
    with urllib.request.urlopen(asked, timeout=30) as stream:
        while len(found) < head:
            line = stream.readline().decode()
            if line.startswith("data: "):
                found.append(json.loads(line[6:]))
    return found


def text_of(home: House, session: str, run: str) -> str:
    events = [event for event in log_of(home, session) if event["run"] == run]
    return "".join(e["data"]["text"] for e in events if e["kind"] == "output.text")


def told(home: House, sessions: set[str]) -> tuple[Counter[str], Counter[str]]:
    """How often each child was started and told as ended, in the logs of these sessions."""
    started: Counter[str] = Counter()
    over: Counter[str] = Counter()
    for session in sessions:
        for event in log_of(home, session):
            if event["kind"] == "child.started":
                started[event["data"]["child"]] += 1
            elif event["kind"] == "child.ended":
                over[event["data"]["child"]] += 1
    return started, over


def marks(where: Path, kind: str) -> list[str]:
    return sorted(path.name.partition(".")[2] for path in where.glob(f"{kind}.*"))


def living(folder: Path) -> set[int]:
    """All processes of this machine's table that are of a tree of that server; the dead that only
    wait to be collected have no environment any more."""
    wanted = f"{MARK}={folder}".encode()
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile, or is somebody else's
            if wanted in (process / "environ").read_bytes().split(b"\0"):
                found.add(int(process.name))
    return found
