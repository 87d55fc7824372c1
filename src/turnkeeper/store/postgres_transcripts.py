"""What agents keep of their conversations, on PostgreSQL, for the node that goes on with them.

Decides how it is stored. It must not know agents. Invariant: a session has one, the last; what is
found is what was kept, or nothing.
"""

from __future__ import annotations

import asyncio
import logging
import zlib

from turnkeeper.ports import KeptTranscript, Transcript
from turnkeeper.store.postgres_faults import Address
from turnkeeper.store.postgres_line import Lines
from turnkeeper.store.postgres_text import kept, told

log = logging.getLogger("turnkeeper.store")

MOST_BYTES = 64 * 1024 * 1024
"""No transcript is larger: one that says so is damaged."""

LEVEL = 1

_KEEP = """
INSERT INTO transcripts (log, seq, node, conversation, name, body)
SELECT n, $2::bigint, $3::text, $4::text, $5::text, $6::bytea FROM logs WHERE id = $1 FOR KEY SHARE
ON CONFLICT (log) DO UPDATE SET seq = excluded.seq, node = excluded.node,
    conversation = excluded.conversation, name = excluded.name, body = excluded.body
WHERE transcripts.seq <= excluded.seq
"""
_FIND = """
SELECT conversation, seq, node, name, body FROM transcripts JOIN logs ON n = log WHERE id = $1
"""


class PostgresTranscripts:
    """`Transcripts`, on a connection of its own: they are large, and nobody waits for them."""

    def __init__(self, address: Address, node: str) -> None:
        self._lines = Lines(address, 1)
        self._node = node

    @property
    def node(self) -> str:
        return self._node

    async def keep(
        self, session: str, seq: int, conversation: str, transcript: Transcript | None
    ) -> None:
        await self.copy(session, KeptTranscript(conversation, seq, self._node, transcript))

    async def copy(self, session: str, found: KeptTranscript) -> None:
        """Keep what was found in another store, as the one of its node."""
        name, body = "", None
        if found.transcript is not None:
            name = kept(found.transcript.name)
            body = await asyncio.to_thread(zlib.compress, found.transcript.body, LEVEL)
        given = (kept(session), found.seq, found.node, kept(found.conversation), name, body)
        await self._lines.fetch(_KEEP, *given)

    async def find(self, session: str) -> KeptTranscript | None:
        rows = await self._lines.fetch(_FIND, kept(session))
        if not rows:
            return None
        conversation, seq, node, name, packed = rows[0]
        conversation, transcript = told(conversation), None
        if packed is not None:
            body = await asyncio.to_thread(_unpacked, packed)
            if body is None:
                log.error("the transcript that is kept of session %s is damaged", session)
            else:
                transcript = Transcript(conversation, told(name), body)
        return KeptTranscript(conversation, seq, node, transcript)

    async def close(self) -> None:
        await self._lines.close()


def _unpacked(packed: bytes) -> bytes | None:
    unpacking = zlib.decompressobj()
    try:
        body = unpacking.decompress(packed, MOST_BYTES)
    except zlib.error:
        return None
    return body if unpacking.eof else None
