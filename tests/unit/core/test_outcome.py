"""The one table of words: what each surface says of each ending, written out from the design."""

from __future__ import annotations

import pytest

from turnkeeper.core.errors import CATALOGUE, ending_code
from turnkeeper.core.outcome import (
    REASONS,
    WORDS,
    Kind,
    Outcome,
    Sample,
    Seen,
    Words,
    seen_as_dict,
    words_of,
)

# kind, reason | API | exit code | Responses, its code | A2A | ACP, AG-UI, is it an error
TABLE = """
completed end_turn       | completed |   0 | completed  -              | completed | end_turn no                   | success no
completed max_tokens     | completed |   0 | incomplete max_output_tokens | completed | max_tokens no                 | success no
completed max_turns      | completed |   0 | completed  -              | completed | max_turn_requests no          | success no
completed refused        | completed |   0 | completed  -              | rejected  | refusal no                    | success no
cancelled stopped        | cancelled | 130 | cancelled  -              | canceled  | cancelled no                  | cancelled no
cancelled superseded     | cancelled | 130 | cancelled  -              | canceled  | cancelled no                  | cancelled no
cancelled preempted      | cancelled | 130 | cancelled  -              | canceled  | cancelled no                  | cancelled no
cancelled parent_ended   | cancelled | 130 | cancelled  -              | canceled  | cancelled no                  | cancelled no
cancelled shutdown       | cancelled | 130 | cancelled  -              | canceled  | cancelled no                  | cancelled no
timed_out startup        | timed_out | 124 | failed     timed_out      | failed    | error yes                     | timed_out yes
timed_out write          | timed_out | 124 | failed     timed_out      | failed    | error yes                     | timed_out yes
timed_out first_output   | timed_out | 124 | failed     timed_out      | failed    | error yes                     | timed_out yes
timed_out idle           | timed_out | 124 | failed     timed_out      | failed    | error yes                     | timed_out yes
timed_out tool           | timed_out | 124 | failed     timed_out      | failed    | error yes                     | timed_out yes
timed_out deadline       | timed_out | 124 | failed     timed_out      | failed    | error yes                     | timed_out yes
timed_out ceiling        | timed_out | 124 | failed     timed_out      | failed    | error yes                     | timed_out yes
timed_out queue          | timed_out | 124 | failed     timed_out      | failed    | error yes                     | timed_out yes
failed    agent_error    | failed    |   1 | failed     agent_error    | failed    | error yes                     | failed yes
failed    agent_exited   | failed    |   1 | failed     agent_exited   | failed    | error yes                     | failed yes
failed    protocol_error | failed    |   1 | failed     protocol_error | failed    | error yes                     | failed yes
failed    spawn_failed   | failed    |   1 | failed     spawn_failed   | failed    | error yes                     | failed yes
failed    output_limit   | failed    |   1 | failed     output_limit   | failed    | error yes                     | failed yes
failed    internal       | failed    |   1 | failed     internal       | failed    | error yes                     | failed yes
lost      server_lost    | lost      | 125 | failed     lost           | failed    | error yes                     | lost yes
lost      node_lost      | lost      | 125 | failed     lost           | failed    | error yes                     | lost yes
"""  # noqa: E501


def written() -> dict[tuple[Kind, str], Words]:
    table: dict[tuple[Kind, str], Words] = {}
    for line in TABLE.strip().splitlines():
        name, api, code, responses, a2a, acp, agui = (part.split() for part in line.split("|"))
        responses_code = None if responses[1] == "-" else responses[1]
        table[Kind(name[0]), name[1]] = Words(
            api[0], int(code[0]), responses[0], responses_code, a2a[0], acp[0], acp[1] == "yes",
            agui[0], agui[1] == "yes",
        )  # fmt: skip
    return table


EVERY = [(kind, reason) for kind in Kind for reason in REASONS[kind]]


def test_the_table_of_words_is_that_of_the_design() -> None:
    assert written() == WORDS


@pytest.mark.parametrize(("kind", "reason"), EVERY)
def test_every_ending_has_words_for_every_surface(kind: Kind, reason: str) -> None:
    outcome = Outcome(kind, reason, "", Seen(), 0.0)
    assert words_of(outcome).api == kind.value


@pytest.mark.parametrize(("kind", "reason"), EVERY)
def test_every_ending_but_a_completed_one_has_its_own_error_code(kind: Kind, reason: str) -> None:
    entry = ending_code(kind, reason)
    assert (entry is None) == (kind is Kind.COMPLETED)


def test_no_two_endings_share_a_code() -> None:
    codes = [entry.code for pair in EVERY if (entry := ending_code(*pair)) is not None]
    assert len(set(codes)) == len(codes) == len(EVERY) - len(REASONS[Kind.COMPLETED])


def test_exit_codes_tell_the_five_kinds_apart() -> None:
    exit_codes = {
        kind: {WORDS[kind, reason].exit_code for reason in REASONS[kind]} for kind in Kind
    }
    assert exit_codes == {
        Kind.COMPLETED: {0}, Kind.FAILED: {1}, Kind.CANCELLED: {130}, Kind.TIMED_OUT: {124},
        Kind.LOST: {125},
    }  # fmt: skip


def test_only_what_was_seen_is_told() -> None:
    seen = Seen(phase="tool", sample=Sample(busy=True, cpu_s=1.5))
    assert seen_as_dict(seen) == {"phase": "tool", "sample": {"busy": True, "cpu_s": 1.5}}


def test_every_code_of_the_catalogue_is_there_once_and_says_what_to_do() -> None:
    assert len({entry.code for entry in CATALOGUE}) == len(CATALOGUE)
    assert all(entry.title and entry.todo for entry in CATALOGUE)
    assert all(400 <= entry.http < 600 for entry in CATALOGUE)
