"""The commands that act on what a server has: stop, edit, move, steer, approve, deny.

Decides what can be typed. It must not know how it is done: each command loads what does its work
when it is called.
"""

from __future__ import annotations

import click

from turnkeeper.cli.params import Where, anywhere, as_json, doing, telling, text_of

note = click.option("--note", default="", help="A word to the agent.")


@click.command(short_help="Stop a run, and no other.")
@as_json
@anywhere
@click.argument("run")
def stop(run: str, as_json: bool, where: Where) -> None:
    """Stop that run, and no other. Stopping one that has ended changes nothing."""
    from turnkeeper.cli.sending import stop_run

    doing(lambda: stop_run(where, run, as_json=as_json))


@click.command(short_help="Give a run that waits other words.")
@as_json
@anywhere
@click.argument("run")
@click.argument("text")
def edit(run: str, text: str, as_json: bool, where: Where) -> None:
    """Give a run that waits other words. TEXT - is standard input. One that runs or has ended is
    not changed."""
    with telling():
        said = text_of(text)
    from turnkeeper.cli.sending import edit_run

    doing(lambda: edit_run(where, run, said, as_json=as_json))


@click.command(short_help="Give a run that waits another place.")
@click.option("--before", metavar="RUN", help="Right before that one, which waits too.")
@as_json
@anywhere
@click.argument("run")
def move(run: str, before: str | None, as_json: bool, where: Where) -> None:
    """Move a run that waits: right before another of its class of priority, or to the end of its
    class."""
    from turnkeeper.cli.sending import move_run

    doing(lambda: move_run(where, run, before, as_json=as_json))


@click.command(short_help="Give the words of a run that waits to the running turn.")
@as_json
@anywhere
@click.argument("run")
def steer(run: str, as_json: bool, where: Where) -> None:
    """Give the words of a run that waits to the turn that is running in its session. The run ends
    as cancelled (superseded); if that turn does not take its words, they are a run again."""
    from turnkeeper.cli.sending import steer_run

    doing(lambda: steer_run(where, run, as_json=as_json))


@click.command(short_help="Allow what an agent asks permission for.")
@note
@click.option("--always", is_flag=True, help="Also what is alike, from now on in that session.")
@click.option("--rule", metavar="RULE", help="With --always: what is alike, as Bash(git push *).")
@as_json
@anywhere
@click.argument("approval", metavar="ID")
def approve(
    approval: str, note: str, always: bool, rule: str | None, as_json: bool, where: Where
) -> None:
    """Allow what an agent asks permission for. The first answer stands. With --always, what the
    proposed rule fits (turnkeeper approvals shows it), or RULE, is not asked again there."""
    if rule is not None and not always:
        raise click.UsageError("--rule goes with --always")
    from turnkeeper.cli.sending import answer
    from turnkeeper.client.arguments import AnswerArguments

    given = AnswerArguments(note=note, always=always, rule=rule)
    doing(lambda: answer(where, approval, given, allow=True, as_json=as_json))


@click.command(short_help="Deny what an agent asks permission for.")
@note
@as_json
@anywhere
@click.argument("approval", metavar="ID")
def deny(approval: str, note: str, as_json: bool, where: Where) -> None:
    """Deny what an agent asks permission for. The first answer stands."""
    from turnkeeper.cli.sending import answer
    from turnkeeper.client.arguments import AnswerArguments

    given = AnswerArguments(note=note)
    doing(lambda: answer(where, approval, given, allow=False, as_json=as_json))
