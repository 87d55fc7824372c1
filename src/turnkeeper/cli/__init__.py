"""The command line. Nothing is loaded before it is needed: `--help` is quick."""

from __future__ import annotations


def main() -> None:
    """The command `turnkeeper`."""
    from turnkeeper.cli.app import cli

    cli(prog_name="turnkeeper")
