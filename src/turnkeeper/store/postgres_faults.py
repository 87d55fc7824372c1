"""What goes wrong with PostgreSQL, in words; and its address, without what is secret in it.

Decides which fault means what to a person, and which one is its sender's own. It must not know who
asked. Invariant: every fault of the database becomes `StoreDown`; no password is ever in the words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from turnkeeper.core.errors import STORE_NEWER, InvalidValue, StoreDown, TurnkeeperError

SCHEMA = "turnkeeper"

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,47}", re.ASCII)

_PORT = re.compile(r":([^\]:]+)\Z")

LOST = (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""Faults of the connection itself."""

OWN = (
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.TransactionRollbackError,
    asyncpg.DataError,
    asyncpg.ProgramLimitExceededError,
    ValueError,
    TypeError,
    OverflowError,
)
"""What one piece of work in a group may be the cause of: the others may do without it."""


@dataclass
class Seat:
    """A node among those that use a database, and which of its lives this is: another server of the
    same name has a later one. Nobody's seat has no name."""

    node: str | None = None
    incarnation: int = 0


@dataclass(frozen=True, repr=False)
class Address:
    """Where the logs are: a database, and the schema in it. `dsn` may have a password in it."""

    dsn: str
    schema: str
    shown: str

    def __repr__(self) -> str:
        return f"Address({self.shown!r})"

    @classmethod
    def of(cls, url: str) -> Address:
        """`postgresql://user@host:port/database?schema=name`; all else in it is PostgreSQL's."""
        try:
            parts = urlsplit(url)
            asked = parse_qsl(parts.query, keep_blank_values=True)
        except ValueError as wrong:
            raise InvalidValue("store.url", "…", str(wrong)) from None
        if parts.scheme not in ("postgresql", "postgres"):
            raise InvalidValue("store.url", parts.scheme, "give postgresql://user@host/database")
        schema = dict(asked).get("schema", SCHEMA)
        if not _NAME.fullmatch(schema):
            told = "give small letters, digits and underscores, 48 at most"
            raise InvalidValue("store.url", f"schema={schema}", told)
        _check_hosts(parts.netloc.rpartition("@")[2])
        rest = [(name, value) for name, value in asked if name != "schema"]
        dsn = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(rest), ""))
        host = parts.netloc.rpartition("@")[2] or dict(rest).get("host", "")
        shown = f"postgresql://{host}{parts.path}"
        return cls(dsn, schema, shown if schema == SCHEMA else f"{shown}?schema={schema}")


def _check_hosts(hosts: str) -> None:
    """Of several hosts each may have a port."""
    for host in hosts.split(","):
        port = _PORT.search(host)
        if port is not None and not (port[1].isdecimal() and 0 < int(port[1]) < 1 << 16):
            raise InvalidValue("store.url", host, "give a port from 1 to 65535")


def newer(address: Address, version: int, known: int) -> TurnkeeperError:
    told = f"the database {address.shown} has schema version {version}, and this program knows"
    return TurnkeeperError(STORE_NEWER, f"{told} {known}", version=version, known=known)


def is_lost(error: BaseException) -> bool:
    """The connection is of no more use, or leads to a server that takes no writes any more."""
    if isinstance(error, asyncpg.PostgresError):
        return isinstance(
            error,
            asyncpg.PostgresConnectionError
            | asyncpg.OperatorInterventionError
            | asyncpg.ReadOnlySQLTransactionError,
        )
    return isinstance(error, LOST) and not isinstance(error, ValueError)


def fault_of(error: BaseException, address: Address) -> StoreDown:
    """The same, as callers of a store know it."""
    return StoreDown(f"the database {address.shown} cannot be used: {_words(error)}")


def _words(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "it has not answered for some time"
    if isinstance(error, asyncpg.DiskFullError):
        return "its disk is full"
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        return "it is read-only"
    if isinstance(error, asyncpg.CannotConnectNowError):
        return "it is starting or stopping"
    if isinstance(
        error, asyncpg.InvalidCatalogNameError | asyncpg.InvalidAuthorizationSpecificationError
    ):
        return str(error)
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return "it is read-only, or a standby"
    if isinstance(error, asyncpg.ClientConfigurationError):
        return str(error)
    if isinstance(error, OSError):
        return f"it cannot be reached ({error.strerror or error})"
    if isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError):
        return "the connection to it was lost"
    return str(error) or type(error).__name__
