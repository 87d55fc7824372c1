"""What A2A clients can do with tasks, whichever binding they use: send, look, list, cancel.

Decides which session and run a message leads to, and what an answer to a question is worth. It must
not know JSON-RPC or HTTP. Invariants: the same message is taken once; a question is settled only by
an answer that can mean no other one.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Mapping
from contextlib import ExitStack

import msgspec

from turnkeeper.core.commands import Accepted, Create
from turnkeeper.core.errors import (
    KEY_CONFLICT,
    SESSION_EXISTS,
    SETTLED,
    UNKNOWN_RUN,
    UNKNOWN_SESSION,
    TurnkeeperError,
)
from turnkeeper.core.records import ApprovalQuery, ApprovalRecord, RunRecord
from turnkeeper.gateway.a2a_follow import Following
from turnkeeper.gateway.gate import Gate
from turnkeeper.ports import Agent
from turnkeeper.projections import a2a_errors as x
from turnkeeper.projections.a2a_asked import Decision, Sent, read_decision
from turnkeeper.projections.a2a_task import ASKING, BY, WORKING, Task
from turnkeeper.runtime.finding import before_run

SENDER = "a2a"
CANCEL_S = 15.0
"""So long a cancel waits for the run to end; then the task is told as it is."""
SETTLED_S = 5.0

_CONTEXT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_PLAIN = re.compile(r"[!-~]{1,200}")


def agent_for(agents: Mapping[str, Agent], named: str, in_path: str) -> str:
    """The agent that is meant: the path's, the named one, or none in particular."""
    if in_path and named and named != in_path:
        told = f"the agent {named!r} is not at this address, which is for {in_path!r}"
        raise x.Wrong(x.PARAMS, told, field="tenant")
    name = in_path or named
    if name and name not in agents:
        raise x.Wrong(x.PARAMS, f"there is no agent {name!r}", field="tenant")
    return name


async def find(gate: Gate, task: str, agent: str = "") -> RunRecord:
    """The run that a task is. At an agent's own address there are no others' tasks."""
    try:
        record = await gate.dispatcher.run(task)
    except TurnkeeperError as refused:
        if refused.entry is not UNKNOWN_RUN:
            raise
        raise x.Wrong(x.NOT_FOUND, f"the task {task} was not found", taskId=task) from None
    if agent and record.agent != agent:
        raise x.Wrong(x.NOT_FOUND, f"the task {task} was not found at {agent}", taskId=task)
    return record


async def follow(gate: Gate, record: RunRecord) -> Following:
    """That task as it is now, and what becomes of it. Close it when done."""
    after = await before_run(gate.dispatcher, record)
    following = await Following.open(gate, record.id, record.session, after)
    following.task.agent, following.task.successor = record.agent, record.successor
    with ExitStack() as stack:
        stack.callback(following.close)
        await following.catch_up()
        stack.pop_all()
    return following


async def load(gate: Gate, record: RunRecord) -> Task:
    following = await follow(gate, record)
    following.close()
    return following.task


# Sending -------------------------------------------------------------------------------------


async def send(gate: Gate, sent: Sent, agent: str) -> Following:
    """The task that the message leads to, as it was when the message was taken."""
    if sent.task:
        return await _go_on(gate, sent, agent)
    gate.check_work()
    session = await _session(gate, sent, agent)
    accepted = await _say(gate, session, sent, "queue")
    agent = (await gate.dispatcher.session(session)).agent
    following = await Following.open(gate, accepted.run, session, accepted.seq - 1)
    following.task.agent = agent
    with ExitStack() as stack:
        stack.callback(following.close)
        await following.catch_up(accepted.seq)
        stack.pop_all()
    return following


async def _say(gate: Gate, session: str, sent: Sent, when_busy: str) -> Accepted:
    return await gate.dispatcher.send(
        session, sent.text, priority="agent", when_busy=when_busy, key=key_of(sent.id),
        sender=SENDER,
    )  # fmt: skip


def key_of(message: str) -> str:
    """What makes a message the same one: its id, or a digest of one that is long or strange."""
    if _PLAIN.fullmatch(message):
        return BY + message
    return BY + hashlib.sha256(message.encode()).hexdigest()


async def _session(gate: Gate, sent: Sent, agent: str) -> str:
    """The session of the message: its context's; or one of its own, named after what is sent, so
    that the same message sent again is in the same one."""
    name = sent.context
    wanted = agent or next(iter(gate.agents))
    if not name:
        whole = msgspec.json.encode((wanted, sent.id, sent.text))
        name = "s_" + hashlib.sha256(whole).hexdigest()[:24]
    elif not _CONTEXT.fullmatch(name):
        told = "give 1 to 128 letters, digits and . _ : -, a letter or digit first; or none"
        raise x.Wrong(x.PARAMS, f"contextId is not allowed: {told}", field="message.contextId")
    try:
        known = await gate.dispatcher.session(name)
    except TurnkeeperError as refused:
        if refused.entry is not UNKNOWN_SESSION:
            raise
        return await _create(gate, name, wanted)
    if agent and known.agent != agent:
        told = f"context {name} is one of the agent {known.agent}, not {agent}"
        raise x.Wrong(x.PARAMS, told, field="message.contextId")
    return name


