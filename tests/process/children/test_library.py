"""Child runs in the library, without a server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.tidy.source import REPO
from turnkeeper import Turnkeeper, TurnkeeperError
from turnkeeper.core.outcome import Kind
from turnkeeper.events import ChildEnded, OutputText

FILE = Path(__file__).with_name("functions.py")
SOON_S = 100.0


def function(name: str) -> dict[str, Any]:
    return {"driver": "python", "target": f"{FILE}:{name}", "paths": [str(REPO)], "mcp": True}


AGENTS = {name: function(name) for name in ("tree", "hang", "echo")}


def test_a_run_starts_another_and_its_ending_is_told_to_it(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Turnkeeper(agents=AGENTS, data=tmp_path / "data") as tk:
            parent = await tk.send("s", "go", agent="hang")
            async for event in parent:
                if isinstance(event.data, OutputText):
                    break
            child = await parent.start("hello", agent="echo", key="k")
            assert (await parent.start("hello", agent="echo", key="k")).id == child.id
            outcome = await child.wait(SOON_S)
            assert outcome is not None
            assert outcome.kind is Kind.COMPLETED
            async with asyncio.timeout(SOON_S):
                async for event in parent:
                    if isinstance(event.data, ChildEnded):
                        assert event.data.child == child.id
                        break
            with pytest.raises(TurnkeeperError, match="one of them"):
                await parent.start("hello")
            await parent.stop()

    asyncio.run(scene())


def test_functions_start_others_without_a_server(tmp_path: Path) -> None:
    async def scene() -> None:
        (tmp_path / "go").touch()
        plan = {"widths": [2], "where": str(tmp_path), "name": "0"}
        async with Turnkeeper(agents=AGENTS) as tk:
            run = await tk.send("s", json.dumps(plan), agent="tree")
            async with asyncio.timeout(SOON_S):
                said = [e.data.text async for e in run if isinstance(e.data, OutputText)]
            assert "".join(said) == "<0.0><0.1>"

    asyncio.run(scene())
