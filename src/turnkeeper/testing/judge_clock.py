"""The judge of clocks: was time really up, and was it noticed when it was.

Decides whether P10 holds, by arithmetic of its own over what was seen. It must not know the core's
clocks. Invariant: silence is counted from the last progress (or the phase's beginning, or the
server's return), and by nothing else.
"""

from __future__ import annotations

from turnkeeper.core import events as e
from turnkeeper.testing.ledger import EPS_S, SLACK_S, Book, Case, RunRec
from turnkeeper.testing.virtual import WALL_AT_START

BUDGET = {
    "starting": ("startup", "startup_s"),
    "delivering": ("write", "write_s"),
    "waiting": ("first_output", "first_output_s"),
    "working": ("idle", "idle_s"),
    "tool": ("tool", "tool_s"),
}


class ClockJudge:
    """Judges time."""

    def __init__(self, case: Case) -> None:
        self._case = case

    def enter(self, run: RunRec, phase: str, at: float) -> None:
        if phase != run.phase or phase == "starting":
            run.phase, run.since, run.stalled = phase, at, False

    def progress(self, run: RunRec, at: float) -> None:
        """Something got on, and the phase is what is open."""
        proc = self._case.proc(run)
        if run.phase == "delivering" and proc is not None:
            proc.untaken_since.clear()
        if run.phase != "draining":
            run.phase = "approval" if run.open else "tool" if run.tools else "working"
        run.since, run.stalled = at, False

    def spawned(self, run: RunRec, at: float) -> None:
        if run.phase == "starting":
            run.since = at

    def busy(self, run: RunRec, at: float) -> None:
        if run.phase == "tool":
            run.since, run.stalled = at, False

    def came_back(self, book: Book, at: float) -> None:
        """A new server: silence counts from now, and what was not taken is written again."""
        run = book.active
        if run is None:
            return
        run.since, run.stalled = at, False
        proc = self._case.proc(run)
        if proc is not None:
            proc.untaken_since.clear()

    # Was it noticed? -------------------------------------------------------------------------

    def not_overdue(self, book: Book, run: RunRec, at: float) -> None:
        """The run goes on: then no clock may have run out a while ago."""
        case = self._case
        case.on_time("P10", book, run.due_at(), at, f"{run.id} still runs past its deadline")
        if run.parent is not None and run.parent.not_after is not None:
            date = run.parent.not_after - WALL_AT_START
            case.on_time("P10", book, date, at, f"{run.id} still runs past its parent's end")
        clock, budget_s = self._silence(run)
        if budget_s and book.trouble_until <= run.since:
            told = f"{run.id} still runs past {clock}"
            case.on_time("P10", book, run.since + budget_s, at, told)
        self._writes_not_overdue(book, run, at)
        for name, asked in run.open.items():
            if run.limits.approval_s:
                due = asked.at + run.limits.approval_s
                case.on_time("P10", book, due, at, f"approval {name} is still open")

    def _writes_not_overdue(self, book: Book, run: RunRec, at: float) -> None:
        proc = self._case.proc(run)
        if proc is None or not run.limits.write_s or run.phase in ("starting", "retrying"):
            return
        oldest = min(proc.untaken_since.values(), default=None)
        if oldest is not None:
            due = oldest + run.limits.write_s
            self._case.on_time("P10", book, due, at, f"{run.id} still runs past write")

    # Was it so? ------------------------------------------------------------------------------

    def timed_out(self, book: Book, run: RunRec, reason: str, at: float) -> None:
        """That clock had run out, and only just."""
        due = self._due(run, reason, at)
        case = self._case
        if due is None:
            case.blame("P2", f"{run.id} timed out by {reason}, which was not running")
        elif at < due - EPS_S:
            told = f"{run.id} timed out by {reason} at {at:.3f} s, due only at {due:.3f} s"
            case.blame("P2", told)
        elif reason in ("deadline", "ceiling", "queue") or book.trouble_until <= run.since:
            case.on_time("P10", book, due, at, f"{run.id} timed out by {reason}")
        silence = self._silence(run)[0] == reason and reason != "write"
        if silence and book.trouble_until <= run.since <= at + EPS_S:
            case.expect("P10", run.stalled, f"{run.id} timed out by {reason} without a warning")

    def _due(self, run: RunRec, reason: str, at: float) -> float | None:
        """When that clock ran out, by what was known at `at`. A sign of work that came while the
        decision was being stored came too late to count."""
        limits = run.limits
        if reason == "queue":
            waited_until = max(run.accepted_at + limits.queue_s, run.queued_at)
            return waited_until if limits.queue_s else None
        if reason in ("deadline", "ceiling"):
            return self._date(run, reason)
        if reason == "write":
            proc = self._case.proc(run)
            if proc is None or not limits.write_s:
                return None
            later = [written for written, known_at in proc.takings if known_at > at]
            pending = [*proc.untaken_since.values(), *later]
            return min(pending) + limits.write_s if pending else None
        clock, budget_s = self._silence(run)
        if run.since > at + EPS_S:
            return at
        return run.since + budget_s if clock == reason and budget_s else None

    def _date(self, run: RunRec, reason: str) -> float | None:
        dates = []
        budget_s = run.limits.deadline_s if reason == "deadline" else run.limits.ceiling_s
        if budget_s and run.started_at is not None:
            dates.append(run.started_at + budget_s)
        parent = run.parent
        if reason == "deadline" and parent is not None and parent.not_after is not None:
            dates.append(parent.not_after - WALL_AT_START)
        return min(dates, default=None)

    def stalling(self, book: Book, run: RunRec, fact: e.RunStalling, at: float) -> None:
        case, (clock, budget_s) = self._case, self._silence(run)
        case.expect("P10", not run.stalled, f"{run.id} stalls twice in one silence")
        case.expect(
            "P10", (fact.clock, fact.budget_s) == (clock, budget_s) and bool(budget_s),
            f"{run.id} stalls by {fact.clock} in phase {run.phase}",
        )  # fmt: skip
        if run.since > at + EPS_S:
            return
        half = run.since + budget_s / 2
        case.expect(
            "P10", at >= half - EPS_S, f"{run.id} stalls at {at:.3f} s, half is {half:.3f} s"
        )
        if book.trouble_until <= run.since:
            case.on_time("P10", book, half, at, f"{run.id} stalls")
            silent_s = at - run.since
            near = abs(fact.silent_s - silent_s) < SLACK_S
            told = f"{run.id} says it was silent for {fact.silent_s} s, not {silent_s:.3f} s"
            case.expect("P10", near, told)
        run.stalled = True

    def _silence(self, run: RunRec) -> tuple[str, float]:
        rule = BUDGET.get(run.phase)
        return (rule[0], float(getattr(run.limits, rule[1]))) if rule else ("", 0.0)
