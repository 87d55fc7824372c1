"""The client and the real `turnkeeper serve`, which is killed and comes back."""

import asyncio
import signal
from pathlib import Path

from tests.cli.house import House, house
from tests.client.harness import QUICK, collect, run, wait_until
from tests.helpers.ports import free_port
from turnkeeper.client import AnyEvent, Client, SyncClient
from turnkeeper.core.events import MessageAccepted

KILLS = 3


def client_of(home: House, port: int) -> Client:
    token = (home.data / "token").read_text().strip()
    return Client(f"http://127.0.0.1:{port}", token=token, options=QUICK, environ={})


def test_a_server_that_is_killed_and_comes_back_is_gone_on_with_where_it_was(
    tmp_path: Path,
) -> None:
    """Messages are sent and events watched all the while, over several servers on one port."""
    data = tmp_path / "data"
    seen: list[AnyEvent] = []
    texts: list[str] = []

    async def send_on(c: Client, session: str, done: asyncio.Event) -> None:
        while not done.is_set():
            texts.append(f"message {len(texts)}")
            await c.send(session, texts[-1], when_busy="queue")
            await asyncio.sleep(0.02)

    async def body() -> None:
        port = free_port()
        with house(data, "--port", str(port)) as first:
            async with client_of(first, port) as c:
                session = (await c.create_session("demo")).id
                watching = asyncio.create_task(collect(c.events(session), seen))
                done = asyncio.Event()
                sending = asyncio.create_task(send_on(c, session, done))
                await wait_until(lambda: len(seen) > 5)
                first.end(signal.SIGKILL)
                for _ in range(KILLS):
                    await wait_until(lambda: c.trouble is not None)
                    before = len(seen)
                    with await asyncio.to_thread(started_again, data, port) as home:
                        await wait_until(lambda before=before: len(seen) > before + 5)  # type: ignore[misc]
                        home.end(signal.SIGKILL)
                with await asyncio.to_thread(started_again, data, port):
                    done.set()
                    await sending
                    last = (await c.runs(session=session, limit=1).page()).items[0]
                    await (await c.run(last.id)).stop()
                    head = (await c.session(session)).seq
                    await wait_until(lambda: seen[-1].seq >= head)
                    watching.cancel()
                    await asyncio.gather(watching, return_exceptions=True)

    run(body, 110)
    assert [event.seq for event in seen] == list(range(1, len(seen) + 1))
    accepted = [event.data.text for event in seen if isinstance(event.data, MessageAccepted)]
    assert accepted == texts, "each once, and in order"


class Again:
    """A server on the port that the one before it had."""

    def __init__(self, data: Path, port: int) -> None:
        self._context = house(data, "--port", str(port))
        self.home = self._context.__enter__()

    def __enter__(self) -> House:
        return self.home

    def __exit__(self, *_: object) -> None:
        self._context.__exit__(None, None, None)


def started_again(data: Path, port: int) -> Again:
    return Again(data, port)


def test_the_blocking_client_finds_address_and_token_in_the_environment(tmp_path: Path) -> None:
    with house(tmp_path / "data") as home:
        token = (home.data / "token").read_text().strip()
        environ = {"TURNKEEPER_URL": home.url, "TURNKEEPER_TOKEN": token}
        with SyncClient(environ=environ, options=QUICK) as c:
            session = c.create_session("demo")
            sent = c.send(session.id, "hello")
            assert [event.kind for event in sent][-1] == "run.ended"
