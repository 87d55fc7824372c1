"""Writes docs/reference/metrics.md: every metric with its labels, from the source.

Decides only how they are shown. Run it with `make diagram`; a test fails while the committed page
is stale.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from turnkeeper.core.events import KINDS
from turnkeeper.core.limits import SILENCE, Phase
from turnkeeper.core.outcome import REASONS, Kind
from turnkeeper.observe.metrics import NOW, Metrics
from turnkeeper.observe.tally import Family

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "metrics.md"

PROCESS = {
    "process_resident_memory_bytes": ("gauge", "memory of the server itself, without agents"),
    "process_virtual_memory_bytes": ("gauge", "its address space"),
    "process_cpu_seconds_total": ("counter", "CPU time of the server itself"),
    "process_open_fds": ("gauge", "open files"),
    "process_max_fds": ("gauge", "how many it may open"),
    "process_start_time_seconds": ("gauge", "when it began, in seconds since 1970"),
}

LABELS = {
    "agent": "the agent's name in the configuration",
    "outcome": ", ".join(f"`{kind.value}`" for kind in Kind),
    "reason": "why, within the outcome: see below",
    "cause": "`preempted` (a person went first), `lost` (nothing had been seen of it), `not_taken`"
    " (the running turn did not take it in)",
    "clock": ", ".join(f"`{clock.value}`" for clock, _ in SILENCE.values()),
    "decision": "`allowed`, `denied`, `expired`, `withdrawn`",
    "kind": "the kind of the event: see [events](events.md)",
    "phase": ", ".join(f"`{phase.value}`" for phase in Phase if phase is not Phase.CLOSED),
    "version": "of Turnkeeper",
    "python": "the version of Python",
}


def families() -> list[Family]:
    return [*Metrics(version="0").families(), *NOW]


def shown_name(family: Family) -> str:
    return f"{family.name}_total" if family.kind == "counter" else family.name


def render() -> str:
    return "\n".join([*_head(), *_table(), *_labels(), *_process()]).rstrip() + "\n"


def _head() -> Iterable[str]:
    yield "# Metrics"
    yield ""
    yield "Made from `turnkeeper.observe.metrics` by `make diagram`; do not edit it by hand."
    yield ""
    yield "`GET /metrics` shows them to Prometheus; [how to monitor](../how-to/monitor.md) says"
    yield "what to ask of them. A counter or a histogram tells of this server's life alone; what"
    yield "has `_now` in its name, and every other gauge, is looked up when it is asked for."
    yield "A histogram `x_seconds` has the series `x_seconds_bucket`, `_sum` and `_count`."
    yield ""


def _table() -> Iterable[str]:
    yield "| name | type | labels | meaning |"
    yield "|---|---|---|---|"
    for family in families():
        labels = ", ".join(f"`{label}`" for label in family.labels) or "–"
        yield f"| `{shown_name(family)}` | {family.kind} | {labels} | {family.told} |"
    yield ""
    yield f"`turnkeeper_events_total` has a series for each of the {len(KINDS)} kinds: the words"
    yield "that were relayed are those of `output.text` and `output.thinking`, answers that came"
    yield "too late are those of `late`. `turnkeeper_stop_latency_seconds` is 0 where the agent"
    yield "cannot be asked, since the run then ends with the decision; the time until its last"
    yield "process is dead is `turnkeeper_cleanup_seconds`."
    yield ""


def _labels() -> Iterable[str]:
    yield "## Labels"
    yield ""
    yield "| label | values |"
    yield "|---|---|"
    for label, told in LABELS.items():
        yield f"| `{label}` | {told} |"
    yield ""
    yield "| outcome | reasons |"
    yield "|---|---|"
    for kind in Kind:
        yield f"| `{kind.value}` | {', '.join(f'`{reason}`' for reason in REASONS[kind])} |"
    yield ""
    yield "No label has the name of a session, a run, a tool or a person, so the number of series"
    yield "depends on the configuration alone."
    yield ""


def _process() -> Iterable[str]:
    yield "## The process"
    yield ""
    yield "| name | type | meaning |"
    yield "|---|---|---|"
    for name, (kind, told) in PROCESS.items():
        yield f"| `{name}` | {kind} | {told} |"


def main() -> None:
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
