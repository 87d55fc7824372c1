"""The log is the state: at every prefix, through its encoding, and after a restart."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.drive import ABLE, SESSION, UNABLE, Drive, policy
from turnkeeper.core import commands as c
from turnkeeper.core import effects as f
from turnkeeper.core import events as e
from turnkeeper.core import signals as s
from turnkeeper.core.errors import TurnkeeperError
from turnkeeper.core.fold import fold
from turnkeeper.core.limits import Phase
from turnkeeper.core.outcome import Kind, Sample
from turnkeeper.core.session import Machine
from turnkeeper.core.snapshot import freeze, thaw
from turnkeeper.core.table import CELLS

# One move of the world: what happens, by name, and a number that picks among what there is.
Move = tuple[str, int]

SIGNALS: tuple[s.AgentSignal, ...] = (
    s.Ready("c_1"), s.Text("a"), s.Thinking("b"), s.ToolStarted("t_1", "bash"),
    s.ToolStarted("t_2", "grep"), s.ToolProgress("t_1", "x"), s.ToolEnded("t_1"),
    s.ToolEnded("t_2", False), s.Asked("q_1", "bash"), s.Asked("q_2", "rm"), s.Withdrawn("q_1"),
    s.Heartbeat(), s.ContextLost("c_0"), s.Conversation("c_1"),
    s.Finished(), s.Finished("max_tokens", "z"),
    s.Failed("no"), s.Aborted(), s.Sampled(Sample(busy=True)), s.Exited(1), s.Swept(), s.Gone(),
    s.Broken("spawn_failed", "no", True), s.Broken("output_limit", "too much"),
)  # fmt: skip

SENDS: tuple[dict[str, Any], ...] = (
    {}, {"priority": "agent"}, {"priority": "background"}, {"priority": "background"},
    {"when_busy": "steer"}, {"when_busy": "interrupt"}, {"key": "k", "fingerprint": "one"},
    {"key": "k", "fingerprint": "two"}, {"limits": {"queue_s": 8.0, "deadline_s": 16.0}},
    {"limits": {"drain_s": 0.0}}, {"limits": {"term_s": 0.0}}, {"limits": {"idle_s": -1.0}},
    {"parent": e.Parent("s_0", "r_0", 1, 1_700_000_050.0)}, {"text": ""},
)  # fmt: skip


class World:
    """A session, people who ask anything of it, and an agent that answers loosely."""

    def __init__(self, *, able: bool) -> None:
        abilities = ABLE if able else UNABLE
        limits = {"startup_s": 8.0, "idle_s": 16.0, "approval_s": 8.0, "ceiling_s": 128.0}
        self.drive = Drive(policy(abilities, limits=limits, queue_max=6), check=False)
        self.heard = 0
        self.pos = 0
        self.moves: dict[str, Callable[[int], object]] = {
            "send": self.send, "stop": self.stop, "answer": self.answer, "obey": self.obey,
            "say": self.say, "pass": self.let_pass, "adopt": self.adopt, "report": self.report,
            "lose": self.lose, "restart": self.restart, "crowd": self.crowd, "work": self.work,
            "rest": self.rest, "edit": self.edit, "move": self.reorder, "hand over": self.hand_over,
        }  # fmt: skip

    def move(self, move: Move) -> None:
        name, pick = move
        with contextlib.suppress(TurnkeeperError):  # a refusal is an answer
            self.moves[name](pick)

    def runs(self) -> list[str]:
        return sorted({event.run for event in self.drive.log if event.run})

    def send(self, pick: int) -> None:
        options = SENDS[pick % len(SENDS)]
        self.drive.send(**{"text": f"say {pick}", **options})

    def stop(self, pick: int) -> None:
        runs = [*self.runs(), "r_unknown"]
        self.drive.stop(runs[pick % len(runs)], reason=("stopped", "parent_ended")[pick % 2])

    def answer(self, pick: int) -> None:
        names = [*self.drive.state.approvals, "a_unknown.1"]
        rule = (None, None, "", "bash", "rm(*)")[pick % 5]
        self.drive.answer(names[pick % len(names)], allow=bool(pick % 2), remember=rule)

    def edit(self, pick: int) -> None:
        runs = self.runs() or ["r_unknown"]
        text = ("say something else", "say 1", " ")[pick % 3]
        self.drive.ask(c.EditRun(run=runs[pick % len(runs)], text=text))

    def reorder(self, pick: int) -> None:
        runs = [message.run for message in self.drive.state.queued()] or ["r_unknown"]
        before = [*runs, None][(pick // 7) % (len(runs) + 1)]
        self.drive.ask(c.EditRun(run=runs[pick % len(runs)], before=before))

    def hand_over(self, pick: int) -> None:
        runs = self.runs() or ["r_unknown"]
        self.drive.ask(c.HandOver(run=runs[pick % len(runs)]))

    def obey(self, pick: int) -> None:
        """The agent does the first thing that was asked of it and that it has not done yet."""
        waiting = self.drive.effects[self.heard :]
        self.heard += 1 if waiting else 0
        for effect in waiting[:1]:
            match effect:
                case f.Open() | f.Reattach():
                    self._hear(effect.process, effect.run, s.Ready("c_1"))
                case f.Write():
                    self._hear(effect.process, effect.intent.run, s.Taken(effect.frame))
                case f.Sweep():
                    self._hear(effect.process, "", s.Swept())
                case f.Terminate() | f.Kill():
                    self._hear(effect.process, "", s.Gone())
                case _:
                    pass

    def work(self, pick: int) -> None:
        """It does all that was asked of it."""
        while self.heard < len(self.drive.effects):
            self.obey(pick)

    def say(self, pick: int) -> None:
        """Anything, from the process in use or from one that is over."""
        state = self.drive.state
        process = state.process.name if state.process is not None else "gone"
        run = state.active.id if state.active is not None else "r_1"
        if pick % 11 == 10:
            process, run = "another", "r_1"
        self._hear(process, run, SIGNALS[pick % len(SIGNALS)])

    def _hear(self, process: str, run: str, *signals: s.AgentSignal) -> None:
        self.pos += 10
        self.drive.step([s.Group(process, run, signals, self.pos)])

    def let_pass(self, pick: int) -> None:
        self.drive.tick((0.0, 0.5, 1.0, 4.0, 8.0, 16.0, 64.0)[pick % 7])

    def adopt(self, pick: int) -> None:
        run = self.drive.state.active
        parent = run.id if run is not None else "r_1"
        self.drive.ask(c.Adopt(parent=parent, child=f"r_child{len(self.drive.log)}", session="s_2"))

    def report(self, pick: int) -> None:
        names = [*self.drive.state.children, "r_unknown"]
        child = names[pick % len(names)]
        self.drive.ask(c.ReportChild(child=child, outcome=Kind.COMPLETED, reason="end_turn"))

    def lose(self, pick: int) -> None:
        self.drive.ask(c.Lose(reason="node_lost"))

    def rest(self, pick: int) -> None:
        self.drive.ask(c.Rest())

    def restart(self, pick: int) -> None:
        self.drive.restart(float(pick % 3))

    def crowd(self, pick: int) -> None:
        """Much at once: words of the agent, a send, a stop and a look at the clocks."""
        state, drive = self.drive.state, self.drive
        groups = []
        if state.active is not None and state.process is not None:
            words = (SIGNALS[pick % len(SIGNALS)], SIGNALS[(pick // 7) % len(SIGNALS)])
            groups = [s.Group(state.process.name, state.active.id, words, self.pos)]
        runs = [*self.runs(), "r_unknown"]
        commands: list[c.Command] = [
            c.StopRun(run=runs[pick % len(runs)]),
            drive.message(**SENDS[pick % 3]),
            c.Check(),
        ]
        drive.step(groups, commands[pick % 3 :])


NAMES = (
    "send", "send", "stop", "answer", "obey", "work", "work", "say", "say", "say", "pass",
    "adopt", "report", "lose", "restart", "crowd", "rest", "edit", "move", "move", "hand over",
)  # fmt: skip
moves = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 1000)), max_size=50)


def played(script: list[Move], *, able: bool) -> World:
    world = World(able=able)
    for move in script:
        world.move(move)
    return world


@settings(max_examples=400)
@given(moves, st.booleans())
def test_the_live_state_is_the_fold_of_the_log_after_every_step(
    script: list[Move], able: bool
) -> None:
    world = World(able=able)
    for move in script:
        world.move(move)
        assert fold(world.drive.log) == world.drive.state


@settings(max_examples=300)
@given(moves, st.booleans(), st.data())
def test_a_prefix_and_then_the_rest_is_the_same_as_all_at_once(
    script: list[Move], able: bool, data: st.DataObject
) -> None:
    log = played(script, able=able).drive.log
    cut = data.draw(st.integers(1, len(log)))
    assert fold(log[cut:], fold(log[:cut])) == fold(log)


@settings(max_examples=300)
@given(moves, st.booleans())
def test_every_prefix_folds_and_knows_how_far_it_goes(script: list[Move], able: bool) -> None:
    log = played(script, able=able).drive.log
    session = fold(log[:1])
    for event in log[1:]:
        before = copy.deepcopy(session)
        fold([event], session)
        assert fold([event], before) == session
        assert session.seq == event.seq


@settings(max_examples=300)
@given(moves, st.booleans())
def test_what_is_written_and_read_again_folds_to_the_same(script: list[Move], able: bool) -> None:
    drive = played(script, able=able).drive
    read = [e.decode(e.encode(event)) for event in drive.log]
    assert read == drive.log
    assert fold(read) == drive.state


@settings(max_examples=300)
@given(moves, st.booleans(), st.data())
def test_a_snapshot_and_then_the_rest_is_the_same_as_the_whole_log(
    script: list[Move], able: bool, data: st.DataObject
) -> None:
    log = played(script, able=able).drive.log
    cut = data.draw(st.integers(1, len(log)))
    thawed = thaw(freeze(fold(log[:cut])))
    assert thawed == fold(log[:cut])
    assert fold(log[cut:], thawed) == fold(log)


@settings(max_examples=300)
@given(moves, st.booleans())
def test_the_log_has_no_gap_and_speaks_of_one_session(script: list[Move], able: bool) -> None:
    log = played(script, able=able).drive.log
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    assert {event.session for event in log} == {SESSION}


@settings(max_examples=300)
@given(moves, st.booleans())
def test_every_accepted_message_leads_to_one_ending_of_each_of_its_runs(
    script: list[Move], able: bool
) -> None:
    drive = played(script, able=able).drive
    drive.finish_all()
    assert_all_ended_once(drive)


@settings(max_examples=300)
@given(moves, st.booleans(), st.data())
def test_a_restart_after_any_step_goes_on_to_one_ending_of_every_run(
    script: list[Move], able: bool, data: st.DataObject
) -> None:
    drive = played(script, able=able).drive
    boundary = data.draw(st.sampled_from(drive.boundaries))
    del drive.log[boundary:]
    drive.restart(1.0)
    drive.finish_all()
    assert_all_ended_once(drive)


@settings(max_examples=100)
@given(moves)
def test_a_restart_is_possible_after_every_single_step(script: list[Move]) -> None:
    drive = played(script, able=True).drive
    for boundary in drive.boundaries:
        state = fold(drive.log[:boundary])
        step = Machine(state, drive.policy).resume(drive.now)
        assert fold([*drive.log[:boundary], *step.events]) == state


def test_these_worlds_reach_nearly_every_cell_of_the_table() -> None:
    """The tests above would be worth little if their worlds stood still."""
    chance = random.Random(2)
    reached: set[tuple[Phase, type[s.Signal]]] = set()
    for number in range(400):
        script = [(chance.choice(NAMES), chance.randrange(1001)) for _ in range(50)]
        reached.update(played(script, able=bool(number % 4)).drive.traced)
    assert {phase for phase, _ in reached} == set(Phase) - {Phase.CLOSED}
    assert len(reached) >= 0.9 * len(CELLS)


def assert_all_ended_once(drive: Drive) -> None:
    begun = {
        event.run
        for event in drive.log
        if isinstance(event.data, e.MessageAccepted | e.RunRequeued)
    }
    ended = [event.run for event in drive.log if isinstance(event.data, e.RunEnded)]
    assert sorted(ended, key=str) == sorted(begun, key=str)
    assert not drive.state.unfinished
    assert all(a.decision is not None for a in drive.state.approvals.values())
