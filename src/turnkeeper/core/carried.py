"""Commands and answers as text, so that they can be carried to another node and back.

Decides how they are written. It must not know who carries them. Invariant: what is unpacked is what
was packed; a refusal is the same refusal on the other side.
"""

from __future__ import annotations

from typing import Any

import msgspec

from turnkeeper.core import commands as c
from turnkeeper.core.codes import CODES
from turnkeeper.core.errors import INTERNAL, TurnkeeperError

_COMMANDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        c.Create, c.Send, c.StopRun, c.EditRun, c.HandOver, c.AnswerApproval, c.Adopt,
        c.ReportChild, c.Look,
    )
}  # fmt: skip
_REPLIES: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (c.RunView, c.Accepted, c.StopAnswer, c.Handed, c.Adopted, c.Done)
}

_REPEATABLE = (c.StopRun, c.ReportChild, c.Look)


class _Carried(msgspec.Struct):
    kind: str
    body: msgspec.Raw


class _Refusal(msgspec.Struct):
    code: str
    what: str
    fields: dict[str, Any] = {}


_carried = msgspec.json.Decoder(_Carried)


def is_repeatable(command: c.Command) -> bool:
    """It may be asked, and done, again when nobody knows whether it was answered."""
    if isinstance(command, c.Send):
        return command.key is not None
    return isinstance(command, _REPEATABLE)


_encoder = msgspec.json.Encoder(enc_hook=str)


def pack(one: c.Command | c.Reply) -> str:
    return _packed(type(one).__name__, one)


def pack_refusal(refused: TurnkeeperError) -> str:
    return _packed("", _Refusal(refused.entry.code, refused.what, refused.fields))


def unpack_command(text: str) -> c.Command:
    found = _carried.decode(text)
    command: c.Command = msgspec.json.decode(found.body, type=_COMMANDS[found.kind])
    return command


def unpack_reply(text: str) -> c.Reply:
    """The answer; a refusal is raised."""
    found = _carried.decode(text)
    if not found.kind:
        refusal = msgspec.json.decode(found.body, type=_Refusal)
        raise TurnkeeperError(CODES.get(refusal.code, INTERNAL), refusal.what, **refusal.fields)
    reply: c.Reply = msgspec.json.decode(found.body, type=_REPLIES[found.kind])
    return reply


def _packed(kind: str, body: object) -> str:
    return _encoder.encode({"kind": kind, "body": body}).decode()
