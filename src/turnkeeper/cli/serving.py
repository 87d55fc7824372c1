"""The server as a program: `turnkeeper serve` and `turnkeeper demo`.

Decides in which order it opens and closes, and what signals mean. It must not know what is served.
Invariants: nothing is announced before it can be used; after the first signal nothing new is taken,
and agents in custody go on for the next server; a second signal ends the program at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from turnkeeper import __version__
from turnkeeper.cli.screen import has_screen, show
from turnkeeper.compose import (
    Durable,
    Leaving,
    System,
    demo_agents,
    detected_agents,
    durable,
    look_at,
    push_courier,
    usual_agents,
)  # fmt: skip
from turnkeeper.config import Config, Located, bare, load, read_tokens
from turnkeeper.config.keys import STORE_URLS
from turnkeeper.core.errors import PORT_TAKEN, InvalidValue, TurnkeeperError
from turnkeeper.gateway.a2a_pushes import Pushes
from turnkeeper.gateway.gate import Gate, KnownAgent, Scope
from turnkeeper.gateway.serve import Server
from turnkeeper.observe import logs
from turnkeeper.observe.lag import LagMeter
from turnkeeper.observe.metrics import Metrics
from turnkeeper.observe.notify import Notifier
from turnkeeper.observe.several import Several
from turnkeeper.observe.spans import Spans, from_environment
from turnkeeper.place import Place
from turnkeeper.ports import Agent, Observer
from turnkeeper.store.drawer import FileDrawer

log = logging.getLogger("turnkeeper.server")

TAKING_UP = "it takes up what was unfinished"
STOP_S = 5.0
"""So long connections may take to end."""
SPANS_S = 3.0
PUSHES = "a2a-push.json"
KNOWN_S = 60.0
"""Programs are asked again how they are after so long."""
SLACK_S = 30.0
"""What stopping may take beside draining, as a service manager is told it."""
GC = (100_000, 20, 50)
"""What a server allocates lives as long as its sessions, and next to nothing of it is part of a
cycle; but with 1,000 sessions that speak, some 11,000 objects are young at any time, and each look
at them holds everybody up for 10 ms and more: so there are few looks."""
SWITCH_S = 0.0001
"""The thread that writes waits no longer for the interpreter. The event loop lets go of it in every
call of the system and takes it back at once, so it has to be asked; at the usual 5 ms whoever waits
for a message to be stored waits for that several times."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Agents = Mapping[str, Agent | Mapping[str, Any]]


@dataclass(frozen=True)
class Plan:
    """What is to be served, and how."""

    config: Config
    agents: Agents
    leaving: Leaving = "leave"
    any_port: bool = False
    """If the port is taken, another will do."""
    shows_token: bool = False
    throwaway: bool = False
    """Its data directory goes with it, however it ends."""


def serve_config(
    path: str | None, *, host: str | None, port: int | None, data: str | None, store: str | None,
    drain: bool, drain_turns: str | None = None,
) -> int:  # fmt: skip
    """Serve as the configuration says; the exit code."""
    given = _given(host, port, data)
    if store == "":
        raise InvalidValue("store.url", store, f"{STORE_URLS} (in --store)")
    if store is not None:
        given["store.url"] = (store, "--store")
    if drain or drain_turns is not None:
        given["server.drain"] = (True, "--drain" if drain else "--drain-turns")
    if drain_turns is not None:
        given["server.drain_turns"] = (drain_turns, "--drain-turns")
    config = load(path, os.environ, given)
    return asyncio.run(_Serving(Plan(config, config.agents or usual_agents())).wait_served())


def serve_demo(*, host: str | None, port: int | None, data: str | None) -> int:
    """Serve the demo agents; the exit code."""
    with contextlib.ExitStack() as stack:
        leaving: Leaving = "leave"
        if data is None:
            data = tempfile.mkdtemp(prefix="turnkeeper-demo-")
            leaving = "end"
            stack.callback(shutil.rmtree, data, ignore_errors=True)
        quiet = {"log.level": ("warning", "demo")}
        config = bare(os.environ, {**quiet, **_given(host, port, data)})
        plan = Plan(
            config, demo_agents(), leaving, any_port=port is None, shows_token=True,
            throwaway=leaving == "end",
        )  # fmt: skip
        return asyncio.run(_Serving(plan).wait_served())


def _given(host: str | None, port: int | None, data: str | None) -> dict[str, tuple[Any, str]]:
    typed = {
        "server.host": (host, "--host"), "server.port": (port, "--port"), "data": (data, "--data"),
    }  # fmt: skip
    return {key: one for key, one in typed.items() if one[0] is not None}


