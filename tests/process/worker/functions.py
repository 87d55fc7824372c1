"""Functions of every kind, good and bad, for a worker to run. Loaded as a file, by the worker."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import wraps
from typing import Any

from turnkeeper import SyncTurn, Turn, agent

turns_taken = 0
kept_lock = asyncio.Lock()


def plain_says(turn: SyncTurn) -> None:
    turn.say("Hello ")
    turn.say(turn.text)


def plain_returns(turn: SyncTurn) -> str:
    return f"Hello {turn.text}"


def generates(turn: SyncTurn) -> Iterator[str | None]:
    yield "Hello "
    yield None
    yield turn.text


@agent
async def async_says(turn: Turn) -> None:
    await turn.say("Hello ")
    await turn.say(turn.text)


async def async_returns(turn: Turn) -> str:
    await asyncio.sleep(0)
    return f"Hello {turn.text}"


async def async_generates(turn: Turn) -> AsyncIterator[str]:
    yield "Hello "
    await asyncio.sleep(0)
    yield turn.text


class CallableAgent:
    async def __call__(self, turn: Turn) -> str:
        return f"Hello {turn.text}"


callable_agent = CallableAgent()


def sync_wrapper(function: Callable[[Turn], Any]) -> Callable[[Turn], Any]:
    @wraps(function)
    def wrapper(turn: Turn) -> Any:
        return function(turn)

    return wrapper


@sync_wrapper
async def wrapped_badly(turn: Turn) -> str:
    return "never said"


async def tells_itself(turn: Turn) -> str:
    return f"{turn.session} {turn.run} {turn.text}"


async def thinks(turn: Turn) -> str:
    await turn.think("hm")
    return "so"


async def counts(turn: Turn) -> str:
    """Keeps its state and its loop from turn to turn."""
    global turns_taken
    async with kept_lock:
        turns_taken += 1
        return f"{turn.text} is turn {turns_taken}"


async def uses_tool(turn: Turn) -> None:
    async with turn.tool("search", {"q": "é", "odd": {1, 2}}) as tool:
        tool.progress("half")
        tool.output = "found"


def tool_fails(turn: SyncTurn) -> None:
    with turn.tool("search"):
        raise LookupError("nothing found")


def tool_fails_oddly(turn: SyncTurn) -> None:
    with turn.tool(7):  # type: ignore[arg-type]  # a mistake that people make
        raise OddError


async def asks(turn: Turn) -> str:
    return "allowed" if await turn.ask("rm", {"path": "x"}) else "denied"


def asks_plainly(turn: SyncTurn) -> str:
    return "allowed" if turn.ask("rm", {"path": "x"}) else "denied"


async def asks_briefly(turn: Turn) -> str:
    try:
        async with asyncio.timeout(0.01):
            await turn.ask("rm")
    except TimeoutError:
        return "went on"
    return "was answered"


@agent(steer=True)
async def steered(turn: Turn) -> str:
    await turn.say("go")
    async for text in turn.steering:
        if text == "enough":
            break
        await turn.say(f"[{text}]")
    return "done"


def steered_plainly(turn: SyncTurn) -> str:
    turn.say("go")
    found: list[str] = []
    while "enough" not in found:
        found += turn.steering
        turn.sleep(0.005)
    return " ".join(found)


def ignores_steering(turn: SyncTurn) -> str:
    if turn.text == "first":
        turn.say("go ")
        turn.ask("wait until steered")
    return f"<{turn.text}>"


async def sleeps(turn: Turn) -> None:
    try:
        await turn.say("go")
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await turn.say(" cleaned up")
        raise


def loops(turn: SyncTurn) -> None:
    turn.say("go")
    try:
        while True:
            try:
                turn.think("on and on")
                turn.sleep(0.005)
            except Exception:
                continue
    finally:
        print("cleaned up", flush=True)


def generates_for_ever(turn: SyncTurn) -> Iterator[str | None]:
    try:
        yield "go"
        while True:
            yield None
    finally:
        print("cleaned up", flush=True)


async def generates_for_ever_async(turn: Turn) -> AsyncIterator[str]:
    try:
        yield "go"
        while True:
            yield "."
    finally:
        print("cleaned up", flush=True)


def waits_for_stopped(turn: SyncTurn) -> str:
    turn.say("go")
    while not turn.stopped:
        time.sleep(0.001)
    return "ended itself"


async def swallows_the_stop(turn: Turn) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await turn.say("go")
        await asyncio.Event().wait()


async def cancels_itself(turn: Turn) -> None:
    raise asyncio.CancelledError


class OddError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


def deeper() -> None:
    raise ValueError("no such city: Ülm")


def fails(turn: SyncTurn) -> None:
    turn.say("partly ")
    deeper()


async def fails_in_a_library(turn: Turn) -> None:
    try:
        re.compile("(")
    except re.error as error:
        raise RuntimeError("bad pattern") from error


def fails_oddly(turn: SyncTurn) -> None:
    raise OddError


async def exits_politely(turn: Turn) -> None:
    sys.exit(3)


def returns_a_number(turn: SyncTurn) -> int:
    return 42


def prints(turn: SyncTurn) -> str:
    print("from print", flush=True)
    os.write(1, b"from fd 1\n")
    subprocess.run(["echo", "from a child"], check=True)
    assert sys.stdin.read() == ""
    return "said"


def forks(turn: SyncTurn) -> str:
    child = os.fork()
    if child == 0:
        try:
            turn.say("from the child")
        except RuntimeError:
            os._exit(7)
        os._exit(0)
    return f"child exited {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}"


def forks_in_a_fork(turn: SyncTurn) -> str:
    """The grandchild must still have the file that the child opened, whatever its number."""
    child = os.fork()
    if child == 0:
        mine = os.open(os.devnull, os.O_RDONLY)
        grandchild = os.fork()
        if grandchild == 0:
            try:
                os.fstat(mine)
            except OSError:
                os._exit(9)
            os._exit(0)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1]))
    return f"grandchild exited {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}"


def holds_the_gil(turn: SyncTurn) -> str:
    """One call into C that lasts at least two seconds."""
    for length in range(22, 60):
        turn.say("go ")
        began = time.monotonic()
        re.match(r"(a+)+$", "a" * length + "b")
        if time.monotonic() - began >= 2.0:
            break
    turn.say("held ")
    turn.sleep(0.5)
    return "back"


async def blocks_its_loop(turn: Turn) -> str:
    """Until somebody writes into the pipe that the message names."""
    turn.say("go")  # not awaited: a stop must not come in here
    with open(turn.text) as pipe:  # noqa: ASYNC230 - to block the loop is the point
        pipe.read()
    await asyncio.sleep(0)
    return "back"


def dies(turn: SyncTurn) -> None:
    turn.say("last words")
    os._exit(5)


def segfaults(turn: SyncTurn) -> None:
    turn.say("last words")
    ctypes.string_at(0)


def says_10_mb(turn: SyncTurn) -> str:
    return 'aé\n"\x00' * 2_000_000


def echoes(turn: SyncTurn) -> str:
    return turn.text


def echoes_length(turn: SyncTurn) -> str:
    return f"{len(turn.text)}"


def says_half_a_character(turn: SyncTurn) -> str:
    return "a\ud800b"


async def leaves_a_task(turn: Turn) -> None:
    async def goes_on() -> None:
        while True:
            await turn.say(".")
            await asyncio.sleep(0.001)

    kept.append(asyncio.create_task(goes_on()))
    await asyncio.Event().wait()


kept: list[asyncio.Task[None]] = []


async def leaves_a_thread(turn: Turn) -> None:
    loop = asyncio.get_running_loop()
    never = threading.Event()
    ready = asyncio.Event()

    def goes_on() -> None:
        loop.call_soon_threadsafe(ready.set)
        never.wait()

    waiting = loop.run_in_executor(None, goes_on)
    await ready.wait()
    await turn.say("go")
    await waiting


async def used_a_thread(turn: Turn) -> None:
    await turn.say(await asyncio.to_thread(lambda: "go"))
    await asyncio.Event().wait()


late: list[Turn] = []


async def speaks_late(turn: Turn) -> str:
    if not late:
        late.append(turn)
        return "first"
    try:
        await late[0].say("in the name of the first")
    except RuntimeError as error:
        return str(error)
    return "it could"


async def says_from_threads(turn: Turn) -> None:
    def many(letter: str) -> None:
        for _ in range(50):
            turn.say(letter * 20_000)

    await asyncio.gather(*(asyncio.to_thread(many, letter) for letter in "abcd"))
