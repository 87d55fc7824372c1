"""The way to other nodes, on PostgreSQL: a command is a row, and so is its answer.

Decides who takes a command and when it is given up. It must not know what is asked. Invariant: a
command is taken by one node, that which has its session, and before it is done: it is done once, or
nobody knows, and then that is said unless it can be asked again.
"""

from __future__ import annotations

import asyncio
import contextlib

import asyncpg
import msgspec

from turnkeeper.core import carried
from turnkeeper.core.commands import Command, Reply
from turnkeeper.core.errors import SHUTTING_DOWN, StoreDown, TurnkeeperError
from turnkeeper.ports import Desk, Elsewhere
from turnkeeper.store.postgres_bell import Bell, Ring
from turnkeeper.store.postgres_faults import Address, Seat
from turnkeeper.store.postgres_line import Lines
from turnkeeper.store.postgres_text import kept, told

POLL_S, WAITING_POLL_S = 1.0, 0.2
"""So often one looks without having heard anything; with somebody waiting, more often."""

ASK_S = 60.0
AT_ONCE = 64
NOT_HERE = ""

_ASK = "INSERT INTO commands (session, command, firm) VALUES ($1, $2, $3) RETURNING n"
_TAKE = """
UPDATE commands SET taken_by = $1 WHERE n IN (
    SELECT c.n FROM commands c JOIN logs l ON l.id = c.session
    WHERE l.owner = $1 AND c.taken_by IS NULL AND c.firm = $3 AND EXISTS (
        SELECT FROM nodes WHERE nodes.id = $1 AND incarnation = $4 AND until > clock_timestamp()
    )
    ORDER BY c.n LIMIT $2 FOR UPDATE OF c SKIP LOCKED
) RETURNING n, session, command
"""
_WITHDRAW = "DELETE FROM commands WHERE n = $1 AND taken_by IS NULL"
_REPLY = "UPDATE commands SET reply = $2 WHERE n = $1"
_ANSWERED = "DELETE FROM commands WHERE n = ANY($1) AND reply IS NOT NULL RETURNING n, reply"
_GIVEN_UP = """
DELETE FROM commands c WHERE n = ANY($1) AND reply IS NULL AND NOT EXISTS (
    SELECT FROM nodes WHERE until > clock_timestamp() AND nodes.id = coalesce(
        c.taken_by, (SELECT owner FROM logs l WHERE l.id = c.session AND l.owner <> $2)
    )
) RETURNING n, taken_by IS NOT NULL
"""
_FORGET = "DELETE FROM commands WHERE asked_at < clock_timestamp() - interval '10 minutes'"
_LIVING = "SELECT count(*) FROM nodes WHERE until > clock_timestamp()"
_HEADS = "SELECT id, head FROM logs WHERE id = ANY($1)"


