"""Makes plans: the one place where chance comes in.

Decides what a seed means. It must not know what is right or how it is run. Invariant: a seed gives
the same plan for ever on any machine; every kind of trouble that the promises speak of has a
profile in which it is likely.
"""

from __future__ import annotations

from random import Random

import msgspec

from turnkeeper.core import signals as s
from turnkeeper.core.limits import Limits
from turnkeeper.testing import plan as p
from turnkeeper.testing.aimed import aim
from turnkeeper.testing.faults import StoreFault
from turnkeeper.testing.script import Emit, Pause, Script, Spawn
from turnkeeper.testing.scripter import make_script

PROFILES = (
    "calm", "people", "stops", "clocks", "ladder", "approvals", "steering", "children", "store",
    "kills", "dead keepers", "watchers", "nodes", "starts", "preemption", "aimed", "aimed",
    "restarts", "mixed", "mixed",
)  # fmt: skip

MOMENTS = (
    "run.started", "attempt.started", "attempt.ready", "message.delivered", "output.text",
    "tool.started", "approval.requested", "attempt.failed", "run.stopping", "run.ended",
    "attempt.escalated", "run.stalling", "message.accepted", "run.requeued",
)  # fmt: skip
"""After which events something may befall a world."""


def make_plan(seed: int) -> p.Plan:
    """The plan of a seed."""
    chance = Random(seed)
    return _Maker(chance, seed, PROFILES[seed % len(PROFILES)]).plan()


