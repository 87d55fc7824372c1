"""Writes docs/reference/run-table.md: the run's state machine, drawn and written out.

Decides only how the table is shown; all that it shows is in `turnkeeper.core.table`. Run it with
`make diagram`; a test fails while the committed page is stale.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from turnkeeper.core import signals as s
from turnkeeper.core.limits import Phase
from turnkeeper.core.table import TABLE

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "run-table.md"

AT_WORK = (Phase.WAITING, Phase.WORKING, Phase.TOOL, Phase.APPROVAL)
"""Drawn as one box: what holds for all of them is drawn once, at its border."""

GROUPS: tuple[tuple[str, frozenset[str]], ...] = (
    ("the turn is over", frozenset({"Finished", "Failed", "Aborted"})),
    ("text or thinking", frozenset({"Text", "Thinking"})),
    ("tool progress or end", frozenset({"ToolProgress", "ToolEnded"})),
    ("Gone or Lost", frozenset({"Gone", "Lost"})),
    ("Stop or a clock", frozenset({"Stop", "Tick"})),
    ("Answered or Withdrawn", frozenset({"Answered", "Withdrawn"})),
    ("Broken or Exited", frozenset({"Broken", "Exited"})),
)
"""Signals that share a label where all of them lead the same way."""

MEANING: dict[Phase, str] = {
    Phase.QUEUED: "it waits for its turn",
    Phase.STARTING: "the agent is getting ready",
    Phase.DELIVERING: "its message is being written",
    Phase.WAITING: "the message is taken; nothing has come yet",
    Phase.WORKING: "the model is at work",
    Phase.TOOL: "at least one tool is running",
    Phase.APPROVAL: "at least one question to a person is open",
    Phase.RETRYING: "a first try failed; its tree is being ended before the second",
    Phase.DRAINING: "the end is decided; the agent was asked to come to its boundary",
    Phase.SWEEPING: "ended; what the turn left behind is being ended, not the agent",
    Phase.TERMINATING: "ended; the whole tree was asked to go",
    Phase.KILLING: "ended; the whole tree is being killed until none is left",
    Phase.CLOSED: "ended, and cleaned up",
}

PLAIN: dict[str, str] = {
    "Answered": "A person answered a question.",
    "Stop": "Somebody or something wants this run to end: a person, a newer message, its parent.",
    "Text": "A piece of the agent's answer.",
    "Thinking": "A piece of the agent's thinking.",
    "ToolEnded": "A tool call is over.",
    "ToolProgress": "A tool got on.",
    "ToolStarted": "The agent began to use a tool.",
}
"""What a signal without a docstring means."""

Edge = tuple[str, Phase]


def render() -> str:
    return "\n".join([*_head(), *_diagram(), "", *_phases(), "", *_table(), *_signals()]) + "\n"


def _head() -> Iterable[str]:
    yield "# The run's table"
    yield ""
    yield "Made from `turnkeeper.core.table` by `make diagram`; do not edit it by hand."
    yield ""
    yield "Every run is in one of these phases, and the table says what each signal means in each"
    yield "of them. A signal that a phase does not list carries no news there: progress and results"
    yield "are then kept as late evidence, everything else is dropped."
    yield ""
    yield "## The way of a run"
    yield ""
    yield "A signal that leaves a run where it is is not drawn. `Tick` is a look at the clocks."
    yield ""


# The diagram -------------------------------------------------------------------------------------


def _edges() -> dict[Edge, set[str]]:
    """(from, to) -> signals, with what all phases at work have in common drawn once."""
    of_all: dict[tuple[str, Phase], set[Phase]] = defaultdict(set)
    for phase, row in TABLE.items():
        for signal, cell in row.items():
            for to in cell.to:
                if to is not phase:
                    of_all[signal.__name__, to].add(phase)
    edges: dict[Edge, set[str]] = defaultdict(set)
    for (signal_name, to), phases in of_all.items():
        left = set(phases)
        if left.issuperset(AT_WORK):
            edges["at_work", to].add(signal_name)
            left.difference_update(AT_WORK)
        for phase in left:
            edges[phase.value, to].add(signal_name)
    return edges


def _label(signals: set[str]) -> str:
    left, words = set(signals), []
    for word, members in GROUPS:
        if members <= left:
            words.append(word)
            left -= members
    return ", ".join([*words, *sorted(left)])


def _diagram() -> Iterable[str]:
    order = [phase.value for phase in Phase]
    edges = _edges()
    inside = {phase.value for phase in AT_WORK}
    drawn = sorted(edges, key=lambda edge: (_rank(edge[0], order), order.index(edge[1].value)))
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield "    [*] --> queued: a message is accepted"
    yield '    state "at work" as at_work {'
    for source, to in drawn:
        if source in inside and to.value in inside:
            yield f"        {source} --> {to.value}: {_label(edges[source, to])}"
    yield "    }"
    for source, to in drawn:
        if not (source in inside and to.value in inside):
            yield f"    {source} --> {to.value}: {_label(edges[source, to])}"
    yield "    closed --> [*]"
    yield "```"


def _rank(source: str, order: list[str]) -> float:
    return order.index("approval") + 0.5 if source == "at_work" else order.index(source)


# The table ---------------------------------------------------------------------------------------


def _phases() -> Iterable[str]:
    yield "## The phases"
    yield ""
    yield "| phase | what it means |"
    yield "|---|---|"
    for phase in Phase:
        yield f"| [{phase.value}](#{phase.value}) | {MEANING[phase]} |"


def _table() -> Iterable[str]:
    yield "## The table"
    yield ""
    for phase in Phase:
        yield f"### {phase.value}"
        yield ""
        row = TABLE[phase]
        if not row:
            yield "Nothing is news here."
            yield ""
            continue
        yield "| signal | action | next phase |"
        yield "|---|---|---|"
        for signal, cell in row.items():
            to = ", ".join("*stays*" if each is phase else each.value for each in cell.to)
            yield f"| {signal.__name__} | {cell.action} | {to} |"
        yield ""


def _signals() -> Iterable[str]:
    known: dict[str, type[s.Signal]] = {}
    for row in TABLE.values():
        known.update({signal.__name__: signal for signal in row})
    yield "## The signals"
    yield ""
    yield "| signal | what was observed |"
    yield "|---|---|"
    for name, signal in sorted(known.items()):
        told = signal.__doc__ or PLAIN[name]
        yield f"| {name} | {' '.join(told.split())} |"


def main() -> None:
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
