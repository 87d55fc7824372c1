"""The judge of the log: may this event follow, given all that was seen before.

Decides whether P1, P4, P5, P6 and P11 hold, event by event, and lets the other judges see their
part. It must not know the core's state or rules. Invariant: it looks at each event once, in the
order in which they were stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turnkeeper.core import events as e
from turnkeeper.testing.judge_clock import ClockJudge
from turnkeeper.testing.judge_queue import QueueJudge
from turnkeeper.testing.judge_stream import StreamJudge
from turnkeeper.testing.judge_truth import TruthJudge
from turnkeeper.testing.ledger import (
    ATTEMPTS_MAX,
    SLACK_S,
    Asked,
    Book,
    Case,
    Decision,
    RunRec,
)  # fmt: skip
from turnkeeper.testing.virtual import WALL_AT_START

AFTER_THE_END = (e.Late, e.AttemptEscalated, e.AttemptEnded, e.ProcessEnded, e.ChildEnded)
SETTLE_S = 1.0
"""What P3 grants beyond drain_s and term_s."""


class LogJudge:
    """Judges what is stored."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self.stream = StreamJudge(case)
        self.clock = ClockJudge(case)
        self.truth = TruthJudge(case, self.stream, self.clock)
        self.queue = QueueJudge(case)
        self._on: dict[type[e.Fact], Callable[[Book, e.Event, Any], None]] = {
            e.MessageAccepted: self.queue.accepted, e.RunRequeued: self.queue.requeued,
            e.MessageEdited: self.queue.edited, e.QueueMoved: self.queue.moved,
            e.MessageHandedOver: self.queue.handed_over,
            e.RunStarted: self._started, e.AttemptStarted: self._attempt_started,
            e.AttemptReady: self._attempt_ready, e.AttemptFailed: self._attempt_failed,
            e.AttemptEnded: self._attempt_ended, e.AttemptEscalated: self._escalated,
            e.MessageDelivered: self._delivered, e.MessageSteered: self._steered,
            e.OutputText: self._output, e.OutputThinking: self._output,
            e.ToolStartedFact: self._output, e.ToolProgressFact: self._output,
            e.ToolEndedFact: self._output, e.ApprovalRequested: self._requested,
            e.ApprovalSettled: self._settled, e.RunStalling: self._stalling,
            e.RunStopping: self._stopping, e.RunEnded: self._ended, e.Late: self._late,
            e.ContextLostFact: self._context_lost, e.ChildStarted: self._child_started,
            e.ConversationFact: self._conversation,
            e.ChildEnded: self._child_ended, e.ProcessEnded: self._process_ended,
            e.SessionCreated: lambda book, event, data: None,
            e.RuleAdded: self._rule_added,
        }  # fmt: skip

    def event(self, book: Book, event: e.Event) -> None:
        book.log.append(event)
        run = self._case.runs.get(event.run or "")
        at = event.at - WALL_AT_START
        if run is not None and run.outcome is not None:
            told = f"{event.kind} of {run.id} comes after its end"
            self._case.expect("P6", isinstance(event.data, AFTER_THE_END), told)
        settles = isinstance(event.data, e.RunStopping | e.RunEnded | e.ApprovalSettled)
        if run is not None and run is book.active and run.decision is None and not settles:
            self.clock.not_overdue(book, run, at)
        self._on[type(event.data)](book, event, event.data)

    def batch_over(self, book: Book) -> None:
        """What had to happen at once has happened."""
        self.queue.batch_over(book)
        way, book.must_make_way = book.must_make_way, None
        if way is not None:
            told = f"{way.id} did not make way for a message that goes before it"
            self._case.expect("P11", way.decision is not None, told)

    # The queue -------------------------------------------------------------------------------

    def _started(self, book: Book, event: e.Event, data: e.RunStarted) -> None:
        case, at = self._case, event.at - WALL_AT_START
        rec = book.waiting.pop(event.run or "", None)
        if rec is None or book.active is not None:
            case.blame("P4", f"{event.run} starts, but it does not wait or another run is there")
            return
        before = [x for x in book.waiting.values() if (x.rank, x.place) < (rec.rank, rec.place)]
        told = f"{rec.id} starts before {', '.join(x.id for x in before)}"
        case.expect("P11", not before, told)
        case.expect("P10", data.limits == rec.limits, f"{rec.id} has limits {data.limits}")
        if rec.limits.queue_s and not rec.ran:
            due = rec.accepted_at + rec.limits.queue_s
            case.on_time("P10", book, due, at, f"{rec.id} started")
        self._parents_date(rec, data)
        self._nothing_outlived(book, rec)
        rec.started_at = at
        book.active = rec

    def _parents_date(self, rec: RunRec, data: e.RunStarted) -> None:
        parent = self._case.runs.get(rec.parent.run) if rec.parent is not None else None
        if parent is None or parent.started_at is None:
            return
        date = parent.due_at()
        bounded = date == float("inf") or (
            data.not_after is not None and data.not_after - WALL_AT_START <= date + SLACK_S
        )
        told = f"{rec.id} may run until {data.not_after}, its parent until {date:.3f} s"
        self._case.expect("P10", bounded, told)

    def _nothing_outlived(self, book: Book, rec: RunRec) -> None:
        last = book.previous
        if last is None or last.outcome is None or last.started_at is None:
            return
        if last.outcome.kind.value not in ("cancelled", "timed_out", "lost"):
            return
        proc = self._case.proc(last)
        if proc is not None:
            alive = proc.children > 0 or (proc.alive and book.process != proc.name)
            told = f"{rec.id} starts while something of {last.id} lives"
            self._case.expect("P5", not alive, told)

    # Attempts --------------------------------------------------------------------------------

    def _active(self, book: Book, event: e.Event) -> RunRec:
        run = book.active
        if run is None or run.id != event.run:
            self._case.blame("P3", f"{event.kind} of {event.run}, which does not run")
            return self._case.runs.get(event.run or "") or RunRec("?", "", "", "", 0, 0, 0.0, {})
        return run

    def _attempt_started(self, book: Book, event: e.Event, data: e.AttemptStarted) -> None:
        case, run, at = self._case, self._active(book, event), event.at - WALL_AT_START
        case.expect("P4", data.attempt == run.attempt + 1 <= ATTEMPTS_MAX,
                    f"{run.id} is tried for the {data.attempt}th time")  # fmt: skip
        case.expect("P4", data.attempt == 1 or not run.outputs,
                    f"{run.id} is tried again although it had output")  # fmt: skip
        if data.fresh:
            for proc in case.procs.values():
                alive = proc.session == book.name and not proc.is_gone
                case.expect("P5", not alive, f"{data.process} starts while {proc.name} lives")
        run.attempt, run.process, book.process = data.attempt, data.process, data.process
        known = case.proc(run)
        if known is not None:
            known.untaken_since.clear()
        self.clock.enter(run, "starting", at)

    def _attempt_ready(self, book: Book, event: e.Event, data: e.AttemptReady) -> None:
        run = self._active(book, event)
        proc = self._case.proc(run)
        ready = proc is not None and proc.ready
        self._case.expect("P2", ready, f"{run.process} is said to be ready and is not")
        self.clock.enter(run, "delivering", event.at - WALL_AT_START)

    def _attempt_failed(self, book: Book, event: e.Event, data: e.AttemptFailed) -> None:
        run = self._active(book, event)
        told = f"{run.id} failed in attempt {run.attempt} with {run.outputs} outputs, to be retried"
        again = run.attempt < ATTEMPTS_MAX and not run.outputs
        self._case.expect("P4", again, told)
        run.phase = "retrying"

    def _escalated(self, book: Book, event: e.Event, data: e.AttemptEscalated) -> None:
        self._active(book, event)

    def _attempt_ended(self, book: Book, event: e.Event, data: e.AttemptEnded) -> None:
        case, run, at = self._case, self._active(book, event), event.at - WALL_AT_START
        proc = case.proc(run)
        if data.how == "gone":
            told = f"{run.process} is said to be gone and lives"
            case.expect("P5", proc is None or proc.is_gone, told)
            book.process = ""
        if run.outcome is None:
            return
        self._free(book, run, at)

    def _free(self, book: Book, run: RunRec, at: float) -> None:
        run.freed_at = at
        if run.decision is not None:
            proc = self._case.proc(run)
            bound = run.limits.drain_s + run.limits.term_s
            bound += max(SETTLE_S, proc.kill_s + SETTLE_S if proc is not None else 0.0)
            since = max(run.decision.at, run.acted_at, book.back_at)
            away = book.trouble_until + SETTLE_S if book.trouble_until > since else 0.0
            due = max(since + bound, away)
            self._case.on_time("P3", book, due, at, f"{run.id} was cleaned up")
        book.active, book.previous = None, run

    def _process_ended(self, book: Book, event: e.Event, data: e.ProcessEnded) -> None:
        proc = self._case.procs.get(data.process)
        told = f"{data.process} is said to have ended, and lives"
        self._case.expect("P5", proc is None or proc.is_gone, told)
        book.process = ""

    def _delivered(self, book: Book, event: e.Event, data: e.MessageDelivered) -> None:
        run = self._active(book, event)
        proc = self._case.proc(run)
        taken = proc is not None and data.frame in proc.taken
        self._case.expect("P4", taken, f"{run.id}: frame {data.frame} was not taken")
        self.clock.enter(run, "waiting", event.at - WALL_AT_START)

    def _steered(self, book: Book, event: e.Event, data: e.MessageSteered) -> None:
        run = self._active(book, event)
        proc = self._case.proc(run)
        taken = proc is not None and data.frame in proc.taken
        self._case.expect("P4", taken, f"{run.id}: steering frame {data.frame} was not taken")
        known = book.steered.pop(data.message, None)
        self._case.expect("P4", known is not None, f"{data.message} steered twice")

    # Output and questions --------------------------------------------------------------------

    def _output(self, book: Book, event: e.Event, data: Any) -> None:
        run = self._active(book, event)
        self.stream.output(run, data)
        run.outputs += 1
        run.observed = True
        if isinstance(data, e.ToolStartedFact):
            run.tools[data.tool] = None
        elif isinstance(data, e.ToolEndedFact):
            run.tools.pop(data.tool, None)
        self.clock.progress(run, event.at - WALL_AT_START)

    def _requested(self, book: Book, event: e.Event, data: e.ApprovalRequested) -> None:
        case, at = self._case, event.at - WALL_AT_START
        run = self._active(book, event)
        asked = Asked(at, data.ref, run.id)
        case.expect("P6", data.approval not in case.questions, f"{data.approval} is asked twice")
        case.questions[data.approval] = run.open[data.approval] = asked
        budget_s = run.limits.approval_s
        expires = data.expires_at - WALL_AT_START if data.expires_at is not None else None
        right = expires is None if not budget_s else abs((expires or 0) - at - budget_s) < 1e-3
        case.expect("P10", right, f"{data.approval} expires at {expires}, asked at {at:.3f} s")
        self._output(book, event, data)

    def _rule_added(self, book: Book, event: e.Event, data: e.RuleAdded) -> None:
        """A rule comes with the answer that it was given with, and only if somebody gave it."""
        asked = self._active(book, event).open.get(data.approval)
        kept = asked is not None and data.rule in asked.rules
        self._case.expect("P6", kept, f"the rule {data.rule} came with no answer")
        book.rules.add(data.rule)

    def _settled(self, book: Book, event: e.Event, data: e.ApprovalSettled) -> None:
        case, at, run = self._case, event.at - WALL_AT_START, self._active(book, event)
        asked = run.open.pop(data.approval, None)
        if asked is None:
            case.blame("P6", f"{data.approval} is settled, but was not open")
            return
        asked.decision, asked.settled_at = data.decision, at
        self._settled_truly(book, run, asked, data, at)
        self.clock.progress(run, at)

    def _settled_truly(
        self, book: Book, run: RunRec, asked: Asked, data: e.ApprovalSettled, at: float
    ) -> None:
        case, name = self._case, data.approval
        due = asked.at + run.limits.approval_s if run.limits.approval_s else float("inf")
        if data.decision == "expired":
            case.expect("P10", at >= due - 1e-3, f"{name} expired too early, at {at:.3f} s")
            case.on_time("P10", book, due, at, f"{name} expired")
        elif data.decision == "allowed":
            ruled = data.by == "a rule" and data.note.removeprefix("allow ") in book.rules
            told = f"{name} is allowed, but nobody allowed it"
            case.expect("P6", ruled or True in asked.answers, told)
            case.expect("P6", run.decision is None, f"{name} is allowed after the run's decision")
            case.on_time("P6", book, due, at, f"{name} was allowed")
        elif data.decision == "denied":
            said = False in asked.answers or run.decision is not None
            case.expect("P6", said, f"{name} is denied, but nobody denied it")

    def _stalling(self, book: Book, event: e.Event, data: e.RunStalling) -> None:
        run = self._active(book, event)
        self._case.expect("P10", run.decision is None, f"{run.id} stalls after its decision")
        self.clock.stalling(book, run, data, event.at - WALL_AT_START)

    # The end ---------------------------------------------------------------------------------

    def _stopping(self, book: Book, event: e.Event, data: e.RunStopping) -> None:
        run, at = self._active(book, event), event.at - WALL_AT_START
        self._case.expect("P2", run.decision is None, f"{run.id} is decided twice")
        decision = Decision(data.outcome.value, data.reason, at)
        self.truth.decided(book, run, decision, cleanup=None)
        run.phase = "draining"

    def _ended(self, book: Book, event: e.Event, data: e.RunEnded) -> None:
        case, at, run = self._case, event.at - WALL_AT_START, self._case.runs.get(event.run or "")
        if run is None or run.outcome is not None:
            case.blame("P1", f"{event.run} ends, but is unknown or had ended")
            return
        self.truth.ended(book, run, data, at)
        run.outcome, run.ended_at, run.cleanup = data.outcome, at, data.cleanup
        reason = data.outcome.reason
        case.expect("P11", reason != "preempted" or bool(run.requeued) or "stopped" in run.stops
                    or "parent_ended" in run.stops or "superseded" in run.stops
                    or book.closing,
                    f"{run.id} was preempted and its message is not queued again")  # fmt: skip
        wrong = run.requeued == "preempted" and reason != "preempted"
        wrong = wrong or (run.requeued == "lost" and data.outcome.kind.value != "lost")
        case.expect("P4", not wrong, f"{run.id} ended {reason} and is given back as {run.requeued}")
        left = [name for name, steer in book.steered.items() if steer[0] == run.id]
        case.expect("P4", not left, f"{run.id} ended and lost the steering {left}")
        if run.started_at is None:
            book.waiting.pop(run.id, None)
        elif data.cleanup == "none":
            self._free(book, run, at)

    def _late(self, book: Book, event: e.Event, data: e.Late) -> None:
        run = book.active
        if data.what in ("Failed", "Exited", "Broken") and run is not None and run.id == event.run:
            self.stream.late_end(run, data.what, data.data)
        elif data.what != "stop":
            self.stream.late(event.run or "", data.what, data.data)

    def _context_lost(self, book: Book, event: e.Event, data: e.ContextLostFact) -> None:
        run = self._active(book, event)
        lost = (proc := self._case.proc(run)) is not None and proc.contexts_lost > 0
        self._case.expect("P2", lost, f"{run.process} did not lose its context")

    def _conversation(self, book: Book, event: e.Event, data: e.ConversationFact) -> None:
        run = self._active(book, event)
        told = (proc := self._case.proc(run)) and data.conversation in proc.conversations
        self._case.expect("P2", bool(told), f"{run.process} did not name {data.conversation}")

    # Children --------------------------------------------------------------------------------

    def _child_started(self, book: Book, event: e.Event, data: e.ChildStarted) -> None:
        run = self._active(book, event)
        self._case.expect("P3", run.decision is None, f"{run.id} starts a child after its decision")
        book.children[data.child] = (data.session, run.id)

    def _child_ended(self, book: Book, event: e.Event, data: e.ChildEnded) -> None:
        known = book.children.pop(data.child, None)
        self._case.expect("P1", known is not None, f"child {data.child} ended twice")
        book.child_ends[data.child] = data
