"""The hands: effects become calls, and whatever goes wrong with one is the agent's ending."""

from __future__ import annotations

import pytest

from tests.helpers.shell import FakeAgent
from turnkeeper.core import effects as f
from turnkeeper.core import signals as s
from turnkeeper.core.limits import Limits
from turnkeeper.core.state import Session
from turnkeeper.runtime.supervisor import ProcessEffect, Supervisor

OPEN = f.Open("p_1", "r_1", "c_1", fresh=True)
SAY = f.Write("p_1", 1, f.Say("r_1", "m_1", "hello"))
ON_A_LINK: list[ProcessEffect] = [
    f.Open("p_1", "r_2", None, fresh=False), SAY, f.Sweep("p_1"), f.Terminate("p_1"), f.Kill("p_1"),
]  # fmt: skip
CALLS = ["ready_for", "write", "sweep", "terminate", "kill"]


class Hands:
    """A supervisor, its agent, and what it reported."""

    def __init__(self) -> None:
        self.agent = FakeAgent(outlives_server=True, answers=False)
        self.heard: list[s.Group] = []
        state = Session("s_1", cwd="/srv/shop")
        self.supervisor = Supervisor(self.agent, state, Limits(idle_s=7.0), self.heard.append)

    def do(self, *effects: ProcessEffect) -> None:
        for effect in effects:
            self.supervisor.do(effect)

    def signals(self) -> list[s.AgentSignal]:
        return [signal for group in self.heard for signal in group.signals]


def test_a_fresh_process_is_opened_with_all_that_it_needs() -> None:
    hands = Hands()
    hands.do(OPEN)
    opening = hands.agent.link.opening
    assert (opening.process, opening.session, opening.run) == ("p_1", "s_1", "r_1")
    assert (opening.conversation, opening.cwd) == ("c_1", "/srv/shop")
    assert opening.limits == Limits(idle_s=7.0)


@pytest.mark.parametrize(("effect", "call"), list(zip(ON_A_LINK, CALLS, strict=True)))
def test_each_effect_is_one_call_of_the_link(effect: ProcessEffect, call: str) -> None:
    hands = Hands()
    hands.do(OPEN, effect)
    assert hands.agent.link.calls == [call]


@pytest.mark.parametrize("effect", ON_A_LINK)
def test_a_process_that_nobody_knows_is_reported_gone(effect: ProcessEffect) -> None:
    hands = Hands()
    hands.do(effect)
    assert hands.heard == [s.Group("p_1", "", (s.Gone(),))]


@pytest.mark.parametrize("effect", ON_A_LINK)
def test_a_process_that_is_gone_is_not_touched_again(effect: ProcessEffect) -> None:
    hands = Hands()
    hands.do(OPEN)
    hands.agent.link.say(s.Gone())
    hands.heard.clear()
    hands.do(effect)
    assert hands.agent.link.calls == []
    assert hands.signals() == [s.Gone()]


@pytest.mark.parametrize(("effect", "call"), list(zip(ON_A_LINK, CALLS, strict=True)))
def test_a_driver_that_raises_is_a_broken_agent(effect: ProcessEffect, call: str) -> None:
    hands = Hands()
    hands.do(OPEN)
    hands.heard.clear()
    hands.agent.raises = {call}
    hands.do(effect)
    (broken,) = hands.signals()
    assert isinstance(broken, s.Broken)
    assert (broken.reason, broken.retry) == ("internal", False)
    assert f"{call} is broken" in broken.detail


def test_an_agent_that_cannot_be_opened_is_broken_and_then_gone() -> None:
    hands = Hands()
    hands.agent.raises = {"open"}
    hands.do(OPEN, f.Terminate("p_1"))
    assert [type(signal) for signal in hands.signals()] == [s.Broken, s.Gone]


@pytest.mark.parametrize("call", ["poll", "pause", "resume"])
def test_a_driver_that_raises_in_between_is_a_broken_agent_too(call: str) -> None:
    hands = Hands()
    hands.do(OPEN)
    hands.heard.clear()
    hands.agent.raises = {call}
    getattr(hands.supervisor, call)()
    assert [type(signal) for signal in hands.signals()] == [s.Broken]


def test_polling_gives_what_is_readable_before_it_returns() -> None:
    hands = Hands()
    hands.do(OPEN)
    hands.agent.unread = (s.Text("already there"),)
    hands.supervisor.poll()
    assert hands.signals()[-1] == s.Text("already there")


def test_a_process_is_reattached_from_its_position() -> None:
    hands = Hands()
    hands.do(f.Reattach("p_1", "r_1", 120))
    ((opening, pos),) = hands.agent.reattached
    assert (opening.process, pos) == ("p_1", 120)


def test_a_process_that_is_held_already_is_not_reattached() -> None:
    hands = Hands()
    hands.do(OPEN, f.Reattach("p_1", "r_1", 120))
    assert hands.agent.reattached == []


def test_all_processes_are_killed_when_nothing_may_go_on() -> None:
    hands = Hands()
    hands.agent.mortal = False
    hands.do(OPEN, f.Open("p_2", "r_1", None, fresh=True))
    hands.supervisor.kill_all()
    assert [link.calls for link in hands.agent.links] == [["kill"], ["kill"]]


def test_after_letting_go_nothing_is_heard_any_more() -> None:
    hands = Hands()
    hands.do(OPEN)
    hands.heard.clear()
    hands.supervisor.detach()
    hands.agent.link.say(s.Text("still at work"))
    assert hands.agent.link.calls == ["detach"]
    assert hands.heard == []


def test_a_conversation_that_is_only_here_as_it_was_before_is_told_as_lost() -> None:
    agent, heard = FakeAgent(answers=False), list[s.Group]()
    agent.ready = False
    hands = Supervisor(agent, Session("s_1"), Limits(), heard.append, "c_1")
    hands.do(OPEN)
    assert agent.link.opening.conversation is None
    assert heard == [s.Group("p_1", "", (s.ContextLost("c_1"),))]
    hands.do(f.Open("p_2", "r_2", "c_2", fresh=True))
    assert agent.link.opening.conversation == "c_2"
