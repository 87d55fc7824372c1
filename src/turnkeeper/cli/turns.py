"""The commands that give an agent something to do: `run` and `send`.

Decides what can be typed. It must not know how a turn is run or shown: each command loads what does
its work when it is called.
"""

from __future__ import annotations

import sys

import click

from turnkeeper.cli.params import (
    Where,
    anywhere,
    as_json,
    doing,
    patch_of,
    telling,
    text_of,
    turn_limits,
)  # fmt: skip


@click.command(short_help="One turn, here and now.")
@click.option("--agent", metavar="NAME", help="Who takes the turn: demo, claude, one of your own…")
@click.option(
    "--session", metavar="NAME", help="The name of the session. Without it, a new one is made."
)
@turn_limits
@click.option("--yes", is_flag=True, help="Allow whatever the agent asks permission for.")
@click.option("--json", "as_json", is_flag=True, help="Print one event a line, as JSON.")
@anywhere
@click.argument("text")
def run(
    agent: str | None, session: str | None, deadline: float | None, idle: float | None,
    limits: tuple[tuple[str, float], ...], priority: str, yes: bool, as_json: bool, text: str,
    where: Where,
) -> None:  # fmt: skip
    """One turn, here and now: TEXT goes to the agent (- reads it from standard input), its answer
    to standard output, progress and the cause of a bad end to standard error.

    Without a server the turn is run in this process, on the data directory. If a server holds that,
    or one is named, the turn is run there.

    \b
    Exit code: 0 completed, 1 failed, 124 timed out, 125 lost, 130 cancelled; 2 nothing was run;
    3 it is not known how it ended. Ctrl-C stops the turn; a second one quits at once.
    """
    patch = patch_of(deadline, idle, limits)
    with telling():
        said = text_of(text)
        from turnkeeper.cli.turn import TurnOptions, play_turn

        options = TurnOptions(said, agent, session, priority, patch, as_json, yes)
        sys.exit(play_turn(options, where))


@click.command(short_help="Give a message to a session, and do not wait.")
@click.option("--agent", metavar="NAME", help="Whom a new session is with.")
@turn_limits
@click.option(
    "--when-busy",
    type=click.Choice(["queue", "steer", "interrupt"]),
    default="queue",
    show_default=True,
    help="What it does while a turn is running there.",
)
@click.option(
    "--key", metavar="KEY", help="Makes sending again harmless: the same key is the same message."
)
@click.option("--wait", is_flag=True, help="Wait for the end; the exit code tells the outcome.")
@as_json
@anywhere
@click.argument("session")
@click.argument("text")
def send(
    agent: str | None, deadline: float | None, idle: float | None,
    limits: tuple[tuple[str, float], ...], priority: str, when_busy: str, key: str | None,
    wait: bool, as_json: bool, session: str, text: str, where: Where,
) -> None:  # fmt: skip
    """Give a message to a session on a server, and do not wait: its ids are printed once it is
    durable. A session that is not there is made, with --agent. TEXT - is standard input."""
    patch = patch_of(deadline, idle, limits)
    with telling():
        said = text_of(text)
    from turnkeeper.cli.sending import send_message
    from turnkeeper.cli.sides import Message

    message = Message(
        said, session, agent, priority, when_busy, key, patch, sender="turnkeeper send"
    )
    sys.exit(doing(lambda: send_message(where, message, wait=wait, as_json=as_json)))
