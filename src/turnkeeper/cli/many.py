"""What the commands do that are for logs of several servers: nodes, migrate.

Decides what is shown. It must not know SQL. Invariant: no logs are moved that a server uses.
"""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import click

from turnkeeper.cli.clean import one_line
from turnkeeper.cli.looking import note, say_json
from turnkeeper.cli.params import Where
from turnkeeper.cli.reach import find
from turnkeeper.cli.tables import Cell, Paper, ago
from turnkeeper.config.keys import SQLITE, STORE_URLS, Store
from turnkeeper.core.errors import DATA_IN_USE, InvalidValue, TurnkeeperError
from turnkeeper.place import LOCK, Place
from turnkeeper.ports import EventStore, NodeRecord
from turnkeeper.store.moving import move
from turnkeeper.store.opening import listed_nodes, open_store, transcripts_between


async def tell_nodes(where: Where, url: str | None, *, as_json: bool) -> None:
    """Who shares the logs."""
    store = find(where).config.store if url is None else Store(url=url)
    if not store.is_postgres:
        told = (
            "several servers share a PostgreSQL: name theirs, with --store postgresql://… or here"
        )
        raise InvalidValue("store.url", store.shown, told)
    found = await listed_nodes(store.url)
    if as_json:
        say_json(found)
        return
    if not found:
        note("no server has used that database yet")
        return
    paper = Paper.of(sys.stdout)
    titles = ("NODE", "STATE", "SESSIONS", "BUSY", "SINCE", "AGENTS", "URL")
    now = time.time()
    for line in paper.table(titles, [_row(one, now) for one in found]):
        click.echo(line)


def _row(node: NodeRecord, now: float) -> tuple[Cell | str, ...]:
    state = Cell("gone", "dim")
    if node.left_s > 0:
        state = Cell("draining", "yellow") if node.draining else Cell("lives", "green")
    return (
        one_line(node.id), state, str(node.sessions), str(node.unfinished), ago(node.since, now),
        one_line(", ".join(node.agents)), one_line(node.url),
    )  # fmt: skip


async def move_logs(source: str, target: str, *, as_json: bool) -> None:
    """All of them, and say how many."""
    if source == target:
        raise InvalidValue("to", Store(url=target).shown, "that is where they are")
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(_alone(source, "from", make=False))
        second = await stack.enter_async_context(_alone(target, "to", make=True))

        def tell(session: str, head: int) -> None:
            if not as_json and sys.stderr is not None and sys.stderr.isatty():
                click.echo(f"\r{one_line(session)}: {head} events\x1b[K", nl=False, err=True)

        along = await stack.enter_async_context(transcripts_between(first, second))
        moved = await move(first, second, tell, along)
    if as_json:
        say_json(moved)
        return
    click.echo(
        f"{moved.sessions} sessions with {moved.events} events are the same in both now"
        f" ({moved.new_events} events were moved); sha256 {moved.sha256}"
    )
    if moved.conversations:
        click.echo(f"{moved.conversations} conversations of agents were moved with them")


@asynccontextmanager
async def _alone(url: str, what: str, *, make: bool) -> AsyncIterator[EventStore]:
    """The store there, which nobody else uses."""
    store = Store(url=url)
    async with AsyncExitStack() as stack:
        at: Path | str = url
        if store.is_postgres:
            living = [one.id for one in await listed_nodes(url) if one.left_s > 0]
            if living:
                told = f"{store.shown} is in use by the nodes {', '.join(living)}"
                raise TurnkeeperError(DATA_IN_USE, f"{told}; end them, or wait until they are gone")
        else:
            at = _file(url, what)
            if not make and not at.is_file():
                raise InvalidValue(what, str(at), "there is no such database")
            if (at.parent / LOCK).exists():
                stack.enter_context(Place(at.parent).hold(what="turnkeeper migrate"))
        opened = await open_store(at)
        stack.push_async_callback(opened.close)
        yield opened


def _file(url: str, what: str) -> Path:
    if not url.startswith(f"{SQLITE}/"):
        raise InvalidValue(what, Store(url=url).shown, STORE_URLS)
    return Path(url.removeprefix(SQLITE))
