"""Every key of `turnkeeper.toml`: its type, its default, what it is for.

Decides nothing but that. It must not know where a value came from. Invariant: what is here is what
docs/reference/configuration.md says; a key whose name ends in `_s` is a duration.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from turnkeeper.core.errors import InvalidValue
from turnkeeper.core.limits import LONGEST_S, Patch

DRIVERS = ("claude", "codex", "acp", "a2a", "chat", "python", "demo")
"""What `driver` may say; `drivers.registry` makes them."""

Scope = Literal["read", "operate", "admin"]

MIB = 1024 * 1024

Seconds = Annotated[float, msgspec.Meta(ge=0, le=LONGEST_S)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
BodyBytes = Annotated[int, msgspec.Meta(ge=1024, le=1024 * MIB)]


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """[server]: where it listens, and how it goes."""

    host: str = "127.0.0.1"
    port: Port = 7433
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    max_body_bytes: BodyBytes = 4 * MIB
    push_private: bool = False
    """Push notifications may go to addresses inside the network."""
    drain: bool = False
    drain_s: Seconds = 60.0
    drain_turns: Literal["let", "stop"] = "let"
    """What becomes of turns that run when it drains: they come to their end, or are stopped."""
    lease_s: Annotated[float, msgspec.Meta(ge=1, le=3600)] = 20.0
    """With PostgreSQL: so long this node lives after it last said so."""
    carry_conversations: bool = True
    """With PostgreSQL: what agents keep of conversations is stored there, for other nodes."""


class Store(msgspec.Struct, frozen=True, kw_only=True):
    """[store]: where the logs are. Without a URL they are in the data directory."""

    url: str = ""

    @property
    def is_postgres(self) -> bool:
        return self.url.startswith(POSTGRES)

    @property
    def at(self) -> Path | str | None:
        """The SQLite file or the PostgreSQL database that the URL names; none for the file in the
        data directory."""
        if self.is_postgres:
            return self.url
        return Path(self.url.removeprefix(SQLITE)).expanduser() if self.url else None

    @property
    def shown(self) -> str:
        """The URL without the password that it may have."""
        shown = re.sub(r"(//[^/@:?]*):[^/?]*@", r"\1:…@", self.url)
        return re.sub(r"(?i)([?&](?:ssl)?password)=[^&#]*", r"\1=…", shown)

    def file(self, usual: Path) -> Path:
        """The file that the logs are in, for what is done with files."""
        if self.is_postgres:
            told = "this is for SQLite; use PostgreSQL's own tools, such as pg_dump"
            raise InvalidValue("store.url", self.shown, told)
        at = self.at
        return at if isinstance(at, Path) else usual


SQLITE = "sqlite://"
POSTGRES = ("postgresql://", "postgres://")
STORE_URLS = "give sqlite:/// and an absolute path, or postgresql://user@host/database"


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """[log]: what the server says on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    json: bool = False
    spans: bool = False
    """Spans go to OpenTelemetry, where its own variables say; this needs the extra `otel`."""


Agents = dict[str, dict[str, Any]]
"""[agents.NAME]: each table as `compose.wire_agents` takes it: `driver`, `limits`, `warm_s` and the
driver's own keys."""


class TokenKeys(msgspec.Struct, frozen=True, kw_only=True):
    """[tokens.NAME]: a further token, and what it is good for. Its value is in a file, or in a
    variable; it is never in the configuration itself."""

    scope: Scope
    file: str = ""
    env: str = ""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is in force. `origins` says where each key that was given came from."""

    data: Path
    server: Server = Server()
    store: Store = Store()
    log: Log = Log()
    limits: Patch = {}
    agents: Agents = {}
    tokens: dict[str, TokenKeys] = {}
    file: Path | None = None
    origins: dict[str, str] = {}


SECTIONS: dict[str, type[msgspec.Struct]] = {"server": Server, "store": Store, "log": Log}
"""The tables with keys of their own. `limits`, `agents` and `tokens` have names in them."""

TOP = ("data", *SECTIONS, "limits", "agents", "tokens")
