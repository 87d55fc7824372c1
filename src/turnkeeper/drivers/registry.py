"""Agents from what an operator wrote: `{driver, command, cwd, env, limits, …}` by name.

Decides which driver a table means, and what may stand in it. It must not know where the table came
from. Invariant: whatever is wrong in it is refused by its full name, with the value and what to do,
before anything is started.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from turnkeeper.core.errors import InvalidValue
from turnkeeper.core.limits import Patch, check_patch
from turnkeeper.custody.client import Custodian
from turnkeeper.drivers.a2a import A2AAgent
from turnkeeper.drivers.a2a_remote import A2AOptions
from turnkeeper.drivers.acp import AcpAgent, AcpOptions
from turnkeeper.drivers.chat import ChatAgent
from turnkeeper.drivers.chat_apis import ChatOptions
from turnkeeper.drivers.claude import ClaudeAgent, ClaudeOptions
from turnkeeper.drivers.codex import CodexAgent, CodexOptions
from turnkeeper.drivers.demo import DemoAgent
from turnkeeper.drivers.process import SAMPLE_S
from turnkeeper.drivers.python import PythonAgent, PythonOptions
from turnkeeper.ports import Agent

Spec = Mapping[str, Any]
Keeping = Callable[[], Custodian]
"""Gives the custodian; asked only for an agent that has processes."""

T = TypeVar("T", bound=msgspec.Struct)


class _Table(msgspec.Struct, frozen=True):
    """One agent's table, taken apart."""

    name: str
    rest: dict[str, Any]
    sample_s: float

    def read(self, options: type[T]) -> T:
        """The rest of it, as that driver's options."""
        known = options.__struct_fields__
        for key, value in self.rest.items():
            if key not in known:
                told = f"there is no such setting; there are: driver, limits, {', '.join(known)}"
                raise InvalidValue(f"agents.{self.name}.{key}", value, told)
        try:
            return msgspec.convert(self.rest, options)
        except msgspec.ValidationError as wrong:
            key = _named_in(str(wrong)) or "driver"
            told, value = str(wrong), self.rest.get(key)
            raise InvalidValue(f"agents.{self.name}.{key}", value, told) from None
        except InvalidValue as wrong:
            name, value = f"agents.{self.name}.{wrong.field}", self.rest.get(wrong.field)
            raise InvalidValue(name, value, str(wrong)) from None


def _named_in(told: str) -> str:
    """The setting that msgspec complains of: "… `$.env[...]`", "… missing required field `url`"."""
    found = re.search(r"\$\.(\w+)", told) or re.search(r"field `(\w+)`", told)
    return found.group(1) if found else ""


def _claude(table: _Table, keeping: Keeping) -> Agent:
    return ClaudeAgent(keeping(), table.read(ClaudeOptions), sample_s=table.sample_s)


def _codex(table: _Table, keeping: Keeping) -> Agent:
    return CodexAgent(keeping(), table.read(CodexOptions), sample_s=table.sample_s)


def _acp(table: _Table, keeping: Keeping) -> Agent:
    options = table.read(AcpOptions)
    if not options.command:
        told = 'give the program that speaks ACP, as in command = ["gemini", "--acp"]'
        raise InvalidValue(f"agents.{table.name}.command", options.command, told)
    return AcpAgent(keeping(), options, sample_s=table.sample_s)


def _python(table: _Table, keeping: Keeping) -> Agent:
    rest = dict(table.rest)
    target = rest.pop("target", None)
    if not target:
        told = "give MODULE:FUNCTION or FILE.py:FUNCTION"
        raise InvalidValue(f"agents.{table.name}.target", target, told)
    options = msgspec.structs.replace(table, rest=rest).read(PythonOptions)
    return PythonAgent(keeping(), target, options, sample_s=table.sample_s)


def _chat(table: _Table, keeping: Keeping) -> Agent:
    return ChatAgent(table.read(ChatOptions), keeping(), sample_s=table.sample_s)


def _a2a(table: _Table, keeping: Keeping) -> Agent:
    return A2AAgent(table.read(A2AOptions))


def _demo(table: _Table, keeping: Keeping) -> Agent:
    for key, value in table.rest.items():
        raise InvalidValue(f"agents.{table.name}.{key}", value, "the demo agent has no settings")
    return DemoAgent()


DRIVERS: dict[str, Callable[[_Table, Keeping], Agent]] = {
    "claude": _claude,
    "codex": _codex,
    "acp": _acp,
    "a2a": _a2a,
    "chat": _chat,
    "python": _python,
    "demo": _demo,
}


def make_agent(name: str, spec: object, keeping: Keeping) -> tuple[Agent, Patch]:
    """The agent that a table describes, and the limits that the table gives it."""
    if not isinstance(spec, Mapping):
        told = 'give a table of its settings, as in {"driver": "claude"}'
        raise InvalidValue(f"agents.{name}", spec, told)
    rest = dict(spec)
    driver = rest.pop("driver", None)
    limits = check_patch(rest.pop("limits", {}), f"agents.{name}.limits")
    sample_s = rest.pop("sample_s", SAMPLE_S)
    make = DRIVERS.get(driver) if isinstance(driver, str) else None
    if make is None:
        raise InvalidValue(f"agents.{name}.driver", driver, f"give one of {', '.join(DRIVERS)}")
    return make(_Table(name, rest, sample_s), keeping), limits
