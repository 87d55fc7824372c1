"""Messages that wait for the server: bounded, in order, never twice, never lost without a word."""

import asyncio
import logging
from dataclasses import replace

import pytest

from tests.client.harness import QUICK, Gateway, client, gateway, log_of, run, wait_until
from tests.client.proxy import Proxy
from tests.helpers.ports import refused_port
from turnkeeper.client import ClientClosed
from turnkeeper.core.errors import Fenced, TurnkeeperError
from turnkeeper.core.events import MessageAccepted
from turnkeeper.core.outcome import Kind
from turnkeeper.ports import Batch


async def texts(place: Gateway, session: str) -> list[str]:
    log = await log_of(place, session)
    return [event.data.text for event in log if isinstance(event.data, MessageAccepted)]


def nowhere() -> str:
    return f"http://127.0.0.1:{refused_port()}"


def test_messages_wait_while_the_server_is_away_and_go_in_order_when_it_is_back() -> None:
    async def body() -> None:
        async with gateway() as place, Proxy(place.port) as proxy, client(proxy.url) as c:
            sessions = [(await c.create_session("demo")).id for _ in range(3)]
            proxy.reset()
            proxy.deaf()
            sending = [
                asyncio.create_task(c.send(session, f"{number}"))
                for number in range(20)
                for session in sessions
            ]
            await wait_until(lambda: len(c.outbox) == 60 and c.trouble is not None)
            assert not any(task.done() for task in sending)
            waiting = list(c.outbox)
            assert len({one.key for one in waiting}) == 60
            await proxy.listen()
            runs = await asyncio.gather(*sending)
            assert len({one.id for one in runs}) == 60
            assert len(c.outbox) == 0
            for session in sessions:
                assert await texts(place, session) == [f"{number}" for number in range(20)]

    run(body)


def test_cuts_while_sending_neither_lose_nor_double_a_message() -> None:
    """Answers are lost after the message was taken: the same key makes the next try harmless."""

    async def body() -> None:
        async with gateway() as place, Proxy(place.port) as proxy, client(proxy.url) as c:
            sessions = [(await c.create_session("demo")).id for _ in range(4)]
            sending = [
                asyncio.create_task(c.send(session, f"{number}"))
                for number in range(25)
                for session in sessions
            ]
            budgets = iter([0, 1, 100, 0, 400, 0, 0, 1000, 20, 0] * 3)
            while not all(task.done() for task in sending):
                proxy.new_budget = next(budgets, None)
                proxy.reset()
                opened = proxy.opened
                await wait_until(lambda opened=opened: proxy.opened > opened or all(  # type: ignore[misc]
                    task.done() for task in sending))  # fmt: skip
            runs = [task.result() for task in sending]
            assert any(one.duplicate for one in runs), "no answer was lost: this showed nothing"
            for session in sessions:
                assert await texts(place, session) == [f"{number}" for number in range(25)]
            for one in runs:
                assert (await one.wait()).kind is Kind.COMPLETED

    run(body)


def test_a_full_outbox_refuses_the_message_to_its_sender_and_keeps_the_others() -> None:
    async def body() -> None:
        options = replace(QUICK, outbox_messages=3, flush_s=0.01)
        async with client(nowhere(), options) as c:
            waiting = [asyncio.create_task(c.send("s", f"{n}")) for n in range(3)]
            await wait_until(lambda: len(c.outbox) == 3)
            with pytest.raises(TurnkeeperError, match="TK-530 3 messages wait") as full:
                await c.send("s", "one more", key="mine")
            assert full.value.fields["key"] == "mine"
            with pytest.raises(TurnkeeperError, match="TK-530"):
                c.post("s", "one more")
            assert len(c.outbox) == 3
            assert not any(task.done() for task in waiting)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            assert len(c.outbox) == 0

    run(body)


def test_an_outbox_is_full_by_bytes_too() -> None:
    async def body() -> None:
        options = replace(QUICK, outbox_bytes=5000, flush_s=0.01)
        async with client(nowhere(), options) as c:
            first = c.post("s", "x" * 4000)
            with pytest.raises(TurnkeeperError, match=r"TK-530 .* more than 5000"):
                c.post("s", "x" * 4000)
            assert first.discard()

    run(body)


