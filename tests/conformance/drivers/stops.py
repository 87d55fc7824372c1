"""Scenarios in which a turn is ended from outside: by a person, by a clock, or frozen."""

from __future__ import annotations

from tests.conformance.drivers.bench import Bench
from tests.conformance.drivers.case import Case
from tests.conformance.drivers.scenario import scenario
from tests.conformance.drivers.turns import COMPLETED, MB, STOPPED, ask, check_next_turn, ending
from tests.helpers.load import Stopwatch
from tests.process.custody.harness import living_with
from turnkeeper.core import events as e
from turnkeeper.core.outcome import Outcome

STUBBORN = "does not end the turn when asked; its process is ended"


async def cancel(b: Bench, run: str) -> str | None:
    """Stop it: within the ladder's time, on the right turn, and the next message works."""
    watch = Stopwatch()
    await b.stop(run)
    assert ending(await b.wait_end(run, allow=False)) == STOPPED
    assert watch.s < b.limits.drain_s + 1
    await b.wait_closed(run)
    assert watch.s < b.limits.drain_s + b.limits.term_s + 1
    await check_next_turn(b)
    ended = (await b.of(run, e.RunEnded))[0]
    return None if ended.cleanup == "sweep" else STUBBORN


@scenario("cancel mid-stream")
async def mid_stream(b: Bench) -> str | None:
    run = await b.send("stream 2000 chunks 0.02")
    await b.wait_text(run, "chunk-3")
    return await cancel(b, run)


@scenario("cancel mid-tool")
async def mid_tool(b: Bench) -> str | None:
    command, token = b.tree()
    run = await b.send(b.tool(command))
    await b.wait_file(run, f"up-{token}")
    left: list[int] = []
    b.before_sweep = lambda: left.extend(living_with(token))
    await b.stop(run)
    assert ending(await b.wait_end(run)) == STOPPED
    await b.wait_closed(run)
    assert living_with(token) == [], "the tool and all its children are dead"
    await check_next_turn(b)
    if any(late.what == "Exited" for late in await b.of(run, e.Late)):
        return "exits by itself when it is stopped there; its command is ended"
    ended = (await b.of(run, e.RunEnded))[0]
    if ended.cleanup != "sweep":
        return f"{STUBBORN}, with its command"
    return (
        "says that it stopped before its command and all its children are dead; they are ended"
        if left
        else None
    )


@scenario("cancel mid-approval")
async def mid_approval(b: Bench) -> str | None:
    run, approval = await ask(b, "made.txt")
    note = await cancel(b, run)
    settled = await b.of(run, e.ApprovalSettled)
    assert [one.approval for one in settled] == [approval]
    assert not (b.cwd / "made.txt").exists()
    return note


@scenario("cancel before the first byte")
async def before_first(b: Bench) -> str | None:
    run = await b.send("stall-before-headers")
    await b.wait(run, e.MessageDelivered)
    await b.wait_reached("stall-before-headers")
    return await cancel(b, run)


@scenario("cancel after the end")
async def after_end(b: Bench) -> None:
    run = await b.send("say done")
    assert ending(await b.wait_end(run)) == COMPLETED
    answer = await b.dispatcher.stop(run)
    assert (answer.state, answer.changed) == ("ended", False)
    later = await b.send("stream 10 chunks 0.02")
    await b.wait_text(later, "chunk-0")
    await b.dispatcher.stop(run)
    assert ending(await b.wait_end(later)) == COMPLETED, "a late stop touches no other turn"


# Silence ----------------------------------------------------------------------------------------


def patience(case: Case) -> dict[str, float]:
    return {"first_output_s": case.patience_s, "idle_s": case.patience_s}


async def stalled(b: Bench, command: str, clock: str) -> str | None:
    watch = Stopwatch()
    run = await b.send(command)
    outcome = await b.wait_end(run)
    assert ending(outcome) == ("timed_out", clock), outcome
    check_time(b, outcome, watch.lost_s)
    await b.wait_closed(run)
    await check_next_turn(b)
    ended = (await b.of(run, e.RunEnded))[0]
    return None if ended.cleanup == "sweep" else STUBBORN


def check_time(b: Bench, outcome: Outcome, lost_s: float) -> None:
    seen = outcome.evidence
    assert seen.budget_s == b.case.patience_s
    assert seen.budget_s <= seen.silent_s < seen.budget_s + 1 + lost_s, "at the configured second"


@scenario("stall before headers", patience)
async def stall_before(b: Bench) -> str | None:
    return await stalled(b, "stall-before-headers", "first_output")


@scenario("stall mid-stream", patience)
async def stall_mid(b: Bench) -> str | None:
    return await stalled(b, "stall-after 3", "idle")


@scenario("pings only", patience)
async def pings(b: Bench) -> str | None:
    return await stalled(b, "pings", "first_output")


# Frozen -----------------------------------------------------------------------------------------


@scenario("frozen, then stopped")
async def frozen_stop(b: Bench) -> None:
    b.need_process()
    run = await b.send("stream 2000 chunks 0.02")
    await b.wait_text(run, "chunk-1")
    old = b.processes()
    assert old
    b.freeze()
    watch = Stopwatch()
    await b.stop(run)
    assert ending(await b.wait_end(run)) == STOPPED
    await b.wait_closed(run)
    assert watch.s < b.limits.drain_s + b.limits.term_s + 1
    assert not set(old) & set(b.processes())
    await check_next_turn(b)


def short_write(case: Case) -> dict[str, float]:
    short = {"write_s": 1.0, "drain_s": 1.0, "term_s": 1.0}
    return short if case.real else {**short, "startup_s": 5.0}


@scenario("frozen, big write", short_write)
async def frozen_write(b: Bench) -> str | None:
    b.need_process()
    await check_next_turn(b, "warm")
    b.freeze()
    run = await b.send("x" * (10 * MB) + "\nsay got it")
    outcome = await b.wait_end(run)
    assert ending(outcome) in (("timed_out", "write"), ("timed_out", "startup")), outcome
    await b.wait_closed(run)
    await check_next_turn(b)
    if outcome.reason == "write":
        return None
    return "has to say that it is ready before it is written to: timed_out/startup"
