"""The commands that only look: agents, sessions, ps, show, events, approvals.

Decides what can be typed. It must not know how anything is found or shown: each command loads what
does its work when it is called.
"""

from __future__ import annotations

import click

from turnkeeper.cli.params import Where, anywhere, as_json, doing

most = click.option(
    "-n", "--limit", "limit", metavar="COUNT", type=click.IntRange(1, 500), default=50,
    show_default=True,
    help="At most so many, the newest.",
)  # fmt: skip


@click.command(short_help="The agents that can be named.")
@as_json
@anywhere
def agents(as_json: bool, where: Where) -> None:
    """The agents that can be named with --agent: the configured ones, and the known ones found on
    this machine; or those of a server."""
    from turnkeeper.cli.agents import tell_agents

    doing(lambda: tell_agents(where, as_json=as_json))


@click.command(short_help="The sessions, the newest first.")
@click.option("--agent", metavar="NAME", help="Those with this agent.")
@click.option("--busy", is_flag=True, help="Those in which something runs or waits.")
@click.option("--search", help="Those with this text in their id or title.")
@most
@as_json
@anywhere
def sessions(
    agent: str | None, busy: bool, search: str | None, limit: int, as_json: bool, where: Where
) -> None:
    """The sessions, the newest first."""
    from turnkeeper.cli.looking import tell_sessions

    doing(lambda: tell_sessions(where, agent, search, limit, busy=busy, as_json=as_json))


@click.command(short_help="What runs and what waits, as a tree.")
@click.option("-a", "--all", "everything", is_flag=True, help="Those that have ended, too.")
@click.option("--session", metavar="NAME", help="Those of this session.")
@most
@as_json
@anywhere
def ps(everything: bool, session: str | None, limit: int, as_json: bool, where: Where) -> None:
    """What runs and what waits: state, phase, how long ago it got on, and which clock is next. A
    run stands under the run that started it."""
    from turnkeeper.cli.looking import tell_runs

    doing(lambda: tell_runs(where, session, limit, everything=everything, as_json=as_json))


@click.command(short_help="Everything about one run: outcome, cause, evidence, clocks.")
@as_json
@anywhere
@click.argument("run")
def show(run: str, as_json: bool, where: Where) -> None:
    """Everything that is known of a run: outcome, cause, evidence, and which clock is next."""
    from turnkeeper.cli.looking import tell_run

    doing(lambda: tell_run(where, run, as_json=as_json))


@click.command(short_help="What happened in a session, an event a line.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens, until Ctrl-C.")
@click.option(
    "--after", metavar="SEQ", type=click.IntRange(0), default=0, help="Those after this number."
)
@click.option("--json", "as_json", is_flag=True, help="Print one event a line, as JSON.")
@anywhere
@click.argument("session")
def events(session: str, follow: bool, after: int, as_json: bool, where: Where) -> None:
    """What happened in a session, an event a line."""
    from turnkeeper.cli.looking import tell_events

    doing(lambda: tell_events(where, session, after, follow=follow, as_json=as_json))


@click.command(short_help="What agents ask permission for.")
@click.option("-a", "--all", "everything", is_flag=True, help="Those that are settled, too.")
@most
@as_json
@anywhere
def approvals(everything: bool, limit: int, as_json: bool, where: Where) -> None:
    """What agents ask permission for, and nobody has answered."""
    from turnkeeper.cli.looking import tell_approvals

    doing(lambda: tell_approvals(where, limit, everything=everything, as_json=as_json))