def test_one_that_waits_can_be_discarded_and_its_sender_is_told() -> None:
    async def body() -> None:
        async with gateway() as place, Proxy(place.port) as proxy, client(proxy.url) as c:
            session = (await c.create_session("demo")).id
            proxy.reset()
            proxy.deaf()
            sending = [asyncio.create_task(c.send(session, f"{n}", key=f"k{n}")) for n in range(3)]
            await wait_until(lambda: len(c.outbox) == 3)
            assert c.outbox.discard("k1")
            assert not c.outbox.discard("k1")
            with pytest.raises(TurnkeeperError, match=r"TK-533 .* k1 .*it was not sent") as told:
                await sending[1]
            assert told.value.fields["maybe_taken"] is False
            await proxy.listen()
            await asyncio.gather(sending[0], sending[2])
            assert await texts(place, session) == ["0", "2"]

    run(body)


def test_who_waits_no_longer_than_wait_s_is_told_whether_it_may_have_arrived() -> None:
    async def body() -> None:
        async with gateway() as place, Proxy(place.port) as proxy, client(proxy.url) as c:
            session = (await c.create_session("demo")).id
            proxy.reset()
            proxy.stall()
            with pytest.raises(TurnkeeperError, match=r"TK-533 .*wait_s.*may have it") as told:
                await c.send(session, "hello", wait_s=1.0)
            assert told.value.fields["maybe_taken"] is True
            proxy.flow()
            key = told.value.fields["key"]
            sent = await c.send(session, "hello", key=key)
            assert (await sent.wait()).kind is Kind.COMPLETED
            assert await texts(place, session) == ["hello"]
        async with client(nowhere()) as c:
            with pytest.raises(TurnkeeperError, match=r"TK-533 .*it was not sent") as told:
                await c.send("s", "hello", wait_s=1.0)
            assert told.value.fields["maybe_taken"] is False
            assert "no connection" in str(told.value)

    run(body)


def test_a_send_that_is_cancelled_is_withdrawn() -> None:
    async def body() -> None:
        async with client(nowhere()) as c:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await c.send("s", "hello")
            assert len(c.outbox) == 0

    run(body)


def test_what_the_server_refuses_is_told_to_its_sender_and_the_rest_goes_on() -> None:
    async def body() -> None:
        async with gateway() as place, client(place.url) as c:
            session = (await c.create_session("demo")).id
            done = await asyncio.gather(
                c.send(session, "1"),
                c.send(session, " "),
                c.send("nowhere", "x"),
                c.send(session, "2", deadline_s=-0.0),
                c.send(session, "3"),
                return_exceptions=True,
            )
            codes = [one.entry.code for one in done if isinstance(one, TurnkeeperError)]
            assert codes == ["TK-501", "TK-502"]
            assert await texts(place, session) == ["1", "2", "3"]

    run(body)


def test_a_full_queue_on_the_server_is_told_at_once_and_not_waited_for() -> None:
    async def body() -> None:
        async with gateway() as place, client(place.url) as c:
            session = (await c.create_session("demo")).id
            await c.send(session, "stall")
            for number in range(100):
                await c.send(session, f"{number}")
            with pytest.raises(TurnkeeperError, match="TK-506") as full:
                await c.send(session, "one more")
            assert full.value.fields["position"] == 101

    run(body)


# Posted: nobody waits ------------------------------------------------------------------------


def test_a_posted_message_is_sent_when_the_server_is_back_and_can_be_waited_for() -> None:
    async def body() -> None:
        async with gateway() as place, Proxy(place.port) as proxy, client(proxy.url) as c:
            session = (await c.create_session("demo")).id
            proxy.reset()
            proxy.deaf()
            posted = [c.post(session, f"{number}") for number in range(5)]
            await wait_until(lambda: posted[0].trouble != "")
            assert not any(one.done for one in posted)
            await proxy.listen()
            runs = [await one.run() for one in posted]
            assert await texts(place, session) == [f"{number}" for number in range(5)]
            assert (await runs[-1].wait()).kind is Kind.COMPLETED

    run(body)


