"""The python driver as the runtime sees it: a worker in a keeper's custody."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tests.process.custody.harness import house, in_loop
from tests.process.worker.harness import FUNCTIONS
from turnkeeper import SyncTurn, agent
from turnkeeper.core.commands import Abilities
from turnkeeper.core.effects import Interrupt, Say, SteerIn
from turnkeeper.core.limits import Limits
from turnkeeper.core.signals import (
    Aborted,
    AgentSignal,
    Asked,
    Broken,
    Exited,
    Finished,
    Gone,
    Group,
    Ready,
    Swept,
    Taken,
    Text,
)
from turnkeeper.custody.client import Custodian
from turnkeeper.drivers.python import PythonAgent, PythonOptions
from turnkeeper.ports import Agent, Opening

S = TypeVar("S", bound=AgentSignal)
LIMITS = Limits(term_s=0.3, orphan_s=30.0)


@agent(steer=True)
def own_function(turn: SyncTurn) -> str:
    return f"{turn.text} in {os.getcwd()}"


class Ear:
    """A sink that remembers and can be waited on."""

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self._changed = asyncio.Event()

    def __call__(self, group: Group) -> None:
        self.groups.append(group)
        self._changed.set()

    def of(self, kind: type[S], run: str = "r_1") -> list[S]:
        heard = [signal for group in self.groups if group.run == run for signal in group.signals]
        return [signal for signal in heard if isinstance(signal, kind)]

    def text(self, run: str = "r_1") -> str:
        return "".join(signal.text for signal in self.of(Text, run))

    async def wait(self, kind: type[S], run: str = "r_1") -> S:
        await self.wait_until(lambda: bool(self.of(kind, run)))
        return self.of(kind, run)[0]

    async def wait_until(self, fact: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not fact():
                self._changed.clear()
                await self._changed.wait()


def opening(run: str = "r_1", cwd: str = "", turn_pos: int = 0) -> Opening:
    return Opening("p_1", "s_1", run, None, cwd, LIMITS, turn_pos)


def driver(custodian: Custodian, function: str) -> PythonAgent:
    return PythonAgent(custodian, f"{FUNCTIONS}:{function}")


@in_loop
async def test_one_process_takes_turn_after_turn_and_is_gone_when_killed(tmp_path: Path) -> None:
    async with house(tmp_path / "c") as custodian:
        ear, made = Ear(), driver(custodian, "counts")
        link = made.open(opening(), ear)
        for number in (1, 2):
            run = f"r_{number}"
            if number > 1:
                link.ready_for(run)
            await ear.wait(Ready, run)
            link.write(number, Say(run, f"m_{number}", "this"))
            assert await ear.wait(Finished, run) == Finished()
            assert ear.text(run) == f"this is turn {number}"
            assert await ear.wait(Taken, run) == Taken(number)
        link.kill()
        await ear.wait(Gone, "r_2")


@in_loop
async def test_a_function_object_runs_in_the_sessions_folder(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    async with house(tmp_path / "c") as custodian:
        ear, made = Ear(), PythonAgent(custodian, own_function)
        link = made.open(opening(cwd=str(folder)), ear)
        await ear.wait(Ready)
        link.write(1, Say("r_1", "m_1", "here"))
        await ear.wait(Finished)
        assert ear.text() == f"here in {folder}"


@in_loop
async def test_without_a_sessions_folder_it_is_the_agents_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import os\ndef f(turn): return os.getcwd()\n")
    async with house(tmp_path / "c") as custodian:
        ear = Ear()
        made = PythonAgent(custodian, "mine:f", PythonOptions(cwd=str(tmp_path)))
        link = made.open(opening(), ear)
        await ear.wait(Ready)
        link.write(1, Say("r_1", "m_1", ""))
        await ear.wait(Finished)
        assert ear.text() == str(tmp_path)


@in_loop
async def test_it_declares_what_it_can_do_and_steering_only_where_it_was_said(
    tmp_path: Path,
) -> None:
    async with house(tmp_path / "c") as custodian:
        named: Agent = driver(custodian, "steered")
        assert named.abilities == Abilities(interrupt=True, approvals=True, thinking=True)
        assert PythonAgent(custodian, own_function).abilities.steer
        said = PythonAgent(custodian, "a:f", PythonOptions(steer=True))
        assert said.abilities.steer


@in_loop
async def test_an_interrupted_turn_is_aborted_swept_and_the_process_used_again(
    tmp_path: Path,
) -> None:
    async with house(tmp_path / "c") as custodian:
        ear, made = Ear(), driver(custodian, "sleeps")
        link = made.open(opening(), ear)
        await ear.wait(Ready)
        link.write(1, Say("r_1", "m_1", ""))
        await ear.wait(Text)
        link.write(2, Interrupt("r_1"))
        await ear.wait(Aborted)
        link.sweep()
        await ear.wait(Swept)
        link.ready_for("r_2")
        await ear.wait(Ready, "r_2")
        assert ear.text("r_2") == ""


@in_loop
async def test_a_module_that_cannot_be_imported_is_a_failed_start_with_the_reason(
    tmp_path: Path,
) -> None:
    async with house(tmp_path / "c") as custodian:
        ear = Ear()
        PythonAgent(custodian, "no_such_module:f").open(opening(), ear)
        broken = await ear.wait(Broken)
        assert (broken.reason, broken.retry) == ("spawn_failed", False)
        assert "No module named 'no_such_module'" in broken.detail
        await ear.wait(Gone)


@in_loop
async def test_a_segfault_is_an_exit_with_the_place_in_its_last_words(tmp_path: Path) -> None:
    async with house(tmp_path / "c") as custodian:
        ear, made = Ear(), driver(custodian, "segfaults")
        link = made.open(opening(), ear)
        await ear.wait(Ready)
        link.write(1, Say("r_1", "m_1", ""))
        exited = await ear.wait(Exited)
        assert exited.code == -signal.SIGSEGV
        assert "SIGSEGV" in exited.detail
        assert "in segfaults" in exited.detail
        assert ear.text() == "last words"
        await ear.wait(Gone)


@in_loop
async def test_a_turn_survives_its_server_and_is_heard_once(tmp_path: Path) -> None:
    async with house(tmp_path / "c") as first:
        ear = Ear()
        link = driver(first, "ignores_steering").open(opening(), ear)
        await ear.wait(Ready)
        link.write(1, Say("r_1", "m_1", "first"))
        asked = await ear.wait(Asked)
        pos = max(group.pos for group in ear.groups)
        link.detach()
        async with house(tmp_path / "c") as second:
            again = Ear()
            taken_up = driver(second, "ignores_steering").reattach(opening(), pos, again)
            await again.wait(Ready)
            taken_up.write(2, Interrupt("r_1"))
            await again.wait(Aborted)
            assert again.text() == "", "what was stored is not told again"
            assert again.of(Asked) == []
            assert asked.tool == "wait until steered"


@in_loop
async def test_what_was_taken_before_the_server_was_killed_is_known_to_be_taken_after_it(
    tmp_path: Path,
) -> None:
    async with house(tmp_path / "c") as first:
        ear = Ear()
        link = driver(first, "ignores_steering").open(opening(), ear)
        await ear.wait(Ready)
        link.write(1, Say("r_1", "m_1", "first"))
        await ear.wait(Asked)
        link.write(2, SteerIn("r_1", "m_2", "second"))
        await ear.wait_until(lambda: Taken(2) in ear.of(Taken))
        pos = max(group.pos for group in ear.groups)
        link.detach()
        async with house(tmp_path / "c") as second:
            again = Ear()
            taken_up = driver(second, "ignores_steering").reattach(opening(), pos, again)
            taken_up.write(1, Say("r_1", "m_1", "first"))
            taken_up.write(2, SteerIn("r_1", "m_2", "second"))
            await again.wait_until(lambda: {1, 2} <= {one.frame for one in again.of(Taken)})
            taken_up.write(3, Interrupt("r_1"))
            await again.wait(Aborted)
