"""One turn at a terminal or in a pipe: `turnkeeper run`.

Decides who answers an agent's questions and what Ctrl-C means. It must not know how a run ends: it
asks for a stop, and tells what the outcome was. Invariant: the exit code is the outcome's; a first
Ctrl-C, a SIGTERM or a lost standard output stops this run, and a second Ctrl-C quits at once.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from turnkeeper import Outcome, TurnkeeperError
from turnkeeper.cli.clean import one_line
from turnkeeper.cli.hearing import Hearing
from turnkeeper.cli.params import UNKNOWN, Where
from turnkeeper.cli.reach import keeper_for
from turnkeeper.cli.report import ERASE, Report
from turnkeeper.cli.sides import Keeper, Message, Turn, View, may_go_on
from turnkeeper.cli.streams import Keyboard, Stream
from turnkeeper.core.errors import STORE_DOWN
from turnkeeper.core.events import ApprovalRequested, ApprovalSettled
from turnkeeper.core.outcome import words_of

if TYPE_CHECKING:
    from turnkeeper.client import AnyEvent

SPIN_EVERY_S = 0.125
LOOK_EVERY_S = 0.5
"""So often the run is asked how it is; between two looks only the spinner and the time go on."""

QUIET_S = 1.0
"""For this long nothing has to be shown before the status is."""

PATIENCE_S = 2.0
"""How long the last words of a stopped run may take to be read."""

STOP_SIGNALS = {
    signal.SIGINT: "Ctrl-C",
    signal.SIGTERM: "SIGTERM",
    signal.SIGHUP: "SIGHUP",
}


@dataclass(frozen=True)
class TurnOptions:
    """What was asked for on the command line."""

    text: str
    agent: str | None
    session: str | None
    priority: str
    limits: Mapping[str, float]
    as_json: bool = False
    yes: bool = False


def play_turn(options: TurnOptions, where: Where) -> int:
    """The turn, from its message to its end; the exit code. Raises what refuses the message."""
    return asyncio.run(_Turn(options, where).wait_played())


class _Turn:
    def __init__(self, options: TurnOptions, where: Where) -> None:
        self._options = options
        self._where = where
        self._report = Report(Stream(sys.stdout), Stream(sys.stderr), as_json=options.as_json)
        self._keyboard = Keyboard(sys.stdin)
        self._run: Turn | None = None
        self._code: int | None = None
        self._interrupts = 0
        self._stopping = False
        self._shown_at = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._questions: dict[str, asyncio.Task[None]] = {}

    async def wait_played(self) -> int:
        loop = asyncio.get_running_loop()
        heeded = [n for n in STOP_SIGNALS if signal.getsignal(n) is not signal.SIG_IGN]
        for number in heeded:
            loop.add_signal_handler(number, self._asked_to_stop, STOP_SIGNALS[number])
        try:
            return await self._wait_outcome()
        finally:
            for number in heeded:
                loop.remove_signal_handler(number)
            self._report.out.close()
            self._report.err.close()

    async def _wait_outcome(self) -> int:
        options = self._options
        message = Message(
            options.text, options.session, options.agent, options.priority, limits=options.limits,
            sender="turnkeeper run",
        )  # fmt: skip
        async with keeper_for(self._where, message) as running:
            if running.told and not options.as_json:
                await self._report.say(running.told)
            keeper = running.keeper
            run = await keeper.begin(running.message)
            try:
                outcome = await self._accompany(keeper, run)
            except TurnkeeperError as lost:
                told = f"{lost} How run {run.id} ends is not known here"
                await self._report.say(told, plain=True)
                return UNKNOWN
            await self._report.ended(outcome)
            self._code = self._exit_code(outcome)
        return self._code

    async def _accompany(self, keeper: Keeper, run: Turn) -> Outcome:
        ticking = self._spawn(self._tick())
        try:
            with Hearing(lambda told: self._spawn(self._report.say(told))):
                return await self._follow(keeper, run)
        finally:
            for task in (ticking, *self._questions.values()):
                task.cancel()
            await asyncio.wait([ticking, *self._tasks])

    async def _follow(self, tk: Keeper, run: Turn) -> Outcome:
        """The run; and the one after it, if its message was given back to the queue."""
        while True:
            self._run = run
            async for event in run:
                await self._heard(tk, event)
            outcome = await run.wait()
            if self._stopping or not may_go_on(outcome):
                return outcome
            again = await run.successor()
            if again is None:
                return outcome
            run = again

    async def _heard(self, tk: Keeper, event: AnyEvent) -> None:
        self._shown_at = asyncio.get_running_loop().time()
        await self._report.show(event)
        fault = self._report.out.fault
        if fault is not None and not self._stopping:
            self._lost_stdout(fault)
        match event.data:
            case ApprovalRequested():
                self._questions[event.data.approval] = self._spawn(self._ask(tk, event.data))
            case ApprovalSettled(approval=approval) if approval in self._questions:
                self._questions.pop(approval).cancel()
            case _:
                pass

    def _exit_code(self, outcome: Outcome) -> int:
        code = words_of(outcome).exit_code
        fault = self._report.out.fault
        lost = fault is not None and fault.errno != errno.EPIPE
        return 1 if lost and code == 0 else code

    # Questions -------------------------------------------------------------------------------

    async def _ask(self, tk: Keeper, asked: ApprovalRequested) -> None:
        what = f"{one_line(asked.tool)} {one_line(asked.input)}"
        if self._options.yes:
            await self._report.say(f"allowed by --yes: {what}")
            allow, note = True, ""
        elif self._keyboard.is_there and self._report.err.is_terminal:
            await self._report.say(f"the agent asks permission for {what}")
            allow, note = await self._wait_decision(), ""
        else:
            told = "there is no terminal to ask on; --yes allows what an agent asks for"
            await self._report.say(f"denied: {what} ({told})")
            allow, note = False, "nobody is there to ask"
        try:
            await tk.answer(asked.approval, allow=allow, by="turnkeeper run", note=note)
        except TurnkeeperError as late:
            await self._report.say(str(late))

    async def _wait_decision(self) -> bool:
        line = await self._keyboard.wait_line(lambda: self._report.ask("  Allow it? [y/N] "))
        await self._report.was_answered(line)
        if not line:
            await self._report.say("denied: the input ended without an answer")
        return line.strip().lower() in ("y", "yes")

    # Stopping --------------------------------------------------------------------------------

    def _asked_to_stop(self, by: str) -> None:
        self._interrupts += 1
        if self._interrupts > 1 or self._run is None or self._code is not None:
            self._quit()
        self._stop(self._run, by, "Ctrl-C again quits at once")

    def _lost_stdout(self, fault: OSError) -> None:
        assert self._run is not None, "something of a run was to be shown"
        told = os.strerror(fault.errno) if fault.errno else str(fault)
        self._stop(self._run, "a lost standard output", f"standard output: {told}")

    def _stop(self, run: Turn, by: str, told: str) -> None:
        """That it is stopping is said before what it leads to; but a terminal that takes nothing
        does not keep it from being stopped."""
        self._stopping = True
        self._spawn(self._report.say(f"stopping run {run.id} ({told})", plain=True))
        self._spawn(self._wait_stopped(run, by))

    async def _wait_stopped(self, run: Turn, by: str) -> None:
        """Once it is stopped, a reader that does not read is not waited for; nor is a store that
        cannot be written, for its agents are ended then."""
        loop = asyncio.get_running_loop()
        try:
            await run.stop(by)
            code = self._exit_code(await run.wait())
            loop.call_later(PATIENCE_S, os._exit, code)
        except TurnkeeperError as refused:
            if refused.entry is STORE_DOWN:
                loop.call_later(PATIENCE_S, os._exit, UNKNOWN)
            await self._report.say(str(refused), plain=True)

    def _quit(self) -> NoReturn:
        """At once: nothing is waited for, not even a terminal that takes no more."""
        erase = ERASE if self._report.draws else ""
        if self._run is not None and self._code is None:
            told = f"quit; the end of run {self._run.id} was not waited for"
        else:
            told = "quit"
        self._report.err.write_if_possible(f"{erase}\nturnkeeper: {told}\n")
        os._exit(128 + signal.SIGINT if self._code is None else self._code)

    # Beside it -------------------------------------------------------------------------------

    async def _tick(self) -> None:
        """While nothing is to be shown, show that and how the run is going on."""
        loop = asyncio.get_running_loop()
        began, looked_at = loop.time(), 0.0
        view: View | None = None
        while self._report.draws:
            await asyncio.sleep(SPIN_EVERY_S)
            now = loop.time()
            if now - self._shown_at < QUIET_S or self._questions or self._run is None:
                continue
            if view is None or view.id != self._run.id or now - looked_at >= LOOK_EVERY_S:
                with suppress(TurnkeeperError):
                    view, looked_at = await self._run.look(), now
            if (
                view is not None
                and view.outcome is None
                and loop.time() - self._shown_at >= QUIET_S
            ):
                await self._report.status(view, loop.time() - began, loop.time() - looked_at)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
