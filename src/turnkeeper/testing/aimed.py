"""Plans that aim at what chance alone seldom meets: a stop or a loss in the middle of a clean-up.

Decides one rare meeting and how it comes about. It must not know what is right. Invariant: what is
aimed at is only made likely; the details are left to the chance that it is given.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from turnkeeper.core import signals as s
from turnkeeper.testing import plan as p
from turnkeeper.testing import script as t

SESSION = "s0"


class Aim(NamedTuple):
    """What is said and done, and the scripts for it."""

    scripts: dict[str, tuple[t.Script, ...]]
    actions: list[p.AnyAction]


def aim(r: Random) -> Aim:
    """Somebody sends; something befalls the run in one of its last phases."""
    kind = r.choice(("retrying", "sweeping", "draining", "killing", "asking"))
    first, moment = _SCRIPTS[kind](r)
    done = t.Script(steps=(t.Emit((s.Text("well "),)), t.Emit((s.Finished(),))))
    limits = {"deadline_s": r.choice((0.2, 0.5, 3.0))} if r.random() < 0.3 else {}
    actions: list[p.AnyAction] = [
        p.Send(session=SESSION, text="t1", priority=r.choice(("person", "background")),
               limits=limits),
        p.Send(at=r.choice((0.1, 2.0)), session=SESSION, text="t2"),
    ]  # fmt: skip
    if kind not in ("retrying", "asking"):
        begun = p.After(SESSION, "output.text")
        actions.append(p.Stop(at=r.choice((0.0, 0.1)), after=begun, text="t1"))
    actions.append(_blow(r, p.After(SESSION, moment)))
    return Aim({"t1": (first, done), "t2": (done,)}, actions)


def _blow(r: Random, moment: p.After) -> p.AnyAction:
    at = r.choice((0.0, 0.0, 0.005, 0.05, 0.2))
    kind = r.choice(("lose", "lose", "stop", "kill", "send"))
    match kind:
        case "lose":
            return p.LoseNode(at=at, after=moment, session=SESSION)
        case "stop":
            return p.Stop(at=at, after=moment, text="t1")
        case "kill":
            return p.Kill(at=at, after=moment, keepers_live=r.random() < 0.3, down_s=0.1)
        case _:
            return p.Send(at=at, after=moment, session=SESSION, text="t2", when_busy="interrupt")


def _late(r: Random) -> tuple[t.AnyStep, ...]:
    """Words that come when nobody waits for them any more."""
    words: list[t.AnyStep] = [
        t.Emit((s.Text("late "),)), t.Emit((s.Thinking("late "),)), t.Emit((s.Finished(),)),
        t.Emit((s.Failed("late"),)), t.Emit((s.Aborted(),)), t.Ask("late", wait=False),
        t.Emit((s.ToolStarted("late", "bash"),)), t.Emit((s.ToolProgress("late"),)),
        t.Emit((s.ToolEnded("late"),)), t.Garbage(), t.Exit(1), t.Emit((s.Heartbeat(),)),
        t.Observe(True),
    ]  # fmt: skip
    found: list[t.AnyStep] = []
    for _ in range(r.randint(1, 8)):
        found += [r.choice(words), t.Pause(r.choice((0.0, 0.03, 0.1)))]
    return tuple(found)


def _retrying(r: Random) -> tuple[t.Script, str]:
    body = t.Body(killed_after_s=r.choice((0.3, 1.4, 2.2)))
    return t.Script(steps=(t.Leave(), t.Exit(1)), body=body), "attempt.failed"


def _asking(r: Random) -> tuple[t.Script, str]:
    tool = (t.Emit((s.ToolStarted("one", "bash"),)),) if r.random() < 0.5 else ()
    asks = (t.Ask("q", wait=False),) if r.random() < 0.7 else ()
    last = r.choice((t.Exit(1), t.Garbage(), t.Emit((s.Failed("no"),)), t.Hang(), t.Hang()))
    moment = "approval.requested" if asks else "tool.started" if tool else "message.delivered"
    return t.Script(steps=(*tool, *asks, t.Pause(0.3), last)), moment


def _sweeping(r: Random) -> tuple[t.Script, str]:
    body = t.Body(sweep_s=r.choice((None, 0.3, 0.6)), read_s=0.002)
    steps = (t.Leave(), t.Emit((s.Text("go "),)), t.Hang())
    return t.Script(steps=steps, body=body, after_all=_late(r)), "run.ended"


def _draining(r: Random) -> tuple[t.Script, str]:
    body = t.Body(exit_on_term_s=r.choice((None, 0.3)), killed_after_s=r.choice((0.02, 0.6)))
    steps = (t.Emit((s.Text("go "),)), t.Pause(0.2), *_late(r), t.Hang())
    return t.Script(steps=steps, body=body, on_interrupt="ignore"), "run.stopping"


def _killing(r: Random) -> tuple[t.Script, str]:
    """Silent until it is to be killed, and then it talks."""
    body = t.Body(exit_on_term_s=None, killed_after_s=1.4)
    late = [
        step
        for _ in range(8)
        for step in (*_late(r), t.Pause(0.1))
        if not isinstance(step, t.Exit | t.Garbage)
    ]
    silence = t.Pause(r.choice((0.6, 1.0, 1.5, 2.0)))
    steps = (t.Emit((s.Text("go "),)), silence, *late, t.Hang())
    moment = r.choice(("attempt.escalated", "run.ended"))
    return t.Script(steps=steps, body=body, on_interrupt="ignore"), moment


_SCRIPTS = {
    "asking": _asking,
    "retrying": _retrying,
    "sweeping": _sweeping,
    "draining": _draining,
    "killing": _killing,
}
