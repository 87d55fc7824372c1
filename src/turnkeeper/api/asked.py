"""What is asked over HTTP: the shapes of bodies.

Decides names, types and bounds. It must not know how anything is carried out. Invariant: a field
that is not known is refused, not ignored.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from turnkeeper.core.events import Priority, WhenBusy
from turnkeeper.core.limits import LIMIT_KEYS, LONGEST_S

Name = Annotated[str, Meta(max_length=128)]
Line = Annotated[str, Meta(max_length=500)]
Path = Annotated[str, Meta(max_length=4096)]
Note = Annotated[str, Meta(max_length=10_000)]
Key = Annotated[str, Meta(min_length=1, max_length=256, pattern="^[!-~]+$")]
Label = Annotated[str, Meta(min_length=1, max_length=64)]
Limits = Annotated[
    dict[str, float],
    Meta(
        extra_json_schema={
            "propertyNames": {"enum": list(LIMIT_KEYS)},
            "additionalProperties": {"type": "number", "minimum": 0, "maximum": LONGEST_S},
        }
    ),
]
Labels = Annotated[dict[Label, Annotated[str, Meta(max_length=256)]], Meta(max_length=32)]


class Asked(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What somebody sends us."""


Rule = Annotated[str, Meta(min_length=1, max_length=1000)]
RuleList = Annotated[list[Rule], Meta(max_length=200)]


class RulesIn(Asked, kw_only=True):
    """What the agent may do unasked here, by tool and pattern: `Read`, `Bash(git log*)`. `deny`
    beats `ask`, `ask` beats `allow`, the operator's rules among them."""

    allow: RuleList = []
    ask: RuleList = []
    deny: RuleList = []


class NewSession(Asked, kw_only=True):
    """`id` is a name of your own for it; without one it gets one."""

    agent: Name
    id: Name | None = None
    title: Line = ""
    cwd: Path = ""
    limits: Limits = {}
    labels: Labels = {}
    approvals: RulesIn = msgspec.field(default_factory=RulesIn)


class TextPart(Asked, kw_only=True):
    text: str
    type: Literal["text"] = "text"


Content = Annotated[list[TextPart], Meta(min_length=1, max_length=1000)]


class NewMessage(Asked, kw_only=True):
    """`text`, or `content` in parts. `deadline_s` is the same as `limits.deadline_s`."""

    text: str | None = None
    content: Content | None = None
    priority: Priority = "person"
    when_busy: WhenBusy = "queue"
    deadline_s: float | None = None
    limits: Limits = {}
    sender: Line = ""


class NewChild(NewMessage, kw_only=True):
    """What a run gives another to do: in `session`, or in a new one with `agent`."""

    session: Name | None = None
    agent: Name | None = None
    title: Line = ""
    cwd: Path = ""
    priority: Priority = "agent"


class EditRun(Asked, kw_only=True):
    """What is to be otherwise with a run that waits: its words (`text`, or `content` in parts), its
    place (`before` another run of its class; null: at the end of its class), or both."""

    text: str | None = None
    content: Content | None = None
    before: Name | UnsetType | None = UNSET
    by: Line = ""


class Steer(Asked, kw_only=True):
    by: Line = ""


class Decision(Asked, kw_only=True):
    """`always`: allow from now on in this session what `rule` fits, as `Bash(git push *)`; without
    one, what the rule fits that the question has been given as its `rule`."""

    decision: Literal["allow", "deny"]
    note: Note = ""
    by: Line = ""
    always: bool = False
    rule: Rule | None = None


class Stop(Asked, kw_only=True):
    by: Line = ""