class _Serving:
    """One life of a server."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._config = plan.config
        self._asked = asyncio.Event()
        self._signals = 0

    async def wait_served(self) -> int:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._asked_to_end, number)
        async with AsyncExitStack() as stack:
            try:
                served = await self._open(stack)
            except InvalidValue as wrong:
                raise Located(wrong, self._config) from None
            await self._asked.wait()
            await self._end(served)
        return 0

    # Opening ---------------------------------------------------------------------------------

    async def _open(self, stack: AsyncExitStack) -> _Served:
        config, plan = self._config, self._plan
        notifier = Notifier()
        stack.callback(notifier.close)
        place = Place(config.data)
        more = read_tokens(config, os.environ)
        was_used = place.read_token() is not None
        token = place.check_token()
        self._log([token, *more], stack)
        if was_used and not config.store.is_postgres:
            _look_for_logs(config.store.file(place.database))
        metrics = Metrics(plan.agents, __version__)
        observers = self._observers(metrics, stack)
        system = await self._system(place, Several(*observers))
        stack.push_async_callback(system.close)
        server = await self._listen(place, system, metrics, {**more, token: "admin"})
        served = _Served(system, server, notifier, place)
        stack.push_async_callback(server.stop, STOP_S)
        pushes = self._pushes(server.gate, place, stack)
        for observer in observers:
            await _take_up(observer, system)
        await system.start(server.url_for_others)
        await pushes.start()
        metrics.attend(system.dispatcher, server.gate.trouble)
        server.gate.opening = None
        self._begin(served, metrics, stack)
        return served

    def _log(self, secrets: list[str], stack: AsyncExitStack) -> None:
        """To standard error; to nobody, if there is none."""
        stream = sys.stderr or Nowhere()
        log = self._config.log
        logs.configure(json=log.json, level=log.level, stream=stream, secrets=secrets)
        stack.callback(logs.release)

    def _observers(self, metrics: Metrics, stack: AsyncExitStack) -> list[Observer]:
        if not self._config.log.spans:
            return [metrics]
        spans, close = from_environment(os.environ, __version__)
        stack.push_async_callback(asyncio.to_thread, close, SPANS_S)
        return [metrics, spans]

    async def _system(self, place: Place, observer: Observer) -> System:
        config, plan = self._config, self._plan
        how = Durable(
            leaving=plan.leaving, what="turnkeeper serve", observer=observer,
            database=config.store.at, serves=True, lease_s=config.server.lease_s,
            carries=config.server.carry_conversations,
        )  # fmt: skip
        return await durable(plan.agents, config.limits, place, how)

    async def _listen(
        self, place: Place, system: System, metrics: Metrics, tokens: Mapping[str, Scope]
    ) -> Server:
        server, plan = self._config.server, self._plan
        gate = Gate(
            system.dispatcher, system.agents, drivers=_drivers(plan.agents), tokens=tokens,
            hosts=server.hosts, origins=server.origins, metrics=metrics.render,
            trouble=lambda: system.trouble,
            probe=lambda process: look_at(place.custody, process),
            max_body_bytes=server.max_body_bytes, opening=TAKING_UP, known=Known(detected_agents),
            secret=place.make_secret(),
        )  # fmt: skip
        listening = Server(gate, server.host, server.port)
        try:
            await listening.start()
        except TurnkeeperError as refused:
            if refused.entry is not PORT_TAKEN or not plan.any_port:
                raise
            _say(f"{refused.what}: it is another port this time")
            listening = Server(gate, server.host, 0)
            await listening.start()
        return listening

    def _pushes(self, gate: Gate, place: Place, stack: AsyncExitStack) -> Pushes:
        """Whoever wants to be told of tasks over A2A is told, by this server or the next."""
        courier = push_courier(private=self._config.server.push_private)
        stack.push_async_callback(courier.aclose)
        pushes = Pushes(gate, courier, FileDrawer(place.path / PUSHES))
        stack.push_async_callback(pushes.close)
        gate.pushes = pushes
        return pushes

    def _begin(self, served: _Served, metrics: Metrics, stack: AsyncExitStack) -> None:
        """It can be used: say so to everyone who waits for it."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC)
        sys.setswitchinterval(SWITCH_S)
        lag = LagMeter(metrics.lagged)
        lag.start()
        stack.callback(lag.stop)
        served.place.announce(served.server.url)
        served.notifier.ready(f"serving at {served.server.url}")
        served.notifier.start()
        self._tell(served)

    def _tell(self, served: _Served) -> None:
        url, place = served.server.url, served.place
        if self._plan.shows_token:
            token = place.read_token()
            whole, page = f"{url}/?token={token}", f"{url}/#token={token}"
            _say(f"serving at {whole}")
            _say(f"the page: {page}")
            _say(f"the agents are {', '.join(self._plan.agents)}")
            if has_screen(os.environ):
                show(page, place.path)
            _say("in another terminal:")
            _say(f"  export TURNKEEPER_URL='{whole}'")
            _say('  turnkeeper run "help"')
            _say(f"its data are in {place.path}; Ctrl-C ends it")
        else:
            _say(f"serving at {url}")
            if served.system.member is not None:
                _say(f"this is node {place.node}; the logs are in {self._config.store.shown}")
            _say(f"the token is in {place.token}; the agents are {', '.join(self._plan.agents)}")

    # Ending ----------------------------------------------------------------------------------

    def _asked_to_end(self, number: signal.Signals) -> None:
        self._signals += 1
        if self._signals > 1:
            if self._plan.throwaway:
                shutil.rmtree(self._config.data, ignore_errors=True)
            _quit(number)
        log.info("%s: nothing new is taken; a second signal ends it at once", number.name)
        self._asked.set()

    async def _end(self, served: _Served) -> None:
        """Refuse what is new; wait for what runs, if that was asked for; then let go of it all."""
        server, dispatcher = served.server, served.system.dispatcher
        how = self._config.server
        bound_s = how.drain_s if how.drain else 0.0
        stop = how.drain and how.drain_turns == "stop"
        served.notifier.stopping("stopping")
        served.notifier.extend(bound_s + SLACK_S)
        server.gate.refuse()
        if served.system.member is not None:
            served.system.member.drain()
        # Whoever looks for it still finds it: what runs can be watched and stopped.
        if bound_s or stop:
            left = await dispatcher.drain(bound_s, stop=stop)
            if left:
                log.warning("%d runs went on for %g s (drain_s) and are left", left, bound_s)
        served.place.withdraw()
        ends = self._plan.leaving == "end"
        await dispatcher.close(running_too=ends, queued_too=ends)


