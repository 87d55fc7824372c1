"""The turns that the demo agent can play: one script for each request.

Decides what is said, done and waited for, in which order. It must not know loops or links: a script
is a generator of moves, and whoever plays it keeps the time. Invariant: a script never waits by
itself; every request is in `REQUESTS`, so `help` tells them all.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple

from turnkeeper.core import signals as s
from turnkeeper.core.outcome import Sample

Move = float | s.AgentSignal
"""Wait so many seconds (`math.inf`: for ever), or report a signal. After `Asked` the script goes
on with the answer; after a word that ends the turn it does not go on."""

Turn = Generator[Move, bool | None, None]


NUMBER = re.compile(r"\d{1,6}(\.\d{1,3})?", re.ASCII)
NUMBER_LIKE = re.compile(r"[-+]?\.?\d", re.ASCII)


class Script(NamedTuple):
    """A turn to play. `stubborn`: it listens to nothing but a kill."""

    moves: Turn
    stubborn: bool = False


class Request(NamedTuple):
    """What can be asked for: its words, the number that may follow, and what then happens."""

    words: str
    unit: str
    number: float
    told: str
    play: Callable[[float, float], Turn]

    @property
    def usage(self) -> str:
        return f"{self.words} [{self.unit}]" if self.unit else self.words


def turn_for(text: str, pace_s: float, plays: str = "") -> Script:
    """The script for a message: the request it makes; else what this agent always `plays`, or a
    friendly echo."""
    asked = re.sub(r"\s+", " ", text).strip(" .!?").lower()
    request = REQUESTS.get(asked)
    if request is not None:
        return Script(request.play(request.number, pace_s), stubborn=asked == "stubborn")
    words, _, number = asked.rpartition(" ")
    request = REQUESTS.get(words)
    if request is None or not (request.unit or NUMBER_LIKE.match(number)):
        return turn_for(plays, pace_s) if plays else Script(_echo(text, pace_s))
    if not request.unit or not NUMBER.fullmatch(number):
        return Script(_explain(request, number, pace_s))
    return Script(request.play(float(number), pace_s))


def is_request(text: str) -> bool:
    """Whether it is one of those that `help` tells, with a number where it takes one."""
    words, _, number = text.rpartition(" ")
    known = REQUESTS.get(words)
    return text in REQUESTS or (
        known is not None and known.unit != "" and NUMBER.fullmatch(number) is not None
    )


def _say(text: str, pace_s: float) -> Iterator[Move]:
    """Word by word, as a model would."""
    for piece in re.findall(r"\S+\s*|\s+", text):
        yield pace_s
        yield s.Text(piece)


def _echo(text: str, pace_s: float) -> Turn:
    shown = text if len(text) <= 400 else text[:399] + "…"
    yield from _say(f"Hello! You said: “{shown}”.\n", pace_s)
    yield from _say("I am the demo agent; no model is behind me. Say “help” to see what I do.\n",
                    pace_s)  # fmt: skip


def _explain(request: Request, number: str, pace_s: float) -> Turn:
    shown = number if len(number) <= 40 else number[:39] + "…"
    match request.unit:
        case "":
            takes = "nothing after it"
        case "code":
            takes = "an exit code (0 to 999999) after it, or nothing"
        case unit:
            takes = f"a number of {unit} (0 to 999999) after it, or nothing"
    yield from _say(f"“{request.words}” takes {takes}; you said “{shown}”.\n", pace_s)
    yield from _say("I have played nothing. Say “help” to see what I do.\n", pace_s)


def _help(_: float, pace_s: float) -> Turn:
    width = max(len(request.usage) for request in REQUESTS.values())
    yield pace_s
    yield s.Text("Say one of these, alone in a message; anything else I echo.\n\n")
    for request in REQUESTS.values():
        yield pace_s / 4
        yield s.Text(f"  {request.usage:<{width}}  {request.told}\n")


# Answers -------------------------------------------------------------------------------------


def _long(words: float, pace_s: float) -> Turn:
    for number in range(1, int(words) + 1):
        yield pace_s
        yield s.Text(f"word {number}" + ("\n" if number % 10 == 0 else ", "))


def _slow_start(seconds: float, pace_s: float) -> Turn:
    yield seconds
    yield from _say(f"That took {seconds:g} s to the first word.\n", pace_s)


def _think(seconds: float, pace_s: float) -> Turn:
    thoughts = ["Let me see. ", "This could be done in two ways. ", "The second one is simpler. "]
    for thought in thoughts:
        yield seconds / len(thoughts)
        yield s.Thinking(thought)
    yield from _say("I have thought about it: yes.\n", pace_s)


def _refuse(_: float, pace_s: float) -> Turn:
    yield from _say("I would rather not.\n", pace_s)
    yield s.Finished("refused")


def _escape(_: float, pace_s: float) -> Turn:
    yield from _say("plain \x1b[31mred\x1b[0m plain \x1b]0;a new title\x07plain \x1b[2Jplain\n",
                    pace_s)  # fmt: skip


# Tools ---------------------------------------------------------------------------------------


def _tool(seconds: float, pace_s: float) -> Turn:
    yield from _say("Let me count.\n", pace_s)
    yield s.ToolStarted("t1", "count", {"to": 4})
    for number in range(1, 5):
        yield seconds / 4
        yield s.ToolProgress("t1", f"{number} of 4")
    yield s.ToolEnded("t1", True, "4")
    yield from _say("There are 4.\n", pace_s)


def _build(seconds: float, pace_s: float) -> Turn:
    """Not a word for a long time, but its processes burn CPU: quiet is not hung."""
    yield from _say("This is a big build.\n", pace_s)
    yield s.ToolStarted("t1", "shell", {"command": "make everything"})
    spent = 0.0
    while spent < seconds:
        wait_s = min(1.0, seconds - spent)
        yield wait_s
        spent += wait_s
        yield s.Sampled(Sample(busy=True, state="R", cpu_s=round(spent * 0.97, 3), children=4))
    yield s.ToolEnded("t1", True, "built")
    yield from _say("Built.\n", pace_s)


def _stuck_tool(_: float, pace_s: float) -> Turn:
    yield from _say("I shall just ask the database.\n", pace_s)
    yield s.ToolStarted("t1", "shell", {"command": "psql -c 'lock table everything'"})
    while True:
        yield 1.0
        yield s.Sampled(Sample(state="S", cpu_s=0.02, children=1, waiting_in="unix_stream_read"))


def _ask(_: float, pace_s: float) -> Turn:
    yield from _say("I would like to delete a file.\n", pace_s)
    allowed = yield s.Asked("q1", "delete", {"path": "notes/old.txt"})
    if not allowed:
        yield from _say("Then I leave it alone.\n", pace_s)
        return
    yield s.ToolStarted("t1", "delete", {"path": "notes/old.txt"})
    yield pace_s
    yield s.ToolEnded("t1", True, "deleted (not really)")
    yield from _say("Thank you. It is done.\n", pace_s)


# Silence -------------------------------------------------------------------------------------


def _stall(_: float, pace_s: float) -> Turn:
    yield math.inf


def _stall_after(words: float, pace_s: float) -> Turn:
    for number in range(1, int(words) + 1):
        yield pace_s
        yield s.Text(f"word {number} ")
    yield math.inf


def _pings(_: float, pace_s: float) -> Turn:
    yield from _say("I am still here …\n", pace_s)
    while True:
        yield 1.0
        yield s.Heartbeat()


# Bad endings ---------------------------------------------------------------------------------


def _fail(_: float, pace_s: float) -> Turn:
    yield from _say("I will try, but\n", pace_s)
    yield s.Failed("the demo was asked to fail")


def _exit(code: float, pace_s: float) -> Turn:
    yield from _say("Something is wrong with\n", pace_s)
    yield s.Exited(int(code), "stderr ended with: demo: out of ideas")


def _exit_at_once(code: float, pace_s: float) -> Turn:
    yield pace_s
    yield s.Exited(int(code), "stderr ended with: demo: cannot even begin")


def _garbage(_: float, pace_s: float) -> Turn:
    yield from _say("My next line is\n", pace_s)
    yield s.Broken("protocol_error", 'expected one JSON object a line, got: {"type": "resu')


def _vanish(_: float, pace_s: float) -> Turn:
    yield from _say("Now you see me,\n", pace_s)
    yield s.Gone()


def _stubborn(_: float, pace_s: float) -> Turn:
    yield from _say("I will not stop.\n", pace_s)
    while True:
        yield 0.5
        yield s.Text("No. ")


REQUESTS: dict[str, Request] = {
    request.words: request
    for request in (
        Request("help", "", 0, "this list", _help),
        Request("long", "words", 200, "a long answer", _long),
        Request("slow start", "seconds", 5, "the first word takes a while", _slow_start),
        Request("think", "seconds", 2, "thinks first, then answers", _think),
        Request("tool", "seconds", 2, "a tool that reports its progress", _tool),
        Request("build", "seconds", 20, "a tool that is quiet and at work: not a hang", _build),
        Request("stuck tool", "", 0, "a tool that is quiet and does nothing: a hang", _stuck_tool),
        Request("ask", "", 0, "asks permission, and does it or not", _ask),
        Request("refuse", "", 0, "completes by declining", _refuse),
        Request("stall", "", 0, "takes the message and says nothing, for ever", _stall),
        Request("stall after", "words", 5, "falls silent in mid-answer", _stall_after),
        Request("pings", "", 0, "heartbeats and nothing else: alive, no progress", _pings),
        Request("fail", "", 0, "says that the turn failed", _fail),
        Request("exit", "code", 3, "its process ends in mid-answer", _exit),
        Request("exit at once", "code", 3, "ends before a word: tried again once", _exit_at_once),
        Request("garbage", "", 0, "breaks its protocol", _garbage),
        Request("vanish", "", 0, "is gone in mid-answer, nobody knows how", _vanish),
        Request("stubborn", "", 0, "ignores Stop and SIGTERM; only a kill ends it", _stubborn),
        Request("escape", "", 0, "terminal escape sequences in its answer", _escape),
    )
}
