"""JSON-RPC on lines: what Codex (which leaves out the version) and ACP share.

Decides which line is a request, a response or a notification, and the ids of what we ask. It must
not know any method. Invariant: an id follows from the core's frame number, so the same intent is
the same request for ever, and a response names the frame that it answers.
"""

from __future__ import annotations

from typing import Any

import msgspec

from turnkeeper.core import signals as s
from turnkeeper.wire.codec import Frame
from turnkeeper.wire.framing import LINE_MAX
from turnkeeper.wire.linecodec import UNREADABLE, LineCodec, read, value

HELLO, CONVERSE, AFRESH = 1, 2, 3
"""The ids of the handshake: the greeting, the conversation asked for, and a fresh one instead."""

_FIRST = 9
"""Ids up to here are the handshake's; frame 1 has the next."""

NO_SUCH_METHOD = -32601


def id_of(frame: int) -> int:
    return frame + _FIRST


class Fault(msgspec.Struct, gc=False):
    """Why the other side would not."""

    code: int = 0
    message: str = ""
    data: Any = None

    def __str__(self) -> str:
        more = self.data.get("message") or self.data.get("details") or "" if _has(self.data) else ""
        return f"{self.message}: {more}" if more else self.message or f"error {self.code}"


def _has(data: Any) -> bool:
    return isinstance(data, dict)


_NONE = msgspec.Raw(b"")


class _Line(msgspec.Struct, gc=False):
    method: str | None = None
    id: msgspec.Raw = _NONE
    params: msgspec.Raw = _NONE
    result: msgspec.Raw = _NONE
    error: msgspec.Raw = _NONE


_decoder = msgspec.json.Decoder(_Line)
_fault: msgspec.json.Decoder[Fault] = msgspec.json.Decoder(Fault)
_number: msgspec.json.Decoder[int] = msgspec.json.Decoder(int)
_encode = msgspec.json.Encoder().encode


class RpcCodec(LineCodec):
    """The frame of a codec that speaks JSON-RPC; a subclass says what methods mean."""

    version: dict[str, Any]

    def __init__(self, *, line_max: int = LINE_MAX) -> None:
        super().__init__(line_max=line_max)
        self._due: set[int] = set()
        """What of the handshake is still to be answered: each of it once."""

    def _line(self, line: bytes) -> None:
        try:
            said = _decoder.decode(line)
        except UNREADABLE as fault:
            mended = self._garbled(line, fault)
            if mended is not None:
                self._line(mended)
            return
        if said.method is None:
            self._response(said)
        elif said.id:
            ref = bytes(said.id).decode()
            if not self._asks(ref, said.method, said.params):
                self._owed.append(self._refusal(ref, said.method))
        else:
            self._tells(said.method, said.params)

    def _response(self, said: _Line) -> None:
        """An answer to what we never asked, or to a line that it could not read, is no news."""
        number = read(_number, said.id) if said.id else None
        if number is None or (number <= AFRESH and number not in self._due):
            return
        self._due.discard(number)
        if said.error and said.error != b"null":
            fault = read(_fault, said.error) or Fault(message=str(value(said.error)))
            self._fails(number, fault)
        elif said.result:
            self._answers(number, said.result)

    def _asks(self, ref: str, method: str, params: msgspec.Raw) -> bool:
        """It asks something of us, by the id `ref` (as JSON). False: we do not serve that."""
        raise NotImplementedError

    def _tells(self, method: str, params: msgspec.Raw) -> None:
        raise NotImplementedError

    def _answers(self, number: int, result: msgspec.Raw) -> None:
        raise NotImplementedError

    def _fails(self, number: int, fault: Fault) -> None:
        raise NotImplementedError

    # Lines of ours ----------------------------------------------------------------------------

    def _request(self, id: str, number: int, method: str, params: dict[str, Any]) -> Frame:
        if number <= AFRESH:
            self._due.add(number)
        line = {**self.version, "id": number, "method": method, "params": params}
        return Frame(id, _encode(line) + b"\n")

    def _notice(self, id: str, method: str, params: dict[str, Any] | None = None) -> Frame:
        line: dict[str, Any] = {**self.version, "method": method}
        if params is not None:
            line["params"] = params
        return Frame(id, _encode(line) + b"\n")

    def _reply(self, id: str, ref: str, result: dict[str, Any]) -> Frame:
        line = {**self.version, "id": msgspec.Raw(ref.encode()), "result": result}
        return Frame(id, _encode(line) + b"\n")

    def _refusal(self, ref: str, method: str) -> Frame:
        error = {"code": NO_SUCH_METHOD, "message": f"{method} is not served here"}
        line = {**self.version, "id": msgspec.Raw(ref.encode()), "error": error}
        return Frame(f"refusal-{ref}", _encode(line) + b"\n")

    def _cannot_start(self, what: str, fault: Fault) -> None:
        self._broken = True
        self._out.append(s.Broken("spawn_failed", f"it would not {what}: {fault}"))
