"""Codex as an agent: `codex app-server`, in custody.

Decides its arguments, its thread's parameters, and where it keeps its threads. It must not know
what its lines mean. Invariant: what it may do without asking is what the operator, or else its own
settings, say.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from turnkeeper.core.commands import Abilities
from turnkeeper.custody.client import Custodian
from turnkeeper.drivers import transcripts
from turnkeeper.drivers.offer import Offer
from turnkeeper.drivers.process import SAMPLE_S
from turnkeeper.drivers.program import ProgramAgent, ProgramOptions
from turnkeeper.ports import Opening, Transcript
from turnkeeper.wire.codex import CodexCodec

COMMAND = ("codex",)
VARIABLES = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "CODEX_API_KEY", "CODEX_HOME")
ADVICE = "Run `codex login`, or set the key that its config.toml names (env_key) for Turnkeeper"

ROLLOUT = re.compile(r"([0-9]{4})/([0-9]{2})/([0-9]{2})/(rollout-[A-Za-z0-9_-]{1,200})\.jsonl")
"""Where it keeps a thread, below its folder for sessions: by the day on which it began."""

ENDED = "task_complete"


class CodexOptions(ProgramOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`approval_policy` (untrusted, on-request, never) and `sandbox` (read-only, workspace-write,
    danger-full-access) are Codex's own."""

    model: str = ""
    approval_policy: str = ""
    sandbox: str = ""


class CodexAgent(ProgramAgent):
    """A driver for Codex."""

    handed_on = VARIABLES
    advice = ADVICE

    def __init__(
        self,
        custodian: Custodian,
        options: CodexOptions | None = None,
        *,
        sample_s: float = SAMPLE_S,
        offer: Offer | None = None,
    ) -> None:
        self._options = options or CodexOptions()
        super().__init__(custodian, self._options, sample_s=sample_s, offer=offer)

    @property
    def abilities(self) -> Abilities:
        return Abilities(steer=True, interrupt=True, resume=True, approvals=True, thinking=True)

    def argv(self, opening: Opening) -> tuple[str, ...]:
        options = self._options
        offered = self._offer.for_codex() if self._offer is not None else ()
        return (*(options.command or COMMAND), *offered, "app-server", *options.args)

    def read_transcript(self, conversation: str, cwd: str, most: int) -> Transcript | None:
        root = self._sessions(cwd)
        if root is None or not transcripts.is_name(conversation):
            return None
        found = transcripts.newest(root.glob(f"*/*/*/rollout-*-{conversation}.jsonl"))
        body = transcripts.read_lines(found, most) if found is not None else None
        if found is None or body is None:
            return None
        return Transcript(conversation, found.relative_to(root).as_posix(), body)

    def count_turns(self, transcript: Transcript, since: int) -> int:
        """It marks where a turn ends."""
        said = transcripts.entries(transcript.body, since)
        told = [entry.get("payload") for entry in said if entry.get("type") == "event_msg"]
        return sum(isinstance(one, dict) and one.get("type") == ENDED for one in told)

    def place_transcript(self, transcript: Transcript, cwd: str) -> bool:
        root, named = self._sessions(cwd), ROLLOUT.fullmatch(transcript.name)
        if root is None or named is None or not transcripts.is_name(transcript.conversation):
            return False
        *day, stem = named.groups()
        if not stem.endswith(f"-{transcript.conversation}"):
            return False
        transcripts.put(root, day, f"{stem}.jsonl", transcript.body)
        return True

    def _sessions(self, cwd: str) -> Path | None:
        own = self.own_folder("CODEX_HOME", ".codex", cwd)
        return own / "sessions" if own is not None else None

    def codec(self, opening: Opening) -> CodexCodec:
        return CodexCodec(conversation=opening.conversation, options=self._thread())

    def _thread(self) -> dict[str, Any]:
        options = self._options
        given = {
            "model": options.model,
            "approvalPolicy": options.approval_policy,
            "sandbox": options.sandbox,
        }
        return {key: value for key, value in given.items() if value}
