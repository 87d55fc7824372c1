"""The commands for logs that several servers use: nodes, migrate.

Decides what can be typed. It must not know how it is done: each command loads what does its work
when it is called.
"""

from __future__ import annotations

import click

from turnkeeper.cli.params import Where, as_json, doing, on_data


@click.command(short_help="The servers that share the logs.")
@click.option("--store", metavar="URL", help="Where the logs are; else store.url.")
@as_json
@on_data
def nodes(store: str | None, as_json: bool, data: str | None, config: str | None) -> None:
    """The servers that share the logs in PostgreSQL: which live, and what they have."""
    from turnkeeper.cli.many import tell_nodes

    doing(lambda: tell_nodes(Where(None, data, config), store, as_json=as_json))


@click.command(short_help="Move the logs to another store.")
@as_json
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
def migrate(source: str, target: str, as_json: bool) -> None:
    """Move all logs FROM one store TO another, each sqlite:///PATH or postgresql://…

    No server may use either meanwhile. What is there already is compared, and a move that was
    broken off goes on where it was. FROM is left as it is.
    """
    from turnkeeper.cli.many import move_logs

    doing(lambda: move_logs(source, target, as_json=as_json))
