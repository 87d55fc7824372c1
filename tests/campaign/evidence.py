"""What is looked at when all is over: the logs, what the last server told, marks, processes.

Decides nothing. It must not know what is right.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.campaign.audit import Writings
from tests.campaign.marks import Mark
from tests.campaign.plain import Address, ask
from tests.campaign.records import Record
from tests.campaign.stories import Stories
from turnkeeper.core.records import SessionQuery
from turnkeeper.store.postgres import PostgresStore
from turnkeeper.store.sqlite import SqliteStore

PAGE = 500
EXPORT_S = 60.0


@dataclass
class Evidence:
    record: Record
    lines: dict[str, list[bytes]]
    """Each session's log, as the store has it."""
    stories: Stories
    marks: dict[str, list[Mark]]
    told: list[dict[str, Any]] = field(default_factory=list)
    """Every run, as the last server listed them."""
    exported: dict[str, list[bytes]] = field(default_factory=dict)
    unfinished: list[str] = field(default_factory=list)
    """Sessions in which something still had to happen when the time was up."""
    left: list[str] = field(default_factory=list)
    """Processes that were still there."""
    complaints: list[str] = field(default_factory=list)
    """What servers and nurseries said on their standard error that they should not have to."""
    writings: Writings = field(default_factory=Writings)
    """Where there are several who could write: who did."""


async def read_logs(store: SqliteStore | PostgresStore) -> dict[str, list[bytes]]:
    """Every log, from the store's own interface; nobody serves it now."""
    try:
        page = await store.sessions(SessionQuery(limit=PAGE))
        assert page.next is None
        return {found.id: await _read_log(store, found.id) for found in page.items}
    finally:
        await store.close()


async def _read_log(store: SqliteStore | PostgresStore, session: str) -> list[bytes]:
    lines: list[bytes] = []
    while more := await store.read_lines(session, len(lines), PAGE):
        lines += more
    return lines


def keep_logs(lines: dict[str, list[bytes]], folder: Path) -> None:
    """For whoever looks into a failed campaign."""
    folder.mkdir()
    for session, log in lines.items():
        (folder / f"{session}.jsonl").write_bytes(b"\n".join(log))


def parsed(lines: dict[str, list[bytes]]) -> dict[str, list[dict[str, Any]]]:
    return {session: [json.loads(line) for line in log] for session, log in lines.items()}


async def list_runs(address: Address) -> list[dict[str, Any]]:
    """Every run that the server lists, newest first."""
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        more = f"&before={cursor}" if cursor is not None else ""
        page = await ask(address, "GET", f"/v1/runs?limit={PAGE}{more}")
        assert page.status == 200, page
        found += page.body["items"]
        cursor = page.body["next"]
        if cursor is None:
            return found


async def export_all(data: Path, sessions: Iterable[str]) -> dict[str, list[bytes]]:
    """What `turnkeeper export` prints, by session."""
    return {session: await _export(data, session) for session in sessions}


async def _export(data: Path, session: str) -> list[bytes]:
    argv = [sys.executable, "-m", "turnkeeper", "export", session, "--data", str(data)]
    done = await asyncio.to_thread(
        subprocess.run, argv, capture_output=True, timeout=EXPORT_S, check=False
    )
    if done.returncode:
        return [b"exit code %d: " % done.returncode + done.stderr]
    return done.stdout.splitlines()


def complaints(*logs: Path) -> list[str]:
    """Lines of the servers' and nurseries' logs that tell of our own mistakes."""
    words = ("Traceback", "ERROR", "Error:", "CRITICAL")
    read = [log.read_text(encoding="utf-8", errors="replace") for log in logs if log.exists()]
    lines = [line for log in read for line in log.splitlines()]
    return [line for line in lines if any(word in line for word in words)]
