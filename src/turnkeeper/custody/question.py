"""One question to a program: what it prints and how it exits, within bounds of time and size.

Decides when to stop listening. It must not know what is asked. Invariant: not more than
`most_bytes` are kept of what it prints, however much it prints; and when the answer is there,
nothing of the program's tree is left. On Linux an asker (`custody.asker`) sees to that, also if we
die; elsewhere only the program's process group is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from typing import Literal

import msgspec

from turnkeeper.custody import frames
from turnkeeper.custody.client import HANDED_ON, SOURCE
from turnkeeper.custody.launch import Spec
from turnkeeper.custody.program import Program, explain_not_started

RUN_ASKER = (
    "import sys; sys.path.append(sys.argv[1]); from turnkeeper.custody.asker import main; main()"
)
END_S = 5.0
"""How long the dead are waited for. The asker goes on without us."""
DROPPED_BYTES = 65536


How = Literal["ended", "late", "too much", "not started"]


class Answer(msgspec.Struct, frozen=True):
    """`ended`: it came to its own end, with `code`. Else it was ended, or never began, and `detail`
    says why."""

    how: How
    said: bytes = b""
    code: int | None = None
    detail: str = ""


async def ask(program: Program, *, within_s: float, most_bytes: int) -> Answer:
    """What it prints on stdout; stderr is not heard, and stdin is empty. Of the program its argv,
    cwd and env count: that is all the environment it gets."""
    try:
        process = await _start(program, most_bytes)
    except OSError as fault:
        return Answer("not started", detail=explain_not_started(program, "exec", fault.errno or 0))
    said = bytearray()
    try:
        async with asyncio.timeout(within_s):
            how = await _listen(process, said, most_bytes)
    except TimeoutError:
        how = "late"
    finally:
        words = await _end(process)
    if words:
        stage, _, number = words.rpartition("\n")[2].partition(" ")
        if number.isdecimal():
            return Answer("not started", detail=explain_not_started(program, stage, int(number)))
        return Answer("not started", detail=f"it could not be asked: {stage} {number}")
    return Answer(how, bytes(said), process.returncode if how == "ended" else None)


async def _start(program: Program, most_bytes: int) -> Process:
    if sys.platform != "linux":
        return await asyncio.create_subprocess_exec(
            *program.argv, cwd=program.cwd, env=program.env, limit=most_bytes,
            stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, start_new_session=True,
        )  # fmt: skip
    env = {key: os.environ[key] for key in HANDED_ON if key in os.environ}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", "-E", "-c", RUN_ASKER, SOURCE, env=env, limit=most_bytes,
        stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True,
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(frames.pack(frames.SPAWN, _spec(program).encode()))
    return process


def _spec(program: Program) -> Spec:
    spec = Spec()
    spec.name, spec.tag = "question", b"question"
    spec.argv = [os.fsencode(word) for word in program.argv]
    spec.env = [os.fsencode(f"{key}={value}") for key, value in program.env.items()]
    spec.cwd = os.fsencode(program.cwd)
    return spec


async def _listen(process: Process, said: bytearray, most_bytes: int) -> How:
    assert process.stdout is not None
    while data := await process.stdout.read(most_bytes):
        room = most_bytes - len(said)
        said += data[:room]
        if len(data) > room:
            return "too much"
    await process.wait()
    return "ended"


async def _end(process: Process) -> str:
    """Nothing of it is left, or it cannot be ended in time; what the asker had to say."""
    if process.stdin is not None:
        process.stdin.close()
    else:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    words = b""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(END_S):
            assert process.stdout is not None
            while await process.stdout.read(DROPPED_BYTES):
                pass  # what it printed after we had heard enough
            if process.stderr is not None:
                words = await process.stderr.read()
            await process.wait()
    return words.decode("utf-8", "replace").strip()
