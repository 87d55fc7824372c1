"""Watching and asking over a network that cuts, resets, stalls and refuses."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from tests.client.harness import (
    QUICK,
    Gateway,
    client,
    collect,
    gateway,
    log_of,
    run,
    wait_until,
)
from tests.client.proxy import Proxy
from tests.helpers.ports import free_port, refused_port
from tests.http.peer import Call, peer
from turnkeeper.client import AnyEvent, Client, Options
from turnkeeper.core.errors import NOT_TURNKEEPER, UNREACHABLE, TurnkeeperError
from turnkeeper.core.outcome import Kind

QUICK_TO_LEAVE = replace(QUICK, ping_s=0.5, pong_s=2.0, connect_s=2.0)


@asynccontextmanager
async def talk(options: Options = QUICK) -> AsyncIterator[tuple[Gateway, Proxy, Client, Client]]:
    """A server, the proxy before it, a client that goes past the proxy, and one through it."""
    async with (
        gateway() as place,
        Proxy(place.port) as proxy,
        client(place.url) as direct,
        client(proxy.url, options) as c,
    ):
        yield place, proxy, direct, c


async def stop_after(events: list[AnyEvent], c: Client, session: str, last: int) -> None:
    async for event in c.events(session):
        events.append(event)
        if event.seq == last:
            return


@pytest.mark.parametrize("seed", range(4))
def test_cuts_at_any_byte_of_the_stream_lose_nothing_and_repeat_nothing(seed: int) -> None:
    """Every connection is reset after a random number of bytes, in the handshake or in a frame."""
    chance = random.Random(seed)

    async def body() -> None:
        async with talk() as (place, proxy, direct, c):
            session = await direct.create_session("demo")
            sent = await direct.send(session.id, "long 400")
            seen: list[AnyEvent] = []
            watching = asyncio.create_task(collect(c.events(session.id), seen))
            cutting = asyncio.create_task(keep_cutting(proxy, chance))
            await sent.wait()
            head = (await direct.session(session.id)).seq
            await wait_until(lambda: proxy.opened > 10)
            cutting.cancel()
            proxy.new_budget = None
            await wait_until(lambda: bool(seen) and seen[-1].seq == head)
            watching.cancel()
            await asyncio.gather(watching, cutting, return_exceptions=True)
            assert [event.seq for event in seen] == list(range(1, head + 1))
            assert seen == await log_of(place, session.id)

    run(body)


async def keep_cutting(proxy: Proxy, chance: random.Random) -> None:
    """What new connections may carry is drawn anew for each; who is not done by then is cut."""
    while True:
        proxy.new_budget = chance.choice([0, 1, 50, 150, 300, 700, 2000, 9000, 40000])
        opened = proxy.opened
        try:
            async with asyncio.timeout(0.5):
                await proxy.wait_pairs(opened + 1)
        except TimeoutError:
            proxy.reset()


@pytest.mark.parametrize("how", ["cut", "reset"])
def test_cuts_at_random_moments_while_runs_stream(how: str) -> None:
    chance = random.Random(how)

    async def body() -> None:
        async with gateway() as place, Proxy(place.port) as proxy, client(proxy.url) as c:
            sessions = [(await c.create_session("demo")).id for _ in range(5)]
            runs = [await c.send(session, "long 300") for session in sessions]
            following = [asyncio.create_task(collect(one)) for one in runs]
            while not all(task.done() for task in following):
                opened = proxy.opened
                getattr(proxy, how)()
                await wait_until(lambda opened=opened: proxy.opened > opened or all(  # type: ignore[misc]
                    task.done() for task in following))  # fmt: skip
                await asyncio.sleep(chance.random() * 0.09)
            for one, task in zip(runs, following, strict=True):
                log = await log_of(place, one.session)
                assert task.result() == [event for event in log if event.run == one.id]

    run(body)


def test_a_server_that_is_restarted_is_gone_on_with_where_it_was() -> None:
    """Several servers, one after the other, on the same port and the same dispatcher."""

    async def body() -> None:
        port = free_port()
        async with gateway(port=port) as place, client(place.url) as c:
            session = await c.create_session("demo")
            seen: list[AnyEvent] = []
            watching = asyncio.create_task(collect(c.events(session.id), seen))
            for number in range(4):
                sent = await c.send(session.id, "long 50")
                await wait_until(lambda least=number * 50 + 5: len(seen) > least)  # type: ignore[misc]
                await place.stop()
                await wait_until(lambda: c.trouble is not None)
                waiting = asyncio.create_task(sent.wait())
                await place.start_again(port)
                assert (await waiting).kind is Kind.COMPLETED
            head = (await c.session(session.id)).seq
            await wait_until(lambda: seen[-1].seq == head)
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            assert seen == await log_of(place, session.id)
            assert c.trouble is None

    run(body)


def test_a_server_that_falls_silent_is_left_and_found_again() -> None:
    """Half open: the connection stands, and nothing comes through it any more."""

    async def body() -> None:
        async with talk(QUICK_TO_LEAVE) as (_, proxy, direct, c):
            session = await direct.create_session("demo")
            seen: list[AnyEvent] = []
            watching = asyncio.create_task(stop_after(seen, c, session.id, 40))
            await wait_until(lambda: len(seen) == 1)
            proxy.stall()
            sent = await direct.send(session.id, "long 50")
            await wait_until(lambda: "silent for" in (c.trouble or ""))
            stuck = list(proxy.pairs)
            proxy.stalled = False
            await watching
            assert [event.seq for event in seen] == list(range(1, 41))
            assert (await sent.wait()).kind is Kind.COMPLETED
            for pair in stuck:
                pair.reset()

    run(body)


def test_a_quiet_server_is_asked_and_not_left() -> None:
    async def body() -> None:
        async with gateway() as place, Proxy(place.port) as proxy:
            options = replace(QUICK, ping_s=0.05)
            async with client(proxy.url, options) as c:
                session = await c.create_session("demo")
                watching = asyncio.create_task(collect(c.events(session.id)))
                await wait_until(lambda: place.server.gate.watchers == 1)
                opened = proxy.opened
                for _ in range(20):
                    await asyncio.sleep(0.05)
                assert proxy.opened == opened
                assert c.trouble is None
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)

    run(body)


def test_a_slow_reader_is_not_waited_for_and_misses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is kept for it is bounded; it goes on by its cursor, and others are not delayed."""
    monkeypatch.setattr("turnkeeper.client.feed.READER_EVENTS", 50)
    monkeypatch.setattr("turnkeeper.client.feed.RECENT_BYTES", 1000)

    async def body() -> None:
        async with gateway() as place, client(place.url) as c:
            session = await c.create_session("demo")
            slow, go = c.events(session.id).watch(), asyncio.Event()
            assert [event.seq for event in await slow.next()] == [1]
            sent = await c.send(session.id, "long 1000")
            quick = await collect(sent)
            log = await log_of(place, session.id)
            assert quick == [event for event in log if event.run == sent.id]
            go.set()
            seen: list[AnyEvent] = []
            while len(seen) + 1 < len(log):
                seen.extend(await slow.next())
            slow.close()
            assert seen == log[1:]

    run(body)


