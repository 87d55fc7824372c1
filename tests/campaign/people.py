"""Those who ask: they send, send again, stop, answer, and note every answer when it comes.

Decide what is asked when, and that nothing is given up which has a key. They must not know what is
right. Invariant: a request that got no answer is repeated only where that is harmless.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Coroutine
from typing import Any

from tests.campaign.plain import Address, Answer, NoAnswer, ask, command
from tests.campaign.plan import Plan
from tests.campaign.records import Asked, Message, Record
from tests.campaign.scene import Hint, Scene

BUSY_AT = 6
"""A session in which so much waits is sent nothing more."""
BACK_S = 0.05
PAUSE_S = 0.15
ACCEPTED = (200, 202)
NOT_NOW = (429, 503)


class People:
    """All who ask something of the server. `over`: nothing new is begun."""

    def __init__(self, address: Address, record: Record, scene: Scene, hint: Hint) -> None:
        self._address = address
        self._record = record
        self._scene = scene
        self._hint = hint
        self._later: set[asyncio.Task[None]] = set()
        self.over = False

    async def wait_done(self, within_s: float) -> None:
        """Until everybody who was begun has an answer."""
        until = time.monotonic() + within_s
        while self._later and (left_s := until - time.monotonic()) > 0:
            await asyncio.wait(self._later, timeout=left_s)
        if self._later:
            self._record.faults.append(f"{len(self._later)} who asked were never done")
            for task in self._later:
                task.cancel()

    def begin(self, doing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(doing)
        self._later.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._later.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._record.faults.append(f"a client fell: {task.exception()!r}")

    # Sending ---------------------------------------------------------------------------------

    async def send_on(self, plan: Plan, sessions: list[str], chance: random.Random) -> None:
        while not self.over:
            free = [x for x in sessions if self._scene.waiting[x] < BUSY_AT]
            if free:
                message = plan.message(chance.choice(free))
                self._record.messages[message.token] = message
                copies = 3 if message.key and chance.random() < 0.15 else 1
                over_socket = chance.random() < 0.3
                sent = [self.insist(message, over_socket=over_socket) for _ in range(copies)]
                await asyncio.gather(*sent)
                self.begin(self._follow_up(message, chance))
            await asyncio.sleep(chance.uniform(0.0, PAUSE_S))

    async def insist(self, message: Message, *, over_socket: bool = False) -> None:
        """Until it is acknowledged; without a key, once."""
        while True:
            self._hint("sending")
            try:
                answer = await self._send(message, over_socket)
            except NoAnswer:
                if message.key is None:
                    return
                await asyncio.sleep(BACK_S)
                continue
            self._hint("sent")
            if answer.status in ACCEPTED:
                self._record.ack(message, answer.body)
                return
            if answer.status not in NOT_NOW:
                self._record.faults.append(f"{message} was answered {answer}")
                return
            if message.key is None:
                return
            await asyncio.sleep(BACK_S)

    async def _send(self, message: Message, over_socket: bool) -> Answer:
        session, key = message.session, message.key
        if not over_socket:
            path = f"/v1/sessions/{session}/messages"
            return await ask(self._address, "POST", path, message.body, key)
        asked = {"type": "send", "id": message.token, "session": session, "message": message.body}
        return await command(self._address, {**asked, "key": key} if key else asked)

    async def _follow_up(self, message: Message, chance: random.Random) -> None:
        """What else is done about a message: it is sent again, with another body, or stopped."""
        again, other, stop = (chance.random() < p for p in (0.2, 0.05, 0.14))
        wait_s, times = chance.uniform(0.0, 4.0), chance.choice((1, 1, 2))
        if message.key is None or not (again or other or stop):
            return
        run = next(x.answer["run_id"] for x in self._record.acks if x.token == message.token)
        await asyncio.sleep(wait_s if again else wait_s / 4)
        if stop:
            await asyncio.gather(*(self._stop(run) for _ in range(times)))
        if again:
            await self.insist(message, over_socket=wait_s < 1.0)
        if other:
            await self._send_another(message)

    async def _send_another(self, message: Message) -> None:
        """The same key with another body, after the first was acknowledged."""
        other = message._replace(text=message.text + "; count 1 1")
        while True:
            try:
                answer = await self._send(other, over_socket=False)
            except NoAnswer:
                await asyncio.sleep(BACK_S)
                continue
            if answer.status not in NOT_NOW:
                said = Asked("conflict", message.token, "", answer.status, answer.body)
                self._record.asked.append(said)
                return

    # Stopping --------------------------------------------------------------------------------

    async def stop_on(self, sessions: list[str], chance: random.Random) -> None:
        """Every now and then, whatever runs just now."""
        while not self.over:
            await asyncio.sleep(chance.uniform(0.5, 3.0))
            run = self._scene.running.get(chance.choice(sessions))
            if run is not None and not self.over:
                self.begin(self._stop(run))

    async def _stop(self, run: str) -> None:
        self._record.asked.append(Asked("stop", run, "asked", 0))
        over_socket = run[-1] in "0123"
        while True:
            self._hint("stopping")
            try:
                if over_socket:
                    asked = {"type": "stop", "id": run, "run": run, "by": "a tester"}
                    answer = await command(self._address, asked)
                else:
                    answer = await ask(self._address, "POST", f"/v1/runs/{run}/stop", {"by": "t"})
            except NoAnswer:
                await asyncio.sleep(BACK_S)
                continue
            self._record.asked.append(Asked("stop", run, "answered", answer.status, answer.body))
            if answer.status not in NOT_NOW:
                return

    # Answering -------------------------------------------------------------------------------

    async def answer_on(self, chance: random.Random) -> None:
        """Every question that is seen: once, twice at the same time, or never."""
        while True:
            question = await self._scene.questions.get()
            many = chance.choices((0, 1, 2, 3), (6, 64, 22, 8))[0]
            for _ in range(many):
                wait_s, allow = chance.uniform(0.0, 0.3), chance.random() < 0.7
                self.begin(self._answer(question, allow, wait_s))

    async def _answer(self, question: str, allow: bool, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        said = "allow" if allow else "deny"
        while True:
            self._hint("answering")
            try:
                if wait_s < 0.1:
                    asked = {"type": "answer", "id": question, "approval": question}
                    answer = await command(self._address, {**asked, "decision": said})
                else:
                    path = f"/v1/approvals/{question}"
                    answer = await ask(self._address, "POST", path, {"decision": said})
            except NoAnswer:
                self._record.asked.append(Asked("answer", question, said, 0))
                await asyncio.sleep(BACK_S)
                continue
            self._record.asked.append(Asked("answer", question, said, answer.status, answer.body))
            if answer.status not in NOT_NOW:
                return
