"""Claude Code as an agent: `claude -p` in stream-json, in custody.

Decides its arguments, and how it is told to resume. It must not know what its lines mean.
Invariant: it asks before it uses a tool, unless the operator's permission mode says otherwise.
"""

from __future__ import annotations

from turnkeeper.core.commands import Abilities
from turnkeeper.custody.client import Custodian
from turnkeeper.drivers.offer import Offer
from turnkeeper.drivers.process import SAMPLE_S
from turnkeeper.drivers.program import ProgramAgent, ProgramOptions
from turnkeeper.ports import Opening
from turnkeeper.wire.claude import ClaudeCodec

COMMAND = ("claude",)
PROTOCOL = (
    *("-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"),
    *("--include-partial-messages", "--replay-user-messages", "--permission-prompt-tool", "stdio"),
)
VARIABLES = (
    "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL",
    "CLAUDE_CONFIG_DIR", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
)  # fmt: skip
ADVICE = "Run `claude` and log in with /login, or set ANTHROPIC_API_KEY for Turnkeeper"


class ClaudeOptions(ProgramOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`permission_mode` is Claude Code's own: default, acceptEdits, plan, bypassPermissions…"""

    model: str = ""
    permission_mode: str = ""


class ClaudeAgent(ProgramAgent):
    """A driver for Claude Code."""

    handed_on = VARIABLES
    advice = ADVICE

    def __init__(
        self,
        custodian: Custodian,
        options: ClaudeOptions | None = None,
        *,
        sample_s: float = SAMPLE_S,
        offer: Offer | None = None,
    ) -> None:
        self._options = options or ClaudeOptions()
        super().__init__(custodian, self._options, sample_s=sample_s, offer=offer)

    @property
    def abilities(self) -> Abilities:
        return Abilities(steer=True, interrupt=True, resume=True, approvals=True, thinking=True)

    def argv(self, opening: Opening) -> tuple[str, ...]:
        options = self._options
        argv = [*(options.command or COMMAND), *PROTOCOL]
        if options.model:
            argv += ["--model", options.model]
        if options.permission_mode:
            argv += ["--permission-mode", options.permission_mode]
        if self._offer is not None:
            argv += self._offer.for_claude()
        if opening.conversation:
            argv += ["--resume", opening.conversation]
        return (*argv, *options.args)

    def codec(self, opening: Opening) -> ClaudeCodec:
        return ClaudeCodec()
