"""What the commands that only look do: find it, and show it to a person or to a program.

Decides which of it is shown. It must not know where it is kept. Invariant: with `--json` standard
output is JSON and nothing else; an answer that only the logs gave is told as such.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Literal, NamedTuple

import click
import msgspec

from turnkeeper.cli import lists, telling
from turnkeeper.cli.hearing import Hearing
from turnkeeper.cli.params import Where
from turnkeeper.cli.reach import books_for
from turnkeeper.cli.report import line_of
from turnkeeper.cli.sides import Books
from turnkeeper.cli.tables import Paper
from turnkeeper.core import records as r
from turnkeeper.core.events import Event

BY_LOGS = "no server is there: this is what was stored, and nothing of it is running now"


async def tell_sessions(
    where: Where,
    agent: str | None,
    search: str | None,
    limit: int,
    *,
    busy: bool,
    as_json: bool,
) -> None:
    async with books_for(where, "turnkeeper sessions") as books:
        state: Literal["busy"] | None = "busy" if busy else None
        query = r.SessionQuery(agent=agent, state=state, search=search, limit=limit)
        found = await books.sessions(query)
    if as_json:
        say_items(found)
    elif found:
        say(lists.sessions(Paper.of(sys.stdout), found, time.time()))
    else:
        note("there are no sessions")


class Runs(NamedTuple):
    """Which runs, and how they are laid out."""

    session: str | None
    parent: str | None
    limit: int
    everything: bool
    flat: bool


async def tell_runs(where: Where, asked: Runs, *, as_json: bool) -> None:
    state: Literal["unfinished"] | None = None if asked.everything else "unfinished"
    query = r.RunQuery(session=asked.session, parent=asked.parent, state=state, limit=asked.limit)
    async with books_for(where, "turnkeeper ps") as books:
        found = await books.runs(query)
    if as_json:
        say_items(found)
        return
    if any(run.outcome is None for run in found):
        note_logs(books)
    if found:
        say(lists.runs(Paper.of(sys.stdout), found, time.time(), flat=asked.flat))
    else:
        note("nothing runs, and nothing waits" if state else "there are no runs")


async def tell_run(where: Where, run: str, *, as_json: bool) -> None:
    async with books_for(where, "turnkeeper show") as books:
        found = await books.run(run)
        if as_json:
            say_json(found)
            return
        children = await books.runs(r.RunQuery(parent=run, limit=r.PAGE_MAX))
        asks = await books.approvals(r.ApprovalQuery(run=run, state="open"))
    if found.outcome is None:
        note_logs(books)
    say(telling.run(Paper.of(sys.stdout), found, time.time(), children, asks))


async def tell_events(
    where: Where, session: str, after: int, *, follow: bool, as_json: bool
) -> None:
    paper = Paper.of(sys.stdout)
    async with books_for(where, "turnkeeper events") as books:
        with Hearing(note) if follow else nullcontext():
            async for event in books.events(session, after, follow=follow):
                if as_json:
                    click.echo(line_of(event))
                elif isinstance(event, Event):
                    click.echo(telling.event(paper, event))
                else:
                    click.echo(telling.unknown_event(paper, event))


async def tell_approvals(where: Where, limit: int, *, everything: bool, as_json: bool) -> None:
    state: Literal["open"] | None = None if everything else "open"
    async with books_for(where, "turnkeeper approvals") as books:
        found = await books.approvals(r.ApprovalQuery(state=state, limit=limit))
    if as_json:
        say_items(found)
    elif found:
        say(lists.approvals(Paper.of(sys.stdout), found, time.time()))
    else:
        note("nobody asks for anything")


# Saying --------------------------------------------------------------------------------------


def say(lines: Sequence[str]) -> None:
    for line in lines:
        click.echo(line)


def say_json(shape: Any) -> None:
    click.echo(msgspec.json.encode(shape).decode())


def say_items(items: Sequence[Any]) -> None:
    say_json({"items": items})


def note(told: str) -> None:
    click.echo(f"turnkeeper: {told}", err=True)


def note_logs(books: Books) -> None:
    if not books.is_live:
        note(BY_LOGS)
