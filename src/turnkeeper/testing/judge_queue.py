"""The judge of the queue: what is accepted, edited, moved, given to a running turn, or given back.

Decides whether P4 and P11 hold for what waits. It must not know the core's state or rules.
Invariant: it looks at each event once, in the order in which they were stored.
"""

from __future__ import annotations

from dataclasses import replace

from turnkeeper.core import effects as f
from turnkeeper.core import events as e
from turnkeeper.testing.ledger import PREEMPTIONS_MAX, RANK, Book, Case, RunRec
from turnkeeper.testing.virtual import WALL_AT_START


class QueueJudge:
    """Judges what becomes of messages before they run."""

    def __init__(self, case: Case) -> None:
        self._case = case

    def accepted(self, book: Book, event: e.Event, data: e.MessageAccepted) -> None:
        case, at = self._case, event.at - WALL_AT_START
        if data.key is not None:
            case.expect("P4", data.key not in book.keys, f"key {data.key} is accepted twice")
            book.keys[data.key] = (data.message, data.run, event.seq, data.position)
        active = book.active
        book.words[data.message] = data.text
        rec = RunRec(
            data.run, book.name, data.message, data.text, RANK[data.priority], event.seq, at,
            dict(data.limits), data.parent,
        )  # fmt: skip
        if data.steered:
            self._steer(book, active, data.run, rec)
            return
        case.expect("P4", data.run not in case.runs, f"run {data.run} is accepted twice")
        self._wait(book, rec, at)
        if active is not None and active.decision is None:
            self._make_way(book, active, rec, data)

    def _steer(self, book: Book, active: RunRec | None, run: str, rec: RunRec) -> None:
        """That run is to take the words of a message in its turn."""
        can = active is not None and active.decision is None and active.id == run
        told = f"{rec.message} is to steer {run}, which is not running"
        self._case.expect("P4", can and book.steers, told)
        book.steered[rec.message] = (run, rec)
        if active is not None:
            active.observed = active.observed or bool(active.outputs)
            active.urgency = min(active.urgency, rec.rank)

    def _wait(self, book: Book, rec: RunRec, at: float) -> None:
        rec.queued_at = at
        rec.limits = book.limits_for(rec.patch)
        self._case.runs[rec.id] = book.waiting[rec.id] = rec
        parent = self._case.runs.get(rec.parent.run) if rec.parent is not None else None
        if parent is not None:
            parent.offspring.append(rec)
            if parent.decision is not None:
                rec.stops.append("parent_ended")

    def _make_way(self, book: Book, active: RunRec, rec: RunRec, data: e.MessageAccepted) -> None:
        urgency = min(active.urgency, active.rank)
        background = urgency == RANK["background"] and rec.rank == RANK["person"]
        if background:
            if active.preemptions < PREEMPTIONS_MAX:
                active.stops.append("preempted")
                book.must_make_way = active
        elif data.when_busy == "interrupt" and rec.rank <= urgency:
            active.stops.append("superseded")
            book.must_make_way = active

    # What somebody does to what waits --------------------------------------------------------

    def _waiting(self, book: Book, run: str | None, what: str) -> RunRec | None:
        rec = book.waiting.get(run or "")
        self._case.expect("P4", rec is not None, f"{run} is {what}, and does not wait")
        return rec

    def edited(self, book: Book, event: e.Event, data: e.MessageEdited) -> None:
        rec = self._waiting(book, event.run, "edited")
        if rec is not None:
            told = f"{rec.id} has words that nobody gave it: {data.text}"
            self._case.expect("P4", data.text in rec.edits, told)
            rec.text = book.words[rec.message] = data.text

    def moved(self, book: Book, event: e.Event, data: e.QueueMoved) -> None:
        """The places of a class stay, and those who wait there stand at them in the new order."""
        rec = self._waiting(book, event.run, "moved")
        if rec is None:
            return
        self._case.expect("P11", data.before in rec.moves, f"nobody moved {rec.id}")
        alike = sorted((x for x in book.waiting.values() if x.rank == rec.rank), key=_place)
        places = [x.place for x in alike]
        alike.remove(rec)
        names = [x.id for x in alike]
        if data.before is not None and data.before not in names:
            self._case.blame("P11", f"{rec.id} is moved before {data.before}, not of its class")
            return
        alike.insert(len(names) if data.before is None else names.index(data.before), rec)
        for x, place in zip(alike, places, strict=True):
            x.place = place

    def handed_over(self, book: Book, event: e.Event, data: e.MessageHandedOver) -> None:
        rec = self._waiting(book, data.previous, "given to the running turn")
        if rec is None:
            return
        case = self._case
        case.expect("P4", rec.handings > 0, f"nobody gave {rec.id} to the running turn")
        case.expect("P4", rec.parent is None, f"{rec.id} is a child that its parent waits for")
        case.expect("P4", data.text == rec.text, f"{rec.id} is given on in other words")
        rec.stops.append("superseded")
        again = replace(
            rec, generation=rec.generation + 1, stops=[], edits=[], moves=[], offspring=[]
        )
        self._steer(book, book.active, event.run or "", again)
        book.must_end = rec

    def batch_over(self, book: Book) -> None:
        """Whoever's words were given to a turn has ended with that, in one append."""
        gone, book.must_end = book.must_end, None
        if gone is not None:
            told = f"{gone.id} still waits, and its words were given to the running turn"
            self._case.expect("P4", gone.outcome is not None, told)

    def written(self, book: Book, intent: f.Intent) -> None:
        """An agent is told the words that a message has, and no others."""
        if isinstance(intent, f.Say | f.SteerIn):
            told = f"{intent.run} is told {intent.text!r}, which is not what was said"
            same = book.words.get(intent.message) == intent.text
            self._case.expect("P4", same, told)

    # What comes back -------------------------------------------------------------------------

    def requeued(self, book: Book, event: e.Event, data: e.RunRequeued) -> None:
        case, previous = self._case, self._case.runs[data.previous]
        case.expect("P1", event.run not in case.runs, f"run {event.run} is queued twice")
        if data.cause == "not_taken":
            steer = book.steered.pop(data.message, None)
            if steer is None:
                case.blame("P4", f"{data.message} was taken, and is queued again")
                return
            rec = replace(steer[1], id=event.run or "")
        else:
            rec = self._again(event, data, previous)
        self._wait(book, rec, event.at - WALL_AT_START)

    def _again(self, event: e.Event, data: e.RunRequeued, previous: RunRec) -> RunRec:
        case = self._case
        case.expect("P4", not previous.requeued, f"{previous.id} is given back twice")
        case.expect(
            "P4", data.cause != "lost" or not previous.outputs,
            f"{data.message} is run again although {previous.id} had output",
        )  # fmt: skip
        previous.requeued = data.cause
        preemptions = previous.preemptions + (data.cause == "preempted")
        told = f"{data.message} is preempted for the {preemptions}th time"
        case.expect("P11", preemptions <= PREEMPTIONS_MAX, told)
        return RunRec(
            event.run or "", previous.session, previous.message, previous.text, previous.rank,
            previous.place, previous.accepted_at, previous.patch, previous.parent,
            generation=previous.generation + 1, ran=True, preemptions=preemptions,
        )  # fmt: skip


def _place(rec: RunRec) -> int:
    return rec.place
