"""The commands that act on what runs on a server: stop, approve, deny.

Decides what can be typed. It must not know how it is done: each command loads what does its work
when it is called.
"""

from __future__ import annotations

import click

from turnkeeper.cli.params import Where, anywhere, as_json, doing

note = click.option("--note", default="", help="A word to the agent.")


@click.command(short_help="Stop a run, and no other.")
@as_json
@anywhere
@click.argument("run")
def stop(run: str, as_json: bool, where: Where) -> None:
    """Stop that run, and no other. Stopping one that has ended changes nothing."""
    from turnkeeper.cli.sending import stop_run

    doing(lambda: stop_run(where, run, as_json=as_json))


@click.command(short_help="Allow what an agent asks permission for.")
@note
@as_json
@anywhere
@click.argument("approval", metavar="ID")
def approve(approval: str, note: str, as_json: bool, where: Where) -> None:
    """Allow what an agent asks permission for. The first answer stands."""
    from turnkeeper.cli.sending import answer

    doing(lambda: answer(where, approval, allow=True, note=note, as_json=as_json))


@click.command(short_help="Deny what an agent asks permission for.")
@note
@as_json
@anywhere
@click.argument("approval", metavar="ID")
def deny(approval: str, note: str, as_json: bool, where: Where) -> None:
    """Deny what an agent asks permission for. The first answer stands."""
    from turnkeeper.cli.sending import answer

    doing(lambda: answer(where, approval, allow=False, note=note, as_json=as_json))
