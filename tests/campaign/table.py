"""The campaign's figures, as a table for people.

Decides words and order. It must not know how figures came about.
"""

from __future__ import annotations

from collections import Counter
from statistics import median

from tests.campaign.campaign import Verdict
from tests.campaign.evidence import Evidence
from tests.campaign.judge import RULES

SHOWN = 20


def lived_through(evidence: Evidence) -> list[int]:
    """For each run that completed, how often the server went during it, if it did."""
    record = evidence.record
    kills = [kill.at for kill in record.kills] + [stop.at for stop in record.stops]
    found = []
    for run in evidence.stories.runs.values():
        if run.outcome.get("kind") == "completed" and run.tries:
            began, ended = run.tries[-1].began["at"], run.endings[0]["at"]
            found.append(sum(began < at < ended for at in kills))
    return [times for times in found if times]


def rows(verdict: Verdict) -> list[tuple[str, object]]:
    evidence = verdict.evidence
    record, runs = evidence.record, evidence.stories.runs
    aims = Counter(kill.how for kill in record.kills)
    aimed = sum(aims.values()) - aims["random"] - aims["start"]
    acked = Counter(ack.token for ack in record.acks)
    ready = [start.ready_s for start in record.starts if start.ready_s is not None]
    lived = lived_through(evidence)
    outcomes = Counter(f"{x.outcome.get('kind')}/{x.outcome.get('reason')}" for x in runs.values())
    requeued = Counter(run.cause for run in runs.values() if run.cause)
    stops, answers = record.of("stop"), record.of("answer")
    return [
        ("kills", f"{len(record.kills)}: {aims['random']} at random, {aimed} aimed, "
                  f"{aims['start']} while starting"),
        ("broken otherwise", _counts(Counter(x.what for x in record.breaks))),
        ("asked to go", f"{len(record.stops)} times, gone after at most "
                        f"{max((stop.took_s for stop in record.stops), default=0.0):.2f} s"),
        ("start to ready", f"{median(ready):.2f} s median, {max(ready):.2f} s at most"),
        ("messages acknowledged", len(acked)),
        ("acknowledgements", len(record.acks)),
        ("duplicates", sum(times - 1 for times in acked.values())),
        ("other bodies refused", len(record.of("conflict"))),
        ("runs", f"{len(runs)}: " + _counts(outcomes)),
        ("given back", _counts(requeued)),
        ("turns that lived through a kill", f"{len(lived)}, of up to {max(lived, default=0)}"),
        ("stops", f"{sum(x.said == 'asked' for x in stops)} asked, "
                  f"{sum(bool(x.status == 200 and x.answer['changed']) for x in stops)} in time"),
        ("approvals", f"{sum(len(run.requested) for run in runs.values())} asked, "
                      f"{sum(x.status == 200 for x in answers)} answered, "
                      f"{sum(x.status == 409 for x in answers)} answers too late"),
        ("watchers", f"{len(record.watches)}, connected "
                     f"{sum(watch.connections for watch in record.watches)} times"),
        ("events", sum(map(len, evidence.lines.values()))),
        ("rows, each with its writer", len(evidence.writings.rows)),
        ("events seen", sum(len(watch.seen) for watch in record.watches)),
        ("took", f"{verdict.took_s:.0f} s"),
    ]  # fmt: skip


def _counts(counted: Counter[str]) -> str:
    return ", ".join(f"{number} {what}" for what, number in counted.most_common()) or "none"


def table(verdict: Verdict) -> str:
    """What happened, and what should not have."""
    found = Counter(violation.kind for violation in verdict.violations)
    lines = [f"{what:32} {figure}" for what, figure in rows(verdict)]
    lines += ["", "violations"]
    lines += [f"  {kind:30} {found[kind]}" for kind in RULES]
    for kind in found:
        told = [violation.told for violation in verdict.violations if violation.kind == kind]
        lines += ["", f"{kind}:", *(f"  {words[:600]}" for words in told[:SHOWN])]
        if len(told) > SHOWN:
            lines.append(f"  … and {len(told) - SHOWN} more")
    return "\n".join(lines)