def test_a_question_is_asked_again_until_the_server_is_there() -> None:
    async def body() -> None:
        async with gateway() as place, Proxy(place.port) as proxy, client(proxy.url) as c:
            session = await c.create_session("demo")
            sent = await c.send(session.id, "hello")
            await sent.wait()
            proxy.reset()
            proxy.deaf()
            looking = asyncio.create_task(sent.look())
            await wait_until(lambda: c.trouble is not None)
            await proxy.listen()
            assert (await looking).state == "ended"

    run(body)


def test_a_question_to_a_server_that_stays_away_ends_within_its_bound() -> None:
    async def body() -> None:
        options = replace(QUICK, request_s=1.0)
        url = f"http://127.0.0.1:{refused_port()}"
        async with client(url, options) as c:
            with pytest.raises(TurnkeeperError, match=r"TK-531.*no connection") as told:
                await c.agents()
            assert told.value.entry is UNREACHABLE
            with pytest.raises(TurnkeeperError, match="TK-531"):
                await c.health()

    run(body)


def test_a_question_that_is_taken_and_not_answered_ends_within_its_bound() -> None:
    """However patient each step is: what is asked has a bound of its own."""

    async def body() -> None:
        async with gateway() as place, Proxy(place.port) as proxy:
            proxy.stall()
            options = replace(QUICK, request_s=0.3)
            async with client(proxy.url, options) as c:
                for doing in (c.agents(), c.create_session("demo", id="x"), c.session("x")):
                    with pytest.raises(TurnkeeperError, match=r"TK-531.*0\.3 s \(request_s\)"):
                        await doing

    run(body)


