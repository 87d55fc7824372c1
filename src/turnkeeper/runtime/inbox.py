"""What an actor has not looked at yet: what was heard, and what was asked.

Decides nothing. It must not know what any of it means, but whether it is mere words. Invariant:
whoever asks is answered once.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from turnkeeper.core import commands as c
from turnkeeper.core.errors import TurnkeeperError
from turnkeeper.core.signals import WORDS, Group


@dataclass(slots=True)
class Ask:
    """A command, and whoever waits for its answer (nobody, for a timer)."""

    command: c.Command
    answer: asyncio.Future[c.Reply] | None = None

    def settle(self, reply: c.Reply | TurnkeeperError) -> None:
        if self.answer is None or self.answer.done():
            return
        if isinstance(reply, TurnkeeperError):
            self.answer.set_exception(reply)
        else:
            self.answer.set_result(reply)


@dataclass(slots=True)
class Inbox:
    """What one look will take."""

    groups: list[Group] = field(default_factory=list)
    asks: list[Ask] = field(default_factory=list)
    signals: int = 0
    only_words: bool = True
    """Nothing was heard but words."""

    def commands(self) -> list[c.Command]:
        return [ask.command for ask in self.asks]

    def put(self, group: Group) -> None:
        self.groups.append(group)
        self.signals += len(group.signals)
        if not WORDS.issuperset(map(type, group.signals)):
            self.only_words = False
