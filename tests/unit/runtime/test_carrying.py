"""Conversations that go along: what is kept at a turn's end, and what is gone on with elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conformance.store.kit import accepted, created, ended, put
from tests.helpers.shell import FakeAgent, event
from turnkeeper.core import events as e
from turnkeeper.core.errors import StoreDown
from turnkeeper.core.outcome import Kind
from turnkeeper.core.state import Session
from turnkeeper.ports import KeptTranscript, Transcript
from turnkeeper.runtime import carrying
from turnkeeper.runtime.carrying import Carrying
from turnkeeper.store.memory import MemoryStore


class Shelf:
    """`Transcripts` of a node, on a shelf that nodes share."""

    def __init__(self, node: str, shelf: dict[str, KeptTranscript]) -> None:
        self.node = node
        self.shelf = shelf
        self.is_down = False

    async def keep(
        self, session: str, seq: int, conversation: str, transcript: Transcript | None
    ) -> None:
        if self.is_down:
            raise StoreDown("it is down")
        self.shelf[session] = KeptTranscript(conversation, seq, self.node, transcript)

    async def find(self, session: str) -> KeptTranscript | None:
        return self.shelf.get(session)

    async def close(self) -> None:
        self.is_down = True


class FileAgent(FakeAgent):
    """Keeps a conversation in a file."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.late: list[str] = []
        """What it writes yet, a piece each time that somebody looks."""
        folder.mkdir()

    def write(self, text: str) -> None:
        with (self.folder / "c_1").open("ab") as file:
            file.write(text.encode())

    def read_transcript(self, conversation: str, cwd: str, most: int) -> Transcript | None:
        if self.late:
            self.write(self.late.pop(0))
        path = self.folder / conversation
        if not path.exists() or path.stat().st_size > most:
            return None
        return Transcript(conversation, "", path.read_bytes())

    def count_turns(self, transcript: Transcript, since: int) -> int:
        return transcript.body.count(b"\n", since)

    def place_transcript(self, transcript: Transcript, cwd: str) -> bool:
        if cwd == "/nowhere":
            return False
        (self.folder / transcript.conversation).write_bytes(transcript.body)
        return True


class Nodes:
    """Two nodes, `a` and `b`, on one log."""

    def __init__(self, place: Path) -> None:
        self.store = MemoryStore()
        shelf: dict[str, KeptTranscript] = {}
        self.shelves = {name: Shelf(name, shelf) for name in "ab"}
        self.carrying = {name: Carrying(self.store, self.shelves[name]) for name in "ab"}
        self.agents = {name: FileAgent(place / name) for name in "ab"}
        self.state = Session("s_1", conversation="c_1")
        self._log: list[e.Event] = [created()]

    async def turn(
        self,
        node: str,
        run: str,
        kind: Kind = Kind.COMPLETED,
        late: Sequence[str] | None = None,
        *,
        at_once: bool = False,
    ) -> None:
        """A turn on that node, whose agent notes it; `late`, in these pieces, when it is over. What
        is then stored is waited for, unless there is another `at_once`."""
        reasons = {
            Kind.COMPLETED: "end_turn", Kind.LOST: "node_lost", Kind.CANCELLED: "stopped",
        }  # fmt: skip
        reason = reasons[kind]
        seq = len(self._log)
        attempt = e.AttemptStarted(1, f"{run}.1", fresh=True, node=node)
        self._log += [
            accepted(seq + 1, run), event(seq + 2, attempt, run=run),
            ended(seq + 3, run, kind=kind, reason=reason),
        ]  # fmt: skip
        if late is None:
            self.agents[node].write(f"{run}\n")
        else:
            self.agents[node].late = [*late]
        self.carrying[node].ended(self.agents[node], self.state, self._log[-1])
        if not at_once:
            await self.carrying[node].finish("s_1")

    async def bring(self, node: str, *, carries: bool = True) -> str | None:
        """That node takes up the session; what it is told of its conversation."""
        self.store = MemoryStore()
        await put(self.store, *self._log)
        self.carrying[node] = Carrying(self.store, self.shelves[node], carries=carries)
        return await self.carrying[node].bring(self.agents[node], self.state)

    def has(self, node: str) -> str:
        path = self.agents[node].folder / "c_1"
        return path.read_text() if path.exists() else ""


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrying, "SETTLE_S", (0.0, 0.001, 0.001, 0.001))
    monkeypatch.setattr(carrying, "QUIET_S", 0.001)
    monkeypatch.setattr(carrying, "PAUSE_S", 0.001)