class _Maker:
    def __init__(self, chance: Random, seed: int, profile: str) -> None:
        self._r = chance
        self._seed = seed
        self._profile = profile
        self._texts = 0
        self._scripts: dict[str, tuple[Script, ...]] = {}

    def _is(self, *profiles: str) -> bool:
        return self._profile in profiles

    def _may(self, probability: float) -> bool:
        return self._r.random() < probability

    def plan(self) -> p.Plan:
        r = self._r
        agents = self._agents()
        several = self._is("children") or (self._is("mixed") and self._may(0.5))
        count = r.randint(2, 3) if several else 1
        sessions = tuple(self._session(i, agents) for i in range(count))
        actions = self._actions(sessions)
        chores = Random(self._seed + 0.5)
        actions += self._changes_of_mind(Random(self._seed + 0.25), actions)
        actions += [p.Tidy(at=chores.uniform(0.2, 6.0)) for _ in range(chores.choice((0, 1, 6)))]
        return p.Plan(
            seed=self._seed, profile=self._profile, limits=self._limits(), agents=agents,
            sessions=sessions, scripts=self._scripts, actions=tuple(actions),
            faults=tuple(self._faults()),
            latency_s=r.choice((0.0, 0.0, 0.001, 0.01)),
            behind_max=r.choice((3, 8, 8192)) if self._is("watchers", "mixed") else 8192,
            queue_max=r.choice((2, 100, 100, 100)),
            output_max_bytes=r.choice((1500, 200_000, 200_000, 200_000)),
            ending=r.choice(("close", "kill")),
            snapshot_every=chores.choice((1, 7, 40, 2048)),
        )  # fmt: skip

    def _agents(self) -> tuple[p.AgentPlan, ...]:
        safe = self._is("kills") or self._may(0.4 if self._is("restarts") else 0.75)
        return tuple(
            p.AgentPlan(
                name=name, outlives_server=safe or i == 1,
                interrupt=self._is("aimed") or self._may(0.85),
                steer=self._is("steering") or self._may(0.7), resume=self._may(0.8),
            )
            for i, name in enumerate(("ada", "bob"))
        )  # fmt: skip

    def _session(self, index: int, agents: tuple[p.AgentPlan, ...]) -> p.SessionPlan:
        limits: dict[str, float] = {}
        if self._may(0.15):
            limits["ceiling_s"] = self._r.choice((0.0, 12.0, 500.0))
        if self._may(0.1):
            limits["idle_s"] = 3.0
        agent = self._r.choice(agents).name
        return p.SessionPlan(name=f"s{index}", agent=agent, limits=limits)

    def _limits(self) -> Limits:
        r, polite = self._r, self._is("aimed")
        return Limits(
            startup_s=r.choice((1.0, 2.0)), write_s=r.choice((0.8, 1.5)),
            first_output_s=r.choice((2.0, 4.0)), idle_s=r.choice((2.0, 5.0)),
            tool_s=r.choice((2.5, 6.0)), approval_s=r.choice((1.0, 4.0)),
            ceiling_s=r.choice((15.0, 25.0)),
            drain_s=r.choice((0.5, 1.0) if polite else (0.0, 0.5, 1.0, 1.0)),
            term_s=r.choice((0.4, 1.0) if polite else (0.0, 0.4, 1.0, 1.0)), orphan_s=8.0,
        )  # fmt: skip

    # What people do --------------------------------------------------------------------------

    def _actions(self, sessions: tuple[p.SessionPlan, ...]) -> list[p.AnyAction]:
        names = [session.name for session in sessions]
        if self._is("aimed"):
            aimed = aim(self._r)
            self._scripts.update(aimed.scripts)
            return aimed.actions
        if self._is("preemption"):
            sends = self._crowd(names[0])
        else:
            many = range(self._how_many_sends())
            sends = [self._send(self._r.choice(names), names) for _ in many]
        actions: list[p.AnyAction] = list(sends)
        actions += self._stops(sends, names)
        actions += self._replies(names)
        actions += self._watches(names)
        actions += self._misfortunes(names)
        if self._is("nodes") or (self._is("mixed") and self._may(0.15)):
            actions += [self._lose(names) for _ in range(self._r.randint(1, 3))]
        return actions

    def _how_many_sends(self) -> int:
        if self._is("people", "steering", "restarts"):
            return self._r.randint(4, 8)
        return self._r.randint(1, 4) if self._is("calm", "starts") else self._r.randint(2, 5)

    def _text(self, session: str, names: list[str]) -> str:
        self._texts += 1
        text = f"t{self._texts}"
        tries = self._r.choice((1, 1, 1, 2))
        scripts = [make_script(self._r, self._profile, f"{text}.{n}") for n in range(tries)]
        others = [name for name in names if name != session]
        if others and (self._is("children") or self._may(0.2)):
            scripts[0] = self._with_children(scripts[0], others, names)
        self._scripts[text] = tuple(scripts)
        return text

    def _with_children(self, script: Script, others: list[str], names: list[str]) -> Script:
        session = self._r.choice(others)
        steps = list(script.steps)
        for _ in range(self._r.choice((1, 1, 2))):
            at = self._r.randint(0, len(steps))
            depth = names if self._texts < 5 else [session]
            steps.insert(at, Spawn(session, self._text(session, depth)))
        return msgspec.structs.replace(script, steps=tuple(steps))

    def _send(self, session: str, names: list[str]) -> p.Send:
        r = self._r
        key = f"k{r.randint(1, 4)}-{self._texts + 1}" if self._may(0.4) else None
        text = self._text(session, names)
        dense = self._is("people", "steering", "stops", "restarts")
        return p.Send(
            at=round(r.uniform(0, 2.0 if dense else 6.0), 3),
            session=session, text=text,
            priority=r.choice(("person", "person", "agent", "background", "background")),
            when_busy=r.choice(
                ("queue", "steer", "steer", "interrupt") if self._is("steering")
                else ("queue", "queue", "steer", "interrupt")
            ),
            limits=self._message_limits(), key=key,
            again=tuple(r.uniform(0, 3) for _ in range(r.randint(0, 2))) if key else (),
            conflict=key is not None and self._may(0.3),
        )  # fmt: skip

    def _crowd(self, session: str) -> list[p.Send]:
        """Background work, and people who come again and again."""
        r = self._r
        sends = [self._send(session, [session]) for _ in range(r.randint(1, 2))]
        for send in sends:
            script = self._scripts[send.text][0]
            chatter = tuple(plain(s.Text(f"{send.text}-{n} ")) for n in range(40))
            steps = [step for one in chatter for step in (one, Pause(0.2))]
            whole = msgspec.structs.replace(script, steps=(*steps, plain(s.Finished())))
            self._scripts[send.text] = (whole,)
        found = [
            msgspec.structs.replace(send, at=0.0, priority="background", limits={})
            for send in sends
        ]
        at = 0.3
        for _ in range(r.randint(3, 6)):
            self._texts += 1
            text = f"t{self._texts}"
            self._scripts[text] = (Script(steps=(plain(s.Finished(text=text)),)),)
            found.append(p.Send(at=round(at, 3), session=session, text=text))
            at += r.uniform(0.2, 1.5)
        return found

    def _message_limits(self) -> dict[str, float]:
        limits: dict[str, float] = {}
        r, often = self._r, 0.25 if self._is("clocks", "mixed", "people") else 0.08
        for key, low, high in (
            ("deadline_s", 0.3, 6.0), ("queue_s", 0.2, 4.0), ("first_output_s", 0.2, 1.0),
            ("idle_s", 0.2, 1.0), ("tool_s", 0.3, 1.5), ("startup_s", 0.1, 0.6),
            ("write_s", 0.1, 0.5), ("approval_s", 0.1, 1.0), ("ceiling_s", 1.0, 30.0),
        ):  # fmt: skip
            dated = key == "deadline_s" and self._is("kills", "dead keepers", "starts", "restarts")
            if self._may(0.4 if dated else often):
                limits[key] = 0.0 if self._may(0.1) else round(r.uniform(low, high), 3)
        return limits

    def _when(self, names: list[str], kinds: tuple[str, ...] = MOMENTS) -> dict[str, object]:
        """At some moment, or just after some event."""
        r = self._r
        if self._may(0.4):
            return {"at": round(r.uniform(0, 8), 3)}
        after = p.After(r.choice(names), r.choice(kinds), r.choice((1, 1, 1, 2, 3)))
        return {"at": r.choice((0.0, 0.0, 0.001, 0.01, 0.3, 1.0)), "after": after}

    def _stops(self, sends: list[p.Send], names: list[str]) -> list[p.AnyAction]:
        r = self._r
        count = r.randint(1, 5) if self._is("stops", "ladder", "mixed") else r.choice((0, 0, 1))
        texts = [*self._scripts, *(send.text for send in sends)]
        return [
            p.Stop(text="nobody" if self._may(0.08) else r.choice(texts), **self._when(names))  # type: ignore[arg-type]
            for _ in range(count)
        ]

    def _changes_of_mind(self, r: Random, actions: list[p.AnyAction]) -> list[p.AnyAction]:
        """Some edit what waits, give it another place, or give it to the running turn, and some
        answer for all that is to come. By a chance of its own, so that what else a seed means stays
        as it was."""
        sends = [action for action in actions if isinstance(action, p.Send)]
        often = self._is("people", "steering", "restarts", "mixed", "kills")
        found: list[p.AnyAction] = []
        for i, action in enumerate(actions):
            if isinstance(action, p.Reply) and action.nth and r.random() < 0.2:
                actions[i] = msgspec.structs.replace(action, rule="*")
        for send in sends:
            if r.random() > (0.7 if often else 0.2):
                continue
            at = round(send.at + r.choice((0.0, 0.001, 0.05, 0.3, 1.0)), 3)
            alike = [s.text for s in sends if s.priority == send.priority]
            other = r.choice((None, r.choice(alike), r.choice(alike), r.choice(sends).text))
            found.append(
                r.choice((
                    p.Edit(at=at, text=send.text, words=f"{send.text} {r.randint(1, 3)}"),
                    p.Move(at=at, text=send.text, before=other),
                    p.Move(at=at, text=send.text, before=other),
                    p.HandOver(at=at, text=send.text),
                    p.HandOver(at=at, text=send.text),
                ))
            )  # fmt: skip
        return found

    def _replies(self, names: list[str]) -> list[p.AnyAction]:
        r = self._r
        found: list[p.AnyAction] = []
        for session in names:
            for nth in range(1, r.randint(2, 6)):
                if self._may(0.75):
                    after = p.After(session, "approval.requested", nth)
                    found.append(
                        p.Reply(
                            at=r.choice((0.0, 0.05, 0.5, 2.0, 5.0)), after=after, session=session,
                            nth=nth, allow=self._may(0.6), twice=self._may(0.2),
                        )
                    )  # fmt: skip
        if self._may(0.1):
            found.append(p.Reply(at=r.uniform(0, 4), session=names[0], nth=0, allow=True))
        return found

    def _watches(self, names: list[str]) -> list[p.AnyAction]:
        r = self._r
        count = r.randint(2, 4) if self._is("watchers") else r.choice((0, 1, 1))
        return [
            p.Watch(
                at=round(r.uniform(0, 5), 3), session=r.choice(names),
                cursor=r.choice((0, 0, 1, 5, 20)), reads=r.choice((1, 2, 5)),
                stall_s=r.choice((0.0, 0.0, 1.0, 3.0)), leave_s=r.choice((0.0, 0.0, 0.5)),
            )
            for _ in range(count)
        ]  # fmt: skip

    # What goes wrong -------------------------------------------------------------------------

    def _misfortunes(self, names: list[str]) -> list[p.AnyAction]:
        r = self._r
        found: list[p.AnyAction] = []
        if self._is("kills", "dead keepers") or (self._is("mixed") and self._may(0.4)):
            for _ in range(r.randint(1, 3)):
                live = self._may(0.9) if self._is("kills") else self._may(0.3)
                down_s = r.choice((0.0, 0.1, 0.5, 2.0, 9.0))
                found.append(p.Kill(keepers_live=live, down_s=down_s, **self._when(names)))  # type: ignore[arg-type]
        if self._is("restarts"):
            for at in (r.uniform(0.5, 2.0), r.uniform(2.5, 5.0)):
                down_s = r.choice((0.1, 0.5, 1.5))
                both = (p.Close(at=at, down_s=down_s), p.Kill(at=at, down_s=down_s))
                found.append(r.choice(both))
        elif self._may(0.25 if self._is("kills", "mixed") else 0.06):
            found.append(p.Close(down_s=r.choice((0.1, 1.0)), **self._when(names)))  # type: ignore[arg-type]
        return found

    def _lose(self, names: list[str]) -> p.AnyAction:
        session = self._r.choice(names)
        return p.LoseNode(session=session, **self._when([session]))  # type: ignore[arg-type]

    def _faults(self) -> list[StoreFault]:
        r = self._r
        found: list[StoreFault] = []
        if self._is("store") or (self._is("mixed") and self._may(0.5)):
            for _ in range(r.randint(1, 6)):
                kind = r.choice(("slow", "fail_before", "fail_after", "outage", "slow"))
                long = r.choice((0.3, 2.0, 12.0))
                s = long if kind == "outage" else round(r.uniform(0.01, 1.5), 3)
                on = "read" if self._may(0.2) else "append"
                found.append(StoreFault(r.randint(2, 60), kind, s, on=on))  # type: ignore[arg-type]
        if self._is("kills", "dead keepers") or (self._is("mixed") and self._may(0.3)):
            for _ in range(r.randint(1, 3)):
                live = self._may(0.9) if self._is("kills") else self._may(0.3)
                kind = r.choice(("kill_before", "kill_after"))
                down_s = r.choice((0.0, 0.2, 1.0))
                found.append(StoreFault(r.randint(2, 50), kind, 0.0, live, down_s))  # type: ignore[arg-type]
        return found


def plain(*signals: s.AgentSignal) -> Emit:
    """One whole line."""
    return Emit(signals)
