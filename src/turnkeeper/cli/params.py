"""What can be typed behind a command, and how a refusal is told.

Decides the types of options, those that many commands share, and exit codes of refusals. It must
not know any command. Invariant: a mistake in what was typed ends with exit code 2 and a sentence
that names it, and nothing was done; nothing but click is loaded here.
"""

from __future__ import annotations

import errno
import functools
import os
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import IO, Any, NamedTuple, TypeVar

import click

REFUSED = 2
UNKNOWN = 3
"""The message was accepted, and how its run ended is not known here."""
INTERRUPTED = 130

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class Duration(click.ParamType[float]):
    """Seconds, from `90`, `90s`, `5m`, `1.5h` or `30d`."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        from turnkeeper.config.durations import parse_duration

        try:
            return value if isinstance(value, float) else parse_duration(str(value))
        except ValueError as wrong:
            self.fail(str(wrong), param, ctx)


class LimitOption(click.ParamType[tuple[str, float]]):
    """One limit by its name, as in `idle_s=2m`."""

    name = "name=duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, float]:
        from turnkeeper.cli.values import parse_limit

        try:
            return parse_limit(str(value))
        except ValueError as wrong:
            self.fail(str(wrong), param, ctx)


class Size(click.ParamType[int]):
    """Bytes, from `500MB` or `5GB`."""

    name = "size"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        from turnkeeper.cli.values import parse_size

        try:
            return value if isinstance(value, int) else parse_size(str(value))
        except ValueError as wrong:
            self.fail(str(wrong), param, ctx)


# Options that many commands share ------------------------------------------------------------


class Where(NamedTuple):
    """Which Turnkeeper is meant, as it was typed."""

    server: str | None = None
    data: str | None = None
    config: str | None = None


def _stacked(*options: Callable[[F], F]) -> Callable[[F], F]:
    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


in_data: Callable[[F], F] = click.option(
    "--data",
    metavar="DIR",
    help="The data directory; else the configured one, or ~/.local/share/turnkeeper.",
)
by_config: Callable[[F], F] = click.option(
    "--config",
    metavar="FILE",
    help="The configuration; else TURNKEEPER_CONFIG, ./turnkeeper.toml, or the one in"
    " ~/.config/turnkeeper.",
)
on_data: Callable[[F], F] = _stacked(in_data, by_config)
"""A command that works on a data directory, as its `data` and `config` say."""


def anywhere(function: F) -> F:
    """A command that asks a server or looks into the data directory: it gets `where`."""

    @functools.wraps(function)
    def called(
        *args: Any, server: str | None, data: str | None, config: str | None, **options: Any
    ) -> Any:
        return function(*args, where=Where(server, data, config), **options)

    server = click.option(
        "--server",
        metavar="URL",
        help="The server; else TURNKEEPER_URL, or the one that holds the data directory.",
    )
    return server(on_data(called))  # type: ignore[return-value]


as_json: Callable[[F], F] = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, for programs."
)

turn_limits: Callable[[F], F] = _stacked(
    click.option("--deadline", type=Duration(), help="The turn ends then, whatever happens: 5m."),
    click.option("--idle", type=Duration(), help="The longest silence while the model works: 2m."),
    click.option(
        "--limit",
        "limits",
        type=LimitOption(),
        multiple=True,
        metavar="NAME=DURATION",
        help="Any other limit by its name: first_output_s=30s. Can be repeated.",
    ),
    click.option(
        "--priority",
        type=click.Choice(["person", "agent", "background"]),
        default="person",
        show_default=True,
        help="Whose work this is.",
    ),
)


def patch_of(
    deadline: float | None, idle: float | None, limits: tuple[tuple[str, float], ...]
) -> dict[str, float]:
    patch: dict[str, float] = dict(limits)
    if deadline is not None:
        patch["deadline_s"] = deadline
    if idle is not None:
        patch["idle_s"] = idle
    return patch


def text_of(text: str) -> str:
    """What was typed; `-` is what comes on standard input."""
    if text != "-":
        return text
    if sys.stdin is None:
        raise _wrong("standard input is closed, so there is no text to read from it")
    try:
        return sys.stdin.buffer.read().decode().rstrip("\r\n")
    except UnicodeDecodeError as wrong:
        raise _wrong(f"standard input is not UTF-8: {wrong}") from None


def _wrong(told: str) -> click.UsageError:
    return click.UsageError(told, click.get_current_context())


# Refusals ------------------------------------------------------------------------------------


class Refused(click.UsageError):
    """A mistake in what was typed, told like every other refusal; then how it is used."""

    def show(self, file: IO[Any] | None = None) -> None:
        from turnkeeper.core.errors import INVALID, TurnkeeperError

        what = " ".join(self.format_message().split())  # a refusal is one line
        told = TurnkeeperError(INVALID, what.rstrip("."))
        click.echo(f"turnkeeper: {told}", file=file, err=file is None)
        if self.ctx is not None:
            hint = f"Try '{self.ctx.command_path} --help' for help."
            click.echo(f"{self.ctx.get_usage()}\n{hint}", file=file, err=file is None)


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except click.UsageError as wrong:
        if type(wrong).show is not click.UsageError.show:
            raise  # such as: no command at all, which shows the help
        raise Refused(wrong.format_message(), wrong.ctx) from None


class Commands(click.Group):
    """The commands, whose mistakes are `Refused`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which they were added, not by the alphabet."""
        return list(self.commands)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _refusing():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _refusing():
            return super().invoke(ctx)


@contextmanager
def telling() -> Iterator[None]:
    """Whatever is refused is one line on standard error; Ctrl-C says nothing."""
    from turnkeeper.core.errors import TurnkeeperError

    try:
        yield
    except TurnkeeperError as refused:
        click.echo(f"turnkeeper: {refused}", err=True)
        sys.exit(REFUSED)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as fault:
        if fault.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        click.echo(f"turnkeeper: standard output cannot be written: {fault.strerror}", err=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left of it goes nowhere
        sys.exit(1)


def doing(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Do it in a loop of its own."""
    import asyncio

    with telling():
        return asyncio.run(work())
