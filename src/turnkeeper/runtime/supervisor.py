"""The hands of one session's runs: it opens, writes to, stops and kills the agent's processes.

Decides nothing about endings: it does the effects that the core asks for, rung by rung of the stop
ladder, and reports what came of them. It must not know drivers. Invariant: each process it was
asked to end is reported `Gone` in the end, also when there never was one; a driver that raises is
a broken agent, never a broken session.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import cast, get_args

import msgspec

from turnkeeper.core import effects as f
from turnkeeper.core.limits import Limits
from turnkeeper.core.signals import (
    WORDS,
    AgentSignal,
    Broken,
    ContextLost,
    Gone,
    Group,
    Text,
    Thinking,
)
from turnkeeper.core.state import Session
from turnkeeper.ports import Agent, Link, Opening, Sink

REPORTABLE = frozenset(get_args(AgentSignal))

log = logging.getLogger("turnkeeper.supervisor")

ProcessEffect = f.Open | f.Reattach | f.Write | f.Sweep | f.Terminate | f.Kill


class Supervisor:
    """Holds the links to one session's processes: the one in use, and those being ended."""

    def __init__(
        self, agent: Agent, state: Session, limits: Limits, sink: Sink, gone: str | None = None
    ) -> None:
        """`gone` is a conversation that the agent is not to go on with, though it might."""
        self._agent = agent
        self._state = state
        self._limits = limits
        self._sink = sink
        self._lost = gone
        self._links: dict[str, Link] = {}
        self._gone: set[str] = set()
        """Those that were gone before their link was in our hands."""
        self._detached = False

    def do(self, effect: ProcessEffect) -> None:
        """One effect, now. Whatever goes wrong with it is the agent's ending, not ours."""
        try:
            self._do(effect)
        except Exception as fault:
            log.exception("the driver failed at %s for %s", type(effect).__name__, effect.process)
            self._report(effect.process, Broken("internal", f"its driver failed: {fault!r}"))

    def poll(self) -> None:
        """What is readable is read before anything is decided without it."""
        self._each(lambda link: link.poll())

    def pause(self) -> None:
        self._each(lambda link: link.pause())

    def resume(self) -> None:
        self._each(lambda link: link.resume())

    def kill_all(self) -> None:
        """Nothing may go on that cannot be recorded."""
        for process in list(self._links):
            self.do(f.Kill(process))

    def adopt(self, state: Session) -> None:
        """The state was read again from the log; the processes are the same."""
        self._state = state

    def detach(self) -> None:
        self._detached = True
        self._each(lambda link: link.detach())
        self._links.clear()

    def _do(self, effect: ProcessEffect) -> None:
        match effect:
            case f.Open(fresh=True):
                conversation = effect.conversation
                if conversation is not None and conversation == self._lost:
                    self._report(effect.process, ContextLost(conversation))
                    conversation = None
                opening = self._opening(effect.process, effect.run, conversation)
                self._hold(effect.process, self._agent.open(opening, self._hear))
            case f.Reattach() if effect.process in self._links:
                pass
            case f.Reattach():
                opening = self._opening(effect.process, effect.run, self._state.conversation)
                self._hold(effect.process, self._agent.reattach(opening, effect.pos, self._hear))
            case _:
                link_or_none = self._links.get(effect.process)
                if link_or_none is None:
                    self._report(effect.process, Gone())
                else:
                    _on_link(link_or_none, effect)

    def _hold(self, process: str, link: Link) -> None:
        """Hold a link, unless it has already said that nothing is left of its process."""
        if process in self._gone:
            self._gone.discard(process)
        else:
            self._links[process] = link

    def _opening(self, process: str, run: str, conversation: str | None) -> Opening:
        state = self._state
        limits = state.active.limits if state.active is not None else self._limits
        turn_pos = state.process.turn_pos if state.process is not None else 0
        return Opening(process, state.id, run, conversation, state.cwd, limits, turn_pos)

    def _hear(self, group: Group) -> None:
        if self._detached:
            return
        for i, signal in enumerate(() if _are_words(group.signals) else group.signals):
            wrong = _wrong(signal)
            if wrong is not None:
                told = Broken("internal", f"its driver reported what cannot be: {wrong}")
                heard = (*group.signals[:i], told)
                group = Group(group.process, group.run, heard, group.pos)
                break
            if type(signal) is Gone and self._links.pop(group.process, None) is None:
                self._gone.add(group.process)
        self._sink(group)

    def _report(self, process: str, signal: AgentSignal) -> None:
        run = self._state.active
        self._hear(Group(process, run.id if run is not None else "", (signal,)))

    def _each(self, what: Callable[[Link], None]) -> None:
        for process, link in list(self._links.items()):
            try:
                what(link)
            except Exception as fault:
                log.exception("the driver of %s failed", process)
                self._report(process, Broken("internal", f"its driver failed: {fault!r}"))


def _are_words(signals: Sequence[AgentSignal]) -> bool:
    """Nothing but words, all of which can be stored: what there is most of, looked at together."""
    if not WORDS.issuperset(map(type, signals)):
        return False
    try:
        "".join([word.text for word in cast("Sequence[Text]", signals)]).encode()
    except (AttributeError, TypeError, ValueError):
        return False
    return True


def _wrong(signal: AgentSignal) -> str | None:
    """What is wrong with a signal that could not be stored or explained; the usual ones fast."""
    kind = type(signal)
    try:
        if kind is Text or kind is Thinking:
            signal.text.encode()  # type: ignore[union-attr]
        elif kind in REPORTABLE:
            msgspec.json.decode(msgspec.json.encode(signal), type=kind)
        else:
            return f"{signal!r} is not a signal"
    except (AttributeError, TypeError, ValueError) as fault:
        return f"{kind.__name__} ({fault})"
    return None


def _on_link(link: Link, effect: f.Open | f.Write | f.Sweep | f.Terminate | f.Kill) -> None:
    match effect:
        case f.Open():
            link.ready_for(effect.run)
        case f.Write():
            link.write(effect.frame, effect.intent)
        case f.Sweep():
            link.sweep()
        case f.Terminate():
            link.terminate()
        case f.Kill():
            link.kill()
