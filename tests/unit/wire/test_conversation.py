"""An agent's own name for a conversation, told only when it is at work, is kept to resume by."""

from __future__ import annotations

from turnkeeper.core import events as e
from turnkeeper.core import signals as s
from turnkeeper.core.fold import fold
from turnkeeper.core.limits import Phase
from turnkeeper.core.table import TABLE


def test_a_conversation_is_kept_until_it_is_lost() -> None:
    log = [
        e.Event(1, "s1", None, 0.0, e.SessionCreated("claude")),
        e.Event(2, "s1", "r1", 0.0, e.ConversationFact("c1")),
        e.Event(3, "s1", "r1", 0.0, e.ContextLostFact("c1")),
    ]
    assert fold(log[:2]).conversation == "c1"
    assert fold(log).conversation is None
    assert e.decode(e.encode(log[1])) == log[1]


def test_a_conversation_may_be_told_in_every_phase_in_which_an_agent_speaks() -> None:
    speaks = {phase for phase, row in TABLE.items() if s.Heartbeat in row}
    assert speaks == {phase for phase, row in TABLE.items() if s.Conversation in row}
    assert {Phase.WAITING, Phase.WORKING, Phase.TOOL, Phase.APPROVAL, Phase.DRAINING} <= speaks
