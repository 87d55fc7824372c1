"""The judge: sees everything that really happens, and checks every promise after every step.

Decides whether a promise was broken, and which. It must not know how the core decides; of the core
it uses the events' types, and `fold` only to check that the log alone gives the living state.
Invariant: each fact is judged when it happens, at O(1); the first broken promise is kept.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from turnkeeper.core import commands as c
from turnkeeper.core import signals as s
from turnkeeper.core.effects import Intent
from turnkeeper.core.events import Event, MessageAccepted, decode, encode
from turnkeeper.core.fold import apply
from turnkeeper.core.outcome import Outcome
from turnkeeper.core.state import Session
from turnkeeper.ports import Batch
from turnkeeper.testing.judge_log import LogJudge
from turnkeeper.testing.ledger import Book, Case, Proc
from turnkeeper.testing.script import Body, Spawn, Witness

LiveState = Callable[[str], Session | None]


class Watching:
    """One watcher's way through a log. `attached` while it reads."""

    def __init__(self, session: str, cursor: int) -> None:
        self.session = session
        self.cursor = cursor
        self.attached = False


class Oracle(Witness):
    """Judges a world. Its methods are called when something has happened."""

    def __init__(self, now: Callable[[], float], live_state: LiveState) -> None:
        self.case = Case(now)
        self.log = LogJudge(self.case)
        self.watchers: list[Watching] = []
        self.on_child: Callable[[str, Spawn], None] = lambda run, spawn: None
        self._live_state = live_state
        self._shadows: dict[str, Session] = {}
        self._frames: dict[str, int] = {}
        """By process: the last frame that the log calls for."""
        self._sent: dict[tuple[str, str], tuple[str, c.Accepted]] = {}
        self._waited: dict[str, Outcome] = {}

    def session(self, book: Book) -> None:
        """There is such a session in this world."""
        self.case.books[book.name] = book
        self._shadows[book.name] = Session(book.name)

    # The store -------------------------------------------------------------------------------

    def stored(self, batch: Batch) -> None:
        book = self.case.books[batch.session]
        shadow = self._shadows[batch.session]
        for event in batch.events:
            self.log.event(book, event)
            self._fold(shadow, event)
        self.log.batch_over(book)
        live = self._live_state(batch.session)
        if live is not None and live != shadow:
            self.case.blame("fold", f"{_difference(shadow, live)} in {batch.session}")

    def _fold(self, shadow: Session, event: Event) -> None:
        try:
            apply(shadow, decode(encode(event)))
            if shadow.process is not None:
                self._frames[shadow.process.name] = shadow.process.frames
        except (ValueError, KeyError, AssertionError) as fault:
            self.case.blame("fold", f"the log cannot be read at {event.seq}: {fault!r}")

    def claimed(self, session: str) -> None:
        book = self.case.books[session]
        self.trouble(session, self.case.now())
        book.back_at, book.closing = self.case.now(), False
        self.log.clock.came_back(book, self.case.now())

    def trouble(self, session: str | None, until: float) -> None:
        books = self.case.books.values() if session is None else (self.case.books[session],)
        for book in books:
            book.trouble_until = max(book.trouble_until, until)

    # The agents' machine ---------------------------------------------------------------------

    def born(self, process: str, session: str, body: Body) -> None:
        self.case.procs[process] = Proc(process, session, max(0.0, body.killed_after_s - 0.9))
        told = f"{process} was started before that was stored"
        book = self.case.books[session]
        self.case.expect("P4", book.process == process, told)
        if book.active is not None:
            self.log.clock.spawned(book.active, self.case.now())

    def died(self, process: str, code: int | None, cause: str) -> None:
        proc = self.case.procs[process]
        proc.alive, proc.died_at, proc.code, proc.cause = False, self.case.now(), code, cause

    def abandoned(self, process: str) -> None:
        self.case.procs[process].lost = True

    def left_behind(self, process: str, children: int) -> None:
        self.case.procs[process].children = children

    def wrote(self, process: str, run: str, signals: tuple[s.AgentSignal, ...]) -> None:
        self.log.stream.wrote(process, run, signals)

    def wrote_garbage(self, process: str) -> None:
        self.log.stream.wrote_garbage(process)

    def was_written(self, process: str, frame: int, intent: Intent) -> None:
        proc = self.case.procs.get(process)
        if proc is None:
            return
        stored = frame <= self._frames.get(process, 0)
        told = f"frame {frame} was written to {process} before that was stored"
        self.case.expect("P4", stored, told)
        self.log.stream.was_written(self.case.books[proc.session], process, frame, intent)
        self.log.queue.written(self.case.books[proc.session], intent)

    def took(self, process: str, frame: int, intent: Intent) -> None:
        self.log.stream.took(process, frame, intent)

    def executed(self, process: str, run: str, ref: str) -> None:
        asked = [q for q in self.case.questions.values() if (q.run, q.ref) == (run, ref)]
        allowed = [q for q in asked if q.decision == "allowed" and not q.executed]
        if not allowed:
            self.case.blame("P6", f"{process} executed {ref} of {run}, which was not allowed")
        else:
            allowed[0].executed += 1

    def reported(self, process: str, run: str, signal: s.AgentSignal) -> None:
        proc = self.case.procs.get(process)
        if proc is None:
            return
        match signal:
            case s.Ready():
                proc.ready = True
            case s.Taken():
                since = proc.untaken_since.pop(signal.frame, None)
                if since is not None:
                    proc.takings.append((since, self.case.now()))
            case s.Broken():
                proc.broken.add(signal.reason)
                if signal.reason == "output_limit":
                    proc.readable = 0
            case s.Sampled(sample=sample) if sample.busy:
                active = self.case.books[proc.session].active
                if active is not None and active.process == process:
                    self.log.clock.busy(active, self.case.now())
            case _:
                pass

    def wants_child(self, run: str, spawn: Spawn) -> None:
        self.on_child(run, spawn)

    # People ----------------------------------------------------------------------------------

    def acknowledged(self, session: str, text: str, key: str | None, answer: c.Accepted) -> None:
        """P4: what is acknowledged is in the log, and a key has one answer for ever."""
        log = self.case.books[session].log
        event = log[answer.seq - 1] if answer.seq <= len(log) else None
        said = event.data if event is not None else None
        same = isinstance(said, MessageAccepted) and (said.message, said.run) == answer_of(answer)
        self.case.expect("P4", same, f"{answer.message} is acknowledged, but not in the log")
        if isinstance(said, MessageAccepted):
            self.case.expect("P4", said.text == text, f"{answer.message} has another text")
        if key is None:
            return
        body, first = self._sent.setdefault((session, key), (text, answer))
        self.case.expect("P4", body == text, f"key {key} was accepted for another body")
        same = msgspec.structs.astuple(first)[:4] == msgspec.structs.astuple(answer)[:4]
        self.case.expect("P4", same, f"key {key} was answered {first}, then {answer}")

    def conflicted(self, session: str, text: str, key: str) -> None:
        known = self._sent.get((session, key))
        if known is not None:
            self.case.expect("P4", known[0] != text, f"key {key} conflicts with its own body")

    def stop_asked(self, run: str) -> None:
        known = self.case.runs.get(run)
        if known is not None:
            known.stops.append("stopped")

    def stop_answered(self, answer: c.StopAnswer) -> None:
        run = self.case.runs[answer.run]
        decided = (
            run.decision is not None if answer.state == "stopping" else run.outcome is not None
        )
        self.case.expect("P3", decided, f"{run.id} is said to be {answer.state}, and is not")
        if answer.changed and run.decision is not None:
            cancelled = run.decision.kind == "cancelled"
            told = f"{run.id} is said to be stopped, and is {run.decision[:2]}"
            self.case.expect("P3", cancelled, told)

    def told(self, run: str, outcome: Outcome) -> None:
        """P2: whoever asks is told what the log says."""
        stored = self.case.runs[run].outcome
        self.case.expect("P2", stored == outcome, f"{run} is told as {outcome}, stored as {stored}")

    def editing(self, run: str, text: str | None, before: str | None) -> None:
        known = self.case.runs.get(run)
        if known is not None and text is not None:
            known.edits.append(text)
        elif known is not None:
            known.moves.append(before)

    def handing_over(self, run: str) -> None:
        known = self.case.runs.get(run)
        if known is not None:
            known.handings += 1

    def handed_over(self, answer: c.Handed) -> None:
        """P4: whoever is told that its words were given on has ended, and the log says to whom."""
        run = self.case.runs.get(answer.run)
        out = run.outcome if run is not None else None
        right = out is not None and out.reason == "superseded" and answer.into in out.detail
        self.case.expect("P4", right, f"{answer.run} is said to be given to {answer.into}")

    def not_queued(self, run: str) -> None:
        """Whoever is told that a run does not wait is told the truth."""
        known = self.case.runs.get(run)
        waits = known is not None and run in self.case.books[known.session].waiting
        self.case.expect("P4", not waits, f"{run} is said not to wait, and does")

    def answering(self, approval: str, allow: bool, rule: str | None = None) -> None:
        question = self.case.questions.get(approval)
        if question is not None:
            question.answers.append(allow)
            if rule is not None:
                question.rules.append(rule)

    def answered(self, approval: str, allow: bool) -> None:
        """It was said to have counted."""
        question = self.case.questions.get(approval)
        decision = question.decision if question is not None else "unknown"
        told = f"{approval} was said to be answered {allow}, and is {decision}"
        right = decision == ("allowed" if allow else "denied")
        self.case.expect("P6", right, told)

    # Watchers --------------------------------------------------------------------------------

    def shown(self, watching: Watching, event: Event) -> None:
        log = self.case.books[watching.session].log
        told = f"a watcher of {watching.session} got {event.seq} after {watching.cursor}"
        self.case.expect("P8", event.seq == watching.cursor + 1, told)
        stored = event.seq <= len(log) and log[event.seq - 1] == event
        self.case.expect("P8", stored, f"event {event.seq} was shown, and is not stored so")
        watching.cursor = event.seq

    def cut_off(self, watching: Watching, cursor: int) -> None:
        right = cursor == watching.cursor
        told = f"a watcher that got {watching.cursor} was cut off at {cursor}"
        self.case.expect("P8", right, told)

    # The end of the world --------------------------------------------------------------------

    def everything_ended(self) -> bool:
        books = self.case.books.values()
        idle = all(b.active is None and not b.waiting and not b.children for b in books)
        return idle and not any(b.steered for b in books)

    def finish(self) -> None:
        """P1 and the rest that only shows at the end."""
        case = self.case
        for run in case.runs.values():
            case.expect("P1", run.outcome is not None, f"{run.id} never ended ({run.phase})")
        for book in case.books.values():
            case.expect("P4", not book.steered, f"steering was lost: {list(book.steered)}")
            case.expect("P1", not book.children, f"children never ended: {list(book.children)}")
            told = f"{book.active.id if book.active else ''} was never cleaned up"
            case.expect("P5", book.active is None, told)
            self._children_told(book)
        for watching in self.watchers:
            head = len(case.books[watching.session].log)
            told = f"a watcher of {watching.session} has {watching.cursor} of {head}"
            case.expect("P8", not watching.attached or watching.cursor >= head, told)

    def _children_told(self, book: Book) -> None:
        for child, told in book.child_ends.items():
            runs = [r for r in self.case.runs.values() if r.message == "m" + child[1:]]
            last = max(runs, key=lambda r: r.generation, default=None)
            if last is None:
                right = (told.outcome.value, told.reason) in NEVER_ACCEPTED
            else:
                out = last.outcome
                right = out is not None and (out.kind, out.reason) == (told.outcome, told.reason)
            truth = last.outcome if last is not None else "never accepted"
            self.case.expect("P2", right, f"child {child} is told as {told}, and is {truth}")

    def nothing_lives(self, spare: Callable[[Proc], bool]) -> None:
        """P5 at the end: of all processes only those live that may."""
        for proc in self.case.procs.values():
            left = not proc.is_gone and not spare(proc)
            self.case.expect("P5", not left, f"{proc.name} outlived everything")


NEVER_ACCEPTED = {("failed", "spawn_failed"), ("lost", "server_lost")}


def answer_of(answer: c.Accepted) -> tuple[str, str]:
    return answer.message, answer.run


def _difference(shadow: Session, live: Session) -> str:
    names = [n for n in shadow.__struct_fields__ if getattr(shadow, n) != getattr(live, n)]
    pairs = (f"{n}: {getattr(shadow, n)} in the log, {getattr(live, n)} live" for n in names)
    return "; ".join(pairs)
