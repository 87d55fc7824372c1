"""What the commands do that keep a data directory in order: export, gc, backup.

Decides where an export comes from and goes to. It must not know how a database is kept. Invariant:
a file that is there is never written over; one that is made has its name only when it is whole.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import click

from turnkeeper.cli.looking import say_json
from turnkeeper.cli.params import Where
from turnkeeper.cli.reach import Found, books_for, find
from turnkeeper.cli.report import line_of
from turnkeeper.cli.tables import size_of
from turnkeeper.core.errors import InvalidValue
from turnkeeper.store import upkeep

SHOWN = 10


def _database(found: Found) -> Path:
    return found.config.store.file(found.place.database)


def collect(
    where: Where, older_s: float | None, keep: int | None, *, dry_run: bool, as_json: bool
) -> None:
    """Remove what may go, and say what went."""
    found = find(where)
    url = found.config.store.at
    if isinstance(url, str):
        from turnkeeper.store.postgres_upkeep import gc_postgres  # needs asyncpg

        removing = gc_postgres(url, older_than_s=older_s, max_bytes=keep, dry_run=dry_run)
        done = asyncio.run(removing)
    else:
        path = _database(found)
        done = upkeep.gc(path, older_than_s=older_s, max_bytes=keep, dry_run=dry_run)
    if as_json:
        say_json(done)
        return
    what = "would go" if dry_run else "gone"
    click.echo(
        f"{len(done.sessions)} sessions with {done.events} events {what};"
        f" {size_of(done.used_bytes)} in use, {size_of(done.freed_bytes)} given back"
    )
    for session in done.sessions[:SHOWN]:
        click.echo(f"  {session}")
    if len(done.sessions) > SHOWN:
        click.echo(f"  and {len(done.sessions) - SHOWN} more")


def back_up(where: Where, file: str, *, as_json: bool) -> None:
    """A copy of all logs as they are at this moment."""
    target = Path(file).expanduser()
    size = upkeep.backup(_database(find(where)), target)
    if as_json:
        say_json({"file": str(target.absolute()), "bytes": size})
    else:
        click.echo(f"{target}: {size_of(size)}, checked")


# Export --------------------------------------------------------------------------------------


async def export_session(where: Where, session: str, output: str | None) -> None:
    """The session's log, a line for each event, to a file or to standard output."""
    lines = _lines(where, find(where), session)
    if output is None or output == "-":
        async for line in lines:
            sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()
        return
    with _NewFile(output) as file:
        async for line in lines:
            file.write(line)
    click.echo(f"{output}: {file.count} events")


class _NewFile:
    """A file for this user alone, which has its name once all of it is there."""

    def __init__(self, name: str) -> None:
        self._target = Path(name).expanduser()
        self._part = self._target.with_name(f".{self._target.name}.{os.getpid()}")
        self.count = 0

    def __enter__(self) -> Self:
        with self._told():
            made = os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            self._file = os.fdopen(made, "wb")
        return self

    def write(self, line: bytes) -> None:
        with self._told():
            self._file.write(line + b"\n")
        self.count += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                with self._told():
                    self._file.flush()
                    os.fsync(self._file.fileno())
                    os.link(self._part, self._target)
        finally:
            with suppress(OSError):
                self._file.close()
            self._part.unlink(missing_ok=True)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except FileExistsError:
            told = "there is such a file; give another name"
            raise InvalidValue("output", str(self._target), told) from None
        except OSError as fault:
            told = f"it cannot be written: {fault.strerror}"
            raise InvalidValue("output", str(self._target), told) from None


async def _lines(where: Where, found: Found, session: str) -> AsyncIterator[bytes]:
    """From the database if it is a file here, else from whoever can read it."""
    far = found.there is not None and not found.there.near
    if far or found.config.store.is_postgres:
        async with books_for(where, "turnkeeper export") as books:
            async for event in books.events(session, 0, follow=False):
                yield line_of(event).encode()
        return
    for line in upkeep.export(_database(found), session):
        yield line
