"""What `turnkeeper agents` says: the configured agents, and the known ones on this machine; or
those of a server.

Decides how that is laid out. It must not know any driver: agents say what they can do, and
detection says what to do about one that is not ready."""

from __future__ import annotations

import sys
from typing import Any

from turnkeeper import api
from turnkeeper.cli import lists
from turnkeeper.cli.clean import one_line
from turnkeeper.cli.looking import note, say, say_items
from turnkeeper.cli.params import Where
from turnkeeper.cli.reach import Found, find
from turnkeeper.cli.sides import DEFAULT_AGENT
from turnkeeper.cli.tables import Cell, Paper
from turnkeeper.cli.there import client_of
from turnkeeper.compose import built_in_agents, check_spec, detected_agents
from turnkeeper.ports import Agent

COLORS = {"ready": "green", "needs login": "yellow", "does not answer": "red", "wrong": "red"}


async def tell_agents(where: Where, *, as_json: bool) -> None:
    found = find(where)
    if found.there is None:
        rows = [*_configured(found), *_built_in(found), *await _known(found)]
        if as_json:
            say_items(rows)
        else:
            say(_table(rows))
        return
    async with client_of(found.there) as client:
        items = await client.agents()
    if as_json:
        say_items(items)
    else:
        note(f"those of the server {found.there.base} ({found.there.how})")
        say(lists.agents(Paper.of(sys.stdout), items))


def _configured(found: Found) -> list[dict[str, Any]]:
    rows = []
    for name, table in found.config.agents.items():
        wrong = check_spec(name, table)
        told = f"configured in {found.config.file}" if found.config.file else "configured"
        rows.append(
            {
                "name": name,
                "driver": table.get("driver", ""),
                "state": "configured" if wrong is None else "wrong",
                "told": told,
                "todo": "" if wrong is None else wrong.what,
            }
        )
    return rows


def _built_in(found: Found) -> list[dict[str, Any]]:
    built_in = {
        name: agent for name, agent in built_in_agents().items() if name not in found.config.agents
    }
    return [
        {"name": name, "driver": "demo", "state": "ready", "told": _can(name, agent), "todo": ""}
        for name, agent in built_in.items()
    ]


async def _known(found: Found) -> list[dict[str, Any]]:
    known = [one for one in await detected_agents() if one.name not in found.config.agents]
    return [
        {
            "name": one.name,
            "driver": one.driver,
            "state": one.state,
            "told": " ".join(part for part in (one.version, one.path) if part),
            "todo": one.todo,
        }
        for one in sorted(known, key=lambda one: one.state != "ready")
    ]


def _table(rows: list[dict[str, Any]]) -> list[str]:
    cells: list[tuple[Cell | str, ...]] = []
    for row in rows:
        state = Cell(row["state"], COLORS.get(row["state"], "dim"))
        cells.append((one_line(row["name"]), row["driver"], state, one_line(row["told"])))
        if row["todo"]:
            cells.append(("", "", "", one_line(row["todo"])))
    return Paper.of(sys.stdout).table(("AGENT", "DRIVER", "STATE", "NOTE"), cells)


def _can(name: str, agent: Agent) -> str:
    can = lists.abilities(api.agent_out(name, "demo", agent.abilities, agent.outlives_server))
    return f"{can}  (the default; say “help” to it)" if name == DEFAULT_AGENT else can
