"""Agents that start others, for servers that are stopped and killed around them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import threading
from pathlib import Path
from typing import Any

from turnkeeper import Child, ChildRefused, Turn, agent

PATIENCE_S = 100.0


def mark(where: str, kind: str, name: str) -> None:
    (Path(where) / f"{kind}.{name}").touch()


def spawn_something(where: str, *, root: bool) -> None:
    """A process that outlives everything but being killed. The root leaves its own id: its process
    stands by for the next turn of its conversation."""
    subprocess.Popen(["env", "--ignore-signal=TERM", "sleep", "600"], start_new_session=True)
    if root:
        mark(where, "root", str(os.getpid()))


def hear_nothing() -> None:
    threading.Event().wait(600)


async def until_there(path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await asyncio.to_thread(path.exists):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@agent
async def tree(turn: Turn) -> None:
    """`{"widths": [4, 4], "where": DIR, "name": "0"}`: as many children as the first width says,
    each with the rest of the widths. One without widths waits for the file `go`, and says its name;
    whoever has children says what each of them said, in order. If they shall be `deaf`, the first
    of every four waits so that nothing reaches it."""
    plan: dict[str, Any] = json.loads(turn.text)
    where, name = plan["where"], plan["name"]
    spawn_something(where, root=name == "0")
    if not plan["widths"]:
        mark(where, "waits", name)
        if plan.get("deaf") and name.endswith(".0"):
            hear_nothing()
        await until_there(Path(where) / "go")
        turn.say(f"<{name}>")
        return
    width, *rest = plan["widths"]
    children = []
    for i in range(width):
        below = {**plan, "widths": rest, "name": f"{name}.{i}"}
        children.append(await turn.start(json.dumps(below), agent="tree"))
    mark(where, "has", name)
    for child in children:
        told = await turn.wait_child(child)
        assert told is not None, "without a time there is no end to the waiting"
        turn.say(told.text if told.ok else f"<{child.run} {told.outcome}/{told.reason}>")


@agent
async def chatter(turn: Turn) -> None:
    """Load: says something again and again until it is stopped."""
    while True:
        turn.say("x" * 200)
        await asyncio.sleep(0.005)


@agent
async def hang(turn: Turn) -> None:
    turn.say("hanging ")
    await asyncio.sleep(PATIENCE_S)


@agent
async def impatient(turn: Turn) -> None:
    """Waits a moment for a child that hangs, then stops it."""
    child = await turn.start("please", agent="hang")
    early = await turn.wait_child(child, 0.2)
    turn.say(f"early={early} run={child.run} ")
    await until_there(Path(turn.text))
    turn.stop_child(child)
    told = await turn.wait_child(child)
    assert told is not None
    turn.say(f"late={told.outcome}/{told.reason} text={told.text!r}")


@agent
async def greedy(turn: Turn) -> None:
    """Starts children that hang until it is refused, and says how many it got, and why no more."""
    got: list[Child] = []
    try:
        while len(got) < 10:
            got.append(await turn.start("please", agent="hang"))
    except ChildRefused as refused:
        turn.say(f"got {len(got)}; {refused}")


@agent
async def deep(turn: Turn) -> None:
    """Goes as deep as it may."""
    try:
        child = await turn.start("deeper", agent="deep")
    except ChildRefused as refused:
        turn.say(f"refused: {refused}")
        return
    told = await turn.wait_child(child)
    turn.say(f"1+{told.text}" if told is not None else "never")


@agent
async def late_child(turn: Turn) -> None:
    """A child that may take longer than its parent."""
    child = await turn.start("please", agent="hang", limits={"deadline_s": 1000.0})
    turn.say(child.run)
    await turn.wait_child(child)


@agent
async def twice(turn: Turn) -> None:
    """The same key is the same child."""
    one = await turn.start("say once", agent="echo", key="k")
    two = await turn.start("say once", agent="echo", key="k")
    first, second = await turn.wait_child(one), await turn.wait_child(two)
    turn.say(f"{one.run == two.run} {first == second} {first and first.text}")


@agent
async def echo(turn: Turn) -> None:
    turn.say(f"heard {turn.text}")


@agent
async def may_not(turn: Turn) -> None:
    """Its table does not say that it may."""
    try:
        await turn.start("please", agent="echo")
    except ChildRefused as refused:
        turn.say(str(refused))
