"""The command line. Nothing is loaded before it is needed: `--help` is quick."""

from __future__ import annotations


def main() -> None:
    """The command `turnkeeper`."""
    _keep_standard_streams()
    from turnkeeper.cli.app import cli

    cli(prog_name="turnkeeper")


def _keep_standard_streams() -> None:
    """A standard stream that was closed leads nowhere. Else the next file that is opened, such as
    a log, would be in its place, and get what is meant for people."""
    import os

    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
