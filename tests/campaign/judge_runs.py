"""The judge's rules about runs: once, ended once, in order, saying what they did.

Each gives a sentence for every violation of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tests.campaign import steps
from tests.campaign.evidence import Evidence
from tests.campaign.marks import Mark
from tests.campaign.steps import Script
from tests.campaign.stories import PARAGRAPH, Event, Message, Run, Stories

SLACK_S = 0.002
NOT_NOW = (429, 503)
"""Asked again later."""
CLASSES = ("person", "agent", "background")
PASSED_MAX = 20
"""A message that so many later ones went before is next, whatever its class."""


# Once ------------------------------------------------------------------------------------------


def twice(evidence: Evidence) -> Iterator[str]:
    """Each attempt at a run had its message executed at most once, and nothing was executed
    outside of one; what an agent was seen at work on is not begun again."""
    stories = evidence.stories
    by_token = {message.token: message for message in stories.messages.values()}
    for token, found in evidence.marks.items():
        message = by_token.get(token)
        if message is None:
            yield f"{token}: executed, and no log has it"
            continue
        yield from _executions(stories, message, found)
    for run in stories.runs.values():
        yield from _begun_again(stories, run)


def _executions(stories: Stories, message: Message, found: Sequence[Mark]) -> Iterator[str]:
    own = [each for name in message.runs for each in stories.runs[name].tries]
    steered = stories.runs[message.steered_into] if message.steered_into else None
    into = steered.tries if steered is not None else []
    if own and steered is not None and steered.outcome.get("kind") == "lost":
        own = [*into, *own]  # that it was taken into that turn was lost with it
    windows, times = own or into, Counter[int]()
    for mark in found:
        within = [at for at, each in enumerate(windows) if each.holds(mark.at, SLACK_S)]
        if not within:
            yield f"{message.token}: {mark.what} at {mark.at}, outside of its runs {message.runs}"
        elif mark.what in ("run", "steered"):
            times[within[-1]] += 1
    if any(number > 1 for number in times.values()):
        yield f"{message.token}: executed more than once in one attempt: {found}"


def _begun_again(stories: Stories, run: Run) -> Iterator[str]:
    if run.cause == "lost" and run.previous and stories.runs[run.previous].observed:
        yield f"{run.id}: begun again after {run.previous}, of which something was seen"
    for each in run.tries[:-1]:
        if each.observed:
            yield f"{run.id}: tried again after something was seen of it"


# Ended once ------------------------------------------------------------------------------------


def endings(evidence: Evidence) -> Iterator[str]:
    """Every run ended exactly once; every message that was accepted came to a run or a turn."""
    for run in evidence.stories.runs.values():
        if len(run.endings) != 1:
            yield f"{run.id}: ended {len(run.endings)} times"
    for message in evidence.stories.messages.values():
        if message.runs or message.steered_into is None:
            continue
        if not message.taken:
            yield f"{message.token}: neither taken into {message.steered_into} nor run"
        into = evidence.stories.runs[message.steered_into]
        complete = into.outcome.get("kind") == "completed"
        if message.taken and complete and not evidence.marks.get(message.token):
            yield f"{message.token}: taken into {into.id}, it is said, and no agent saw it"


def stops(evidence: Evidence) -> Iterator[str]:
    """A run ended by a stop was named by one; one that was said to be stopped is, for good; every
    other ending has a cause in what the agent was told to do."""
    asked = {stop.name for stop in evidence.record.of("stop")}
    for run in evidence.stories.runs.values():
        outcome = run.outcome
        exits = any(script.exits for script in _played(evidence, run))
        match outcome.get("kind"), outcome.get("reason"):
            case "cancelled", "stopped" if run.id in asked:
                pass
            case "cancelled", "superseded" if _made_way(evidence.stories, run, "interrupt"):
                pass
            case "cancelled", "preempted" if _made_way(evidence.stories, run, "person"):
                pass
            case "failed", "agent_exited" if exits:
                pass
            case "lost", _ if not run.observed and (run.successor or run.id in asked):
                pass
            case "lost", _ if _was_broken(evidence, run):
                pass
            case "completed", "end_turn" if not exits:
                pass
            case _:
                yield f"{run.id}: ended as {outcome}, and nothing called for that"
    for stop in evidence.record.of("stop"):
        if stop.status == 200 and stop.answer["changed"]:
            run_ = evidence.stories.runs[stop.name]
            if run_.outcome.get("kind") != "cancelled" or run_.successor is not None:
                yield f"{run_.id}: said to be stopped, and ended as {run_.outcome}"
        elif stop.status not in (0, 200, *NOT_NOW):
            yield f"{stop.name}: a stop was answered {stop.status} {stop.answer}"


def _was_broken(evidence: Evidence, run: Run) -> bool:
    """Its node was broken while it was on: killed, stopped, or cut off from its logs."""
    last = run.tries[-1]
    node, ended = last.began["data"].get("node", ""), run.endings[0]["at"]
    return any(x.concerns(node, last.began["at"], ended) for x in evidence.record.breaks)


def _made_way(stories: Stories, run: Run, what: str) -> bool:
    """Somebody came while it ran whom it had to make way for."""
    ended = run.endings[0]["seq"]
    return any(
        event["kind"] == "message.accepted"
        and what in (event["data"].get("when_busy"), event["data"].get("priority", "person"))
        for event in stories.logs[run.session][:ended]
        if run.started is not None and event["seq"] > run.started["seq"]
    )


# In order --------------------------------------------------------------------------------------


def order(evidence: Evidence) -> Iterator[str]:
    """Whoever starts was the first of its class, and no higher class waited."""
    for log in evidence.stories.logs.values():
        yield from _order(log, evidence.stories)


def _order(log: Sequence[Event], stories: Stories) -> Iterator[str]:
    waiting: dict[str, tuple[int, int]] = {}
    passed: Counter[str] = Counter()
    running: str | None = None
    for event in log:
        name, data = event["run"], event["data"]
        match event["kind"]:
            case "message.accepted" if not data.get("steered"):
                waiting[name] = (_class(data), event["seq"])
            case "run.requeued":
                accepted = stories.messages[data["message"]].accepted
                waiting[name] = (_class(accepted["data"]), accepted["seq"])
                passed[name] = passed[data["previous"]] if data["cause"] != "not_taken" else 0
            case "run.started":
                if running is not None:
                    yield f"{name}: started while {running} was on"
                running = name
                ranks = {x: (passed[x] < PASSED_MAX, *place) for x, place in waiting.items()}
                if before := [x for x, rank in ranks.items() if rank < ranks[name]]:
                    yield f"{name}: started before {before}"
                _, place = waiting.pop(name)
                for other, (_, seq) in waiting.items():
                    passed[other] += seq < place
            case "run.ended":
                waiting.pop(name, None)
                if name == running and data.get("cleanup", "none") == "none":
                    running = None
            case "attempt.ended":
                ended = stories.runs[name].endings
                if name == running and ended and ended[0]["seq"] < event["seq"]:
                    running = None
            case _:
                pass


def _class(data: Event) -> int:
    return CLASSES.index(data.get("priority", "person"))


# What was said and done ------------------------------------------------------------------------


def _played(evidence: Evidence, run: Run) -> list[Script]:
    """What its agent played in it: its message, and those steered into it that came so late that
    the agent made turns of them."""
    messages = evidence.stories.messages
    late = [
        (mark.at, message)
        for message in messages.values()
        if message.steered_into == run.id and not message.runs
        for mark in evidence.marks.get(message.token, [])
        if mark.what == "run"
    ]
    after = [message for _, message in sorted(late, key=lambda pair: pair[0])]
    return [steps.read(message.data["text"]) for message in (messages[run.message], *after)]


def output(evidence: Evidence) -> Iterator[str]:
    """A completed run said all that its agent said, in order, with nothing missing or doubled; any
    other run said a beginning of it."""
    for run in evidence.stories.runs.values():
        scripts, answers = _played(evidence, run), iter(run.allowed)
        whole = "".join(steps.expected(script, answers) for script in scripts)
        complete = run.outcome.get("kind") == "completed"
        if run.said != whole if complete else not whole.startswith(run.said):
            yield f"{run.id}: {run.outcome.get('kind')} and said {run.said!r}, not {whole!r}"
        final = run.endings[0]["data"].get("text") if run.endings else None
        if complete and final and not run.said.endswith(final.replace(PARAGRAPH, "")):
            yield f"{run.id}: its final word is {final!r}, and it said {run.said!r}"
        for script in scripts if complete else ():
            if not any(mark.what == "end" for mark in evidence.marks.get(script.token, [])):
                yield f"{run.id}: completed, and its agent never came to the end of {script.token}"


def approvals(evidence: Evidence) -> Iterator[str]:
    """Every question is settled once; the answer that was taken is the one in the log; nothing is
    done without leave."""
    settled: dict[str, list[str]] = {}
    for run in evidence.stories.runs.values():
        for name in run.requested:
            settled[name] = run.settled.get(name, [])
            if len(settled[name]) != 1:
                yield f"{name}: settled {settled[name]}"
    taken: Counter[str] = Counter()
    for answer in evidence.record.of("answer"):
        if answer.status not in (0, 200, 409, *NOT_NOW):
            yield f"{answer.name}: an answer was answered {answer.status} {answer.answer}"
        if answer.status == 200:
            taken[answer.name] += 1
            said = "allowed" if answer.said == "allow" else "denied"
            if settled.get(answer.name) != [said]:
                yield f"{answer.name}: {said} was taken, and the log has {settled.get(answer.name)}"
    for name, times in taken.items():
        if times > 1:
            yield f"{name}: {times} answers were taken"
    for run in evidence.stories.runs.values():
        yield from _leave(evidence, run)


def _leave(evidence: Evidence, run: Run) -> Iterator[str]:
    """Tools that were run, against those that may have been."""
    scripts = _played(evidence, run)
    free = sum(step.word == "tool" for script in scripts for step in script.steps)
    may = free * len(run.tries) + sum(run.allowed)
    found = [mark for script in scripts for mark in evidence.marks.get(script.token, [])]
    done = [mark for mark in found if mark.what == "tool" and _within(run, mark)]
    if len(done) > may:
        yield f"{run.id}: {len(done)} tools were run, and {may} had leave"


def _within(run: Run, mark: Mark) -> bool:
    return any(each.holds(mark.at, 0.0) for each in run.tries)
