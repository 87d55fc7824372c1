"""What the commands do that act on a server: send, stop, edit, move, steer, approve, deny.

Decides what is said of it. It must not know how a server carries it out. Invariant: ids are printed
only after the server has stored what they name.
"""

from __future__ import annotations

import getpass

import click

from turnkeeper.api import RunOut
from turnkeeper.cli.clean import one_line
from turnkeeper.cli.hearing import Hearing
from turnkeeper.cli.looking import note, say_json
from turnkeeper.cli.params import Where
from turnkeeper.cli.reach import find, placed
from turnkeeper.cli.sides import Message, may_go_on
from turnkeeper.cli.there import STAYING, There, check_there, client_of
from turnkeeper.client import Client, RemoteRun
from turnkeeper.client.arguments import AnswerArguments
from turnkeeper.core.errors import UNKNOWN_SESSION, TurnkeeperError
from turnkeeper.core.outcome import Kind, Outcome, words_of


async def send_message(where: Where, message: Message, *, wait: bool, as_json: bool) -> int:
    """The exit code: that of the outcome, if it was waited for."""
    found = find(where)
    there = found.server()
    await check_there(there)
    async with client_of(there, STAYING) as client:
        if message.agent is None and message.session is not None:
            await _check_session(client, message.session)
        if there.near:
            message = placed(message, found.config)
        run = await There(client).begin(message)
        if as_json:
            say_json(
                {"session": run.session, "message_id": run.message, "run_id": run.id,
                 "position": run.position, "duplicate": run.duplicate}
            )  # fmt: skip
        else:
            _say_accepted(run)
        if not wait:
            return 0
        with Hearing(note):
            run, outcome = await _wait_ended(run)
    if as_json:
        say_json({"run_id": run.id, "outcome": outcome})
    elif outcome.kind is Kind.COMPLETED:
        note(f"run {run.id} {outcome.kind} ({outcome.reason})")
    else:
        note(f"{outcome.kind}: {one_line(outcome.detail)}")
    return words_of(outcome).exit_code


async def _check_session(client: Client, session: str) -> None:
    """A new one needs --agent: a slip makes none."""
    try:
        await client.session(session)
    except TurnkeeperError as refused:
        if refused.entry.code != UNKNOWN_SESSION.code:
            raise
        told = f"{refused.what}, and no --agent NAME to make it with"
        raise TurnkeeperError(UNKNOWN_SESSION, told) from None


async def _wait_ended(run: RemoteRun) -> tuple[RemoteRun, Outcome]:
    """Its end; that of the run after it, if its message was given back to the queue."""
    while True:
        outcome = await run.wait()
        again = await run.successor() if may_go_on(outcome) else None
        if again is None:
            return run, outcome
        run = again


def _say_accepted(run: RemoteRun) -> None:
    behind = f", behind {run.position}" if run.position else ""
    known = ", known by its key" if run.duplicate else ""
    click.echo(f"session {run.session}  message {run.message}  run {run.id}{behind}{known}")


async def stop_run(where: Where, run: str, *, as_json: bool) -> None:
    async with client_of(find(where).server()) as client:
        told = await (await client.run(run)).stop(by=_by("turnkeeper stop"))
    if as_json:
        say_json(told)
    elif told.state == "ended":
        click.echo(f"run {run} {'will not run' if told.changed else 'has ended; nothing changed'}")
    else:
        click.echo(f"run {run} is stopping{'' if told.changed else ' already'}")


async def edit_run(where: Where, run: str, text: str, *, as_json: bool) -> None:
    async with client_of(find(where).server()) as client:
        told = await (await client.run(run)).edit(text, by=_by("turnkeeper edit"))
    _say_waiting(told, as_json=as_json)


async def move_run(where: Where, run: str, before: str | None, *, as_json: bool) -> None:
    async with client_of(find(where).server()) as client:
        told = await (await client.run(run)).move(before, by=_by("turnkeeper move"))
    _say_waiting(told, as_json=as_json)


def _say_waiting(told: RunOut, *, as_json: bool) -> None:
    if as_json:
        say_json(told)
    else:
        click.echo(f"run {told.id} waits behind {told.position}: {one_line(told.text)}")


async def steer_run(where: Where, run: str, *, as_json: bool) -> None:
    async with client_of(find(where).server()) as client:
        told = await (await client.run(run)).steer(by=_by("turnkeeper steer"))
    if as_json:
        say_json(told)
    else:
        click.echo(f"the words of run {told.run} were given to run {told.into}")


async def answer(
    where: Where, approval: str, given: AnswerArguments, *, allow: bool, as_json: bool
) -> None:
    given["by"] = _by("turnkeeper")
    async with client_of(find(where).server()) as client:
        told = await client.answer(approval, allow=allow, **given)
    if as_json:
        say_json(told)
    else:
        what = f"{one_line(told.tool)} {one_line(told.input)}".rstrip()
        click.echo(f"{told.state}: {what} (run {one_line(told.run)})")


def _by(what: str) -> str:
    """Who did it, for the log."""
    try:
        return f"{getpass.getuser()} with {what}"
    except (OSError, KeyError, ImportError):
        return what
