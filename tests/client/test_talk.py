"""The client and the real gateway, while nothing is wrong."""

import asyncio
from typing import Any

import pytest

from tests.client.harness import (
    TOKEN,
    Gateway,
    client,
    collect,
    gateway,
    log_of,
    run,
    text_of,
    wait_until,
)
from turnkeeper.api import ApprovalOut
from turnkeeper.client import AnyEvent, Client, ClientClosed, RawEvent
from turnkeeper.core.errors import InvalidValue, TurnkeeperError
from turnkeeper.core.events import (
    ApprovalRequested,
    Event,
    Fact,
    MessageAccepted,
    OutputText,
    RunEnded,
    SessionCreated,
)
from turnkeeper.core.outcome import Kind, Outcome, Seen
from turnkeeper.ports import Batch


def test_a_message_is_sent_watched_and_waited_for() -> None:
    async def body() -> None:
        async with gateway() as place, client(place.url) as c:
            session = await c.create_session("demo", title="a talk", labels={"team": "x"})
            assert (session.agent, session.title, session.labels) == (
                "demo",
                "a talk",
                {"team": "x"},
            )
            sent = await c.send(session.id, "hello", sender="me")
            seen = await collect(sent)
            assert text_of(seen).startswith("Hello! You said: “hello”.")
            assert isinstance(seen[0].data, MessageAccepted)
            assert isinstance(seen[-1].data, RunEnded)
            assert seen == [e for e in await log_of(place, session.id) if e.run == sent.id]
            assert sent.outcome is not None
            assert sent.outcome.kind is Kind.COMPLETED
            assert await sent.wait() == sent.outcome
            looked = await sent.look()
            assert (looked.state, looked.text) == ("ended", "hello")

    run(body)


def test_a_run_is_found_by_its_id_and_tells_the_same() -> None:
    async def body() -> None:
        async with gateway() as place, client(place.url) as c:
            session = await c.create_session("demo")
            sent = await c.send(session.id, "long 20")
            found = await c.run(sent.id)
            assert (found.session, found.message) == (sent.session, sent.message)
            assert await collect(found) == await collect(sent)
            assert (await found.wait()).kind is Kind.COMPLETED

    run(body)


def test_stop_ends_this_run_and_no_other() -> None:
    async def body() -> None:
        async with gateway() as place, client(place.url) as c:
            session = await c.create_session("demo")
            first = await c.send(session.id, "stall")
            second = await c.send(session.id, "hello")
            assert second.position == 1
            stopped = await first.stop(by="me")
            assert (stopped.run, stopped.changed) == (first.id, True)
            outcome = await first.wait()
            assert (outcome.kind, outcome.reason) == (Kind.CANCELLED, "stopped")
            assert (await second.wait()).kind is Kind.COMPLETED
            assert not (await first.stop()).changed

    run(body)


def test_a_wait_that_expires_is_no_outcome() -> None:
    async def body() -> None:
        async with gateway() as place, client(place.url) as c:
            session = await c.create_session("demo")
            sent = await c.send(session.id, "stall")
            assert await sent.wait(0) is None
            assert await sent.wait(0.05) is None
            assert sent.outcome is None
            await sent.stop()
            assert (await sent.wait(30)) is not None

    run(body)


def test_several_watch_one_session_and_each_sees_everything_from_its_own_cursor() -> None:
    async def body() -> None:
        async with gateway() as place, client(place.url) as c:
            session = await c.create_session("demo")
            runs = [await c.send(session.id, f"long {n}") for n in (30, 20, 10)]
            seen = await asyncio.gather(*(collect(one) for one in runs), collect(runs[0]))
            log = await log_of(place, session.id)
            for one, events in zip([*runs, runs[0]], seen, strict=True):
                assert events == [event for event in log if event.run == one.id]

    run(body)


async def watch_to(c: Client, session: str, last: int, after: int = 0) -> list[AnyEvent]:
    found: list[AnyEvent] = []
    async for event in c.events(session, after=after):
        found.append(event)
        if event.seq >= last:
            break
    return found


