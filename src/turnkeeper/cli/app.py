"""The command `turnkeeper`: what it is, and where its commands are.

Decides nothing else. It must not know how a command does its work: each loads that when it is
called, so that `--help` is quick.
"""

from __future__ import annotations

import click

from turnkeeper import __version__
from turnkeeper.cli import acp, acts, keeping, looks, mcp, nodes, turns
from turnkeeper.cli.params import Commands


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 96},
    epilog='Begin with: turnkeeper run "hello". COMMAND --help says more of a command.',
)
@click.version_option(__version__, message="turnkeeper %(version)s")
def cli() -> None:
    """Runs AI agents, and keeps every turn honest: each turn ends, once, and says why."""


for command in (
    keeping.demo, keeping.serve, turns.run, turns.send,
    looks.agents, looks.sessions, looks.ps, looks.show, looks.events, looks.approvals,
    acts.stop, acts.edit, acts.move, acts.steer, acts.approve, acts.deny, acp.acp, mcp.mcp,
    keeping.doctor, keeping.config, keeping.export, keeping.gc, keeping.backup,
    nodes.nodes, nodes.migrate, keeping.completion,
):  # fmt: skip
    cli.add_command(command)
