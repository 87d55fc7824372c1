"""What is carried to another node and back is what it was."""

from __future__ import annotations

from typing import get_args

import pytest

from turnkeeper.core import carried
from turnkeeper.core import commands as c
from turnkeeper.core.errors import UNKNOWN_RUN, TurnkeeperError
from turnkeeper.core.outcome import Kind

AT_HOME = (c.Check, c.Rest, c.Lose)
"""These are for the node that has the session, and are never asked elsewhere."""

COMMANDS: list[c.Command] = [
    c.Create(agent="demo", labels={"a": "b"}),
    c.Send(message="m_1", text="h\0i", key="k"),
    c.StopRun(run="r_1", by="me"),
    c.EditRun(run="r_1", text="other"),
    c.HandOver(run="r_1"),
    c.AnswerApproval(approval="a_1.1", allow=True, note="yes"),
    c.Adopt(parent="r_1", child="r_2", session="s_2"),
    c.ReportChild(child="r_2", outcome=Kind.LOST, reason="node_lost"),
    c.Look(run="r_1"),
]


def test_there_is_one_of_every_kind_here() -> None:
    assert {type(one) for one in COMMANDS} == set(get_args(c.Command)) - set(AT_HOME)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda one: type(one).__name__)
def test_a_command_arrives_as_it_was(command: c.Command) -> None:
    assert carried.unpack_command(carried.pack(command)) == command


REPLIES: list[c.Reply] = [
    c.Accepted("m_1", "r_1", 3, 0),
    c.StopAnswer("r_1", "stopping", True),
    c.Done(7),
]


@pytest.mark.parametrize("reply", REPLIES, ids=lambda one: type(one).__name__)
def test_an_answer_arrives_as_it_was(reply: c.Reply) -> None:
    assert carried.unpack_reply(carried.pack(reply)) == reply


def test_every_answer_can_be_carried() -> None:
    assert {one.__name__ for one in get_args(c.Reply)} <= set(carried._REPLIES)


def test_a_refusal_is_the_same_refusal_there() -> None:
    with pytest.raises(TurnkeeperError, match="no such run") as refused:
        carried.unpack_reply(carried.pack_refusal(TurnkeeperError(UNKNOWN_RUN, "no such run")))
    assert refused.value.entry is UNKNOWN_RUN


def test_only_what_does_no_harm_is_done_twice() -> None:
    again = [type(one).__name__ for one in COMMANDS if carried.is_repeatable(one)]
    assert again == ["Send", "StopRun", "ReportChild", "Look"]
    assert not carried.is_repeatable(c.Send(message="m_1", text="hi"))
