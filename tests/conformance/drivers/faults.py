"""Scenarios in which the agent, its conversation or the server itself breaks down."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec

from tests.conformance.drivers.bench import Bench
from tests.conformance.drivers.filestore import read_events
from tests.conformance.drivers.scenario import scenario
from tests.conformance.drivers.turns import COMPLETED, NOT_OURS, STOPPED, check_next_turn, ending
from tests.process.custody.harness import Witness, living_with
from turnkeeper.core import events as e

Moment = Callable[[list[e.Event]], bool]
REPO = Path(__file__).parents[3]
STALE = "00000000-0000-4000-8000-000000000000"


# Broken agents ----------------------------------------------------------------------------------


async def breaks(b: Bench, command: str, reasons: set[str]) -> None:
    run = await b.send(command)
    outcome = await b.wait_end(run)
    assert outcome.kind.value == "failed", outcome
    assert outcome.reason in reasons, outcome
    await b.wait_closed(run)
    await check_next_turn(b)


@scenario("garbage")
async def garbage(b: Bench) -> None:
    b.need_process()
    b.need("raw output", NOT_OURS)
    await breaks(b, "garbage", {"protocol_error"})


@scenario("exit mid-turn with 0")
async def exit_0(b: Bench) -> None:
    b.need_process()
    b.need("exit", "nothing makes it exit by itself; see killed mid-turn")
    await breaks(b, "exit 0", {"agent_exited"})


@scenario("exit mid-turn with 1")
async def exit_1(b: Bench) -> None:
    b.need_process()
    b.need("exit", "nothing makes it exit by itself; see killed mid-turn")
    await breaks(b, "exit 1", {"agent_exited"})


@scenario("killed mid-turn")
async def killed(b: Bench) -> None:
    b.need_process()
    run = await b.send("stream 2000 chunks 0.02")
    await b.wait_text(run, "chunk-1")
    for pid in b.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    outcome = await b.wait_end(run)
    assert ending(outcome) == ("failed", "agent_exited"), outcome
    await b.wait_closed(run)
    await check_next_turn(b)


@scenario("EOF on its output", lambda case: {"idle_s": case.patience_s})
async def eof(b: Bench) -> str | None:
    b.need_process()
    b.need("eof", "it never closes its output and lives on" if b.case.real
           else "a function has no hold on the pipe")  # fmt: skip
    run = await b.send("eof")
    outcome = await b.wait_end(run)
    assert outcome.kind.value in ("failed", "timed_out"), outcome
    await b.wait_closed(run)
    await check_next_turn(b)
    return None if outcome.kind.value == "failed" else "the silence clock ends it"


@scenario("tree with setsid and double fork", lambda case: {"drain_s": 0.0})
async def tree(b: Bench) -> None:
    """Not even asked politely: all of it is dead before the session is used again."""
    command, token = b.tree()
    run = await b.send(b.tool(command))
    await b.wait_file(run, f"up-{token}")
    assert len(living_with(token)) >= 3
    old = b.processes()
    await b.stop(run)
    assert ending(await b.wait_end(run)) == STOPPED
    await b.wait_closed(run)
    assert living_with(token) == []
    assert not set(old) & set(b.processes())
    await check_next_turn(b)


# Conversations ----------------------------------------------------------------------------------

NO_RESUME = "a function keeps what it wants to by the session's id"


async def restart_without_agent(b: Bench) -> None:
    """The server goes, then its agents, as at a shutdown; another one comes up on the same log."""
    await b.dispatcher.close()
    for kept in b.custodian.list():
        if kept.alive:
            witness = Witness()
            b.custodian.attach(kept.name, 0, witness).terminate()
            await witness.wait_gone()
    b.custodian.close()
    await b.open()


@scenario("resume after a restart")
async def resume(b: Bench) -> str | None:
    b.need("resume", NO_RESUME)
    b.need("remember", "the scripted remote agent remembers nothing")
    first = await b.send("say the word is mimosa")
    assert ending(await b.wait_end(first)) == COMPLETED
    await restart_without_agent(b)
    run = await b.send("say on we go" if b.case.real or b.setup.model else "recall")
    assert ending(await b.wait_end(run)) == COMPLETED
    lost = [x for x in await b.events() if isinstance(x.data, e.ContextLostFact)]
    if lost:
        return "does not find its own conversation again: session.context_lost is told, it goes on"
    seen = b.setup.remembers("mimosa")
    assert ("mimosa" in await b.text(run)) if seen is None else seen
    return None


@scenario("stale resume")
async def stale_resume(b: Bench) -> None:
    b.need("resume", NO_RESUME)
    b.need("stale", "it takes any conversation's id for its own")
    first = await b.send("say hello")
    assert ending(await b.wait_end(first)) == COMPLETED
    await b.close()
    log = b.store._logs[b.session]
    log[:] = [msgspec.structs.replace(event, data=_stale(event.data)) for event in log]
    await b.open()
    run = await b.send("say on we go")
    assert ending(await b.wait_end(run)) == COMPLETED
    assert await b.text(run) == "on we go"
    lost = await b.of(run, e.ContextLostFact)
    assert [fact.conversation for fact in lost] == [STALE]
    await check_next_turn(b)


def _stale(data: e.Fact) -> e.Fact:
    """As if the agent had another conversation than it has."""
    match data:
        case e.ConversationFact():
            return e.ConversationFact(STALE)
        case e.AttemptReady(conversation=str()):
            return e.AttemptReady(STALE)
        case _:
            return data


# The server, killed -----------------------------------------------------------------------------


class Servers:
    """Real servers, one after the other, on one log and one custody."""

    def __init__(self, b: Bench) -> None:
        self._b = b
        self.place = b.place / "servers"
        self.place.mkdir()
        self.log = self.place / "log"
        spec = {**b.setup.spec, "sample_s": 0.2}
        limits = msgspec.to_builtins(b.limits)
        told = {"spec": spec, "cwd": str(b.cwd), "limits": limits}
        (self.place / "told.json").write_text(json.dumps(told), encoding="utf-8")

    @contextlib.asynccontextmanager
    async def one(self, text: str, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """A server that says `text` if the log is empty, and leaves when the run has ended."""
        argv = (
            sys.executable,
            "-m",
            "tests.conformance.drivers.lone_server",
            str(self.place),
            text,
        )
        process = await asyncio.create_subprocess_exec(*argv, *words, cwd=REPO)
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def wait(self, fact: Moment) -> None:
        await self._b.wait_true(lambda: fact(read_events(self.log)))

    async def kill_and_restart(self, text: str, moment: Moment) -> list[e.Event]:
        """Killed at that moment; another one then sees the run to its end. The whole log."""
        async with self.one(text, "--no-answers") as first:
            await self.wait(moment)
            assert not any(isinstance(x.data, e.RunEnded) for x in read_events(self.log))
            first.kill()
            await first.wait()
        async with self.one(text) as second:
            await asyncio.wait_for(second.wait(), 60)
            assert second.returncode == 0
        return read_events(self.log)


def has(kind: type[e.Fact], count: int = 1) -> Callable[[list[e.Event]], bool]:
    return lambda events: sum(isinstance(x.data, kind) for x in events) >= count


def check_survived(events: list[e.Event]) -> str:
    """One ending, completed, on the process it began with; what was said."""
    ends = [x.data for x in events if isinstance(x.data, e.RunEnded)]
    assert [ending(one.outcome) for one in ends] == [COMPLETED]
    starts = [x for x in events if isinstance(x.data, e.AttemptStarted)]
    assert len(starts) == 1, "the process outlived its server"
    return text_of(events)


def said_chunks(count: int) -> Callable[[list[e.Event]], bool]:
    return lambda events: text_of(events).count("chunk-") >= count


def text_of(events: list[e.Event]) -> str:
    return "".join(x.data.text for x in events if isinstance(x.data, e.OutputText))


GOES_TOO = "its connection goes with the server: lost/server_lost, what it said is kept"


async def lost_with_the_server(b: Bench, text: str, moment: Moment, *words: str) -> str:
    """What lives in the server ends with it: told as lost, with what had been said."""
    servers = Servers(b)
    async with servers.one(text, *words) as first:
        await servers.wait(moment)
        first.kill()
        await first.wait()
    said = text_of(read_events(servers.log))
    async with servers.one(text) as second:
        await asyncio.wait_for(second.wait(), 60)
    events = read_events(servers.log)
    ends = [x.data for x in events if isinstance(x.data, e.RunEnded)]
    assert ending(ends[0].outcome) == ("lost", "server_lost")
    assert text_of(events).startswith(said)
    return GOES_TOO


@scenario("server killed mid-stream")
async def server_mid_stream(b: Bench) -> str | None:
    """Again and again in one turn; with the real Claude, ten times."""
    if "outlive" in b.case.lacks:
        return await lost_with_the_server(b, "stream 100 chunks 0.05", said_chunks(5))
    kills, chunks = (10, 240) if b.case.name == "claude" else (3, 100)
    hold = b.place / "hold"
    hold.touch()  # it does not end before the last of them is killed, however slowly they start
    text, servers = f"stream {chunks} chunks 0.05 while {hold}", Servers(b)
    for number in range(1, kills + 1):
        async with servers.one(text) as doomed:
            await servers.wait(said_chunks(number * chunks // (kills + 2)))
            assert not has(e.RunEnded)(read_events(servers.log))
            doomed.kill()
            await doomed.wait()
    hold.unlink()
    async with servers.one(text) as last:
        await asyncio.wait_for(last.wait(), 60)
        assert last.returncode == 0
    said = "".join(f"chunk-{number} " for number in range(chunks))
    assert check_survived(read_events(servers.log)) == said, "every chunk once, in order"
    return None


@scenario("server killed mid-tool")
async def server_mid_tool(b: Bench) -> str | None:
    b.need_tools()
    if "outlive" in b.case.lacks:
        command, token = b.tree()
        up = b.cwd / f"up-{token}"
        note = await lost_with_the_server(b, b.setup.asking(command), lambda _: up.exists())
        await b.wait_dead(token)
        return note
    b.cwd.joinpath("hold").touch()
    waits = "while test -e hold; do sleep 0.05; done; echo made >> made.txt; cat made.txt"
    servers = Servers(b)
    text = b.tool(waits) if not b.case.real else b.setup.asking(waits)

    def running(events: list[e.Event]) -> bool:
        started = has(e.ToolStartedFact)(events)
        asked = has(e.ApprovalRequested)(events)
        return started or asked

    async with servers.one(text) as first:
        await servers.wait(running)
        await servers.wait(has(e.ApprovalSettled) if b.case.real else has(e.ToolStartedFact))
        first.kill()
        await first.wait()
    b.cwd.joinpath("hold").unlink()
    async with servers.one(text) as second:
        await asyncio.wait_for(second.wait(), 60)
        assert second.returncode == 0
    assert "tool-result-seen" in check_survived(read_events(servers.log))
    assert b.cwd.joinpath("made.txt").read_text() == "made\n", "it ran once"
    return None


@scenario("server killed mid-approval")
async def server_mid_approval(b: Bench) -> str | None:
    b.need_tools()
    text = b.setup.asking("echo made >> made.txt")
    if "outlive" in b.case.lacks:
        asked = has(e.ApprovalRequested)
        return await lost_with_the_server(b, text, asked, "--no-answers")
    events = await Servers(b).kill_and_restart(text, has(e.ApprovalRequested))
    assert len([x for x in events if isinstance(x.data, e.ApprovalRequested)]) == 1
    check_survived(events)
    assert b.cwd.joinpath("made.txt").read_text() == "made\n", "it ran once"
    return None


@scenario("server killed for good", lambda case: {"orphan_s": 0.5})
async def server_gone(b: Bench) -> None:
    """Nobody comes back: after `orphan_s` nothing of the tree is left."""
    command, token = b.tree()
    servers = Servers(b)
    async with servers.one(b.tool(command)) as only:
        await b.wait_true(b.cwd.joinpath(f"up-{token}").exists)
        only.kill()
        await only.wait()
    await b.wait_dead(token)
    await b.wait_true(lambda: b.processes() == [])
