"""Any agent that speaks the Agent Client Protocol on its standard streams, in custody.

Decides how it is called and what it is offered. It must not know which agent it is. Invariant: it
is declared to do only what the protocol lets every agent do; one that cannot load a session loses
its context in words (`session.context_lost`), not silently.
"""

from __future__ import annotations

from typing import Any

from turnkeeper.core.commands import Abilities
from turnkeeper.core.errors import InvalidValue
from turnkeeper.custody.client import Custodian
from turnkeeper.drivers.offer import Offer
from turnkeeper.drivers.process import SAMPLE_S
from turnkeeper.drivers.program import ProgramAgent, ProgramOptions
from turnkeeper.ports import Opening
from turnkeeper.wire.acp import AcpCodec

ADVICE = "Run that program by itself and log in, or give it its key in the agent's env"


class AcpOptions(ProgramOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`mcp_servers` are offered to every session, as the protocol writes them. `steer` is for an
    agent that takes a further prompt into a running one; most answer it in a turn of its own."""

    mcp_servers: tuple[dict[str, Any], ...] = ()
    steer: bool = False


class AcpAgent(ProgramAgent):
    """A driver for one ACP agent; its command has to be given."""

    advice = ADVICE

    def __init__(
        self,
        custodian: Custodian,
        options: AcpOptions,
        *,
        sample_s: float = SAMPLE_S,
        offer: Offer | None = None,
    ) -> None:
        if not options.command:
            told = 'give the program that speaks ACP, as in command = ["gemini", "--acp"]'
            raise InvalidValue("command", options.command, told)
        self._options = options
        super().__init__(custodian, options, sample_s=sample_s, offer=offer)

    @property
    def abilities(self) -> Abilities:
        steer = self._options.steer
        return Abilities(steer=steer, interrupt=True, resume=True, approvals=True, thinking=True)

    def argv(self, opening: Opening) -> tuple[str, ...]:
        return (*self._options.command, *self._options.args)

    def codec(self, opening: Opening) -> AcpCodec:
        servers = list(self._options.mcp_servers)
        if self._offer is not None:
            servers.append(self._offer.for_acp(opening.process))
        return AcpCodec(conversation=opening.conversation, mcp_servers=servers)
