"""The command `turnkeeper acp`: a Turnkeeper for editors that speak the Agent Client Protocol.

Decides what can be typed, and when this process ends. It must not know the protocol. Invariant:
standard output has nothing but the protocol; logs go to standard error.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from turnkeeper.cli.params import Where, anywhere, telling

if TYPE_CHECKING:
    from turnkeeper.cli.acp_server import AcpOptions


@click.command(short_help="Sessions for an editor that speaks ACP, on standard input and output.")
@click.option("--agent", help="Whom new sessions are with; else that can be chosen in the editor.")
@click.option(
    "--follow",
    is_flag=True,
    help="After a session was loaded, go on telling what still runs there.",
)
@click.option(
    "--on-close",
    type=click.Choice(["leave", "stop"]),
    default="leave",
    show_default=True,
    help="What becomes of running turns when the editor closes standard input.",
)
@anywhere
def acp(agent: str | None, follow: bool, on_close: str, where: Where) -> None:
    """Sessions for an editor that speaks the Agent Client Protocol (version 1), on standard input
    and output. The editor starts this command.

    The sessions are those of the server; without one they are in this process, on the data
    directory. When standard input ends, turns go on: on the server; or in this process, which then
    ends after them.
    """
    with telling():
        from turnkeeper.cli.acp_server import AcpOptions

        serve_editor(where, AcpOptions(agent, follow, on_close == "stop"))


def serve_editor(where: Where, options: AcpOptions) -> None:
    """Until the editor has left. Nothing that blocks (a pipe that nobody reads) keeps us after."""
    import asyncio
    import os

    from turnkeeper.cli.acp_pipes import own_stdout
    from turnkeeper.observe import logs

    out = own_stdout()
    logs.configure(level="warning")
    try:
        asyncio.run(_serve(where, options, out))
    finally:
        logs.release()
    sys.stderr.flush()
    os._exit(0)


async def _serve(where: Where, options: AcpOptions, out: int) -> None:
    import asyncio
    import logging
    import signal

    from turnkeeper.cli.acp_pipes import Inlet, Outlet
    from turnkeeper.cli.acp_rpc import Peer
    from turnkeeper.cli.acp_server import AcpServer
    from turnkeeper.cli.acp_sides import side_for
    from turnkeeper.cli.hearing import Hearing

    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, told.set)
    warn = logging.getLogger("turnkeeper.acp").warning
    async with side_for(where, options.agent, leave=not options.stop_on_close) as side:
        outlet = Outlet(out)
        server = AcpServer(side, Peer(outlet), options)
        with Hearing(lambda line: warn("%s", line)):
            reading = asyncio.ensure_future(server.serve(aiter(Inlet(0))))
            ended = [asyncio.ensure_future(told.wait()), asyncio.ensure_future(outlet.gone.wait())]
            await asyncio.wait([reading, *ended], return_when=asyncio.FIRST_COMPLETED)
            outlet.is_leaving = True
            leaving = asyncio.ensure_future(server.leave())
            await asyncio.wait([leaving, ended[0]], return_when=asyncio.FIRST_COMPLETED)
            tasks = [reading, leaving, *ended]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await server.drop()
        outlet.close()
    for task in (reading, leaving):
        if not task.cancelled():
            task.result()
