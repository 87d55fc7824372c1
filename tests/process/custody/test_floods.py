"""Agents that write without end: the clocks, the stops and the other agents of the same loop are
not made to wait by them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.process.custody.harness import Witness, agent, house, in_loop, python, wait_true
from turnkeeper.compose import RandomIds, SystemClock
from turnkeeper.core import commands as c
from turnkeeper.core import events as e
from turnkeeper.core.limits import Limits
from turnkeeper.core.outcome import Outcome
from turnkeeper.custody.client import Custodian
from turnkeeper.custody.reader import LATE_BYTES, PIECE_BYTES, POLL_BYTES
from turnkeeper.drivers.acp import AcpAgent, AcpOptions
from turnkeeper.drivers.claude import ClaudeAgent, ClaudeOptions
from turnkeeper.drivers.codex import CodexAgent, CodexOptions
from turnkeeper.drivers.demo import DemoAgent
from turnkeeper.ports import Agent
from turnkeeper.runtime.dispatcher import Dispatcher
from turnkeeper.runtime.sessions import Ports
from turnkeeper.store.memory import MemoryStore

MIB = 1 << 20
WAIT_S = 30.0
SLACK_S = 3.0
"""A flood alone keeps two processors busy: so much later than promised is still in time here."""
UNKNOWN = '{"jsonrpc":"2.0","method":"x","params":{}}'
TEXT = (
    '{"type":"stream_event","event":{"type":"content_block_delta",'
    '"delta":{"type":"text_delta","text":"word "}}}'
)
TALKER = """
trap '' TERM
read hello
echo '{"type":"control_response","response":{"subtype":"success","request_id":"tk-init"}}'
read message
echo '{"type":"system","subtype":"init","session_id":"c1"}'
yes "$0" &
wait
"""
"""Shakes hands as Claude Code does, and then says `$0` for ever; no signal but SIGKILL ends it."""

DRIVERS = ["claude", "codex", "acp"]


def driver(name: str, custodian: Custodian, *command: str) -> Agent:
    match name:
        case "claude":
            return ClaudeAgent(custodian, ClaudeOptions(command=command))
        case "codex":
            return CodexAgent(custodian, CodexOptions(command=command))
        case _:
            return AcpAgent(custodian, AcpOptions(command=command))


def yes(line: str) -> tuple[str, ...]:
    """Whatever arguments a driver adds are not for it."""
    return ("sh", "-c", 'exec yes "$0"', line)


class Server:
    """A dispatcher with an agent that floods and one that does not, in one loop."""

    def __init__(self, flooding: Agent, limits: Limits) -> None:
        agents: dict[str, Agent] = {"flood": flooding, "demo": DemoAgent()}
        policies = {
            name: c.Policy(limits=limits, abilities=one.abilities) for name, one in agents.items()
        }
        self.store = MemoryStore()
        self.dispatcher = Dispatcher(
            Ports(self.store, SystemClock(), RandomIds(), agents, policies)
        )

    async def send(self, name: str) -> tuple[str, str]:
        session = await self.dispatcher.create(c.Create(agent=name, cwd="/"))
        return session, (await self.dispatcher.send(session, "hello")).run

    async def wait_ended(self, session: str, run: str) -> Outcome:
        """Its outcome, once all of it is cleaned up."""
        async with asyncio.timeout(WAIT_S):
            ended = (await self.wait_for(session, run, e.RunEnded)).data
            await self.wait_for(session, run, e.AttemptEnded)
        assert isinstance(ended, e.RunEnded)
        return ended.outcome

    async def wait_for(self, session: str, run: str, kind: type[e.Fact]) -> e.Event:
        after = 0
        async with asyncio.timeout(WAIT_S):
            while True:
                for event in await self.store.read(session, after, 10_000):
                    after = event.seq
                    if event.run == run and isinstance(event.data, kind):
                        return event
                await asyncio.sleep(0.005)


@asynccontextmanager
async def server(
    place: Path, name: str, command: tuple[str, ...], **limits: float
) -> AsyncIterator[Server]:
    async with house(place / "custody") as custodian:
        given = {"startup_s": 20.0, "drain_s": 0.5, "term_s": 0.5, **limits}
        made = Server(driver(name, custodian, *command), Limits(**given))
        try:
            yield made
        finally:
            await made.dispatcher.close()


class Lag:
    """How late the loop was with what was due, every few milliseconds."""

    EVERY_S = 0.005

    def __init__(self) -> None:
        self.late_s: list[float] = []
        self._loop = asyncio.get_running_loop()
        self._next()

    def _next(self) -> None:
        self._due = self._loop.time() + self.EVERY_S
        self._timer = self._loop.call_at(self._due, self._rung)

    def _rung(self) -> None:
        self.late_s.append(self._loop.time() - self._due)
        self._next()

    def p95_s(self) -> float:
        self._timer.cancel()
        return sorted(self.late_s)[int(len(self.late_s) * 0.95)]


# Under the runtime ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", DRIVERS)
@pytest.mark.parametrize("line", ["garbage", "y"])
@in_loop
async def test_a_program_that_floods_without_protocol_fails_with_a_sample_of_what_it_said(
    tmp_path: Path, name: str, line: str
) -> None:
    async with server(tmp_path, name, yes(line)) as at:
        began = time.monotonic()
        session, run = await at.send("flood")
        outcome = await at.wait_ended(session, run)
        assert (outcome.kind, outcome.reason) == ("failed", "protocol_error")
        assert f"they begin with '{line}'" in outcome.detail
        assert "Check that its command" in outcome.detail
        assert time.monotonic() - began < 10, "long before any clock"
        facts = [type(event.data) for event in await at.store.read(session, 0, 100)]
        assert facts.count(e.AttemptStarted) == 1, "another try would say the same"


@pytest.mark.parametrize("name", DRIVERS)
@pytest.mark.parametrize("line", [UNKNOWN, "{}", ""], ids=["unknown", "empty-object", "empty"])
@in_loop
async def test_no_flood_holds_up_the_clock_of_the_start(
    tmp_path: Path, name: str, line: str
) -> None:
    async with server(tmp_path, name, yes(line), startup_s=1.0) as at:
        began = time.monotonic()
        session, run = await at.send("flood")
        outcome = await at.wait_ended(session, run)
        assert (outcome.kind, outcome.reason) == ("timed_out", "startup")
        assert time.monotonic() - began < 1.0 + 0.5 + 0.5 + SLACK_S


@pytest.mark.parametrize("line", [TEXT, '{"type":"new"}', "noise"], ids=["text", "new", "noise"])
@in_loop
async def test_a_stop_takes_effect_in_time_on_an_agent_that_floods_and_ignores_it(
    tmp_path: Path, line: str
) -> None:
    async with server(tmp_path, "claude", ("sh", "-c", TALKER, line)) as at:
        session, run = await at.send("flood")
        await at.wait_for(session, run, e.MessageDelivered)
        began = time.monotonic()
        await at.dispatcher.stop(run)
        outcome = await at.wait_ended(session, run)
        assert (outcome.kind, outcome.reason) == ("cancelled", "stopped")
        assert time.monotonic() - began < 0.5 + 0.5 + SLACK_S


@pytest.mark.parametrize("name", DRIVERS)
@in_loop
async def test_another_agent_in_the_same_loop_answers_as_if_there_were_no_flood(
    tmp_path: Path, name: str
) -> None:
    async with server(tmp_path, name, yes(UNKNOWN)) as at:
        flood = await at.send("flood")
        await wait_true(lambda: _spooled(tmp_path) > 16 * MIB)
        lag = Lag()
        outcome = await at.wait_ended(*await at.send("demo"))
        assert outcome.kind == "completed"
        assert lag.p95_s() < 0.2
        await at.dispatcher.stop(flood[1])
        assert (await at.wait_ended(*flood)).kind == "cancelled"


def _spooled(place: Path) -> int:
    return sum(path.stat().st_size for path in place.glob("custody/p/*/out"))


# In custody -----------------------------------------------------------------------------------


@in_loop
async def test_a_poll_of_a_flood_is_bounded(tmp_path: Path) -> None:
    async with house(tmp_path) as custodian:
        witness = Witness()
        hold = custodian.spawn("p1", agent(*yes("garbage")), witness)
        hold.pause()
        await witness.wait_for("started")
        await wait_true(lambda: _size(tmp_path) > 4 * POLL_BYTES)
        hold.poll()
        assert 0 < len(witness.output) <= POLL_BYTES


@in_loop
async def test_what_a_killed_flood_has_left_behind_is_not_all_read(tmp_path: Path) -> None:
    async with house(tmp_path) as custodian:
        witness = Witness()
        hold = custodian.spawn("p1", agent(*yes("garbage")), witness)
        hold.pause()
        await wait_true(lambda: _size(tmp_path) > 16 * MIB)
        hold.kill()
        hold.resume()
        await witness.wait_gone()
        assert len(witness.output) <= LATE_BYTES + PIECE_BYTES


class Ear(Witness):
    """Knows how much it had heard when the sweep was over."""

    swept_end = -1

    def on_swept(self) -> None:
        self.swept_end = self.end
        super().on_swept()


WRITE_AND_WAIT = """
import os, sys
data = b"w" * int(sys.argv[1])
while data: data = data[os.write(1, data):]
sys.stdin.readline()
"""


@in_loop
async def test_all_that_a_turn_wrote_is_delivered_before_it_is_said_to_be_swept(
    tmp_path: Path,
) -> None:
    async with house(tmp_path) as custodian:
        ear, size = Ear(), 3 * POLL_BYTES
        program = agent(*python(WRITE_AND_WAIT, str(size)))
        hold = custodian.spawn("p1", program, ear)
        hold.pause()
        hold.turn_begins("r1")
        await wait_true(lambda: _size(tmp_path) == size)
        hold.sweep()
        hold.sample()
        await ear.wait_for("sample")
        assert ear.swept_end == -1, "it is behind: the sweep is over, and not yet told"
        hold.resume()
        await ear.wait_for("swept")
        assert ear.swept_end == size


def _size(place: Path) -> int:
    spool = place / "p" / "p1" / "out"
    return spool.stat().st_size if spool.exists() else 0