def test_why_the_tries_before_it_failed_is_told_where_the_last_one_is_broken_off() -> None:
    async def body() -> None:
        async with gateway() as place, Proxy(place.port) as proxy:
            proxy.deaf()
            async with client(proxy.url, replace(QUICK, request_s=2.0)) as c:
                asking = asyncio.create_task(c.agents())
                await wait_until(lambda: c.trouble is not None)
                proxy.stall()
                await proxy.listen()
                told = r"TK-531.*2 s \(request_s\); before that, .*no connection"
                with pytest.raises(TurnkeeperError, match=told):
                    await asking

    run(body)


def test_a_session_that_was_made_though_the_answer_was_lost_is_made_once() -> None:
    async def body() -> None:
        async with talk(replace(QUICK, answer_s=0.5)) as (_, proxy, direct, c):
            for name in (None, "mine"):
                proxy.stall()
                made = asyncio.create_task(c.create_session("demo", id=name, title="once"))
                await proxy.wait_pairs(1)
                for pair in list(proxy.pairs):  # what is asked arrives; the answer does not
                    pair.budget = 0
                    pair.flowing.set()
                proxy.stalled = False
                session = await made
                assert name in (None, session.id)
            found = [one.id async for one in direct.sessions()]
            assert len(found) == 2

    run(body)


def test_an_answer_to_a_question_whose_acknowledgement_was_lost_is_no_conflict() -> None:
    async def body() -> None:
        async with talk() as (_, proxy, direct, c):
            session = await direct.create_session("demo")
            sent = await direct.send(session.id, "ask")
            question = await first_question(direct)
            proxy.new_budget = 0
            answering = asyncio.create_task(c.answer(question, allow=True))
            await proxy.wait_pairs(1)
            proxy.new_budget = None
            assert (await answering).state == "allowed"
            assert (await sent.wait()).kind is Kind.COMPLETED

    run(body)


async def first_question(c: Client) -> str:
    while True:
        async for approval in c.approvals(state="open"):
            return approval.id
        await asyncio.sleep(0.01)


def test_an_outage_is_logged_once_and_its_end_once(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        async with gateway() as place, Proxy(place.port) as proxy, client(proxy.url) as c:
            session = await c.create_session("demo")
            seen: list[AnyEvent] = []
            watching = asyncio.create_task(collect(c.events(session.id), seen))
            await wait_until(lambda: len(seen) == 1)
            proxy.refusing = True
            proxy.reset()
            await wait_until(lambda: c.trouble is not None)
            opened = proxy.opened
            await proxy.wait_pairs(opened + 5)
            proxy.refusing = False
            await wait_until(lambda: c.trouble is None)
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    with caplog.at_level(logging.INFO, logger="turnkeeper.client"):
        run(body)
    told = [one for one in caplog.records if one.name == "turnkeeper.client"]
    assert [one.levelname for one in told] == ["WARNING", "INFO"]
    assert "it is tried again" in told[0].getMessage()


# What is no Turnkeeper -----------------------------------------------------------------------


async def say_hello(call: Call) -> None:
    page = b"<html>Hello</html>"
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(page)}\r\n\r\n"
    await call.send(head.encode() + page)