def test_who_watches_from_the_beginning_does_not_delay_who_watches_what_is_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The old part of a log that others are far beyond comes over a connection of its own."""
    monkeypatch.setattr("turnkeeper.client.feed.RECENT_BYTES", 1000)

    async def body() -> None:
        async with gateway() as place, client(place.url) as c:
            session = await c.create_session("demo")
            await (await c.send(session.id, "long 700")).wait()
            head = (await c.session(session.id)).seq
            newest: list[AnyEvent] = []
            watching = asyncio.create_task(collect(c.events(session.id, after=head), newest))
            await wait_until(lambda: place.server.gate.watchers == 1)
            second = await c.send(session.id, "long 50")
            await wait_until(lambda: len(newest) > 40)
            late = c.events(session.id).watch()
            seen = [*await late.next()]
            assert place.server.gate.watchers == 2, "over two connections, for now"
            await second.wait()
            end = (await c.session(session.id)).seq
            while seen[-1].seq < end:
                seen.extend(await late.next())
            late.close()
            assert seen == await log_of(place, session.id)
            await wait_until(lambda: newest[-1].seq == end)
            assert newest == seen[head:]
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    run(body)


def test_the_same_key_is_the_same_run_and_another_text_a_conflict() -> None:
    async def body() -> None:
        async with gateway() as place, client(place.url) as c:
            session = await c.create_session("demo")
            first = await c.send(session.id, "hello", key="order-7")
            again = await c.send(session.id, "hello", key="order-7")
            assert (again.id, again.duplicate) == (first.id, True)
            with pytest.raises(TurnkeeperError, match="TK-505"):
                await c.send(session.id, "goodbye", key="order-7")

    run(body)


def test_lists_are_read_page_by_page_and_as_a_whole() -> None:
    async def body() -> None:
        async with gateway() as place, client(place.url) as c:
            made = [await c.create_session("demo", labels={"n": str(n % 2)}) for n in range(7)]
            for session in made[:3]:
                await (await c.send(session.id, "hello")).wait()
            everything = [one.id async for one in c.sessions(limit=3)]
            assert sorted(everything) == sorted(one.id for one in made)
            page = await c.sessions(limit=5).page()
            rest = await c.sessions(limit=5).page(page.next)
            assert [one.id for one in [*page.items, *rest.items]] == everything
            assert rest.next is None
            odd = [one.id async for one in c.sessions(labels={"n": "1"}, limit=2)]
            assert sorted(odd) == sorted(one.id for one in made[1::2])
            runs = [one async for one in c.runs(state="ended", outcome="completed", limit=2)]
            assert {one.session for one in runs} == {one.id for one in made[:3]}
            assert [one async for one in c.runs(session=made[5].id)] == []

    run(body)


async def asked(c: Client, session: str) -> str:
    async for event in c.events(session):
        if isinstance(event.data, ApprovalRequested):
            return event.data.approval
    raise AssertionError("nothing was asked")


def test_a_question_is_listed_and_answered_once() -> None:
    async def body() -> None:
        async with gateway() as place, client(place.url) as c:
            session = await c.create_session("demo")
            sent = await c.send(session.id, "ask")
            question = await asked(c, session.id)
            listed: list[ApprovalOut] = [one async for one in c.approvals(state="open")]
            assert [one.id for one in listed] == [question]
            told = await c.answer(question, allow=True, note="go on", by="me")
            assert (told.state, told.note, told.by) == ("allowed", "go on", "me")
            with pytest.raises(TurnkeeperError, match="TK-507"):
                await c.answer(question, allow=False)
            assert (await sent.wait()).kind is Kind.COMPLETED

    run(body)


def test_what_waits_is_edited_moved_and_given_to_the_running_turn() -> None:
    async def body() -> None:
        async with gateway() as place, client(place.url) as c:
            session = (await c.create_session("demo")).id
            running = await c.send(session, "long 100000")
            one, two = [await c.send(session, text) for text in ("one", "two")]
            assert (await two.edit("the second", by="me")).text == "the second"
            assert (await two.move(before=one.id)).position == 1
            assert (await two.move()).position == 2
            with pytest.raises(TurnkeeperError, match="TK-578"):
                await running.edit("something else")

            while (await running.look()).phase != "working":
                pass
            told = await one.steer(by="me")
            assert (told.run, told.into, told.changed) == (one.id, running.id, True)
            assert (await one.wait()).reason == "superseded"
            await running.stop()
            assert "the second" in text_of(await collect(two))

    run(body)


def test_what_is_alike_is_allowed_always() -> None:
    async def body() -> None:
        async with gateway() as place, client(place.url) as c:
            session = (await c.create_session("demo")).id
            first = await c.send(session, "ask")
            question = await asked(c, session)
            (listed,) = [one async for one in c.approvals(state="open")]
            assert (listed.summary, listed.rule) == ("notes/old.txt", "delete(notes/*)")
            with pytest.raises(TurnkeeperError, match="does not fit"):
                await c.answer(question, allow=True, always=True, rule="delete(other)")
            await c.answer(question, allow=True, always=True)
            await first.wait()
            assert (await (await c.send(session, "ask")).wait()).kind is Kind.COMPLETED

    run(body)


def test_the_agents_and_the_health_are_told() -> None:
    async def body() -> None:
        async with gateway() as place, client(place.url) as c:
            assert [one.name for one in await c.agents()] == ["demo"]
            health = await c.health()
            assert (health.ready, health.why) == (True, "")

    run(body)


# Refusals ------------------------------------------------------------------------------------


async def refused_with(code: str, doing: Any) -> TurnkeeperError:
    with pytest.raises(TurnkeeperError) as caught:
        await doing
    assert caught.value.entry.code == code
    return caught.value


def test_what_the_server_refuses_is_raised_with_its_code_and_its_words() -> None:
    async def body() -> None:
        async with gateway() as place, client(place.url) as c:
            session = await c.create_session("demo", id="mine")
            told = await refused_with("TK-502", c.send("nowhere", "hello"))
            assert told.what == "there is no session nowhere"
            await refused_with("TK-502", collect(c.events("nowhere")))
            await refused_with("TK-502", c.session("nowhere"))
            await refused_with("TK-503", c.run("r_nothing"))
            await refused_with("TK-504", c.answer("a_nothing.1", allow=True))
            await refused_with("TK-511", c.create_session("nobody"))
            await refused_with("TK-513", c.create_session("demo", id="mine"))
            wrong = await refused_with("TK-501", c.send(session.id, "x", limits={"idl_s": 1}))
            assert isinstance(wrong, InvalidValue)
            assert "idl_s" in wrong.field
            await refused_with("TK-501", c.send(session.id, "   "))
            await refused_with("TK-501", collect(c.events(session.id, after=10**6)))

    run(body)


@pytest.mark.parametrize("token", [None, "wrong"])
def test_a_wrong_token_is_told_at_once_wherever_it_is_used(token: str | None) -> None:
    async def body() -> None:
        async with gateway() as place, client(place.url, token=token) as c:
            told = await refused_with("TK-521", c.send("s", "hello"))
            assert "wrong" not in str(told)
            await refused_with("TK-521", collect(c.events("s")))
            await refused_with("TK-521", c.agents())

    run(body)


def test_a_token_that_may_only_read_can_watch_and_not_send() -> None:
    async def body() -> None:
        tokens: Any = {TOKEN: "admin", "reader": "read"}
        async with gateway(tokens=tokens) as place, client(place.url) as c:
            session = await c.create_session("demo")
            sent = await c.send(session.id, "hello")
            async with client(place.url, token="reader") as reading:
                assert await collect(await reading.run(sent.id)) == await collect(sent)
                await refused_with("TK-522", reading.send(session.id, "hello"))
                await refused_with("TK-522", sent_by(reading, sent.id))

    async def sent_by(c: Client, id: str) -> None:
        await (await c.run(id)).stop()

    run(body)


@pytest.mark.parametrize(
    ("field", "send"),
    [
        ("text", {"text": None}),
        ("text", {"text": "\ud800"}),
        ("session", {"session": ""}),
        ("session", {"session": ".."}),
        ("key", {"key": "two words"}),
        ("key", {"key": ""}),
        ("deadline_s", {"deadline_s": float("nan")}),
        ("limits.idle_s", {"limits": {"idle_s": float("inf")}}),
        ("limits", {"limits": 5}),
        ("wait_s", {"wait_s": -1}),
        ("sender", {"sender": 7}),
    ],
)
def test_what_cannot_be_sent_is_refused_before_it_waits(field: str, send: dict[str, Any]) -> None:
    async def body() -> None:
        async with client("http://127.0.0.1:1") as c:
            given = {"session": "s", "text": "hello"} | send
            with pytest.raises(InvalidValue) as refused:
                await c.send(given.pop("session"), given.pop("text"), **given)
            assert refused.value.field == field
            assert len(c.outbox) == 0

    run(body)


# What a newer server says --------------------------------------------------------------------


class Sung(Fact, frozen=True, gc=False):
    kind = "output.song"
    tune: str


class LaterEnding(Fact, frozen=True, gc=False):
    kind = "run.ended"
    version = 9
    how: str


async def add_to_log(place: Gateway, session: str, *facts: tuple[str | None, Fact]) -> None:
    store = place.system.store
    epoch, head = await store.claim(session), await store.head(session)
    events = [
        Event(head + n, session, run_id, 0.0, fact) for n, (run_id, fact) in enumerate(facts, 1)
    ]
    await store.append(Batch(session, epoch, events, False))


def test_an_event_of_a_newer_server_does_not_stop_a_watcher() -> None:
    async def body() -> None:
        async with gateway() as place, client(place.url) as c:
            session = await c.create_session("demo")
            await add_to_log(
                place, session.id, (None, Sung("la")), (None, OutputText("and on")),
            )  # fmt: skip
            seen = await watch_to(c, session.id, 3)
            assert [event.seq for event in seen] == [1, 2, 3]
            song = seen[1]
            assert isinstance(song, RawEvent)
            assert (song.kind, song.data) == ("output.song", {"tune": "la"})
            assert seen[2].data == OutputText("and on")

    run(body)


def test_a_run_whose_end_is_told_in_newer_words_ends_all_the_same() -> None:
    async def body() -> None:
        async with gateway() as place, client(place.url) as c:
            ended = RunEnded(Outcome(Kind.COMPLETED, "end_turn", "", Seen(), 1.0))
            await add_to_log(
                place, "by-hand",
                (None, SessionCreated("demo")),
                ("r_1", MessageAccepted("m_1", "r_1", "hi")),
                ("r_1", LaterEnding("well")),
                ("r_1", OutputText("not for those who follow the run")),
                ("r_1", ended),
            )  # fmt: skip
            found = await c.run("r_1")
            seen = await collect(found)
            assert [event.kind for event in seen] == ["message.accepted", "run.ended"]
            assert found.outcome == ended.outcome

    run(body)


# Life ----------------------------------------------------------------------------------------


def test_a_client_is_used_inside_its_block_and_once() -> None:
    async def body() -> None:
        async with gateway() as place:
            c = client(place.url)
            with pytest.raises(ClientClosed, match="async with Client"):
                await c.agents()
            async with c:
                await c.agents()
            with pytest.raises(ClientClosed, match="closed"):
                await c.agents()
            with pytest.raises(RuntimeError, match="entered once"):
                await c.__aenter__()

    run(body)


def test_closing_ends_who_watches_and_tells_who_follows_a_run() -> None:
    async def body() -> None:
        async with gateway() as place:
            async with client(place.url) as c:
                session = await c.create_session("demo")
                sent = await c.send(session.id, "stall")
                seen: list[AnyEvent] = []
                followed: list[AnyEvent] = []
                watching = asyncio.create_task(collect(c.events(session.id), seen))
                following = asyncio.create_task(collect(sent, followed))
                await wait_until(lambda: bool(seen and followed))
            assert await watching == seen
            with pytest.raises(ClientClosed, match=sent.id):
                await following
            await wait_until(lambda: place.server.gate.watchers == 0)

    run(body)


def test_a_watcher_that_leaves_is_no_longer_a_watcher_of_the_server() -> None:
    async def body() -> None:
        async with gateway() as place, client(place.url) as c:
            session = await c.create_session("demo")
            sent = await c.send(session.id, "hello")
            async for event in sent:
                assert event.seq
                break
            await wait_until(lambda: place.server.gate.watchers == 0)
            assert text_of(await collect(sent)).startswith("Hello!")
            await wait_until(lambda: place.server.gate.watchers == 0)

    run(body)
