"""What can be done over the network, whichever way it was asked: create, send, stop, answer, wait.

Decides how a request of the API becomes a command, and the checks that belong to its shape. It must
not know HTTP or WebSocket. Invariant: nothing is answered before it is stored.
"""

from __future__ import annotations

import hashlib
import re

import msgspec
from msgspec import UNSET

from turnkeeper import api
from turnkeeper.core.commands import Create, EditRun
from turnkeeper.core.errors import (
    KEY_CONFLICT,
    SESSION_EXISTS,
    InvalidValue,
    TurnkeeperError,
)
from turnkeeper.core.events import SessionCreated
from turnkeeper.core.limits import check_patch
from turnkeeper.core.records import SessionRecord
from turnkeeper.core.rules import Rules, check_rules
from turnkeeper.gateway.gate import Gate
from turnkeeper.runtime.children import Children, Wanted

_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


async def create_session(gate: Gate, asked: api.NewSession, key: str | None) -> api.SessionOut:
    """A new session; the one that this key made, if it has made one."""
    name = asked.id
    if name is not None and not _SESSION.fullmatch(name):
        told = "give 1 to 128 letters, digits and . _ : -, a letter or digit first; or none"
        raise InvalidValue("id", name, told)
    if "\0" in asked.cwd:
        raise InvalidValue("cwd", asked.cwd, "a folder's name has no NUL")
    if name is None and key is not None:
        name = "s_" + hashlib.sha256(key.encode()).hexdigest()[:24]
    limits = check_patch(asked.limits)
    command = Create(
        agent=asked.agent, title=asked.title, cwd=asked.cwd, limits=limits, labels=asked.labels,
        rules=check_rules(msgspec.to_builtins(asked.approvals)),
    )  # fmt: skip
    try:
        name = await gate.dispatcher.create(command, name)
    except TurnkeeperError as refused:
        if refused.entry is not SESSION_EXISTS or name is None or key is None:
            raise
        record = await gate.dispatcher.session(name)
        if not _is_of(record, command) or await _rules(gate, name) != command.rules:
            told = f"key {key!r} made session {name}, which is not what is asked now"
            raise TurnkeeperError(KEY_CONFLICT, told, field="Idempotency-Key") from None
        return api.session_out(record)
    return api.session_out(await gate.dispatcher.session(name))


def _is_of(record: SessionRecord, command: Create) -> bool:
    return (record.agent, record.title, record.cwd, record.limits, record.labels) == (
        command.agent, command.title, command.cwd, command.limits, command.labels,
    )  # fmt: skip


async def _rules(gate: Gate, session: str) -> Rules:
    """Those it was made with."""
    watcher = await gate.dispatcher.watch(session)
    try:
        first = (await watcher.next())[0].data
    finally:
        watcher.close()
    return first.rules if isinstance(first, SessionCreated) else Rules()


async def send(gate: Gate, session: str, asked: api.NewMessage, key: str | None) -> api.AcceptedOut:
    """The message is durable when this returns."""
    accepted = await gate.dispatcher.send(
        session,
        _text(asked),
        priority=asked.priority,
        when_busy=asked.when_busy,
        limits=_limits(asked),
        key=key,
        sender=asked.sender,
    )
    return api.AcceptedOut(
        message_id=accepted.message,
        run_id=accepted.run,
        seq=accepted.seq,
        position=accepted.position,
        duplicate=accepted.duplicate,
    )


async def start_child(
    gate: Gate, parent: str, asked: api.NewChild, key: str | None
) -> api.ChildOut:
    """A run that `parent` starts; it is durable when this returns."""
    if "\0" in asked.cwd:
        raise InvalidValue("cwd", asked.cwd, "a folder's name has no NUL")
    wanted = Wanted(
        text=_text(asked), session=asked.session, agent=asked.agent, title=asked.title,
        cwd=asked.cwd,
        options={"priority": asked.priority, "when_busy": asked.when_busy,
                 "limits": _limits(asked), "key": key, "sender": asked.sender},
    )  # fmt: skip
    started = await Children(gate.dispatcher).start(parent, wanted)
    accepted = started.accepted
    return api.ChildOut(
        message_id=accepted.message, run_id=accepted.run, seq=accepted.seq,
        position=accepted.position, duplicate=accepted.duplicate,
        session=started.session, parent=parent,
    )  # fmt: skip


async def edit(gate: Gate, run: str, asked: api.EditRun) -> api.RunOut:
    """Other words for a run that waits, another place in its class, or both."""
    words = asked.text is not None or asked.content is not None
    if not words and asked.before is UNSET:
        raise InvalidValue("text", None, "give text or content, before, or both")
    command = EditRun(
        run=run, text=_text(asked) if words else None, before=asked.before, by=asked.by
    )
    await gate.dispatcher.edit(command)
    return await look(gate, run)


async def steer(gate: Gate, run: str, by: str) -> api.HandedOut:
    """The words of a run that waits are for the turn that is running there now."""
    return api.handed_out(await gate.dispatcher.hand_over(run, by))


def _text(asked: api.NewMessage | api.EditRun) -> str:
    if asked.content is None:
        if asked.text is None:
            raise InvalidValue("text", None, "give text, or content")
        return asked.text
    if asked.text is not None:
        raise InvalidValue("content", asked.content, "give text or content, not both")
    return "\n\n".join(part.text for part in asked.content)


def _limits(asked: api.NewMessage) -> dict[str, float]:
    limits = check_patch(asked.limits)
    if asked.deadline_s is None:
        return limits
    if limits.setdefault("deadline_s", asked.deadline_s) != asked.deadline_s:
        told = f"limits.deadline_s is {limits['deadline_s']:g}; give one of them"
        raise InvalidValue("deadline_s", asked.deadline_s, told)
    try:
        return check_patch(limits)
    except InvalidValue as refused:
        allowed = refused.what.rpartition("not allowed: ")[2]
        raise InvalidValue("deadline_s", asked.deadline_s, allowed) from None


async def stop(gate: Gate, run: str, by: str) -> api.StopOut:
    told = await gate.dispatcher.stop(run, by)
    return api.StopOut(run=told.run, state=told.state, changed=told.changed)


async def answer_approval(gate: Gate, approval: str, asked: api.Decision) -> api.ApprovalOut:
    """The first answer wins; a later one is refused."""
    allow = asked.decision == "allow"
    if asked.rule is not None and not asked.always:
        raise InvalidValue("rule", asked.rule, "a rule is kept with always = true")
    remember = asked.rule or "" if asked.always else None
    await gate.dispatcher.answer(
        approval, allow=allow, by=asked.by, note=asked.note, remember=remember
    )
    return api.approval_out(await gate.dispatcher.approval(approval))


async def look(gate: Gate, run: str) -> api.RunOut:
    """A run: what is alive of it, and what is recorded."""
    view = await gate.dispatcher.look(run)
    record = await gate.dispatcher.run(run)
    ended_meanwhile = record.outcome is not None and view.outcome is None
    return api.run_out(record, None if ended_meanwhile else view)
