"""What one run is doing, which clock is next, and what its processes are at."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import msgspec
import pytest

from tests.helpers.shell import FakeAgent, Rig, let_pass, settle
from tests.observe.rig import real
from tests.process.custody.harness import in_loop, wait_true
from turnkeeper.core import commands as c
from turnkeeper.core import events as e
from turnkeeper.core import signals as s
from turnkeeper.core.diagnosis import Diagnosis
from turnkeeper.core.errors import UNKNOWN_RUN, TurnkeeperError
from turnkeeper.core.limits import Limits
from turnkeeper.core.outcome import Sample
from turnkeeper.custody import probe
from turnkeeper.observe.diagnosis import TreeLike, diagnose, lines
from turnkeeper.testing.virtual import run


def rig_with(agent: FakeAgent | None = None, **limits: float) -> Rig:
    return Rig(agent or FakeAgent(answers=False), c.Policy(limits=Limits(**limits)))


def clocks(known: Diagnosis) -> list[tuple[str, float]]:
    return [(one.clock, one.in_s) for one in known.clocks]


# Clocks -------------------------------------------------------------------------------------------


def test_a_silent_run_is_told_with_its_next_clock_and_what_happens_then() -> None:
    async def main() -> None:
        rig = rig_with(idle_s=900, ceiling_s=3600, drain_s=5, term_s=7)
        sent = await rig.dispatcher.send(await rig.session(), "hello")
        await settle()
        rig.agent.link.say(s.Text("half an"))
        await let_pass(60)
        rig.agent.link.say(s.Heartbeat())
        await let_pass(40)
        known = await diagnose(rig.dispatcher, sent.run)
        assert (known.state, known.phase, known.last) == ("running", "working", "output.text")
        assert (known.silent_s, known.heartbeat_s, known.stalling_in_s) == (100, 40, 350)
        assert clocks(known) == [("idle", 800), ("ceiling", 3500)]
        assert known.clocks[0].then == (
            "the run ends as timed_out/idle (TK-103): the agent is asked to stop; after 5 s at the"
            " latest its processes get SIGTERM, and 7 s later SIGKILL"
        )
        assert "it says that it lives, which is no progress and moves no clock" in known.hints
        text = "\n".join(lines(known))
        assert "in 350 s: a warning (run.stalling)" in text
        assert "in 800 s: idle (900 s) runs out; the run ends as timed_out/idle" in text
        await let_pass(400)
        assert (await diagnose(rig.dispatcher, sent.run)).stalling_in_s is None

    run(main())


def test_an_agent_that_cannot_be_asked_is_told_to_be_ended() -> None:
    async def main() -> None:
        rig = rig_with(first_output_s=10, term_s=0)
        rig.agent.abilities = c.Abilities()
        sent = await rig.dispatcher.send(await rig.session(), "hello")
        await settle()
        known = await diagnose(rig.dispatcher, sent.run)
        assert known.clocks[0].then.endswith("(TK-102): its processes are killed")

    run(main())


def test_a_run_that_waits_for_a_person_says_how_to_answer() -> None:
    async def main() -> None:
        rig = rig_with(approval_s=60)
        sent = await rig.dispatcher.send(await rig.session(), "hello")
        await settle()
        rig.agent.link.say(s.Asked("q", "bash"))
        await settle()
        known = await diagnose(rig.dispatcher, sent.run)
        assert (known.phase, known.approvals, known.silent_s) == ("approval", ("a_1.1",), None)
        assert known.clocks[0].then == "the question is answered with no, and the run goes on"
        assert "turnkeeper approve a_1.1" in known.hints[0]

    run(main())


def test_a_queued_run_says_what_it_waits_for() -> None:
    async def main() -> None:
        rig = rig_with()
        session = await rig.session()
        running = await rig.dispatcher.send(session, "first")
        waiting = await rig.dispatcher.send(session, "second", limits={"queue_s": 30})
        await settle()
        known = await diagnose(rig.dispatcher, waiting.run)
        assert (known.state, known.position, known.behind) == ("queued", 1, running.run)
        assert known.clocks[0].then.endswith("without having started")
        assert known.hints == ("1 go first; r_1 runs now (turnkeeper doctor r_1)",)
        assert lines(known)[0].endswith("queued")

    run(main())


def test_a_tool_at_work_is_told_from_one_that_is_not() -> None:
    async def main() -> None:
        rig = rig_with(tool_s=60)
        sent = await rig.dispatcher.send(await rig.session(), "hello")
        await settle()
        rig.agent.link.say(s.ToolStarted("t1", "bash"))
        for busy, told in ((True, "at work"), (False, "not working")):
            rig.agent.link.say(s.Sampled(Sample(busy=busy, state="sleeping")))
            await settle()
            known = await diagnose(rig.dispatcher, sent.run)
            assert known.tools == ("bash",)
            assert f"what the tool started is {told}" in " ".join(known.hints)
            assert "state sleeping" in "\n".join(lines(known))

    run(main())


def test_a_run_that_is_being_stopped_and_cleaned_up_says_so() -> None:
    async def main() -> None:
        agent = FakeAgent(answers=False)
        agent.polite = agent.mortal = False
        rig = rig_with(agent, drain_s=5, term_s=5)
        sent = await rig.dispatcher.send(await rig.session(), "hello")
        await settle()
        await rig.dispatcher.stop(sent.run)
        known = await diagnose(rig.dispatcher, sent.run)
        assert (known.phase, clocks(known)) == ("draining", [("drain", 5)])
        assert known.clocks[0].then.startswith("the run ends as decided; ")
        await let_pass(6)
        known = await diagnose(rig.dispatcher, sent.run)
        assert (known.state, known.phase, clocks(known)) == ("ended", "terminating", [("term", 4)])
        assert "is being ended" in known.hints[-1]
        await let_pass(5)
        known = await diagnose(rig.dispatcher, sent.run)
        assert known.clocks[0].then == "what is left of its processes is killed once more"

    run(main())


def test_an_ended_run_is_told_by_its_outcome_and_an_unknown_one_refused() -> None:
    async def main() -> None:
        rig = Rig(FakeAgent())
        sent = await rig.dispatcher.send(await rig.session(), "hello")
        await rig.dispatcher.wait(sent.run)
        known = await diagnose(rig.dispatcher, sent.run)
        assert known.outcome is not None
        assert (known.state, known.clocks, known.processes) == ("ended", (), None)
        assert "  ended: completed/end_turn" in lines(known)
        with pytest.raises(TurnkeeperError) as refused:
            await diagnose(rig.dispatcher, "r_none")
        assert refused.value.entry is UNKNOWN_RUN

    run(main())


def test_a_probe_that_never_answers_costs_a_moment_and_no_diagnosis() -> None:
    async def main() -> None:
        async def stuck(process: str) -> TreeLike | None:
            await asyncio.Event().wait()
            return None

        rig = rig_with()
        sent = await rig.dispatcher.send(await rig.session(), "hello")
        await settle()
        known = await diagnose(rig.dispatcher, sent.run, stuck)
        assert (known.phase, known.processes) == ("waiting", None)

    run(main())


def test_secrets_on_a_command_line_are_not_shown_and_hard_cases_are_explained() -> None:
    async def main() -> None:
        async def found(process: str) -> probe.Tree | None:
            one = probe.One(
                pid=7, parent=1, command="agent --token Zk3Zk3Zk3Zk3", cpu_s=1.0, age_s=2.0,
                state="in the kernel (uninterruptible)", waiting_in="nfs_wait",
            )  # fmt: skip
            return probe.Tree((one,), ("connecting 192.0.2.1:443", "established 192.0.2.2:443"))

        rig = rig_with(FakeAgent(answers=False, outlives_server=True))
        sent = await rig.dispatcher.send(await rig.session(), "hello")
        await settle()
        known = await diagnose(rig.dispatcher, sent.run, found)
        text = "\n".join(lines(known))
        assert "Zk3" not in text
        assert "process 7 waits in the kernel (nfs_wait)" in text
        assert "it cannot reach 192.0.2.1:443" in text
        assert "it has a connection to 192.0.2.2:443" in text
        assert msgspec.json.decode(msgspec.json.encode(known), type=Diagnosis) == known

    run(main())


# Real processes -----------------------------------------------------------------------------------


@in_loop
async def test_the_tree_of_a_real_agent_is_shown_with_what_left_its_session(
    tmp_path: Path,
) -> None:
    async with real(tmp_path, Limits(idle_s=300)) as at:
        sent = await at.send("hang")
        await at.wait_for(sent, e.OutputText)
        known = await diagnose(at.dispatcher, sent, at.probe)
        assert known.processes is not None
        agent, child = known.processes
        assert "agent_lines.py" in agent.command
        assert child.parent == agent.pid
        assert {agent.state, child.state} <= {"sleeping", "running"}
        assert known.phase == "working"
        text = lines(known)
        assert any(line.startswith(f"  {agent.pid} {agent.state}") for line in text)
        assert any(line.startswith(f"    {child.pid} {child.state}") for line in text)


@in_loop
async def test_an_agent_that_is_stopped_is_told_and_how_it_goes_on(tmp_path: Path) -> None:
    async with real(tmp_path, Limits(idle_s=300, drain_s=0.2, term_s=0.2)) as at:
        sent = await at.send("freeze")
        await at.wait_for(sent, e.OutputText)

        process = f"{sent}.1"

        def stopped() -> bool:
            tree = probe.look(tmp_path / "custody", process)
            return tree is not None and tree.processes[0].state == "stopped"

        await wait_true(stopped)
        known = await diagnose(at.dispatcher, sent, at.probe)
        assert known.processes is not None
        (agent,) = known.processes
        assert f"kill -{signal.Signals.SIGCONT.name[3:]} {agent.pid}" in known.hints[0]


@in_loop
async def test_what_is_over_has_no_tree(tmp_path: Path) -> None:
    async with real(tmp_path, Limits()) as at:
        sent = await at.send("die")
        await at.dispatcher.wait(sent)
        assert await at.probe(f"{sent}.1") is None
        assert await at.probe("r_none.1") is None


@in_loop
async def test_custody_is_tried_out_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert await probe.trouble_here() is None
    await wait_true(lambda: list(tmp_path.iterdir()) == [])


@in_loop
async def test_custody_that_cannot_start_anything_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "TRIAL", "echo no such luck >&2; exit 3")
    told = await probe.trouble_here()
    assert told is not None
    assert "no such luck" in told
