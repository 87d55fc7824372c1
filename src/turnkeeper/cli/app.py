"""The commands and their options, and no more than that.

Decides what can be typed. It must not know how a turn is run or shown: each command loads what does
its work when it is called. Invariant: a mistake in what was typed ends with exit code 2 and a
sentence that names it, and nothing was run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

import click

from turnkeeper import __version__

REFUSED = 2
INTERRUPTED = 130


class Duration(click.ParamType[float]):
    """Seconds, from `90`, `90s`, `5m`, `2h` or `1.5h`."""

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


class Refused(click.UsageError):
    """A mistake in what was typed, told like every other refusal; then how it is used."""

    def show(self, file: IO[Any] | None = None) -> None:
        from turnkeeper.core.errors import INVALID, TurnkeeperError

        told = TurnkeeperError(INVALID, self.format_message().rstrip("."))
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

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _refusing():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _refusing():
            return super().invoke(ctx)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 96},
)
@click.version_option(__version__, message="turnkeeper %(version)s")
def cli() -> None:
    """Runs AI agents, and keeps every turn honest: each turn ends, once, and says why."""


@cli.command()
@click.option("--agent", default="demo", show_default=True, help="Who takes the turn.")
@click.option("--session", help="The name of the session. Without it, a new one is made.")
@click.option("--deadline", type=Duration(), help="The turn ends then, whatever happens: 5m.")
@click.option("--idle", type=Duration(), help="The longest silence while the model works: 2m.")
@click.option(
    "--limit",
    "limits",
    type=LimitOption(),
    multiple=True,
    metavar="NAME=DURATION",
    help="Any other limit by its name: first_output_s=30s. Can be repeated.",
)
@click.option(
    "--priority",
    type=click.Choice(["person", "agent", "background"]),
    default="person",
    show_default=True,
    help="Whose work this is.",
)
@click.option("--yes", is_flag=True, help="Allow whatever the agent asks leave for.")
@click.option("--json", "as_json", is_flag=True, help="Print one event a line, as JSON.")
@click.argument("text")
def run(
    agent: str, session: str | None, deadline: float | None, idle: float | None,
    limits: tuple[tuple[str, float], ...], priority: str, yes: bool, as_json: bool, text: str,
) -> None:  # fmt: skip
    """One turn, here and now: TEXT goes to the agent (- reads it from standard input), its answer
    to standard output, progress and the cause of a bad end to standard error.

    \b
    Exit code: 0 completed, 1 failed, 124 timed out, 125 lost, 130 cancelled; 2 nothing was run.
    Ctrl-C stops the turn; a second one quits at once.
    """
    patch: dict[str, float] = dict(limits)
    if deadline is not None:
        patch["deadline_s"] = deadline
    if idle is not None:
        patch["idle_s"] = idle
    try:
        said = _from_stdin() if text == "-" else text
        sys.exit(_play(said, agent, session, priority, patch, as_json=as_json, yes=yes))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _play(
    text: str, agent: str, session: str | None, priority: str, limits: Mapping[str, float], *,
    as_json: bool, yes: bool,
) -> int:  # fmt: skip
    from turnkeeper import TurnkeeperError
    from turnkeeper.cli.turn import TurnOptions, play_turn

    try:
        return play_turn(TurnOptions(text, agent, session, priority, limits, as_json, yes))
    except TurnkeeperError as refused:
        click.echo(f"turnkeeper: {refused}", err=True)
        return REFUSED


def _from_stdin() -> str:
    if sys.stdin is None:
        raise _not_there("standard input is closed, so there is no text to read from it")
    try:
        return sys.stdin.buffer.read().decode().rstrip("\r\n")
    except UnicodeDecodeError as wrong:
        raise _not_there(f"standard input is not UTF-8: {wrong}") from None


def _not_there(told: str) -> click.UsageError:
    return click.UsageError(told, click.get_current_context())


@cli.command()
def agents() -> None:
    """The agents that can be named with --agent, and what each can do."""
    from turnkeeper.cli.agents import describe

    for line in describe():
        click.echo(line)
