"""What one run is doing: its phase, its clocks, what was last seen, its processes, what comes next.

Decides what is worth telling and how it is put. It must not know custody: a probe looks at the
processes. Invariant: it asks and changes nothing; every sentence follows from a fact that is in
the diagnosis too, and what is not known is not claimed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from turnkeeper.core import explain
from turnkeeper.core.commands import NextClock, RunView
from turnkeeper.core.diagnosis import ClockSeen, Diagnosis, ProcessSeen
from turnkeeper.core.errors import ending_code
from turnkeeper.core.limits import SILENCE, Clock, Limits, Phase
from turnkeeper.core.outcome import Seen
from turnkeeper.core.state import Run
from turnkeeper.observe.redact import Redactor
from turnkeeper.runtime.actor import SessionActor
from turnkeeper.runtime.dispatcher import Dispatcher

PROBE_S = 5.0
SILENT = frozenset(clock.value for clock, _ in SILENCE.values())
"""The clocks that count silence."""
ELSEWHERE = "another node has it, and sees more: ask there (turnkeeper nodes lists them)"


class ProcessLike(Protocol):
    """One process, as a probe tells of it."""

    @property
    def pid(self) -> int: ...
    @property
    def parent(self) -> int: ...
    @property
    def command(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def cpu_s(self) -> float: ...
    @property
    def age_s(self) -> float: ...
    @property
    def waiting_in(self) -> str: ...


class TreeLike(Protocol):
    """What a probe finds."""

    @property
    def processes(self) -> Sequence[ProcessLike]: ...
    @property
    def sockets(self) -> Sequence[str]: ...


Probe = Callable[[str], Awaitable[TreeLike | None]]
"""Looks at the process of that name, in custody here; none if nothing of it lives."""


async def diagnose(
    dispatcher: Dispatcher,
    run: str,
    probe: Probe | None = None,
    redact: Redactor | None = None,
) -> Diagnosis:
    """The diagnosis; `UNKNOWN_RUN` if there is no such run."""
    view = await dispatcher.look(run)
    actor = dispatcher.actor_if_loaded(view.session)
    if actor is None and view.state != "ended":
        return await _of_another(dispatcher, view)
    active = actor.machine.state.active if actor is not None else None
    polite = actor is not None and actor.machine.policy.abilities.interrupt
    known = _of_view(view, active, polite=polite)
    if actor is None or active is None or active.id != run:
        return _with_hints(known)
    known = _of_running(_of_log(known, active), actor, active)
    # What lives in this server has no process of its own.
    if probe is not None and known.process is not None and actor.outlives_server:
        known = await _of_processes(known, probe, redact or Redactor())
    return _with_hints(known)


async def _of_another(dispatcher: Dispatcher, view: RunView) -> Diagnosis:
    """Of a run that another node has: what that one says of it, and what the log does."""
    active = (await dispatcher.state(view.session)).active
    known = _of_view(view, active, polite=None)
    if active is not None and active.id == view.id:
        silent = next((one for one in view.clocks if one.clock in SILENT), None)
        silent_s = None if silent is None else round(silent.budget_s - silent.in_s, 3)
        known = msgspec.structs.replace(_of_log(known, active), silent_s=silent_s)
    return _with_hints(msgspec.structs.replace(known, elsewhere=True))


def _of_view(view: RunView, active: Run | None, *, polite: bool | None) -> Diagnosis:
    limits = active.limits if active is not None and active.id == view.id else Limits()
    return Diagnosis(
        run=view.id,
        session=view.session,
        agent=view.agent,
        state=view.state,
        phase=view.phase,
        clocks=tuple(
            ClockSeen(
                clock=clock.clock, in_s=clock.in_s, budget_s=clock.budget_s,
                then=what_then(clock, view.phase, limits, polite=polite),
            )
            for clock in view.clocks
        ),
        position=view.position,
        behind=active.id if active is not None and view.state == "queued" else None,
        outcome=view.outcome,
    )  # fmt: skip


def _of_log(known: Diagnosis, run: Run) -> Diagnosis:
    """What every node can know."""
    return msgspec.structs.replace(
        known,
        running_s=round(max(0.0, time.time() - run.started_at), 3),
        attempt=run.attempt,
        last=run.last,
        tools=tuple(run.tools.values()),
        approvals=tuple(run.open),
    )


def _of_running(known: Diagnosis, actor: SessionActor, run: Run) -> Diagnosis:
    """What only the server that runs it knows."""
    loop, live, state = asyncio.get_running_loop(), actor.machine.live, actor.machine.state
    mono, clocks = loop.time(), actor.machine.live.clocks
    silent_s = stalling_in_s = None
    if clocks is not None and clocks.phase in SILENCE:
        silent_s = round(mono - clocks.since, 3)
        half = clocks.silence()[1] / 2
        if half and not clocks.stalled:
            stalling_in_s = round(half - silent_s, 3)
    return msgspec.structs.replace(
        known,
        last=live.last_of(run),
        silent_s=silent_s,
        heartbeat_s=None if live.beat_at is None else round(mono - live.beat_at, 3),
        stalling_in_s=stalling_in_s,
        process=state.process.name if state.process is not None else None,
        sample=live.sample,
    )


async def _of_processes(known: Diagnosis, probe: Probe, redact: Redactor) -> Diagnosis:
    assert known.process is not None, "it was looked at before"
    try:
        async with asyncio.timeout(PROBE_S):
            tree = await probe(known.process)
    except TimeoutError:
        return known
    if tree is None:
        return msgspec.structs.replace(known, processes=())
    processes = tuple(
        ProcessSeen(
            pid=one.pid, parent=one.parent, command=redact(one.command), state=one.state,
            cpu_s=one.cpu_s, age_s=one.age_s, waiting_in=one.waiting_in,
        )
        for one in tree.processes
    )  # fmt: skip
    return msgspec.structs.replace(known, processes=processes, sockets=tuple(tree.sockets))


# What comes next -----------------------------------------------------------------------------


def what_then(clock: NextClock, phase: str, limits: Limits, *, polite: bool | None) -> str:
    """What happens when that clock runs out. Whether the agent is asked first is not always known
    (none)."""
    match clock.clock:
        case Clock.QUEUE:
            return "the run ends as timed_out/queue (TK-108) without having started"
        case Clock.APPROVAL:
            return "the question is answered with no, and the run goes on"
        case Clock.DRAIN:
            return f"the run ends as decided; {_ladder(limits)}"
        case Clock.TERM:
            return "what is left of its processes is killed"
        case Clock.KILL:
            return "what is left of its processes is killed once more"
        case _ if phase == Phase.QUEUED:
            return f"the run ends as timed_out/{clock.clock} without having started"
    code = ending_code("timed_out", clock.clock)
    told = f"the run ends as timed_out/{clock.clock} ({code.code if code else ''})"
    if polite is None:
        return told
    if polite and limits.drain_s and clock.clock != Clock.WRITE:
        at_last = f"after {_s(limits.drain_s)} at the latest {_ladder(limits)}"
        return f"{told}: the agent is asked to stop; {at_last}"
    return f"{told}: {_ladder(limits)}"


def _ladder(limits: Limits) -> str:
    if not limits.term_s:
        return "its processes are killed"
    return f"its processes get SIGTERM, and {_s(limits.term_s)} later SIGKILL"


def _s(seconds: float) -> str:
    return f"{seconds:.3f}".rstrip("0").rstrip(".") + " s"


# What it may mean ----------------------------------------------------------------------------


def _with_hints(known: Diagnosis) -> Diagnosis:
    found = [*hints(known), *([ELSEWHERE] if known.elsewhere else [])]
    return msgspec.structs.replace(known, hints=tuple(found))


def hints(known: Diagnosis) -> list[str]:
    """What a person might do about it, each from a fact."""
    if known.state == "ended":
        return _hints_ended(known)
    if known.state == "queued":
        goes_first = f"{known.position} go first" if known.position else "it is next"
        behind = f"; {known.behind} runs now (turnkeeper doctor {known.behind})"
        return [goes_first + (behind if known.behind else "")]
    found = [
        f"it waits for a person: turnkeeper approve {approval}, or turnkeeper deny {approval}"
        for approval in known.approvals
    ]
    found += _hints_processes(known)
    if known.heartbeat_s is not None and (known.silent_s or 0) > known.heartbeat_s + 1:
        found.append("it says that it lives, which is no progress and moves no clock")
    if known.phase == Phase.TOOL and known.sample is not None:
        busy = "at work, so its clock is wound anew" if known.sample.busy else "not working"
        found.append(f"what the tool started is {busy}")
    if known.phase == Phase.DRAINING:
        found.append("its end is decided; it has been asked to stop")
    return found


def _hints_ended(known: Diagnosis) -> list[str]:
    found = [known.outcome.detail] if known.outcome is not None and known.outcome.detail else []
    if known.phase != Phase.CLOSED:
        found.append("what it left behind is being ended; the session's next run waits for that")
    return found


def _hints_processes(known: Diagnosis) -> list[str]:
    found: list[str] = []
    for one in known.processes or ():
        if one.state == "stopped":
            found.append(f"process {one.pid} is stopped: kill -CONT {one.pid} lets it go on")
        elif one.state.startswith("in the kernel"):
            told = f"process {one.pid} waits in the kernel ({one.waiting_in or 'unknown'})"
            found.append(f"{told}: a disk or a network file system does not answer")
    if known.processes == ():
        found.append("no process of it lives; its ending is about to be told")
    for socket in known.sockets:
        state, _, where = socket.partition(" ")
        if state == "connecting":
            found.append(f"it cannot reach {where}: the connection is not answered")
        elif state == "established" and known.phase in (Phase.WAITING, Phase.WORKING):
            found.append(f"it has a connection to {where}, where its model or a proxy may be")
    return found


# For a terminal ------------------------------------------------------------------------------


def lines(known: Diagnosis) -> list[str]:
    """The diagnosis as a person reads it."""
    told = [f"run {known.run} of {known.agent} in session {known.session}: {_where(known)}"]
    if known.outcome is not None:
        told.append(f"  ended: {known.outcome.kind.value}/{known.outcome.reason}")
    if known.state == "running":
        told.append(f"  {explain.look(_seen(known))}")
    if known.stalling_in_s is not None:
        told.append(f"  in {_s(max(0.0, known.stalling_in_s))}: a warning (run.stalling)")
    told += [
        f"  in {_s(max(0.0, one.in_s))}: {one.clock} ({_s(one.budget_s)}) runs out; {one.then}"
        for one in known.clocks
    ]
    told += _process_lines(known)
    told += [f"  {hint}" for hint in known.hints]
    return told


def _where(known: Diagnosis) -> str:
    running = f" for {_s(known.running_s)}" if known.running_s is not None else ""
    attempt = f", attempt {known.attempt}" if known.attempt > 1 else ""
    phase = f", {known.phase}" if known.phase not in (known.state, Phase.CLOSED) else ""
    return f"{known.state}{running}{phase}{attempt}"


def _seen(known: Diagnosis) -> Seen:
    return Seen(
        phase=known.phase, silent_s=known.silent_s or 0.0, heartbeat_s=known.heartbeat_s,
        last=known.last, tools=known.tools,
        sample=known.sample if known.processes is None else None,
    )  # fmt: skip


def _process_lines(known: Diagnosis) -> list[str]:
    depth: dict[int, int] = {}
    told: list[str] = []
    for one in known.processes or ():
        depth[one.pid] = depth.get(one.parent, -1) + 1
        waits = f", in {one.waiting_in}" if one.waiting_in else ""
        cpu = f"{one.cpu_s:.1f} s CPU in {one.age_s:.0f} s"
        indent = "  " * (depth[one.pid] + 1)
        told.append(f"{indent}{one.pid} {one.state}{waits}, {cpu}: {one.command}")
    return told + [f"  socket {socket}" for socket in known.sockets]
