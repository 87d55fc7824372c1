"""What each surface says of an ending, read with the ecosystem's own clients.

Decides how an ending is asked for, and what has to be said: always from the one table of words. A
surface is looked at when the run has ended (`look`), or has sent the message itself (`send`).
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

import httpx

from tests.campaign.plain import Answer
from tests.campaign.server import Server
from tests.surfaces.a2a import reading as a2a
from tests.surfaces.acp import acpx
from tests.surfaces.acp import reading as acp
from tests.surfaces.agui import page as agui
from tests.surfaces.agui import reading as agui_reading
from tests.surfaces.matrix.endings import WITHIN_S, Ending, Send, Theatre
from tests.surfaces.mcp import reading as mcp
from tests.surfaces.responses import reading as responses
from turnkeeper.client import Client
from turnkeeper.core.outcome import WORDS, Kind


class Stage(Protocol):
    """A server that can be asked."""

    server: Server

    @property
    def url(self) -> str: ...

    @property
    def token(self) -> str: ...

    async def ask(self, method: str, path: str, body: Any = None) -> Answer: ...


Look = Callable[[Stage, str], Awaitable[str]]
Expected = Callable[[Kind, str], str]


class Surface(NamedTuple):
    """`note`: what is to be known of it beside its words. `suite`: the mark of its tests."""

    name: str
    expected: Expected
    look: Look | None = None
    send: Send | None = None
    note: str = ""
    suite: str = "surfaces"


def _plain(kind: Kind, reason: str) -> str:
    return f"{WORDS[kind, reason].api}/{reason}"


# Our own -----------------------------------------------------------------------------------------


async def look_api(stage: Stage, run: str) -> str:
    outcome = (await stage.ask("GET", f"/v1/runs/{run}")).body["outcome"]
    return f"{outcome['kind']}/{outcome['reason']}"


async def look_client(stage: Stage, run: str) -> str:
    async with Client(stage.url, token=stage.token) as client:
        outcome = await (await client.run(run)).wait(timeout_s=WITHIN_S)
        assert outcome is not None
        return f"{outcome.kind}/{outcome.reason}"


async def look_log(stage: Stage, run: str) -> str:
    """The line of the server's own log."""
    log = (stage.server.data.parent / "server.log").read_text(encoding="utf-8")
    found = re.findall(rf"run {re.escape(run)} ([a-z_]+/[a-z_]+)", log)
    assert len(found) == 1, found
    return str(found[0])


async def look_metrics(stage: Stage, run: str) -> str:
    """What was counted, beside what is there to count."""
    told = (await stage.ask("GET", f"/v1/runs/{run}")).body
    outcome = told["outcome"]
    labels = f'agent="{told["agent"]}",outcome="{outcome["kind"]}",reason="{outcome["reason"]}"'
    metrics = (await stage.ask("GET", "/metrics")).body
    counted = re.search(rf"^turnkeeper_runs_total{{{labels}}} ([0-9.]+)$", metrics, re.MULTILINE)
    found = counted is not None and float(counted[1]) >= 1
    return f"{outcome['kind']}/{outcome['reason']}" if found else "–"


def _metrics(kind: Kind, reason: str) -> str:
    return "–" if reason == "shutdown" else _plain(kind, reason)


async def send_cli(stage: Theatre, session: str, ending: Ending) -> str:
    """The exit code of `turnkeeper run`."""
    argv = [sys.executable, "-m", "turnkeeper", "run", "--server", stage.url]
    argv += ["--session", session, "-"]
    env = {"TURNKEEPER_TOKEN": stage.token, "PATH": "/usr/bin"}
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL, env=env,
    )  # fmt: skip
    await process.communicate(ending.text.encode())
    return str(process.returncode)


# The ecosystem's ---------------------------------------------------------------------------------


async def look_responses(stage: Stage, run: str) -> str:
    return " ".join(await responses.ending_of(stage.url, stage.token, run))


def _responses(kind: Kind, reason: str) -> str:
    if reason == "preempted":
        return "in_progress"
    words = WORDS[kind, reason]
    more = words.responses_code or ("max_output_tokens" if words.responses == "incomplete" else "")
    return f"{words.responses} {more}".strip()


async def look_a2a(stage: Stage, run: str) -> str:
    async with a2a.client(stage.url, stage.token) as talk:
        return " ".join(a2a.words(await a2a.ended(talk, run)))


def _a2a(kind: Kind, reason: str) -> str:
    return f"{WORDS[kind, reason].a2a} {kind} {reason}"


async def look_mcp(stage: Stage, run: str) -> str:
    async with mcp.client(stage.url, stage.token) as connected:
        told = await mcp.call(connected, "get_run", run=run)
        outcome = told["outcome"]
        return f"{outcome['kind']}/{outcome['reason']}" if outcome else "goes on"


def _mcp(kind: Kind, reason: str) -> str:
    return "goes on" if reason == "preempted" else _plain(kind, reason)


async def send_acp(stage: Theatre, session: str, ending: Ending) -> str:
    return " ".join(await acp.read(stage.url, stage.token, session, ending.text))


def _acp(kind: Kind, reason: str) -> str:
    words = WORDS[kind, reason]
    return f"{words.acp} {kind} {reason}" if words.acp_error else words.acp


async def send_acpx(stage: Theatre, session: str, ending: Ending) -> str:
    """Its exit code is a word, too."""
    home = stage.server.data.parent / "acpx" / session
    home.mkdir(parents=True)
    return " ".join(await acpx.read(acpx.Acpx(home, stage.url, stage.token), session, ending.text))


def _acpx(kind: Kind, reason: str) -> str:
    return f"{1 if WORDS[kind, reason].acp_error else 0} {_acp(kind, reason)}"


async def look_agui(stage: Stage, run: str) -> str:
    """As whoever watches the session is told it."""
    return " ".join(await agui_reading.ending_of(stage.url, stage.token, run))


async def send_agui(stage: Theatre, session: str, ending: Ending) -> str:
    """A page whose server goes away asks again for the same run."""
    async with agui.Page(stage.url, stage.token) as page:
        while True:
            try:
                return " ".join(agui.last_words(await page.run(session, session, ending.text, "")))
            except httpx.TransportError:
                await asyncio.sleep(0.05)


def _agui(kind: Kind, reason: str) -> str:
    words = WORDS[kind, reason]
    return f"{'RUN_ERROR' if words.agui_error else 'RUN_FINISHED'} {words.agui}"


COUNTED = "What ends with the server was counted by that server, and not by the next."
PROMPTS = "A message that is sent there has no priority and no run as its parent."
GOES_ON = "A preempted message waits for its next run, and what it leads to there goes on."

SURFACES = (
    Surface("HTTP", _plain, look_api),
    Surface("client", _plain, look_client),
    Surface("log line", _plain, look_log),
    Surface("metrics", _metrics, look_metrics, note=COUNTED),
    Surface("Responses", _responses, look_responses, note=GOES_ON),
    Surface("A2A", _a2a, look_a2a),
    Surface("MCP", _mcp, look_mcp, note=GOES_ON),
    Surface("exit code", lambda *key: str(WORDS[key].exit_code), send=send_cli, note=PROMPTS),
    Surface("ACP", _acp, send=send_acp, note=PROMPTS),
    Surface("acpx", _acpx, send=send_acpx, note=PROMPTS, suite="agents"),
    Surface("AG-UI", _agui, look_agui, send=send_agui),
)
