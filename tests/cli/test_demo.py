"""The demo's cast: each agent shows the one thing it is there for; and who is shown a browser."""

import json
import os
import re
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cli.house import House, started, wait_said, wait_until
from turnkeeper.cli.screen import has_screen, leading_to
from turnkeeper.drivers.demo_cast import CAST


@pytest.fixture
def there(tmp_path: Path) -> Iterator[House]:
    data = tmp_path / "data"
    with started("demo", "--port", "0", "--data", data) as process:
        found = re.search(r"serving at (http://\S+)/\?token", wait_said(process, "Ctrl-C ends it"))
        assert found is not None
        yield House(process, found[1], data)
        process.terminate()
        process.wait(20)


def begin(there: House, agent: str) -> str:
    """A turn of that agent in a session of its own; the run."""
    told = there.tk_json("send", "--agent", agent, f"with-{agent}", "go on")
    return str(told["run_id"])


def kinds(there: House, session: str) -> list[str]:
    token = (there.data / "token").read_text().strip()
    where = f"{there.url}/v1/sessions/{session}/events"
    asked = urllib.request.Request(where, headers={"Authorization": f"Bearer {token}"})
    head = there.get(f"/v1/sessions/{session}")["seq"]
    found: list[str] = []
    with urllib.request.urlopen(asked, timeout=20) as stream:
        while len(found) < head:
            line = stream.readline().decode()
            if line.startswith("data: "):
                found.append(json.loads(line.removeprefix("data: "))["kind"])
    return found


def test_the_whole_cast_is_there(there: House) -> None:
    assert {*CAST} <= {agent["name"] for agent in there.get("/v1/agents")["items"]}


def test_what_the_forker_hides_is_found_and_goes_with_it(there: House) -> None:
    run = begin(there, "forker")

    def hidden() -> list[Any]:
        if kinds(there, "with-forker").count("tool.started") < 2:
            return []  # it is still hiding
        seen = there.get(f"/v1/runs/{run}/diagnosis")["processes"] or []
        return [one for one in seen if "os.setsid()" in one["command"]]

    (found,) = wait_until("the hidden one is seen", hidden)
    assert Path(f"/proc/{found['pid']}").exists()
    there.tk("stop", run)
    assert there.wait_ended(run)["reason"] == "stopped"
    wait_until("it is gone", lambda: not Path(f"/proc/{found['pid']}").exists())


def test_the_parent_starts_three_and_they_go_with_it(there: House) -> None:
    run = begin(there, "parent")

    def children() -> list[Any]:
        found = there.get(f"/v1/runs?parent={run}")["items"]
        return list(found) if len(found) == 3 else []

    wait_until("it has three children", children)
    there.tk("stop", run)
    assert there.wait_ended(run)["kind"] == "cancelled"
    for child in children():
        outcome = there.wait_ended(child["id"])
        assert outcome["kind"] in ("completed", "cancelled")


def test_the_stubborn_one_is_stopped_all_the_same(there: House) -> None:
    run = begin(there, "stubborn")
    wait_until("it talks", lambda: "output.text" in kinds(there, "with-stubborn"))
    there.tk("stop", run)
    assert there.wait_ended(run)["reason"] == "stopped"


def test_the_asker_asks(there: House) -> None:
    begin(there, "asker")
    wait_until("it asks", lambda: there.get("/v1/approvals?state=open")["items"])


@pytest.mark.parametrize(
    "environ",
    [{}, {"DISPLAY": ":0", "SSH_CONNECTION": "x"}, {"DISPLAY": ":0", "BROWSER": "none"}],
)
def test_no_browser_is_opened_where_nobody_sits(environ: Mapping[str, str]) -> None:
    assert has_screen(environ) is False


def test_the_way_to_the_page_says_nothing_else() -> None:
    assert leading_to('http://x/#token=a&b"<').count("a&amp;b&quot;&lt;") == 2


def test_only_the_owner_can_read_where_the_token_is(there: House) -> None:
    others = [path for path in there.data.iterdir() if os.stat(path).st_mode & 0o077]
    assert [path.name for path in others if path.is_file()] == []
