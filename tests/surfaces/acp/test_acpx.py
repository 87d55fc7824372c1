"""acpx, a client of the protocol that others have written, with `turnkeeper acp` as its agent."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.house import House, house, until
from tests.surfaces.acp.acpx import Acpx

pytestmark = pytest.mark.agents


def play(folder: Path, scene: Callable[[House, Acpx], Coroutine[Any, Any, None]]) -> None:
    async def act() -> None:
        async with asyncio.timeout(110), house() as home:
            await scene(home, Acpx(folder, home.server.url))

    asyncio.run(act())


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ("hello", 0, "[done] end_turn"),
        ("refuse", 0, "[done] refusal"),
        ("tool 0.2", 0, "[tool] count (completed)"),
        ("fail", 1, "TK-201"),
        ("vanish", 1, "TK-401"),
    ],
)
def test_an_ending_is_seen_by_acpx(tmp_path: Path, text: str, code: int, told: str) -> None:
    async def scene(home: House, acpx: Acpx) -> None:
        left, out, err = await acpx("exec", text)
        assert left == code, out + err
        assert told in out + err

    play(tmp_path, scene)


def test_a_timeout_is_neither_success_nor_cancel_for_acpx(tmp_path: Path) -> None:
    async def act() -> None:
        async with asyncio.timeout(110), house(limits={"idle_s": 0.4}) as home:
            acpx = Acpx(tmp_path, home.server.url)
            code, out, err = await acpx("--format", "json", "exec", "stall after 1")
            lines = [json.loads(line) for line in out.splitlines()]
            (error,) = [line["error"] for line in lines if "error" in line and "id" in line]
            assert code == 1, err
            assert error["data"]["outcome"] == "timed_out"

    asyncio.run(act())


DENIED = 5
"""How acpx ends if it has denied something."""


@pytest.mark.parametrize(
    ("how", "code", "last"),
    [
        ("--approve-all", 0, "Thank you. It is done."),
        ("--deny-all", DENIED, "Then I leave it alone."),
    ],
)
def test_acpx_answers_what_an_agent_asks(tmp_path: Path, how: str, code: int, last: str) -> None:
    async def scene(home: House, acpx: Acpx) -> None:
        left, out, err = await acpx("--format", "quiet", "exec", "ask", how=how)
        assert left == code, err
        assert out.strip().endswith(last)

    play(tmp_path, scene)


def test_a_session_of_acpx_is_taken_up_by_its_next_process(tmp_path: Path) -> None:
    async def scene(home: House, acpx: Acpx) -> None:
        code, out, err = await acpx("--format", "quiet", "sessions", "new")
        assert code == 0, err
        session = out.strip()
        assert (await acpx("--format", "quiet", "prompt", "hello"))[0] == 0
        code, out, err = await acpx("--format", "quiet", "prompt", "refuse")
        assert (code, out.strip()) == (0, "I would rather not."), err
        runs = (await home.get(f"/v1/runs?session={session}"))["items"]
        assert [run["text"] for run in runs] == ["refuse", "hello"]

    play(tmp_path, scene)


def test_acpx_cancels_a_turn(tmp_path: Path) -> None:
    async def scene(home: House, acpx: Acpx) -> None:
        await acpx("sessions", "new")
        asked = asyncio.ensure_future(acpx("prompt", "stall after 1"))
        await until(lambda: _is_working(home), 60)
        assert (await acpx("cancel"))[0] == 0
        _, out, err = await asked
        assert "cancelled" in out + err
        (run,) = (await home.get("/v1/runs"))["items"]
        assert (await home.ended(run["id"]))["reason"] == "stopped"

    play(tmp_path, scene)


async def _is_working(home: House) -> bool:
    runs = (await home.get("/v1/runs"))["items"]
    return bool(runs) and (await home.get(f"/v1/runs/{runs[0]['id']}"))["phase"] == "working"