async def _create(gate: Gate, name: str, agent: str) -> str:
    try:
        return await gate.dispatcher.create(Create(agent=agent), name)
    except TurnkeeperError as refused:
        if refused.entry is not SESSION_EXISTS:
            raise
        return name


# Going on with a task ------------------------------------------------------------------------


async def _go_on(gate: Gate, sent: Sent, agent: str) -> Following:
    """A further message in a task: an answer, if it asks; else steering, if it can be steered."""
    record = await find(gate, sent.task, agent)
    if sent.context and sent.context != record.session:
        told = f"task {record.id} is in the context {record.session}, not {sent.context}"
        raise x.Wrong(x.PARAMS, told, field="message.contextId")
    following = await follow(gate, record)
    with ExitStack() as stack:
        stack.callback(following.close)
        await _take(gate, following, sent)
        stack.pop_all()
    return following


async def _take(gate: Gate, following: Following, sent: Sent) -> None:
    task = following.task
    key = key_of(sent.id)
    if _was_taken(task, sent, key.removeprefix(BY)):
        return
    state = task.status.state
    if state == ASKING:
        await _answer(gate, following, sent, by=key)
    elif state == WORKING and gate.agents[task.agent].abilities.steer:
        gate.check_work()
        accepted = await _say(gate, task.context, sent, "steer")
        if accepted.run != task.id:
            await gate.dispatcher.stop(accepted.run, SENDER)
            raise _too_late(task)
    else:
        raise _too_late(task)


def _was_taken(task: Task, sent: Sent, id: str) -> bool:
    """Whether this message is in the task already. Another one under its id is a mistake; what an
    answer said is only known by what it settled."""
    for said in task.history:
        if said.role == "user" and said.id == id:
            if said.text != sent.text and not said.settles:
                told = f"messageId {sent.id[:80]!r} is that of another message in task {task.id}"
                raise x.Wrong(x.PARAMS, told, field="message.messageId", code=KEY_CONFLICT.code)
            return True
    return False


def _too_late(task: Task) -> x.Wrong:
    told = (
        f"task {task.id} is {task.status.state} and takes no message now; send it without taskId"
        f" (in the context {task.context}) for a new task"
    )
    return x.Wrong(x.UNSUPPORTED, told, taskId=task.id)


async def _answer(gate: Gate, following: Following, sent: Sent, by: str) -> None:
    """An answer that is not clear changes nothing: the task still asks."""
    task = following.task
    decision = read_decision(sent)
    if decision is None:
        return
    name = await _meant(gate, task.id, decision)
    if name is None:
        return
    note = decision.note
    try:
        await gate.dispatcher.answer(name, allow=decision.allow, by=by, note=note)
    except TurnkeeperError as refused:
        if refused.entry is not SETTLED:
            raise
        told = f"the question {name} was settled before; nothing was done"
        raise x.Wrong(x.UNSUPPORTED, told, taskId=task.id, code=refused.entry.code) from None
    async with asyncio.timeout(SETTLED_S):
        while task.is_asking(name):
            if not await following.next():
                break


async def _meant(gate: Gate, run: str, decision: Decision) -> str | None:
    """The question that is answered. Plain words are for the only one that is open, and only if
    every one before it was answered here too: else they may be a late answer to another."""
    page = await gate.dispatcher.approvals(ApprovalQuery(run=run, limit=500))
    if decision.approval:
        if decision.approval not in {one.id for one in page.items}:
            told = f"task {run} has no question {decision.approval}"
            raise x.Wrong(x.PARAMS, told, field="message.parts", taskId=run)
        return decision.approval
    is_open = [one for one in page.items if one.state == "open"]
    return is_open[0].id if len(is_open) == 1 and _is_plain(page.items) else None


def _is_plain(asked: list[ApprovalRecord]) -> bool:
    return all(one.state == "open" or one.by.startswith(BY) for one in asked)


# Cancelling ----------------------------------------------------------------------------------


async def cancel(gate: Gate, task: str, agent: str) -> Task:
    record = await find(gate, task, agent)
    told = await gate.dispatcher.stop(task, SENDER)
    if told.state == "ended" and not told.changed:
        outcome = (await gate.dispatcher.run(task)).outcome
        how = f" ({outcome.kind.value})" if outcome is not None else ""
        raise x.Wrong(x.NOT_CANCELABLE, f"task {task} has ended{how}", taskId=task)
    await gate.dispatcher.wait(task, CANCEL_S)
    return await load(gate, record)
