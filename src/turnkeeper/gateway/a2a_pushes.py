"""Push notifications: who wants to be told of which task is kept, and told at every change.

Decides when somebody is told, and when that is over. It must not know how a message travels.
Invariants: whoever is to be told of a task is told of its ending, though the server was restarted
in between, or the log says that they could not be; a slow receiver delays nobody else.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

import msgspec

from turnkeeper.core.errors import BUSY, StoreDown, TurnkeeperError
from turnkeeper.gateway.a2a_tasks import find, follow
from turnkeeper.gateway.gate import Gate
from turnkeeper.ports import Courier, Drawer
from turnkeeper.projections import a2a_errors as x
from turnkeeper.projections.a2a_push import PushConfig
from turnkeeper.projections.a2a_shapes import pushed
from turnkeeper.projections.a2a_task import Task

log = logging.getLogger("turnkeeper.a2a")

ACTIVE_MAX = 2000
PER_TASK_MAX = 20
OVER_MAX = 1000
"""So many that are over are still remembered."""
PAUSE_S = 5.0

Key = tuple[str, str]


class Pushes:
    """All push configurations, and those who tell. `start` it once, `close` it once."""

    def __init__(self, gate: Gate, courier: Courier, drawer: Drawer | None = None) -> None:
        self._gate = gate
        self._courier = courier
        self._drawer = drawer
        self._known: dict[Key, PushConfig] = {}
        self._telling: dict[Key, asyncio.Task[None]] = {}
        self._writing = asyncio.Lock()
        self._started = False

    async def start(self) -> None:
        """Take up what another server has left."""
        for config in await self._read():
            self._known[config.task, config.id] = config
            if not config.over:
                self._begin((config.task, config.id))
        self._started = True

    async def _read(self) -> list[PushConfig]:
        if self._drawer is None:
            return []
        try:
            kept = await asyncio.to_thread(self._drawer.read)
            return msgspec.json.decode(kept or b"[]", type=list[PushConfig])
        except (OSError, msgspec.DecodeError):
            log.exception("who is to be told of tasks cannot be read, and is forgotten")
            return []

    async def close(self) -> None:
        """What is not told yet is left for the next server."""
        telling = list(self._telling.values())
        for task in telling:
            task.cancel()
        if telling:
            await asyncio.wait(telling)

    # What clients ask ------------------------------------------------------------------------

    def checked(self, config: PushConfig) -> PushConfig:
        """The same, if its address may be told anything."""
        self._courier.check(config.url)
        return config

    async def put(self, config: PushConfig, task: str) -> PushConfig:
        """It is kept when this returns. One of the same name is replaced."""
        made = msgspec.structs.replace(config, task=task, id=config.id or task)
        key = (task, made.id)
        if key not in self._known and len(self.of(task)) >= PER_TASK_MAX:
            told = f"task {task} has {PER_TASK_MAX} push configurations; delete one"
            raise x.Wrong(x.PARAMS, told, taskId=task)
        if not self._started:
            raise TurnkeeperError(BUSY, "this server is starting")
        if len(self._telling) >= ACTIVE_MAX:
            raise TurnkeeperError(BUSY, f"{len(self._telling)} are being told of tasks")
        await self._stop(key)
        self._known[key] = made
        try:
            await self._keep()
        except OSError as fault:
            del self._known[key]
            raise StoreDown(f"a push configuration could not be kept: {fault}") from None
        self._begin(key)
        return made

    def get(self, task: str, name: str) -> PushConfig | None:
        """That one; without a name, the first of the task."""
        return self._known.get((task, name)) if name else next(iter(self.of(task)), None)

    def of(self, task: str) -> list[PushConfig]:
        return [config for (of, _), config in self._known.items() if of == task]

    async def remove(self, task: str, name: str) -> None:
        """Nothing more is told there. That it was never there is no fault."""
        await self._stop((task, name))
        if self._known.pop((task, name), None) is not None:
            with suppress(OSError):
                await self._keep()

    # Telling ---------------------------------------------------------------------------------

    def _begin(self, key: Key) -> None:
        telling = asyncio.ensure_future(self._tell(key))
        self._telling[key] = telling
        telling.add_done_callback(lambda done: self._done(key, done))

    def _done(self, key: Key, telling: asyncio.Task[None]) -> None:
        if self._telling.get(key) is telling:
            del self._telling[key]
        if not telling.cancelled() and telling.exception() is not None:
            log.error("telling of task %s failed", key[0], exc_info=telling.exception())

    async def _stop(self, key: Key) -> None:
        telling = self._telling.pop(key, None)
        if telling is not None:
            telling.cancel()
            await asyncio.wait([telling])

    async def _tell(self, key: Key) -> None:
        """Until the task's ending is told. A store that is down is waited for."""
        while True:
            try:
                return await self._follow(key)
            except StoreDown:
                await asyncio.sleep(PAUSE_S)
            except x.Wrong:
                return await self._note(key, over=True)  # its session was removed

    async def _follow(self, key: Key) -> None:
        following = await follow(self._gate, await find(self._gate, key[0]))
        task = following.task
        try:
            while True:
                status = task.status
                state = f"{status.state} {status.message.id if status.message else ''}".strip()
                if state != self._known[key].told:
                    await self._deliver(self._known[key], task)
                    await self._note(key, told=state, over=status.is_terminal)
                if status.is_terminal or not await following.next():
                    return
        finally:
            following.close()

    async def _deliver(self, config: PushConfig, task: Task) -> None:
        body = msgspec.json.encode(pushed(task, config.version))
        try:
            await self._courier.deliver(config.url, config.headers, body)
        except TurnkeeperError as why:
            log.warning("task %s is %s, which was not told: %s", task.id, task.status.state, why)

    async def _note(self, key: Key, *, told: str = "", over: bool) -> None:
        """What was told is not told again after a restart; if that cannot be kept, it is."""
        config = self._known[key]
        self._known[key] = msgspec.structs.replace(config, told=told or config.told, over=over)
        with suppress(OSError):
            await self._keep()

    async def _keep(self) -> None:
        done = [key for key, config in self._known.items() if config.over]
        for key in done[: max(0, len(done) - OVER_MAX)]:
            del self._known[key]
        if self._drawer is None:
            return
        async with self._writing:
            content = msgspec.json.encode(list(self._known.values()))
            await asyncio.to_thread(self._drawer.write, content)
