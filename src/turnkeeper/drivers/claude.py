"""Claude Code as an agent: `claude -p` in stream-json, in custody.

Decides its arguments, how it is told to resume, and where it keeps its conversations. It must not
know what its lines mean.
Invariant: it asks before it uses a tool, unless the operator's permission mode says otherwise.
"""

from __future__ import annotations

import os
import re
import unicodedata
from itertools import pairwise
from pathlib import Path

from turnkeeper.core.commands import Abilities
from turnkeeper.custody.client import Custodian
from turnkeeper.drivers import transcripts
from turnkeeper.drivers.offer import Offer
from turnkeeper.drivers.process import SAMPLE_S
from turnkeeper.drivers.program import ProgramAgent, ProgramOptions
from turnkeeper.ports import Opening, Transcript
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

LONGEST_NAME = 200


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

    def read_transcript(self, conversation: str, cwd: str, most: int) -> Transcript | None:
        root = self._projects(cwd)
        if root is None or not transcripts.is_name(conversation):
            return None
        found = transcripts.newest(root.glob(f"*/{conversation}.jsonl"))
        body = transcripts.read_lines(found, most) if found is not None else None
        return Transcript(conversation, "", body) if body is not None else None

    def count_turns(self, transcript: Transcript, since: int) -> int:
        """It writes what was said a moment after its result: a turn's last word is its own."""
        said = [
            entry for entry in transcripts.entries(transcript.body, since)
            if entry.get("type") in ("user", "assistant") and not entry.get("isSidechain")
        ]  # fmt: skip
        said.append({"type": "user"})
        return sum(
            (entry["type"], then["type"]) == ("assistant", "user")
            and _is_last_word(entry.get("message"))
            for entry, then in pairwise(said)
        )

    def place_transcript(self, transcript: Transcript, cwd: str) -> bool:
        root, folder = self._projects(cwd), project_of(self.place_of(cwd))
        if root is None or folder is None or not transcripts.is_name(transcript.conversation):
            return False
        transcripts.put(root, [folder], f"{transcript.conversation}.jsonl", transcript.body)
        return True

    def _projects(self, cwd: str) -> Path | None:
        own = self.own_folder("CLAUDE_CONFIG_DIR", ".claude", cwd)
        return own / "projects" if own is not None else None

    def codec(self, opening: Opening) -> ClaudeCodec:
        return ClaudeCodec()


def _is_last_word(message: object) -> bool:
    """It says something, and calls no tool."""
    parts = message.get("content") if isinstance(message, dict) else None
    kinds = [part.get("type") for part in parts or () if isinstance(part, dict)]
    return "text" in kinds and "tool_use" not in kinds


def project_of(cwd: str) -> str | None:
    """The folder for the conversations of that place: its path, with a dash for each UTF-16 unit
    that is no ASCII letter or digit. None for a long one, which gets a name that we do not know."""
    path = unicodedata.normalize("NFC", os.path.realpath(cwd))
    units = path.encode("utf-16-be", "replace")
    pairs = zip(units[::2], units[1::2], strict=True)
    name = re.sub("[^a-zA-Z0-9]", "-", "".join(chr(high << 8 | low) for high, low in pairs))
    return name if 0 < len(name) <= LONGEST_NAME else None