def test_a_conversation_goes_to_another_node_and_back(tmp_path: Path) -> None:
    async def main() -> None:
        nodes = Nodes(tmp_path)
        await nodes.turn("a", "r_1")
        assert await nodes.bring("b") is None
        assert nodes.has("b") == "r_1\n"
        await nodes.turn("b", "r_2")
        assert await nodes.bring("a") is None
        assert nodes.has("a") == "r_1\nr_2\n"

    asyncio.run(main())


def test_the_node_that_had_the_last_turn_goes_on_with_what_it_has(tmp_path: Path) -> None:
    async def main() -> None:
        nodes = Nodes(tmp_path)
        await nodes.turn("a", "r_1")
        nodes.shelves["a"].is_down = True
        await nodes.turn("a", "r_2")
        assert await nodes.bring("a") is None
        assert nodes.has("a") == "r_1\nr_2\n"

    asyncio.run(main())


def test_an_older_state_of_a_conversation_is_not_gone_on_with(tmp_path: Path) -> None:
    async def main() -> None:
        nodes = Nodes(tmp_path)
        await nodes.turn("a", "r_1")
        assert await nodes.bring("b") is None
        nodes.shelves["b"].is_down = True
        await nodes.turn("b", "r_2")
        assert await nodes.bring("a") == "c_1"
        assert nodes.has("a") == "r_1\n"

    asyncio.run(main())


def test_a_turn_that_was_lost_is_not_missed(tmp_path: Path) -> None:
    async def main() -> None:
        nodes = Nodes(tmp_path)
        await nodes.turn("a", "r_1")
        await nodes.turn("a", "r_2", Kind.LOST)
        assert await nodes.bring("b") is None
        assert nodes.has("b") == "r_1\n"

    asyncio.run(main())


def test_what_is_too_long_or_has_no_place_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        nodes = Nodes(tmp_path)
        await nodes.turn("a", "r_1")
        nodes.state.cwd = "/nowhere"
        assert await nodes.bring("b") == "c_1"
        nodes.state.cwd = ""
        monkeypatch.setattr(carrying, "MOST_BYTES", 5)
        await nodes.turn("a", "r_2")
        assert await nodes.bring("b") == "c_1"
        assert await nodes.bring("a") is None

    asyncio.run(main())


def test_where_nothing_is_kept_the_agent_itself_says_what_it_has(tmp_path: Path) -> None:
    async def main() -> None:
        nodes = Nodes(tmp_path)
        await nodes.turn("a", "r_1")
        nodes.state.conversation = "c_2"
        assert await nodes.bring("b") is None
        nothing = Carrying(nodes.store, None)
        assert await nothing.bring(nodes.agents["b"], nodes.state) is None
        assert await nodes.carrying["b"].bring(FakeAgent(), nodes.state) is None
        assert nodes.has("b") == ""

    asyncio.run(main())


def test_what_an_agent_writes_late_is_waited_for(tmp_path: Path) -> None:
    async def main() -> None:
        nodes = Nodes(tmp_path)
        await nodes.turn("a", "r_1")
        await nodes.turn("a", "r_2", late=["", "", "r_", "2\n"])
        assert await nodes.bring("b") is None
        assert nodes.has("b") == "r_1\nr_2\n"

    asyncio.run(main())


