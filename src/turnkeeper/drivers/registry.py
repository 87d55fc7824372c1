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
from turnkeeper.core.limits import LONGEST_S, Patch, check_patch
from turnkeeper.custody.client import Custodian
from turnkeeper.drivers.a2a import A2AAgent
from turnkeeper.drivers.a2a_remote import A2AOptions
from turnkeeper.drivers.acp import AcpAgent, AcpOptions
from turnkeeper.drivers.chat import ChatAgent
from turnkeeper.drivers.chat_apis import ChatOptions
from turnkeeper.drivers.claude import ClaudeAgent, ClaudeOptions
from turnkeeper.drivers.codex import CodexAgent, CodexOptions
from turnkeeper.drivers.demo import DemoAgent, DemoOptions
from turnkeeper.drivers.offer import NOTHING, Given
from turnkeeper.drivers.process import SAMPLE_S
from turnkeeper.drivers.python import PythonAgent, PythonOptions, locate
from turnkeeper.ports import Agent

Spec = Mapping[str, Any]
Keeping = Callable[[], Custodian]
"""Gives the custodian; asked only for an agent that has processes."""
Make = Callable[[Keeping, Given], Agent]

T = TypeVar("T", bound=msgspec.Struct)

SECRETIVE = ("env", "headers")
"""Settings whose values may be secrets: only the names in them are shown."""


class _Table(msgspec.Struct, frozen=True):
    """One agent's table, taken apart."""

    name: str
    rest: dict[str, Any]
    sample_s: float
    mcp: bool = False

    @property
    def where(self) -> str:
        return f"agents.{self.name}"

    def read(self, options: type[T]) -> T:
        """The rest of it, as that driver's options."""
        known = options.__struct_fields__
        for key, value in self.rest.items():
            if key not in known:
                told = f"there is no such setting; there are: driver, limits, {', '.join(known)}"
                raise InvalidValue(f"{self.where}.{key}", value, told)
        try:
            return msgspec.convert(self.rest, options)
        except msgspec.ValidationError as wrong:
            key = _named_in(str(wrong)) or "driver"
            raise InvalidValue(f"{self.where}.{key}", self._shown(key), str(wrong)) from None
        except InvalidValue as wrong:
            raise wrong.under(self.where) from None

    def _shown(self, key: str) -> object:
        value = self.rest.get(key)
        return list(value) if key in SECRETIVE and isinstance(value, Mapping) else value


def _named_in(told: str) -> str:
    """The setting that msgspec complains of: "… `$.env[...]`", "… missing required field `url`"."""
    found = re.search(r"\$\.(\w+)", told) or re.search(r"field `(\w+)`", told)
    return found.group(1) if found else ""


def _claude(table: _Table) -> Make:
    options = table.read(ClaudeOptions)
    return lambda keeping, given: ClaudeAgent(
        keeping(), options, sample_s=table.sample_s, offer=given.offer if table.mcp else None
    )


def _codex(table: _Table) -> Make:
    options = table.read(CodexOptions)
    return lambda keeping, given: CodexAgent(
        keeping(), options, sample_s=table.sample_s, offer=given.offer if table.mcp else None
    )


def _acp(table: _Table) -> Make:
    options = table.read(AcpOptions)
    if not options.command:
        told = 'give the program that speaks ACP, as in command = ["gemini", "--acp"]'
        raise InvalidValue(f"{table.where}.command", options.command, told)
    return lambda keeping, given: AcpAgent(
        keeping(), options, sample_s=table.sample_s, offer=given.offer if table.mcp else None
    )


def _python(table: _Table) -> Make:
    rest = dict(table.rest)
    target = rest.pop("target", None)
    if not target:
        told = "give MODULE:FUNCTION or FILE.py:FUNCTION"
        raise InvalidValue(f"{table.where}.target", target, told)
    options = msgspec.structs.replace(table, rest=rest).read(PythonOptions)
    try:
        locate(target, options)
    except InvalidValue as wrong:
        raise wrong.under(table.where) from None
    return lambda keeping, given: PythonAgent(
        keeping(), target, options, sample_s=table.sample_s,
        children=given.children if table.mcp else None,
    )  # fmt: skip


def _chat(table: _Table) -> Make:
    options = table.read(ChatOptions)
    return lambda keeping, _: ChatAgent(options, keeping(), sample_s=table.sample_s)


def _a2a(table: _Table) -> Make:
    options = table.read(A2AOptions)
    return lambda _, __: A2AAgent(options)


def _demo(table: _Table) -> Make:
    options = table.read(DemoOptions)
    return lambda _, __: DemoAgent(plays=options.plays)


DRIVERS: dict[str, Callable[[_Table], Make]] = {
    "claude": _claude,
    "codex": _codex,
    "acp": _acp,
    "a2a": _a2a,
    "chat": _chat,
    "python": _python,
    "demo": _demo,
}


TAKE_MCP = ("claude", "codex", "acp", "python")
"""Drivers whose agents can be given the means to start runs."""


def read_agent(name: str, spec: object) -> tuple[Make, Patch]:
    """What a table describes: how that agent is made, and the limits that the table gives it.
    Whatever is wrong in the table is refused now; nothing is made yet."""
    if not isinstance(spec, Mapping):
        told = 'give a table of its settings, as in {"driver": "claude"}'
        raise InvalidValue(f"agents.{name}", spec, told)
    rest = dict(spec)
    driver = rest.pop("driver", None)
    limits = check_patch(rest.pop("limits", {}), f"agents.{name}.limits")
    sample_s = rest.pop("sample_s", SAMPLE_S)
    if isinstance(sample_s, bool) or not isinstance(sample_s, int | float):
        told = "give a number of seconds (0 switches it off)"
        raise InvalidValue(f"agents.{name}.sample_s", sample_s, told)
    if not 0 <= sample_s <= LONGEST_S:
        told = f"give 0 (off) to {LONGEST_S:.0f} seconds"
        raise InvalidValue(f"agents.{name}.sample_s", sample_s, told)
    if "command" in rest and rest["command"] in ([], ()):
        told = "name the program; or leave it out, where the driver has a usual one"
        raise InvalidValue(f"agents.{name}.command", rest["command"], told)
    read = DRIVERS.get(driver) if isinstance(driver, str) else None
    if read is None:
        raise InvalidValue(f"agents.{name}.driver", driver, f"give one of {', '.join(DRIVERS)}")
    mcp = rest.pop("mcp", False)
    if not isinstance(mcp, bool):
        raise InvalidValue(f"agents.{name}.mcp", mcp, "give true or false")
    if mcp and driver not in TAKE_MCP:
        told = f"an agent of the driver {driver} cannot be given it; {', '.join(TAKE_MCP)} can"
        raise InvalidValue(f"agents.{name}.mcp", mcp, told)
    return read(_Table(name, rest, float(sample_s), mcp)), limits


def make_agent(
    name: str, spec: object, keeping: Keeping, given: Given = NOTHING
) -> tuple[Agent, Patch]:
    """The agent that a table describes, and the limits that the table gives it. `given` is for one
    that may start runs (`mcp`)."""
    make, limits = read_agent(name, spec)
    return make(keeping, given), limits
