"""Programs that share a data directory: each has sessions of its own, and takes no other's."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from turnkeeper import Turnkeeper, TurnkeeperError


def test_two_programs_have_their_own_sessions_side_by_side(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            Turnkeeper(data=tmp_path, shared=True) as one,
            Turnkeeper(data=tmp_path, shared=True) as other,
        ):
            runs = [await one.send("a", "hello"), await other.send("b", "hello")]
            assert [(await run.wait()).kind for run in runs] == ["completed", "completed"]

    asyncio.run(main())


def test_a_session_that_another_program_uses_is_refused_and_goes_on_untouched(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with Turnkeeper(data=tmp_path, shared=True) as one:
            run = await one.send("a", "stall after 3")
            async with Turnkeeper(data=tmp_path, shared=True) as other:
                with pytest.raises(TurnkeeperError, match="TK-541"):
                    await other.send("a", "hello")
            assert (await run.look()).state == "running"
            await run.stop()
            assert (await run.wait()).reason == "stopped"

    asyncio.run(main())


def test_a_session_is_free_again_when_its_program_is_done(tmp_path: Path) -> None:
    async def main() -> None:
        for _ in range(2):
            async with Turnkeeper(data=tmp_path, shared=True) as tk:
                run = await tk.send("a", "hello")
                assert (await run.wait()).kind == "completed"

    asyncio.run(main())


def test_one_that_wants_it_alone_is_refused_while_it_is_shared(tmp_path: Path) -> None:
    async def main() -> None:
        async with Turnkeeper(data=tmp_path, shared=True):
            with pytest.raises(TurnkeeperError, match="TK-516"):
                async with Turnkeeper(data=tmp_path):
                    pass

    asyncio.run(main())