def test_closing_sends_what_was_posted_first() -> None:
    async def body() -> None:
        async with gateway() as place:
            async with client(place.url) as c:
                session = (await c.create_session("demo")).id
                for number in range(30):
                    c.post(session, f"{number}")
            assert await texts(place, session) == [f"{number}" for number in range(30)]

    run(body)


def test_closing_never_drops_a_posted_message_without_a_word() -> None:
    async def body() -> None:
        async with client(nowhere(), replace(QUICK, flush_s=0.1)) as c:
            c.post("s", "hello", key="a")
            c.post("s", "hello", key="b")

    with pytest.raises(TurnkeeperError, match=r"TK-533 2 messages .*: a, b") as told:
        run(body)
    assert told.value.fields["keys"] == ["a", "b"]


def test_an_error_in_the_block_is_not_hidden_by_what_was_left() -> None:
    async def body() -> None:
        async with client(nowhere()) as c:
            c.post("s", "hello", key="a")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as told:
        run(body)
    notes = ["1 messages were not acknowledged when the client was closed: a"]
    assert told.value.__notes__ == notes


def test_a_posted_message_that_is_refused_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        async with gateway() as place, client(place.url) as c:
            posted = c.post("nowhere", "hello", key="lost")
            await wait_until(lambda: posted.done)
            with pytest.raises(TurnkeeperError, match="TK-502"):
                await posted.run()

    with caplog.at_level(logging.WARNING, logger="turnkeeper.client"):
        run(body)
    assert "message lost was refused: TK-502" in caplog.text


def test_senders_that_wait_are_told_when_the_client_is_closed() -> None:
    async def body() -> None:
        async with client(nowhere(), replace(QUICK, flush_s=0.01)) as c:
            sending = asyncio.create_task(c.send("s", "hello"))
            await wait_until(lambda: len(c.outbox) == 1)
        with pytest.raises(TurnkeeperError, match=r"TK-533 .*the client was closed"):
            await sending
        with pytest.raises(ClientClosed):
            await c.send("s", "hello")

    run(body)


def test_while_the_server_is_away_one_message_at_a_time_is_tried() -> None:
    async def body() -> None:
        async with gateway() as place, Proxy(place.port) as proxy:
            proxy.refusing = True
            async with client(proxy.url, replace(QUICK, flush_s=0.01)) as c:
                for number in range(200):
                    c.post(f"s{number}", "hello")
                await proxy.wait_pairs(40)
                tried = [one for one in c.outbox if one.tries]
                assert len(tried) <= 16, "the first round, and then the oldest alone"
                for one in list(c.outbox):
                    one.discard()

    run(body)


def test_a_session_that_the_server_cannot_write_does_not_hold_up_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server answers, but not for that session: that is no outage."""

    async def body() -> None:
        async with gateway() as place, client(place.url) as c:
            broken, fine = (await c.create_session("demo")).id, (await c.create_session("demo")).id
            store, append = place.system.store, place.system.store.append

            async def refuse(batch: Batch) -> None:
                if batch.session == broken:
                    raise Fenced(broken, batch.epoch)
                await append(batch)

            monkeypatch.setattr(store, "append", refuse)
            stuck = c.post(broken, "hello")
            await wait_until(lambda: stuck.tries >= 2)
            for number in range(5):
                await c.send(fine, f"{number}")
            assert not stuck.done
            assert stuck.maybe_taken
            assert c.trouble is None
            monkeypatch.undo()
            assert (await (await stuck.run()).wait()).kind is Kind.COMPLETED

    run(body)


def test_the_same_client_can_send_from_many_tasks_at_once() -> None:
    async def body() -> None:
        async with gateway() as place, client(place.url) as c:
            sessions = [(await c.create_session("demo")).id for _ in range(20)]
            runs = await asyncio.gather(
                *(c.send(session, f"{n}") for session in sessions for n in range(5))
            )
            assert len({one.id for one in runs}) == 100
            for session in sessions:
                assert await texts(place, session) == ["0", "1", "2", "3", "4"]

    run(body)