class PostgresOthers:
    """`Others`. `serve` has to run for anything to be answered."""

    def __init__(self, address: Address, seat: Seat) -> None:
        self._seat = seat
        self._node = node = seat.node or ""
        self._lines = Lines(address, 3, loose=True)
        self._firm = Lines(address, 1)
        """For what has to be known for ever: a command that was taken is not taken again, unless it
        may be."""
        self._bell = Bell(address, node, self._heard)
        self._waiting: dict[int, asyncio.Future[str | None]] = {}
        self._look = asyncio.Event()
        self._heads: dict[str, int] = {}
        """Of the sessions that are watched here, when it was last looked."""
        self._given_up_at = self._polled_at = 0.0
        """When to look next for what nobody rings for."""
        self._desk: Desk | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def grown(self, session: str, head: int) -> None:
        """That log has grown here, to there."""
        self._bell.grown(session, head)

    async def ask(self, session: str, command: Command) -> Reply | None:
        again = carried.is_repeatable(command)
        given = (kept(session), kept(carried.pack(command)), not again)
        rows = await self._lines.fetch(_ASK, *given, once=True)
        number: int = rows[0][0]
        future: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self._bell.ring(commands=True)
        self._look.set()
        try:
            async with asyncio.timeout(ASK_S):
                reply = await future
        except TimeoutError:
            await self._lines.fetch(_WITHDRAW, number)
            told_ = f"the node that has session {session} has not answered for {ASK_S:g} s"
            raise StoreDown(told_) from None
        finally:
            del self._waiting[number]
        if reply == NOT_HERE:
            return None
        if reply is not None:
            return carried.unpack_reply(told(reply))
        if again:
            return None
        raise StoreDown(f"the node that had session {session} is gone before it answered")

    async def serve(self, desk: Desk) -> None:
        self._desk = desk
        ringing = asyncio.ensure_future(self._bell.run())
        try:
            while True:
                pause_s = WAITING_POLL_S if self._waiting else POLL_S
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._look.wait()
                self._look.clear()
                with contextlib.suppress(StoreDown, asyncpg.PostgresError):
                    await self._look_around(desk)
        finally:
            tasks = [ringing, *self._tasks]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await self._lines.close()
            await self._firm.close()

    # Looking ---------------------------------------------------------------------------------

    def _heard(self, ring: Ring) -> None:
        if ring.commands or (ring.replies and self._waiting):
            self._look.set()
        if self._desk is not None:
            for session, head in ring.heads.items():
                self._desk.announce(session, head)

    async def _look_around(self, desk: Desk) -> None:
        await asyncio.gather(self._take(desk), self._collect())
        now = asyncio.get_running_loop().time()
        if self._waiting and now >= self._given_up_at:
            self._given_up_at = now + WAITING_POLL_S
            await self._give_up()
        if now >= self._polled_at:
            self._polled_at = now + POLL_S
            await self._poll(desk)

    async def _take(self, desk: Desk) -> None:
        now = self._seat.incarnation
        taken = await asyncio.gather(
            self._lines.fetch(_TAKE, self._node, AT_ONCE, False, now),
            self._firm.fetch(_TAKE, self._node, AT_ONCE, True, now),
        )
        for row in (*taken[0], *taken[1]):
            task = asyncio.ensure_future(self._answer(desk, *row))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _collect(self) -> None:
        if self._waiting:
            for number, reply in await self._lines.fetch(_ANSWERED, list(self._waiting)):
                self._settle(number, reply)

    async def _give_up(self) -> None:
        """What the node that had it will not answer any more."""
        numbers = list(self._waiting)
        for number, was_taken in await self._lines.fetch(_GIVEN_UP, numbers, self._node):
            self._settle(number, None if was_taken else NOT_HERE)

    async def _poll(self, desk: Desk) -> None:
        """What nobody rang for."""
        self._bell.is_alone = (await self._lines.fetch(_LIVING))[0][0] < 2
        watched = [kept(session) for session in desk.watched()]
        found = await self._lines.fetch(_HEADS, watched) if watched else []
        before, self._heads = self._heads, dict(found)
        for session, head in found:
            if before.get(session) != head:
                desk.announce(told(session), head)
        await self._lines.fetch(_FORGET)

    def _settle(self, number: int, reply: str | None) -> None:
        future = self._waiting.get(number)
        if future is not None and not future.done():
            future.set_result(reply)

    # Answering -------------------------------------------------------------------------------

    async def _answer(self, desk: Desk, number: int, session: str, command: str) -> None:
        reply = kept(await self._reply(desk, told(session), told(command)))
        with contextlib.suppress(StoreDown, asyncpg.PostgresError):
            await self._lines.fetch(_REPLY, number, reply)
            self._bell.ring(replies=True)

    async def _reply(self, desk: Desk, session: str, command: str) -> str:
        try:
            return carried.pack(await desk.reply(session, carried.unpack_command(command)))
        except Elsewhere:
            return NOT_HERE
        except TurnkeeperError as refused:
            # A node that goes takes nothing more: whoever has the session next is asked.
            is_going = refused.entry is SHUTTING_DOWN
            return NOT_HERE if is_going else carried.pack_refusal(refused)
        except (msgspec.MsgspecError, KeyError) as wrong:
            told_ = f"the nodes are of different versions: {wrong!r}"
            return carried.pack_refusal(StoreDown(told_))
