"""The commands of whoever keeps a Turnkeeper: serve, demo, config, doctor, export, gc, backup.

Decides what can be typed. It must not know how it is done: each command loads what does its work
when it is called.
"""

from __future__ import annotations

import sys

import click

from turnkeeper.cli.params import (
    Duration,
    Size,
    Where,
    anywhere,
    as_json,
    by_config,
    doing,
    in_data,
    on_data,
    telling,
)  # fmt: skip

PORTS = click.IntRange(0, 65535)


@click.command(short_help="The server.")
@by_config
@click.option("--host", metavar="HOST", help="Where it listens; else server.host, or 127.0.0.1.")
@click.option(
    "--port", type=PORTS, metavar="PORT", help="The port, 0 for any; else server.port, or 7433."
)
@in_data
@click.option(
    "--store", metavar="URL", help="Where the logs are; else store.url, or the data directory."
)
@click.option("--drain", is_flag=True, help="On SIGTERM wait for running turns, within drain_s.")
@click.option(
    "--drain-turns", type=click.Choice(("let", "stop")), metavar="HOW",
    help="As --drain: let running turns come to their end, or stop them.",
)  # fmt: skip
def serve(
    config: str | None, host: str | None, port: int | None, data: str | None, store: str | None,
    drain: bool, drain_turns: str | None,
) -> None:  # fmt: skip
    """The server: it prints its address and serves until SIGTERM or Ctrl-C.

    Then it takes nothing new, and leaves agents in custody to go on: the next server on this data
    directory takes them up. A second signal ends it at once.
    """
    with telling():
        from turnkeeper.cli.serving import serve_config

        code = serve_config(
            config, host=host, port=port, data=data, store=store, drain=drain,
            drain_turns=drain_turns,
        )  # fmt: skip
        sys.exit(code)


@click.command(short_help="A server with the demo agent, to play with.")
@click.option("--host", metavar="HOST", help="Where it listens; else 127.0.0.1.")
@click.option(
    "--port", type=PORTS, metavar="PORT", help="The port; else 7433, or any if that is taken."
)
@click.option("--data", metavar="DIR", help="The data directory; else one that goes with it.")
def demo(host: str | None, port: int | None, data: str | None) -> None:
    """A server with the built-in demo agent, to play with. It prints its address with its token,
    and how to talk to it; what it keeps is gone when it ends, unless --data says where."""
    with telling():
        from turnkeeper.cli.serving import serve_demo

        sys.exit(serve_demo(host=host, port=port, data=data))


@click.group(short_help="The configuration.")
def config() -> None:
    """The configuration."""


@config.command(short_help="What is in force, where it was said, and what is wrong.")
@by_config
@as_json
def check(config: str | None, as_json: bool) -> None:
    """What is in force and where it was said; and everything that is wrong, at once."""
    from turnkeeper.cli.checking import tell_config

    sys.exit(tell_config(config, as_json=as_json))


@click.command(short_help="What is wrong here; or what a run is doing.")
@as_json
@anywhere
@click.argument("run", required=False)
def doctor(run: str | None, as_json: bool, where: Where) -> None:
    """What is wrong here; or what that RUN is doing, and which clock is next."""
    from turnkeeper.cli.health import tell_health

    sys.exit(doing(lambda: tell_health(where, run, as_json=as_json)))


@click.command(short_help="A session's whole log, as JSON lines.")
@click.option("-o", "--output", metavar="FILE", help="Where to; else standard output.")
@anywhere
@click.argument("session")
def export(session: str, output: str | None, where: Where) -> None:
    """A session's whole log, an event a line, as JSON."""
    from turnkeeper.cli.upkeep import export_session

    doing(lambda: export_session(where, session, output))


@click.command(short_help="Remove old sessions.")
@click.option("--older", type=Duration(), help="Those in which nothing happened for so long: 30d.")
@click.option("--keep", type=Size(), help="The oldest ones, until no more than this is used: 5GB.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@as_json
@on_data
def gc(
    older: float | None, keep: int | None, dry_run: bool, as_json: bool,
    data: str | None, config: str | None,
) -> None:  # fmt: skip
    """Remove old sessions from the data directory, by age and by size; never one in which
    something still has to happen. A server may go on with its work meanwhile."""
    if older is None and keep is None:
        raise click.UsageError("say what may go: --older 30d, --keep 5GB, or both")
    with telling():
        from turnkeeper.cli.upkeep import collect

        collect(Where(None, data, config), older, keep, dry_run=dry_run, as_json=as_json)


@click.command(short_help="A copy of the logs, while they are in use.")
@as_json
@on_data
@click.argument("file")
def backup(file: str, as_json: bool, data: str | None, config: str | None) -> None:
    """A copy of the logs as they are now, while they are in use."""
    with telling():
        from turnkeeper.cli.upkeep import back_up

        back_up(Where(None, data, config), file, as_json=as_json)


@click.command(short_help="What a shell needs to complete these commands.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """What a shell needs to complete these commands with the tab key.

    \b
    bash, in ~/.bashrc:      eval "$(turnkeeper completion bash)"
    zsh, in ~/.zshrc:        eval "$(turnkeeper completion zsh)"
    fish, in config.fish:    turnkeeper completion fish | source
    """
    from click.shell_completion import get_completion_class

    root = click.get_current_context().find_root()
    kind = get_completion_class(shell)
    assert kind is not None, "click knows these shells"
    click.echo(kind(root.command, {}, "turnkeeper", "_TURNKEEPER_COMPLETE").source())
