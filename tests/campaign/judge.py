"""The judge: what may never happen, looked for in what clients noted and what the logs say.

Decides what is a violation, and of which kind. It must not know how the campaign was run, and uses
nothing of the program but its logs. Invariant: every rule is tried with evidence that breaks it, in
tests/campaign/test_judge.py.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.campaign import judge_runs
from tests.campaign.evidence import Evidence
from tests.campaign.records import ACCEPTED_FIELDS


class Violation(NamedTuple):
    kind: str
    told: str


Rule = Callable[[Evidence], Iterator[str]]


def lost(evidence: Evidence) -> Iterator[str]:
    """Every acknowledged message is in the log, as it was acknowledged."""
    for ack in evidence.record.acks:
        message, answer = evidence.record.messages[ack.token], ack.answer
        found = evidence.stories.messages.get(answer["message_id"])
        if found is None or found.session != message.session:
            yield f"{message.token}: acknowledged as {answer}, and not in the log"
            continue
        data, seq = found.data, answer.get("seq", found.accepted["seq"])
        said = (found.accepted["seq"], data["run"], data["text"], data.get("key"))
        if said != (seq, answer["run_id"], message.text, message.key):
            yield f"{message.token}: acknowledged as {answer}, and the log has {data}"


def answers(evidence: Evidence) -> Iterator[str]:
    """The same key and body have the same answer, always; another body is a conflict."""
    told: dict[tuple[str, str], set[object]] = defaultdict(set)
    for ack in evidence.record.acks:
        if evidence.record.messages[ack.token].key is not None:
            for name in ACCEPTED_FIELDS:
                if name in ack.answer:
                    told[ack.token, name].add(ack.answer[name])
    for (token, name), different in told.items():
        if len(different) > 1:
            yield f"{token}: {name} was answered as {sorted(map(str, different))}"
    for asked in evidence.record.of("conflict"):
        if asked.status != 409:
            yield f"{asked.name}: another body under its key was answered {asked.status}"
    made = Counter(message.token for message in evidence.stories.messages.values())
    for token, times in made.items():
        if times > 1:
            yield f"{token}: accepted {times} times"


def watching(evidence: Evidence) -> Iterator[str]:
    """Every watcher saw the log: all of it, once, in order, to the letter."""
    for watch in evidence.record.watches:
        log = evidence.lines.get(watch.session, [])
        for at, (seq, line) in enumerate(watch.seen, 1):
            if seq != at or at > len(log) or log[at - 1] != line:
                before = watch.seen[at - 2][0] if at > 1 else 0
                yield f"{watch.name} of {watch.session}: {seq} after {before}: {line[:200]!r}"
                break
        else:
            if len(watch.seen) != len(log):
                yield f"{watch.name} of {watch.session}: {len(watch.seen)} of {len(log)} events"


def told(evidence: Evidence) -> Iterator[str]:
    """The lists of the last server, what was waited for and what is exported say what the logs
    say."""
    runs = evidence.stories.runs
    listed = Counter(found["id"] for found in evidence.told)
    for name in {*runs, *listed}:
        if listed[name] != 1 or name not in runs:
            yield f"{name}: listed {listed[name]} times"
    for found in evidence.told:
        outcome = runs[found["id"]].outcome if found["id"] in runs else {}
        said = found["outcome"] or {}
        if (said.get("kind"), said.get("reason")) != (outcome.get("kind"), outcome.get("reason")):
            yield f"{found['id']}: listed as {said}, and the log has {outcome}"
    for waited in evidence.record.of("wait"):
        outcome = runs[waited.name].outcome
        if waited.answer != {"kind": outcome.get("kind"), "reason": outcome.get("reason")}:
            yield f"{waited.name}: ended as {waited.answer}, it was told, and the log has {outcome}"
    for session, lines in evidence.exported.items():
        if lines != evidence.lines[session]:
            yield f"{session}: {len(lines)} lines are exported: {lines[:1]!r}"


def fenced(evidence: Evidence) -> Iterator[str]:
    """What only a session's owner may write was written by whose it was."""
    for row in evidence.writings.rows:
        if row.by != row.owner:
            told = f"{row.session}: {row.what} up to {row.upto} was written by {row.by}"
            yield f"{told}, when the session was {row.owner}'s"
    for piece in evidence.writings.unnoted:
        yield f"{piece}: nobody is known to have written that"


def unfinished(evidence: Evidence) -> Iterator[str]:
    yield from evidence.unfinished


def left(evidence: Evidence) -> Iterator[str]:
    yield from evidence.left


def faults(evidence: Evidence) -> Iterator[str]:
    yield from evidence.record.faults
    yield from evidence.complaints


RULES: dict[str, Rule] = {
    "lost": lost,
    "run twice": judge_runs.twice,
    "endings": judge_runs.endings,
    "answers": answers,
    "watching": watching,
    "stops": judge_runs.stops,
    "order": judge_runs.order,
    "output": judge_runs.output,
    "approvals": judge_runs.approvals,
    "told": told,
    "by a fenced owner": fenced,
    "unfinished": unfinished,
    "processes left": left,
    "faults": faults,
}


def judge(evidence: Evidence) -> list[Violation]:
    """Everything that should not have happened."""
    return [Violation(kind, words) for kind, rule in RULES.items() for words in rule(evidence)]
