"""The judge of bytes: what an agent wrote against what the log says, and what was written to it.

Decides whether P7 (each byte counts once) and P9 (frames are whole and in order) hold. It must not
know the core. Invariant: for every process, the log's output, its late evidence and the ends
of its runs are together exactly what it wrote, in its order.
"""

from __future__ import annotations

import msgspec

from turnkeeper.core import effects as f
from turnkeeper.core import events as e
from turnkeeper.core import signals as s
from turnkeeper.testing.ledger import EPS_S, Book, Case, Emission, Proc, RunRec

NEWS = (*s.OUTPUT, *s.BOUNDARY, s.Asked)
Stated = (
    e.OutputText
    | e.OutputThinking
    | e.ToolStartedFact
    | e.ToolProgressFact
    | e.ToolEndedFact
    | e.ApprovalRequested
)


def signal_of(fact: Stated) -> s.AgentSignal:
    """What an agent must have written for this to be in the log."""
    match fact:
        case e.OutputText():
            return s.Text(fact.text)
        case e.OutputThinking():
            return s.Thinking(fact.text)
        case e.ToolStartedFact():
            return s.ToolStarted(fact.tool, fact.name, fact.input)
        case e.ToolProgressFact():
            return s.ToolProgress(fact.tool, fact.text)
        case e.ToolEndedFact():
            return s.ToolEnded(fact.tool, fact.ok, fact.output)
        case e.ApprovalRequested():
            return s.Asked(fact.ref, fact.tool, fact.input)


class StreamJudge:
    """Judges streams and frames."""

    def __init__(self, case: Case) -> None:
        self._case = case

    # What the agent wrote ------------------------------------------------------------------

    def wrote(self, process: str, run: str, signals: tuple[s.AgentSignal, ...]) -> None:
        proc, now = self._case.procs[process], self._case.now()
        for signal in signals:
            if isinstance(signal, NEWS):
                proc.emissions.append(Emission(now, run, signal))
            elif isinstance(signal, s.Withdrawn):
                proc.withdrawn.add(signal.ref)
            elif isinstance(signal, s.ContextLost):
                proc.contexts_lost += 1
            elif isinstance(signal, s.Conversation):
                proc.conversations.add(signal.id)

    def wrote_garbage(self, process: str) -> None:
        proc = self._case.procs[process]
        proc.broken.add("protocol_error")
        if proc.readable is None:
            proc.readable = len(proc.emissions)

    # What the log says -----------------------------------------------------------------------

    def output(self, run: RunRec, fact: Stated) -> None:
        """The log shows something: it must be the next thing that the agent said in this run."""
        proc = self._case.proc(run)
        said = signal_of(fact)
        found = _next(proc)
        if proc is None or found is None or found.signal != said or found.run != run.id:
            self._case.blame("P7", f"{run.id} shows {said}, but its agent said next: {found}")
        else:
            proc.consumed += 1

    def late(self, run: str, what: str, data: object) -> None:
        """Late evidence: from the newest process on which it comes next."""
        for proc in reversed(self._case.procs.values()):
            found = _next(proc)
            if (
                found is not None
                and found.run == run
                and type(found.signal).__name__ == what
                and msgspec.to_builtins(found.signal) == data
            ):
                proc.consumed += 1
                return
        self._case.blame("P7", f"late {what} of {run}: no agent said that next, or not again")

    def late_end(self, run: RunRec, what: str, data: object) -> None:
        """How the agent's turn ended by itself, told of a run that was already decided."""
        proc = self._case.proc(run)
        if what == "Failed" and run.outcome is None:
            said = self.said_next(run)
            true = isinstance(said, s.Failed) and msgspec.to_builtins(said) == data
        elif what == "Failed":
            self.late(run.id, what, data)
            return
        elif what == "Exited":
            true = proc is not None and proc.died_at is not None
        else:
            ours = self._case.long_outage or run.id in self._case.raised
            true = proc is None or bool(proc.broken) or ours
        self._case.expect("P7", true, f"late {what} of {run.id} is not what its agent did")

    def boundary(self, run: RunRec, *kinds: type[s.Signal]) -> s.AgentSignal | None:
        """The run ends at its agent's own word: that must be the next thing it said."""
        proc = self._case.proc(run)
        found = _next(proc)
        if proc is None or found is None or found.run != run.id:
            self._case.blame("P2", f"{run.id} ends at its agent's word; it said next: {found}")
            return None
        if not isinstance(found.signal, kinds):
            promise = "P7" if isinstance(found.signal, s.OUTPUT) else "P2"
            self._case.blame(promise, f"{run.id} ends at its agent's word, over {found}")
            return None
        proc.consumed += 1
        return found.signal

    def said_next(self, run: RunRec, by: float = float("inf")) -> s.AgentSignal | None:
        """What it said next in this run, if that was whole by then."""
        found = _next(self._case.proc(run))
        known = found is not None and found.run == run.id and found.at <= by + EPS_S
        return found.signal if found is not None and known else None

    def nothing_unread(self, run: RunRec, at: float) -> None:
        """Before a clock, a stop or an exit ends a run, all that is readable has been read."""
        proc = self._case.proc(run)
        if proc is None or proc.lost or run.phase == "retrying":
            return
        found = _next(proc)
        beyond = proc.readable is not None and proc.consumed >= proc.readable
        if found is None or beyond or found.at >= at - EPS_S:
            return
        given = isinstance(found.signal, s.BOUNDARY)
        promise, what = ("P2", "thrown away") if given else ("P7", "missing")
        self._case.blame(promise, f"{found.signal} of {found.run} is {what} when {run.id} ends")

    # What was written to it ------------------------------------------------------------------

    def was_written(self, book: Book, process: str, frame: int, intent: f.Intent) -> None:
        case, proc = self._case, self._case.procs.get(process)
        if proc is None:
            return
        case.expect("P9", not proc.banned, f"{process} did not take a frame and got {frame}")
        before = proc.written.get(frame)
        if before is None:
            in_order = frame == len(proc.written) + 1
            case.expect("P9", in_order, f"{process} got {frame} after {len(proc.written)}")
            proc.written[frame] = intent
        else:
            case.expect("P9", before == intent, f"frame {frame} of {process} changed")
        if frame not in proc.taken or proc.lost:
            proc.untaken_since.setdefault(frame, case.now())
        run = book.active
        case.expect(
            "P3", run is not None and run.id == intent.run and run.process == process,
            f"{intent} was written to {process} while {run.id if run else 'nothing'} ran",
        )  # fmt: skip

    def took(self, process: str, frame: int, intent: f.Intent) -> None:
        case, proc = self._case, self._case.procs[process]
        case.expect("P9", frame == len(proc.taken) + 1, f"{process} took {frame} out of order")
        proc.taken[frame] = intent
        if isinstance(intent, f.Say):
            again = [x for x in proc.taken.values() if isinstance(x, f.Say) and x == intent]
            case.expect("P4", len(again) == 1, f"{process} was told {intent.message} twice")


def _next(proc: Proc | None) -> Emission | None:
    """The first emission that nothing in the log speaks of."""
    if proc is None or proc.consumed >= len(proc.emissions):
        return None
    return proc.emissions[proc.consumed]
