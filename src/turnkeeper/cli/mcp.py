"""The command `turnkeeper mcp`: an MCP server on standard input and output.

Decides what can be typed. It must not know the protocol: what serves it is loaded when it is
called.
"""

from __future__ import annotations

import click

from turnkeeper.cli.params import Where, anywhere, doing


@click.command(short_help="An MCP server on standard input and output.")
@click.option(
    "--bound", is_flag=True,
    help="For an agent's own process: what it starts is below its run. The token is in"
    " TURNKEEPER_TOKEN.",
)  # fmt: skip
@anywhere
def mcp(bound: bool, where: Where) -> None:
    """An MCP server on standard input and output, with tools to start, list, wait for, steer and
    stop runs of a Turnkeeper server. It ends when its input does; runs go on."""
    from turnkeeper.cli.mcp_bridge import serve_pipes

    doing(lambda: serve_pipes(where, bound=bound))