class Known:
    """Looks for known agents: at most one look at a time, and none soon after another."""

    def __init__(self, look: Callable[[], Awaitable[Sequence[KnownAgent]]]) -> None:
        self._look = look
        self._lock = asyncio.Lock()
        self._found: Sequence[KnownAgent] = ()
        self._fresh_until = 0.0

    async def __call__(self) -> Sequence[KnownAgent]:
        async with self._lock:
            if time.monotonic() >= self._fresh_until:
                self._found = await self._look()
                self._fresh_until = time.monotonic() + KNOWN_S
        return self._found


class Nowhere(io.StringIO):
    """Takes everything, and keeps nothing."""

    def write(self, text: str) -> int:
        return len(text)


@dataclass(frozen=True)
class _Served:
    """What is open."""

    system: System
    server: Server
    notifier: Notifier
    place: Place


def _look_for_logs(database: Path) -> None:
    """An empty database is a good one to SQLite; whoever had something in it should hear of it."""
    try:
        size = database.stat().st_size
    except OSError:
        size = 0
    if not size:
        told = "is empty or not there, though a server was here before: the logs begin anew"
        log.warning("%s %s. If you miss something, stop it and put a backup there", database, told)


async def _take_up(observer: Observer, system: System) -> None:
    """It is told of what was unfinished, before that goes on."""
    if isinstance(observer, Metrics):
        await observer.take_up(system.store)
    elif isinstance(observer, Spans):
        await observer.take_up(system.store, time.time())


def _drivers(agents: Agents) -> dict[str, str]:
    """What drives each, for people to read."""
    return {
        name: str(agent.get("driver", "")) if isinstance(agent, Mapping) else DEMO
        for name, agent in agents.items()
    }


DEMO = "demo"


def _say(line: str) -> None:
    """To whoever started it; whether anybody reads it or not."""
    if sys.stdout is not None:
        with contextlib.suppress(OSError):
            print(line, flush=True)


def _quit(number: signal.Signals) -> NoReturn:
    """At once: agents in custody go on, and the next server takes them up."""
    with contextlib.suppress(OSError):
        os.write(2, b"turnkeeper: ended at once; what runs in custody goes on\n")
    os._exit(128 + number)
