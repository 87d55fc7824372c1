"""The judge of endings: is what the log says of an end what really happened.

Decides whether P2 and P12 hold for one decision. It must not know how the core decides. Invariant:
an outcome needs a fact that was there before it, seen by somebody else than the core.
"""

from __future__ import annotations

import re

from turnkeeper.core import events as e
from turnkeeper.core import signals as s
from turnkeeper.core.outcome import Outcome
from turnkeeper.testing.judge_clock import ClockJudge
from turnkeeper.testing.judge_stream import StreamJudge
from turnkeeper.testing.ledger import EPS_S, Book, Case, Decision, RunRec

NAMED = re.compile(r"^TK-[1-4]\d\d .")
CHILD_S = 1.0
"""How long the word that a parent has ended may be on its way to a child."""


class TruthJudge:
    """Judges decisions."""

    def __init__(self, case: Case, stream: StreamJudge, clock: ClockJudge) -> None:
        self._case = case
        self._stream = stream
        self._clock = clock

    def decided(self, book: Book, run: RunRec, decision: Decision, *, cleanup: str | None) -> None:
        """`cleanup` is none for a decision that waits for the agent's boundary."""
        run.decision, run.acted_at = decision, self._case.now()
        self._family(book, run, decision)
        self._case.expect("P6", not run.open, f"{run.id} is decided with open approvals")
        match decision.kind:
            case "completed":
                self._completed(run, decision)
            case "failed":
                self._failed(book, run, decision)
            case "cancelled":
                self._cancelled(book, run, decision)
                self._at_boundary(run, decision, cleanup)
            case "timed_out":
                self._clock.timed_out(book, run, decision.reason, decision.at)
                self._at_boundary(run, decision, cleanup)
            case _:
                self._lost(run, decision)
        if decision.kind == "timed_out" and decision.reason == "write":
            proc = self._case.proc(run)
            if proc is not None:
                proc.banned = True

    def _family(self, book: Book, run: RunRec, decision: Decision) -> None:
        """Children may now be stopped, and soon must be; this run must be if its parent is over."""
        for child in run.offspring:
            child.stops.append("parent_ended")
        parent = self._case.runs.get(run.parent.run) if run.parent is not None else None
        if parent is not None and parent.decision is not None:
            away = max(book.trouble_until, self._case.books[parent.session].trouble_until)
            due = max(parent.decision.at, run.accepted_at, away) + CHILD_S
            self._case.on_time("P3", book, due, decision.at, f"child {run.id} was decided")

    def _completed(self, run: RunRec, decision: Decision) -> None:
        word = self._stream.boundary(run, s.Finished)
        if isinstance(word, s.Finished):
            same = word.reason == decision.reason
            self._case.expect("P2", same, f"{run.id} completed as {decision.reason}, not {word}")

    def _failed(self, book: Book, run: RunRec, decision: Decision) -> None:
        case, proc, reason = self._case, self._case.proc(run), decision.reason
        if reason == "agent_error":
            self._stream.boundary(run, s.Failed, s.Aborted)
            return
        if reason == "internal":
            raised = run.id in case.raised
            told = f"{run.id} failed by our own fault, without an outage"
            case.expect("P2", raised or case.long_outage, told)
            return
        if reason == "spawn_failed":
            case.expect("P2", proc is None, f"{run.id}: {run.process} was started very well")
            return
        if proc is None:
            case.blame("P2", f"{run.id} {reason}: there never was a {run.process}")
        elif reason == "agent_exited":
            dead = proc.died_at is not None and proc.died_at <= decision.at + EPS_S
            case.expect("P2", dead, f"{run.id}: {proc.name} has not exited")
            self._stream.nothing_unread(run, decision.at)
        else:
            case.expect("P2", reason in proc.broken, f"{run.id}: {proc.name} has no {reason}")
            self._stream.nothing_unread(run, decision.at)

    def _cancelled(self, book: Book, run: RunRec, decision: Decision) -> None:
        told = f"{run.id} is cancelled/{decision.reason}, and nobody asked for that"
        asked = decision.reason in run.stops or (decision.reason == "shutdown" and book.closing)
        self._case.expect("P3", asked, told)

    def _at_boundary(self, run: RunRec, decision: Decision, cleanup: str | None) -> None:
        """A fact that is told first wins over the agent's failure, never over its answer."""
        word = self._stream.said_next(run, decision.at)
        goes = decision.reason in ("write", "parent_ended")  # its agent goes, whatever it said
        if cleanup == "sweep" or (goes and isinstance(word, s.Failed | s.Aborted)):
            self._stream.boundary(run, s.Failed, s.Aborted)
        elif run.started_at is not None:
            self._stream.nothing_unread(run, decision.at)

    def _lost(self, run: RunRec, decision: Decision) -> None:
        case, proc = self._case, self._case.proc(run)
        if decision.reason == "node_lost":
            told = f"{run.id}: nobody lost a node"
            case.expect("P2", run.process in case.lost_nodes, told)
            return
        gone = proc is None or (proc.lost and proc.is_gone)
        case.expect("P2", gone, f"{run.id} is lost, but its keeper kept {run.process}")

    # The end ---------------------------------------------------------------------------------

    def ended(self, book: Book, run: RunRec, fact: e.RunEnded, at: float) -> None:
        outcome = fact.outcome
        decision = run.decision
        if decision is None:
            decision = Decision(outcome.kind.value, outcome.reason, at)
            self.decided(book, run, decision, cleanup=fact.cleanup)
        else:
            same = (outcome.kind.value, outcome.reason) == decision[:2]
            told = f"{run.id} was decided {decision[:2]} and ended {outcome.kind}/{outcome.reason}"
            self._case.expect("P2", same, told)
            drained = max(decision.at, run.acted_at, book.back_at) + run.limits.drain_s
            self._case.on_time("P3", book, drained, at, f"{run.id} ended")
            word = self._stream.said_next(run, at)
            goes = outcome.reason == "parent_ended" and isinstance(word, s.BOUNDARY)
            if fact.cleanup == "sweep" or goes:
                self._stream.boundary(run, *s.BOUNDARY)
            elif outcome.kind.value in ("cancelled", "timed_out"):
                self._stream.nothing_unread(run, at)
        self._named(run, outcome)

    def _named(self, run: RunRec, outcome: Outcome) -> None:
        """P12: the cause has a code, a run, and what was seen."""
        if outcome.kind.value == "completed":
            return
        case, seen, detail = self._case, outcome.evidence, outcome.detail
        named = bool(NAMED.match(detail)) and run.id in detail
        case.expect("P12", named, f"{run.id} ended {outcome.reason} as {detail!r}")
        case.expect("P12", bool(seen.phase), f"{run.id} does not say in which phase it ended")
        if outcome.kind.value == "timed_out":
            case.expect("P12", seen.clock == outcome.reason, f"{run.id} names clock {seen.clock!r}")
            budget_s = getattr(run.limits, f"{outcome.reason}_s")
            told = f"{run.id} names budget {seen.budget_s}, not {budget_s}"
            inherited = outcome.reason == "deadline" and run.parent is not None
            case.expect("P12", seen.budget_s == budget_s or inherited, told)
        if run.observed and run.started_at is not None:
            told = f"{run.id} had said something, and its end says nothing was seen"
            case.expect("P12", bool(seen.last), told)
