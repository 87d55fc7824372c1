"""Makes a failing plan small, so that a person can read what happened.

Decides what can be left out. It must not know why it fails. Invariant: what comes out breaks the
same promise as what went in; the number of tries is bounded, so it always comes to an end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from turnkeeper.testing.plan import Plan, Send
from turnkeeper.testing.script import Script

T = TypeVar("T")
TRIES_MAX = 600

Fails = Callable[[Plan], bool]


def shrink(plan: Plan, fails: Fails, tries_max: int = TRIES_MAX) -> Plan:
    """The plan without whatever it can do without and still fail."""
    return _Shrinker(fails, tries_max).shrink(plan)


class _Shrinker:
    def __init__(self, fails: Fails, tries_max: int) -> None:
        self._fails = fails
        self._left = tries_max

    def shrink(self, plan: Plan) -> Plan:
        before = None
        while plan != before and self._left > 0:
            before = plan
            plan = self._lists(plan)
            plan = self._scripts(plan)
            plan = self._plainer(plan)
        return plan

    def _try(self, plan: Plan) -> bool:
        self._left -= 1
        return self._left >= 0 and self._fails(plan)

    def _lists(self, plan: Plan) -> Plan:
        plan = self._fewer(plan, plan.actions, lambda p, xs: _with(p, "actions", xs))
        return self._fewer(plan, plan.faults, lambda p, xs: _with(p, "faults", xs))

    def _fewer(
        self, plan: Plan, items: Sequence[Any], put: Callable[[Plan, tuple[Any, ...]], Plan]
    ) -> Plan:
        """Without halves, then quarters, … then single items."""
        kept = tuple(items)
        size = max(1, len(kept) // 2)
        while kept and self._left > 0:
            at = 0
            while at < len(kept):
                fewer = kept[:at] + kept[at + size :]
                candidate = put(plan, fewer)
                if self._try(candidate):
                    plan, kept = candidate, fewer
                else:
                    at += size
            if size == 1:
                break
            size //= 2
        return plan

    def _scripts(self, plan: Plan) -> Plan:
        used = {action.text for action in plan.actions if isinstance(action, Send)}
        for text in list(plan.scripts):
            if text not in used:
                candidate = _with(plan, "scripts", _without(plan.scripts, text))
                if self._try(candidate):
                    plan = candidate
                    continue
            for index in range(len(plan.scripts[text])):
                plan = self._script(plan, text, index)
        return plan

    def _script(self, plan: Plan, text: str, index: int) -> Plan:
        def put(p: Plan, script: Script) -> Plan:
            scripts = list(p.scripts[text])
            scripts[index] = script
            return _with(p, "scripts", {**p.scripts, text: tuple(scripts)})

        script = plan.scripts[text][index]
        plan = self._fewer(
            plan, script.steps, lambda p, xs: put(p, _with(p.scripts[text][index], "steps", xs))
        )
        for plainer in _defaults(plan.scripts[text][index]):
            candidate = put(plan, plainer)
            if candidate != plan and self._try(candidate):
                plan = candidate
        return plan

    def _plainer(self, plan: Plan) -> Plan:
        for name, value in (("latency_s", 0.0), ("behind_max", 8192), ("queue_max", 100),
                            ("snapshot_every", 2048)):  # fmt: skip
            candidate = _with(plan, name, value)
            if candidate != plan and self._try(candidate):
                plan = candidate
        for index, action in enumerate(plan.actions):
            for plainer in _defaults(action):
                actions = list(plan.actions)
                actions[index] = plainer
                candidate = _with(plan, "actions", tuple(actions))
                if candidate != plan and self._try(candidate):
                    plan = candidate
        return plan


def _with(what: T, name: str, value: Any) -> T:
    return msgspec.structs.replace(what, **{name: value})  # type: ignore[type-var]


def _without(scripts: dict[str, Any], text: str) -> dict[str, Any]:
    return {name: script for name, script in scripts.items() if name != text}


def _defaults(what: msgspec.Struct) -> Iterator[Any]:
    """The same with one thing as it usually is."""
    for field in msgspec.structs.fields(type(what)):
        usual: Any = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            usual = field.default_factory()
        if usual is not msgspec.NODEFAULT and field.name != "at":
            yield _with(what, field.name, usual)