def test_turns_that_follow_each_other_at_once_all_go_along(tmp_path: Path) -> None:
    async def main() -> None:
        nodes = Nodes(tmp_path)
        await nodes.turn("a", "r_1")
        await nodes.turn("a", "r_2", at_once=True)
        await nodes.turn("a", "r_3")
        assert await nodes.bring("b") is None
        assert nodes.has("b") == "r_1\nr_2\nr_3\n"

    asyncio.run(main())


def test_of_turns_that_follow_each_other_at_once_the_last_is_waited_for(tmp_path: Path) -> None:
    async def main() -> None:
        nodes = Nodes(tmp_path)
        await nodes.turn("a", "r_1", at_once=True)
        await nodes.turn("a", "r_2", late=["", "r_2\n"])
        assert await nodes.bring("b") is None
        assert nodes.has("b") == "r_1\nr_2\n"

    asyncio.run(main())


def test_a_turn_that_was_stored_with_the_one_before_is_not_missed(tmp_path: Path) -> None:
    async def main() -> None:
        nodes = Nodes(tmp_path)
        nodes.state.seq = 5  # it has gone on with the second
        await nodes.turn("a", "r_1", late=["r_1\nr_2\n"])
        await nodes.turn("a", "r_2", late=[])
        assert await nodes.bring("b") is None
        assert nodes.has("b") == "r_1\nr_2\n"

    asyncio.run(main())


def test_what_a_node_had_before_it_began_anew_does_not_stand_for_a_new_turn(tmp_path: Path) -> None:
    async def main() -> None:
        nodes = Nodes(tmp_path)
        nodes.agents["a"].write("r_1\n")
        assert await nodes.bring("a") is None
        await nodes.turn("a", "r_2", late=["", "r_2\n"])
        assert await nodes.bring("b") is None
        assert nodes.has("b") == "r_1\nr_2\n"

    asyncio.run(main())


def test_a_turn_that_completed_and_of_which_nothing_is_written_is_told(tmp_path: Path) -> None:
    async def main() -> None:
        nodes = Nodes(tmp_path)
        await nodes.turn("a", "r_1")
        await nodes.turn("a", "r_2", late=[])
        assert await nodes.bring("b") == "c_1"
        assert nodes.has("b") == ""

    asyncio.run(main())


def test_a_turn_that_did_not_complete_need_not_leave_anything(tmp_path: Path) -> None:
    async def main() -> None:
        nodes = Nodes(tmp_path)
        await nodes.turn("a", "r_1")
        await nodes.turn("a", "r_2", Kind.CANCELLED, late=[])
        assert await nodes.bring("b") is None
        assert nodes.has("b") == "r_1\n"
        await nodes.turn("b", "r_3", late=["r_3\n"])
        assert await nodes.bring("a") is None
        assert nodes.has("a") == "r_1\nr_3\n"

    asyncio.run(main())


def test_a_node_that_does_not_carry_stores_nothing_and_takes_nothing_up(tmp_path: Path) -> None:
    async def main() -> None:
        nodes = Nodes(tmp_path)
        await nodes.turn("a", "r_1")
        assert await nodes.bring("b") is None
        assert await nodes.bring("a", carries=False) is None
        await nodes.turn("a", "r_2")
        assert nodes.shelves["a"].shelf["s_1"].seq == 4
        assert await nodes.bring("b") == "c_1"

    asyncio.run(main())


def test_a_node_that_does_not_carry_says_that_it_has_only_an_older_state(tmp_path: Path) -> None:
    async def main() -> None:
        nodes = Nodes(tmp_path)
        await nodes.turn("a", "r_1")
        assert await nodes.bring("b") is None
        await nodes.turn("b", "r_2")
        assert await nodes.bring("a", carries=False) == "c_1"
        assert nodes.has("a") == "r_1\n"

    asyncio.run(main())
