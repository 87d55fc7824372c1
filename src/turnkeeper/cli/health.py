"""What `turnkeeper doctor` says: of this installation, or of one run.

Decides what is examined and how it is told. It must not know how it is examined: `observe` does
that. Invariant: nothing is changed; what is said of a run follows from its log, from what the
server says of it, and from what lives of its processes now.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from contextlib import aclosing

import click
import msgspec

from turnkeeper.api import RunOut
from turnkeeper.cli.clean import one_line
from turnkeeper.cli.looking import say_items, say_json
from turnkeeper.cli.params import Where
from turnkeeper.cli.reach import Found, books_for, find
from turnkeeper.cli.sides import Books
from turnkeeper.cli.tables import Paper
from turnkeeper.compose import custody_trouble, detected_agents, look_at, store_trouble
from turnkeeper.core import events as e
from turnkeeper.core import records as r
from turnkeeper.core.diagnosis import ClockSeen, Diagnosis, ProcessSeen
from turnkeeper.core.errors import DATA_IN_USE, TurnkeeperError
from turnkeeper.core.limits import Limits
from turnkeeper.core.outcome import Outcome
from turnkeeper.observe.diagnosis import SILENT, hints, lines, what_then
from turnkeeper.observe.doctor import Finding, Installation, check_installation, worst
from turnkeeper.observe.redact import Redactor
from turnkeeper.store.upkeep import check

COLORS = {"ok": "green", "note": "dim", "warning": "yellow", "error": "red"}
TAIL_EVENTS = 1000
"""A run that has not ended is looked for so far from the end of its log; then in all of it."""

PROGRESS = (
    e.OutputText, e.OutputThinking, e.ToolStartedFact, e.ToolProgressFact, e.ToolEndedFact,
    e.ApprovalRequested, e.ApprovalSettled,
)  # fmt: skip


async def tell_health(where: Where, run: str | None, *, as_json: bool) -> int:
    """The exit code: 1 if something is wrong with this installation."""
    if run is not None:
        await _tell_run(where, run, as_json=as_json)
        return 0
    found = await check_installation(_installation(where, find(where)))
    if as_json:
        say_items(found)
    else:
        _show(found)
    return 1 if worst(found) == "error" else 0


# This installation ---------------------------------------------------------------------------


def _installation(where: Where, found: Found) -> Installation:
    config = found.config

    async def database() -> str | None:
        """It is whole, and the server that has it can write to it."""
        trouble = None if found.there is None else await _server_trouble(found)
        if trouble is not None or not found.database_exists:
            return trouble
        if config.store.is_postgres:
            return await store_trouble(config.store.url)
        return await asyncio.to_thread(check, config.store.file(found.place.database))

    async def newest_at() -> float | None:
        return await _newest(where)

    return Installation(
        data=config.data,
        host=config.server.host,
        port=config.server.port,
        server=None if found.there is None else found.there.base,
        holder=None if found.there is not None else _holder(found),
        database=database if found.database_exists or found.there is not None else None,
        store=_store(found),
        custody=custody_trouble,
        agents=detected_agents,
        newest_at=newest_at,
    )


def _store(found: Found) -> str:
    """Where the logs are, if they are in no file that we know of."""
    if found.config.store.is_postgres:
        return found.config.store.shown
    return "" if found.database_exists else "the server's store"


async def _server_trouble(found: Found) -> str | None:
    from turnkeeper.cli.there import client_of

    async with client_of(found.server()) as client:
        health = await client.health()
    return None if health.ready else f"the server is not ready: {health.why}"


async def _newest(where: Where) -> float | None:
    async with books_for(where, "turnkeeper doctor") as books:
        sessions = await books.sessions(r.SessionQuery())
    return max((session.updated_at for session in sessions), default=None)


def _holder(found: Found) -> str | None:
    """Who has the data directory for itself, and is no server."""
    if not found.place.path.exists():
        return None
    try:
        found.place.hold(shared=True, what="turnkeeper doctor").release()
    except TurnkeeperError as refused:
        if refused.entry is not DATA_IN_USE:
            raise
        return refused.what.rpartition("in use by ")[2]
    return None


def _show(found: Sequence[Finding]) -> None:
    paper = Paper.of(sys.stdout)
    wide = max(len(one.what) for one in found)
    for one in found:
        level = paper.paint(f"{one.level:<7}", COLORS[one.level])
        click.echo(f"{level}  {one.what:<{wide}}  {one_line(one.found)}")
        if one.todo:
            click.echo(f"{'':<{9 + wide}}  {paper.paint(f'→ {one_line(one.todo)}', 'dim')}")


# One run -------------------------------------------------------------------------------------


async def _tell_run(where: Where, run: str, *, as_json: bool) -> None:
    found = find(where)
    async with books_for(where, "turnkeeper doctor") as books:
        known = await books.diagnosis(run)
        if known is None:
            known = await _from_logs(books, await books.run(run), found)
    if as_json:
        say_json(known)
        return
    for line in lines(known):
        click.echo(one_line_kept(line))
    if found.there is None and known.state != "ended":
        click.echo("  no server is there: whatever lives of it is ended after its orphan_s")


def one_line_kept(line: str) -> str:
    """The line with its indentation."""
    indent = line[: len(line) - len(line.lstrip())]
    return indent + one_line(line)


async def _from_logs(books: Books, seen: RunOut, found: Found) -> Diagnosis:
    """What can be found out where no server tells it."""
    known = await _with_processes(await diagnosis(books, seen), found)
    return msgspec.structs.replace(known, hints=tuple(hints(known)))


async def diagnosis(books: Books, seen: RunOut) -> Diagnosis:
    """What can be said of the run, but for its processes."""
    log = await _log_of(books, seen) if seen.state == "running" else []
    limits, attempt, process, last = Limits(), 0, None, ""
    tools: dict[str, str] = {}
    for event in log:
        match event.data:
            case e.RunStarted():
                limits = event.data.limits
            case e.AttemptStarted():
                attempt, process = event.data.attempt, event.data.process
            case e.ToolStartedFact():
                tools[event.data.tool] = event.data.name
            case e.ToolEndedFact():
                tools.pop(event.data.tool, None)
            case _:
                pass
        if isinstance(event.data, PROGRESS):
            last = event.kind
    asked = await books.approvals(r.ApprovalQuery(run=seen.id, state="open"))
    silent = next((one for one in seen.clocks if one.clock in SILENT), None)
    outcome = seen.outcome
    return Diagnosis(
        run=seen.id, session=seen.session, agent=seen.agent, state=seen.state, phase=seen.phase,
        running_s=_since(seen), attempt=attempt, last=last,
        silent_s=None if silent is None else round(silent.budget_s - silent.in_s, 3),
        clocks=tuple(
            ClockSeen(
                clock=clock.clock, in_s=clock.in_s, budget_s=clock.budget_s,
                then=what_then(clock, seen.phase, limits, polite=False),
            )
            for clock in seen.clocks
        ),
        tools=tuple(tools.values()), approvals=tuple(ask.id for ask in asked),
        position=seen.position, process=process,
        outcome=None if outcome is None else Outcome(
            outcome.kind, outcome.reason, outcome.detail, outcome.evidence, outcome.at
        ),
    )  # fmt: skip


def _since(seen: RunOut) -> float | None:
    if seen.state != "running" or seen.started_at is None:
        return None
    return round(max(0.0, time.time() - seen.started_at), 3)


async def _log_of(books: Books, seen: RunOut) -> list[e.Event]:
    """The run's events, as far back as its start."""
    head = await books.head(seen.session)
    for after in dict.fromkeys((max(0, head - TAIL_EVENTS), 0)):
        own: list[e.Event] = []
        async with aclosing(books.events(seen.session, after, follow=False)) as events:
            async for event in events:
                if isinstance(event, e.Event) and event.run == seen.id:
                    own.append(event)
        if any(isinstance(event.data, e.RunStarted) for event in own):
            return own
    return []


async def _with_processes(known: Diagnosis, found: Found) -> Diagnosis:
    """And what its processes are doing, if it is one that has any here."""
    if known.process is None:
        return known
    tree = await look_at(found.place.custody, known.process)
    if tree is None:
        return known
    redact = Redactor()
    return msgspec.structs.replace(
        known,
        sockets=tuple(tree.sockets),
        processes=tuple(
            ProcessSeen(
                pid=one.pid, parent=one.parent, command=redact(one.command), state=one.state,
                cpu_s=one.cpu_s, age_s=one.age_s, waiting_in=one.waiting_in,
            )
            for one in tree.processes
        ),
    )  # fmt: skip
