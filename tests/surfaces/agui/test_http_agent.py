"""`HttpAgent` of `@ag-ui/client`, which verifies what it is told (`verifyEvents`)."""

import asyncio
import json
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest

from tests.agents.install import node, read_versions
from tests.gateway.house import House, play

pytestmark = pytest.mark.agents

PACKAGE = read_versions().packages["ag-ui"]
SCRIPT = Path(__file__).with_name("http_agent.mjs")


async def http_agent(home: House, *runs: dict[str, Any], thread: str = "t") -> Any:
    """What the client was told of these runs, one after the other."""
    assert PACKAGE.folder.exists(), f"{PACKAGE.folder} is missing; run make test-agents"
    job = {"url": f"{home.server.url}/v1/ag-ui/demo", "threadId": thread, "runs": runs}
    given = [str(node()), str(SCRIPT), str(PACKAGE.folder), json.dumps(job)]
    process = await asyncio.create_subprocess_exec(*given, stdout=PIPE, stderr=PIPE)
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return json.loads(out)


def kinds(told: Any) -> list[str]:
    return list(dict.fromkeys(event["type"] for event in told["events"]))


def test_its_verifier_finds_nothing_wrong_with_any_turn() -> None:
    texts = ["hello", "tool 0.1", "think 0.1", "refuse", "fail", "exit 3", "garbage", "vanish",
             "escape", "long 50"]  # fmt: skip

    async def scene(home: House) -> None:
        asked = [{"runId": f"r{number}", "text": text} for number, text in enumerate(texts)]
        told = (await http_agent(home, *asked))["told"]
        assert [each["error"] for each in told] == [None] * len(texts)
        last = {text: each["events"][-1] for text, each in zip(texts, told, strict=True)}
        assert last["hello"]["outcome"] == {"type": "success"}
        assert {last[text]["code"] for text in ("fail", "exit 3", "garbage")} == {"failed"}
        assert last["vanish"]["code"] == "lost"

    play(scene, within_s=100)


def test_a_timeout_is_an_error_for_it() -> None:
    async def scene(home: House) -> None:
        (told,) = (await http_agent(home, {"runId": "r", "text": "stall after 1"}))["told"]
        assert told["events"][-1]["code"] == "timed_out"

    play(scene, within_s=100, limits={"idle_s": 0.3})


@pytest.mark.parametrize(
    ("approve", "last"), [(True, "Thank you. It is done.\n"), (False, "Then I leave it alone.\n")]
)
def test_it_is_interrupted_and_goes_on(approve: bool, last: str) -> None:
    async def scene(home: House) -> None:
        whole = await http_agent(
            home, {"runId": "a", "text": "ask"}, {"runId": "b", "approve": approve}
        )
        first, second = whole["told"]
        assert (first["error"], second["error"]) == (None, None)
        assert (first["pending"], second["pending"]) == (1, 0)
        assert kinds(second)[0] == "RUN_STARTED"
        assert whole["messages"][-1]["content"] == last
        roles = [message["role"] for message in whole["messages"]]
        assert roles == ["user", "assistant", "assistant", "tool", "assistant"]

    play(scene, within_s=100)
