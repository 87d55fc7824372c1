"""What the drivers of agents that people install share: how such a program is called.

Decides where it runs, which of our environment it gets, and what is said when it has no login. It
must not know any agent's protocol. Invariant: a variable is handed on only if it is the agent's
own, by name, or was given by the operator; of the agent's own files only those of a conversation
that comes from another node are written (`drivers.transcripts`).
"""

from __future__ import annotations

import os
from abc import abstractmethod
from pathlib import Path
from typing import ClassVar

import msgspec

from turnkeeper.core.errors import InvalidValue
from turnkeeper.custody.client import Custodian
from turnkeeper.custody.program import Caps, check_words
from turnkeeper.drivers.advice import advised
from turnkeeper.drivers.offer import Offer
from turnkeeper.drivers.process import SAMPLE_S, Command, ProcessAgent, ProcessLink
from turnkeeper.ports import Opening, Sink


class ProgramOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an operator may say of an agent that is a program."""

    command: tuple[str, ...] = ()
    """The program and its first arguments; the driver adds those of its protocol."""
    args: tuple[str, ...] = ()
    """Further arguments, after the driver's."""
    cwd: str = ""
    """Where it works if the session does not say; else the server's own folder."""
    env: dict[str, str] = {}
    variables: tuple[str, ...] = ()
    """Names of the server's own variables that it gets too, beside its agent's own."""
    caps: Caps = Caps()
    advice: str = ""
    """What to do when it has no login; the driver's own words, if none are given."""

    def __post_init__(self) -> None:
        if self.command and not self.command[0]:
            raise InvalidValue("command", self.command, "its first word is the program: name it")
        for field in self.__struct_fields__:
            value = getattr(self, field)
            if isinstance(value, str) or field in ("command", "args", "env", "variables"):
                check_words(field, value)


class ProgramAgent(ProcessAgent):
    """A driver for one kind of program that people install."""

    handed_on: ClassVar[tuple[str, ...]] = ()
    """The agent's own variables: its key, its address, its folder."""
    advice: ClassVar[str] = ""

    def __init__(
        self,
        custodian: Custodian,
        options: ProgramOptions,
        *,
        sample_s: float = SAMPLE_S,
        offer: Offer | None = None,
    ) -> None:
        super().__init__(custodian, sample_s=sample_s)
        self._program = options
        self._offer = offer

    @abstractmethod
    def argv(self, opening: Opening) -> tuple[str, ...]:
        """The program and its arguments for this opening."""

    def variable(self, name: str) -> str:
        """What it gets as that variable, which is one that it gets; empty if there is none."""
        return self._program.env.get(name, os.environ.get(name, ""))

    def own_folder(self, variable: str, usual: str, cwd: str) -> Path | None:
        """Where it keeps its own files: what that variable says, or a folder in its home."""
        given, home = self.variable(variable), self.variable("HOME")
        if given:
            return Path(self.place_of(cwd), given)
        return Path(home, usual) if home else None

    def command(self, opening: Opening) -> Command:
        names = (*self.handed_on, *self._program.variables)
        own = {name: os.environ[name] for name in names if name in os.environ}
        env = {**own, **self._program.env}
        if self._offer is not None:
            env |= self._offer.environment(opening.process)
        return Command(argv=self.argv(opening), env=env, caps=self._program.caps)

    def open(self, opening: Opening, sink: Sink) -> ProcessLink:
        return super().open(self._placed(opening), self._advised(sink))

    def reattach(self, opening: Opening, pos: int, sink: Sink) -> ProcessLink:
        return super().reattach(self._placed(opening), pos, self._advised(sink))

    def _advised(self, sink: Sink) -> Sink:
        return advised(sink, self._program.advice or self.advice)

    def _placed(self, opening: Opening) -> Opening:
        return msgspec.structs.replace(opening, cwd=self.place_of(opening.cwd))

    def place_of(self, cwd: str) -> str:
        """Where it works, for a session that says this of it."""
        cwd = cwd or self._program.cwd
        return os.path.abspath(os.path.expanduser(cwd)) if cwd else os.getcwd()
