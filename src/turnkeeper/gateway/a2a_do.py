"""The operations of A2A, for both bindings: from the parameters to the result.

Decides what each operation needs and answers. It must not know how a request is wrapped. Invariant:
what changes something needs the scope `operate`, and is refused before anything is done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.metadata import version as version_of
from typing import Any

import msgspec

from turnkeeper.gateway import a2a_tasks as tasks
from turnkeeper.gateway.a2a_follow import Following, Telling, wait_for
from turnkeeper.gateway.a2a_list import list_tasks
from turnkeeper.gateway.a2a_pushes import Pushes
from turnkeeper.gateway.asked import header
from turnkeeper.gateway.table import Call
from turnkeeper.projections import a2a_asked as asked
from turnkeeper.projections import a2a_errors as x
from turnkeeper.projections.a2a_card import Facts, card
from turnkeeper.projections.a2a_shapes import Json, Version, push_of, task_of, whole


@dataclass(frozen=True)
class Asked:
    """One operation that is asked for; `agent` is the one that the address is for, if any."""

    call: Call
    params: Json
    version: Version
    agent: str = ""

    def agent_named(self, name: str) -> str:
        return tasks.agent_for(self.call.gate.agents, name, self.agent)

    def pushes(self) -> Pushes:
        pushes = self.call.gate.pushes
        if pushes is None:
            raise x.Wrong(x.NO_PUSH, "this server does not send push notifications")
        return pushes


@dataclass(frozen=True)
class Streamed:
    """The result is a stream; `pauses`: it ends when the client is asked something."""

    following: Following
    pauses: bool


Result = Any
"""What is answered, as JSON; or `Streamed`."""

Does = Callable[[Asked], Awaitable[Result]]


# Messages and tasks --------------------------------------------------------------------------


async def send(a: Asked) -> Result:
    following, sent = await _sent(a)
    try:
        if sent.waits:
            await wait_for(a.call, following, lambda task: task.status.is_settled)
        return whole(task_of(following.task, a.version, sent.history), a.version)
    finally:
        following.close()


async def stream(a: Asked) -> Result:
    following, _ = await _sent(a)
    return Streamed(following, pauses=True)


async def _sent(a: Asked) -> tuple[Following, asked.Sent]:
    a.call.access.check("operate")
    sent = asked.read_sent(a.params, a.version)
    agent = a.agent_named(sent.agent)
    push = None if sent.push is None else a.pushes().checked(sent.push)
    with a.call.gate.request():
        following = await tasks.send(a.call.gate, sent, agent)
        if push is not None:
            await a.pushes().put(push, following.task.id)
    return following, sent


async def get(a: Asked) -> Result:
    named = asked.read_named(a.params)
    record = await tasks.find(a.call.gate, named.task, a.agent_named(named.agent))
    return task_of(await tasks.load(a.call.gate, record), a.version, named.history)


async def list_all(a: Asked) -> Result:
    wanted = asked.read_wanted(a.params)
    return await list_tasks(a.call.gate, wanted, a.agent_named(wanted.agent), a.version)


async def cancel(a: Asked) -> Result:
    a.call.access.check("operate")
    named = asked.read_named(a.params)
    task = await tasks.cancel(a.call.gate, named.task, a.agent_named(named.agent))
    return task_of(task, a.version)


async def subscribe(a: Asked) -> Result:
    named = asked.read_named(a.params)
    record = await tasks.find(a.call.gate, named.task, a.agent_named(named.agent))
    following = await tasks.follow(a.call.gate, record)
    if following.task.status.is_terminal:
        following.close()
        told = f"task {record.id} has ended ({following.task.status.state}); get it instead"
        raise x.Wrong(x.UNSUPPORTED, told, taskId=record.id)
    return Streamed(following, pauses=False)


# Push notifications --------------------------------------------------------------------------


async def push_set(a: Asked) -> Result:
    pushes = a.pushes()
    a.call.access.check("operate")
    config = pushes.checked(asked.read_push(a.params, a.version))
    record = await tasks.find(a.call.gate, config.task, a.agent_named(_tenant(a)))
    return push_of(await pushes.put(config, record.id), a.version)


async def push_get(a: Asked) -> Result:
    pushes = a.pushes()
    a.call.access.check("operate")
    task, name = asked.read_push_name(a.params, a.version)
    await tasks.find(a.call.gate, task, a.agent_named(_tenant(a)))
    config = pushes.get(task, name)
    if config is None:
        told = f"task {task} has no push configuration {name}".rstrip()
        raise x.Wrong(x.NOT_FOUND, told, taskId=task)
    return push_of(config, a.version)


async def push_list(a: Asked) -> Result:
    pushes = a.pushes()
    a.call.access.check("operate")
    task, _ = asked.read_push_name(a.params, a.version)
    await tasks.find(a.call.gate, task, a.agent_named(_tenant(a)))
    found = [push_of(config, a.version) for config in pushes.of(task)]
    return found if a.version == "0.3" else {"configs": found}


async def push_delete(a: Asked) -> Result:
    pushes = a.pushes()
    a.call.access.check("operate")
    task, name = asked.read_push_name(a.params, a.version)
    if not name:
        raise x.Wrong(x.PARAMS, "the configuration's id is missing", field="id")
    await tasks.find(a.call.gate, task, a.agent_named(_tenant(a)))
    await pushes.remove(task, name)
    return None if a.version == "0.3" else {}


def _tenant(a: Asked) -> str:
    tenant = a.params.get("tenant")
    return tenant if isinstance(tenant, str) else ""


# The card ------------------------------------------------------------------------------------


async def extended_card(a: Asked) -> Result:
    """It is for who has shown who they are; where nobody has to, the one card tells everything."""
    if not a.call.gate.tokens:
        kind = x.NO_CARD if a.version == "0.3" else x.UNSUPPORTED
        raise x.Wrong(kind, "this server needs no token, and its card tells everything")
    agent = a.agent_named(_tenant(a))
    return card(facts(a.call, agent, told_all=True), for_all=a.version == "0.3")


def facts(call: Call, agent: str, *, told_all: bool) -> Facts:
    """What this server says of itself; of its agents only to who may know them."""
    gate = call.gate
    known = {name: gate.drivers.get(name, "") for name in gate.agents}
    return Facts(
        url=_own_address(call),
        version=version_of("turnkeeper"),
        needs_token=bool(gate.tokens),
        pushes=gate.pushes is not None,
        agent=agent,
        agents=known if told_all or not gate.tokens else {},
        default=next(iter(gate.agents), ""),
    )


def _own_address(call: Call) -> str:
    """As whoever asks has reached it: the door has checked the name."""
    scheme = header(call.headers, b"x-forwarded-proto") or "http"
    return f"{'https' if scheme == 'https' else 'http'}://{header(call.headers, b'host')}"


# Versions and streams ------------------------------------------------------------------------


MEDIA = ("application/json", "application/a2a+json")


def check_media(call: Call) -> None:
    """A body that says it is something else than JSON is not guessed at."""
    given = header(call.headers, b"content-type") or ""
    if given.partition(";")[0].strip().lower() not in MEDIA:
        raise x.Wrong(x.MEDIA, f"the body is {given[:80]!r}; send application/json")


def decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise x.Wrong(x.PARSE, f"the body is not JSON: {fault}") from None


def version_asked(call: Call, in_query: str) -> Version | None:
    """The version that the request names; none if it names none."""
    given = (header(call.headers, b"a2a-version") or in_query).strip()
    if not given:
        return None
    named = ".".join(given.split(".")[:2])
    if named == "1.0":
        return "1.0"
    if named == "0.3":
        return "0.3"
    told = f"A2A-Version is {given[:40]!r}; this server speaks 1.0 and 0.3"
    raise x.Wrong(x.VERSION, told, supported="1.0, 0.3")


async def tell(
    call: Call, streamed: Streamed, version: Version, wrap: Callable[[Json], Json]
) -> None:
    """The stream, until it ends or its reader leaves."""
    telling = Telling(streamed.following, version, wrap, pauses=streamed.pauses)
    try:
        await telling.run(call.receive, call.send)
    finally:
        streamed.following.close()