async def not_found(call: Call) -> None:
    await call.send(b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnope")


async def not_http(call: Call) -> None:
    await call.send(b"220 mail.example.com ESMTP\r\n\r\n")


async def elsewhere(call: Call) -> None:
    await call.send(
        b"HTTP/1.1 302 Found\r\nLocation: http://example.com/\r\nContent-Length: 0\r\n\r\n"
    )


@pytest.mark.parametrize("script", [say_hello, not_found, not_http, elsewhere])
def test_what_is_not_a_turnkeeper_is_told_as_such_wherever_it_is_met(script: object) -> None:
    async def body() -> None:
        async with peer(script) as other, client(other.url("").rstrip("/")) as c:  # type: ignore[arg-type]
            for doing in (c.send("s", "hello"), c.agents(), c.health(), collect(c.events("s"))):
                with pytest.raises(TurnkeeperError) as told:
                    await doing
                assert told.value.entry is NOT_TURNKEEPER, doing
                assert "localhost" in str(told.value)

    run(body)


def test_a_path_that_leads_elsewhere_on_a_turnkeeper_is_told_in_its_words() -> None:
    async def body() -> None:
        async with gateway() as place, client(f"{place.url}/prefix") as c:
            for doing in (c.send("s", "hello"), c.agents(), collect(c.events("s"))):
                with pytest.raises(TurnkeeperError, match="TK-525"):
                    await doing

    run(body)


def test_connecting_has_a_deadline_of_its_own() -> None:
    """Something takes the connection, and then says nothing."""

    async def body() -> None:
        async with gateway() as place, Proxy(place.port) as proxy:
            proxy.stall()
            options = replace(QUICK, connect_s=0.5, answer_s=0.5, request_s=1.5)
            async with client(proxy.url, options) as c:
                watching = asyncio.create_task(collect(c.events("s")))
                await wait_until(lambda: "connect_s" in (c.trouble or ""))
                with pytest.raises(TurnkeeperError, match=r"TK-531.*(first_byte_s|request_s)"):
                    await c.agents()
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)

    run(body)


def test_a_server_on_other_data_is_noticed_and_nothing_is_made_up() -> None:
    async def body() -> None:
        async with talk() as (first, proxy, _, c), gateway() as second:
            await make_the_same(first, 30)
            await make_the_same(second, 2)
            seen: list[AnyEvent] = []
            watching = asyncio.create_task(collect(c.events("same"), seen))
            head = len(await log_of(first, "same"))
            await wait_until(lambda: len(seen) == head)
            proxy.target = second.port
            proxy.cut()
            with pytest.raises(TurnkeeperError, match=f"TK-534 event {head} of session same"):
                await watching
            assert seen == await log_of(first, "same")

    run(body)


async def make_the_same(place: Gateway, words: int) -> None:
    async with client(place.url) as c:
        await c.create_session("demo", id="same")
        await (await c.send("same", f"long {words}")).wait()


def test_a_frame_that_is_larger_than_allowed_is_told_and_not_asked_for_for_ever() -> None:
    async def body() -> None:
        options: Options = replace(QUICK, frame_bytes=500)
        async with gateway() as place, client(place.url, options) as c:
            session = await c.create_session("demo", title="t" * 500)
            with pytest.raises(TurnkeeperError, match="frame_bytes"):
                await collect(c.events(session.id))

    run(body)


# What is refused for now, and our own mistakes ------------------------------------------------


def test_a_session_that_cannot_be_watched_for_now_waits_and_the_others_do_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body() -> None:
        async with gateway(max_subscriptions=1) as place, client(place.url) as c:
            first, second = [(await c.create_session("demo")).id for _ in range(2)]
            holding = c.events(first).watch()
            assert [event.seq for event in await holding.next()] == [1]
            waiting = asyncio.create_task(stop_after([], c, second, 1))
            await wait_until(lambda: "TK-529" in caplog.text)
            await c.send(first, "hello")
            assert (await holding.next())[0].seq == 2
            assert not waiting.done()
            holding.close()
            await waiting

    with caplog.at_level(logging.WARNING, logger="turnkeeper.client"):
        run(body)
    assert caplog.text.count("it is asked again") == 1


@pytest.mark.parametrize("where", ["link.read_events", "calls.Calls.read"])
def test_a_mistake_of_our_own_is_told_and_nobody_waits_for_ever(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistaken(*_: object) -> None:
        raise ZeroDivisionError

    async def body() -> None:
        async with gateway() as place, client(place.url) as c:
            session = (await c.create_session("demo")).id
            monkeypatch.setattr(f"turnkeeper.client.{where}", mistaken)
            doing = collect(c.events(session)) if "link" in where else c.send(session, "hello")
            with pytest.raises(ZeroDivisionError):
                await doing
            monkeypatch.undo()
            seen: list[AnyEvent] = []
            await stop_after(seen, c, session, 1)
            assert len(seen) == 1

    run(body)
