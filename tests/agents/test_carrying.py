"""The conversations of real programs go along: to another home and another place to work."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.drivers.bench import Bench, bench
from tests.conformance.drivers.case import CASES
from turnkeeper.core import commands as c
from turnkeeper.core import events as e
from turnkeeper.core.outcome import Kind
from turnkeeper.ports import KeptTranscript, Transcript
from turnkeeper.runtime.carrying import Carrying
from turnkeeper.runtime.snapshots import read_state

pytestmark = pytest.mark.agents


class OneShelf:
    """`Transcripts` of a node, with room for one."""

    def __init__(self, node: str, kept: KeptTranscript | None = None) -> None:
        self.node = node
        self.kept = kept

    async def keep(
        self, session: str, seq: int, conversation: str, transcript: Transcript | None
    ) -> None:
        self.kept = KeptTranscript(conversation, seq, self.node, transcript)

    async def find(self, session: str) -> KeptTranscript | None:
        return self.kept

    async def close(self) -> None:
        pass


async def turn(b: Bench, text: str) -> None:
    run = await b.send(text)
    assert (await b.wait_end(run)).kind is Kind.COMPLETED
    await b.wait_closed(run)


@pytest.mark.parametrize("name", ["claude", "claude-old", "codex"])
def test_a_real_program_goes_on_with_a_conversation_that_came_from_another_home(
    name: str, tmp_path: Path
) -> None:
    async def main() -> None:
        async with bench(CASES[name], tmp_path / "a") as a:
            a.setup.spec["cwd"] = str(a.cwd)
            await a.close()
            await a.open()
            a.session = await a.dispatcher.create(c.Create(agent="it"))
            await turn(a, "say the word is mimosa")
            there = OneShelf("a")
            state, events = await read_state(a.store, a.session), await a.events()
            ended = next(x for x in reversed(events) if isinstance(x.data, e.RunEnded))
            keeping = Carrying(a.store, there)
            keeping.ended(a.agents["it"], state, ended)
            await keeping.finish(a.session)
            await a.close()
            assert there.kept is not None
            assert there.kept.transcript is not None, "nothing was found to be carried"
            assert b"mimosa" in there.kept.transcript.body
            await go_on(a, there.kept)
            await a.open()

    async def go_on(a: Bench, kept: KeptTranscript) -> None:
        async with bench(CASES[name], tmp_path / "b") as b:
            b.setup.spec["cwd"] = str(b.cwd)
            await b.close()
            b.store, b.session = a.store, a.session
            await b.open()
            state = await read_state(b.store, b.session)
            agent: Any = b.agents["it"]
            assert await Carrying(b.store, OneShelf("b", kept)).bring(agent, state) is None
            await turn(b, "say hello")
            facts = [x.data for x in await b.events()]
            assert not [x for x in facts if isinstance(x, e.ContextLostFact)]
            assert b.setup.remembers("mimosa")

    asyncio.run(main())
