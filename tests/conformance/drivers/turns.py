"""Scenarios in which a turn goes its way: answers, tools, approvals, steering, sizes."""

from __future__ import annotations

import pytest

from tests.conformance.drivers.bench import WAIT_S, Bench
from tests.conformance.drivers.scenario import scenario
from turnkeeper.core import events as e
from turnkeeper.core.errors import TurnkeeperError
from turnkeeper.core.outcome import Outcome

MB = 1_000_000


def ending(outcome: Outcome) -> tuple[str, str]:
    return outcome.kind.value, outcome.reason


COMPLETED = ("completed", "end_turn")
STOPPED = ("cancelled", "stopped")


async def check_next_turn(b: Bench, said: str = "all is well") -> None:
    """Whatever happened, the session can be used; a program that starts anew may be slow."""
    run = await b.send(f"say {said}", limits={"first_output_s": WAIT_S, "idle_s": WAIT_S})
    outcome = await b.wait_end(run)
    assert ending(outcome) == COMPLETED, outcome
    assert said in await b.text(run)


@scenario("normal turn")
async def normal_turn(b: Bench) -> None:
    run = await b.send("say hello there")
    assert ending(await b.wait_end(run)) == COMPLETED
    assert await b.text(run) == "hello there"
    ended = (await b.of(run, e.RunEnded))[0]
    assert ended.text in (None, "hello there")


@scenario("two turns")
async def two_turns(b: Bench) -> None:
    for said in ("first", "second"):
        run = await b.send(f"say {said}")
        assert ending(await b.wait_end(run)) == COMPLETED
        assert await b.text(run) == said
    starts = [x.data for x in await b.events() if isinstance(x.data, e.AttemptStarted)]
    assert [start.fresh for start in starts] == [True, False], "one process takes both"


@scenario("tool")
async def tool(b: Bench) -> None:
    run = await b.send(b.tool("echo made > made.txt && cat made.txt"))
    assert ending(await b.wait_end(run)) == COMPLETED
    started = await b.of(run, e.ToolStartedFact)
    ended = await b.of(run, e.ToolEndedFact)
    assert len(started) == len(ended) == 1
    assert ended[0].tool == started[0].tool
    assert "tool-result-seen" in await b.text(run)
    assert (b.cwd / "made.txt").read_text().strip() == "made"


# Approvals --------------------------------------------------------------------------------------


async def ask(b: Bench, name: str) -> tuple[str, str]:
    """It asks for leave to make a file; the run, and the question."""
    b.need_tools()
    run = await b.send(b.setup.asking(f"echo made > {name}"))
    asked = await b.wait(run, e.ApprovalRequested, allow=False)
    return run, asked.approval


@scenario("approval allowed")
async def approval_allowed(b: Bench) -> None:
    run, approval = await ask(b, "made.txt")
    assert not (b.cwd / "made.txt").exists()
    await b.dispatcher.answer(approval, allow=True, by="a person")
    assert ending(await b.wait_end(run, allow=False)) == COMPLETED
    assert (b.cwd / "made.txt").exists()
    with pytest.raises(TurnkeeperError):
        await b.dispatcher.answer(approval, allow=False)


@scenario("approval denied")
async def approval_denied(b: Bench) -> str | None:
    run, approval = await ask(b, "made.txt")
    await b.dispatcher.answer(approval, allow=False, note="not today")
    outcome = await b.wait_end(run, allow=False)
    assert not (b.cwd / "made.txt").exists()
    await check_next_turn(b)
    if ending(outcome) == COMPLETED:
        return None
    assert ending(outcome) == ("failed", "agent_error"), outcome
    return "ends its turn when it is denied, and says that it was interrupted"


@scenario("approval withdrawn")
async def approval_withdrawn(b: Bench) -> None:
    b.need_tools()
    b.need("withdraw", "nothing makes it take a question back" if b.case.real or b.setup.model
           else "the protocol has no word for it")  # fmt: skip
    run = await b.send("withdraw")
    settled = await b.wait(run, e.ApprovalSettled, allow=False)
    assert settled.decision == "withdrawn"
    assert ending(await b.wait_end(run, allow=False)) == COMPLETED


@scenario("approval late", lambda case: {"approval_s": 0.3})
async def approval_late(b: Bench) -> None:
    """Nobody answers in time: denied. A late yes is refused, and makes nothing happen."""
    run, approval = await ask(b, "made.txt")
    settled = await b.wait(run, e.ApprovalSettled, allow=False)
    assert settled.decision == "expired"
    with pytest.raises(TurnkeeperError):
        await b.dispatcher.answer(approval, allow=True)
    await b.wait_end(run, allow=False)
    await check_next_turn(b)
    assert not (b.cwd / "made.txt").exists()


# Steering ---------------------------------------------------------------------------------------


@scenario("steering")
async def steering(b: Bench) -> None:
    b.need("steer", "a further prompt is a turn of its own: it is queued")
    at_model = b.setup.model is not None
    run = await b.send(b.tool("sleep 2 && echo done") if at_model else "stream 40 chunks 0.05")
    await (b.wait(run, e.ToolStartedFact) if at_model else b.wait_text(run, "chunk-0"))
    steered = await b.send("say steered in", when_busy="steer")
    assert steered == run, "it is the running turn that takes it"
    assert ending(await b.wait_end(run)) == COMPLETED
    assert "steered in" in await b.text(run) or b.setup.remembers("steered in")
    assert len(await b.of(run, e.MessageSteered)) == 1
    await check_next_turn(b)


# Sizes and cuts ---------------------------------------------------------------------------------


async def big(b: Bench, size: int) -> str | None:
    run = await b.send("x" * size + "\nsay got it")
    outcome = await b.wait_end(run)
    if ending(outcome) == COMPLETED:
        text = await b.text(run)
        assert "got it" in text
        return None
    refusals = (("failed", "agent_error"), ("completed", "max_tokens"))
    assert ending(outcome) in refusals, outcome
    await check_next_turn(b)
    return f"refuses so much in its own words ({outcome.kind.value}/{outcome.reason})"


@scenario("1 MB message")
async def one_mb(b: Bench) -> str | None:
    return await big(b, MB)


@scenario("10 MB message")
async def ten_mb(b: Bench) -> str | None:
    return await big(b, 10 * MB)


NOT_OURS = "it writes as it does; its recorded output is cut at every byte in the codec's tests"


@scenario("output byte by byte")
async def bytewise(b: Bench) -> None:
    b.need_process()
    b.need("raw output", NOT_OURS)
    run = await b.send("bytewise stream 3 chunks 0")
    assert ending(await b.wait_end(run)) == COMPLETED
    assert await b.text(run) == "chunk-0 chunk-1 chunk-2 "


@scenario("many frames in one read")
async def glued(b: Bench) -> None:
    b.need_process()
    b.need("raw output", NOT_OURS)
    run = await b.send("glued stream 300 chunks 0")
    assert ending(await b.wait_end(run)) == COMPLETED
    assert await b.text(run) == "".join(f"chunk-{i} " for i in range(300))
    await check_next_turn(b)
