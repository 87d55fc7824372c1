"""The blocking client: any thread, Ctrl-C, and nothing left behind."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.client.harness import BOUND_S, QUICK, TOKEN, Gateway, gateway, log_of, text_of
from tests.client.proxy import Proxy
from tests.client.test_outbox import nowhere
from tests.helpers.leaks import left_behind
from turnkeeper.client import AnyEvent, ClientClosed, SyncClient
from turnkeeper.core.errors import TurnkeeperError
from turnkeeper.core.events import ApprovalRequested
from turnkeeper.core.outcome import Kind


class Elsewhere:
    """A gateway, and a proxy before it, on a loop in another thread."""

    def __init__(self) -> None:
        self.place: Gateway
        self.proxy: Proxy
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="server")

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(BOUND_S)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def do(self, doing: Callable[[], Any]) -> None:
        """In the server's own thread."""

        async def do() -> None:
            done = doing()
            if asyncio.iscoroutine(done):
                await done

        asyncio.run_coroutine_threadsafe(do(), self._loop).result(BOUND_S)

    def log_of(self, session: str) -> list[Any]:
        reading = asyncio.run_coroutine_threadsafe(log_of(self.place, session), self._loop)
        return list(reading.result(BOUND_S))

    async def _serve(self) -> None:
        async with gateway() as self.place, Proxy(self.place.port) as self.proxy:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            self._ready.set()
            await self._stop.wait()


@contextmanager
def elsewhere() -> Iterator[Elsewhere]:
    served = Elsewhere()
    served.start()
    try:
        yield served
    finally:
        served.stop()


def blocking(url: str, **options: Any) -> SyncClient:
    return SyncClient(url, token=TOKEN, options=replace(QUICK, **options), environ={})


def wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + BOUND_S
    while not holds():
        assert time.monotonic() < until, "it did not come to pass"
        time.sleep(0.01)


def in_thread(doing: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=doing)
    thread.start()
    return thread


def test_everything_can_be_asked_for_without_await() -> None:
    with elsewhere() as served, blocking(served.place.url) as c:
        assert c.health().ready
        assert [one.name for one in c.agents()] == ["demo"]
        session = c.create_session("demo", title="a talk")
        sent = c.send(session.id, "hello")
        events = list(sent)
        assert text_of(events).startswith("Hello!")
        assert events == [event for event in served.log_of(session.id) if event.run == sent.id]
        assert sent.outcome == sent.wait()
        assert sent.look().state == "ended"
        assert not sent.stop().changed
        assert sent.successor() is None
        assert c.run(sent.id).wait(5) == sent.outcome
        assert c.session(session.id).title == "a talk"
        assert [one.id for one in c.sessions(limit=1)] == [session.id]
        assert [one.id for one in c.runs(session=session.id).page().items] == [sent.id]
        assert len(c.outbox) == 0
        assert c.trouble is None


def test_a_question_is_answered_while_its_session_is_watched() -> None:
    with elsewhere() as served, blocking(served.place.url) as c:
        session = c.create_session("demo")
        sent = c.send(session.id, "ask")
        for event in c.events(session.id):
            if isinstance(event.data, ApprovalRequested):
                assert [one.id for one in c.approvals(state="open")] == [event.data.approval]
                c.answer(event.data.approval, allow=True)
                break
        outcome = sent.wait()
        assert outcome.kind is Kind.COMPLETED


def test_a_refusal_is_raised_where_it_was_asked_for() -> None:
    with elsewhere() as served, blocking(served.place.url) as c:
        with pytest.raises(TurnkeeperError, match="TK-502"):
            c.send("nowhere", "hello")
        with pytest.raises(TurnkeeperError, match="TK-502"):
            list(c.events("nowhere"))


def test_several_threads_use_one_client() -> None:
    with elsewhere() as served, blocking(served.place.url) as c:
        sessions = [c.create_session("demo").id for _ in range(8)]
        found: dict[str, list[AnyEvent]] = {}

        def talk(session: str) -> None:
            found[session] = [event for _ in range(3) for event in c.send(session, "long 30")]

        threads = [in_thread(lambda session=session: talk(session)) for session in sessions]  # type: ignore[misc]
        for thread in threads:
            thread.join(BOUND_S)
        for session in sessions:
            assert found[session] == [event for event in served.log_of(session) if event.run]


def test_iterating_goes_on_over_cuts() -> None:
    with elsewhere() as served, blocking(served.proxy.url) as c:
        session = c.create_session("demo")
        sent = c.send(session.id, "long 200")
        seen = []
        for event in sent:
            seen.append(event)
            if len(seen) % 40 == 0:
                served.do(served.proxy.reset)
        assert seen == [event for event in served.log_of(session.id) if event.run == sent.id]
        assert served.proxy.opened > 3


def test_messages_wait_in_the_outbox_and_can_be_seen_and_discarded() -> None:
    with elsewhere() as served, blocking(served.proxy.url) as c:
        session = c.create_session("demo")
        served.do(served.proxy.reset)
        served.do(served.proxy.deaf)
        posted = [c.post(session.id, f"{number}", key=f"k{number}") for number in range(4)]
        wait_until(lambda: posted[0].tries > 1)
        assert [one.key for one in c.outbox] == ["k0", "k1", "k2", "k3"]
        assert c.outbox.bytes > 0
        assert "no connection" in (c.trouble or "")
        assert c.outbox.discard("k1")
        assert posted[2].discard()
        with pytest.raises(TurnkeeperError, match="TK-533"):
            posted[1].run()
        with pytest.raises(TurnkeeperError, match="TK-533"):
            c.send(session.id, "no longer", wait_s=0.05)
        served.do(served.proxy.listen)
        assert posted[0].run().wait().kind is Kind.COMPLETED
        assert posted[3].run(wait_s=BOUND_S).session == session.id
        texts = [e.data.text for e in served.log_of(session.id) if e.kind == "message.accepted"]
        assert texts == ["0", "3"]


def test_closing_wakes_every_thread_that_waits() -> None:
    told: list[BaseException | None] = []

    def waits(doing: Callable[[], object]) -> None:
        try:
            doing()
            told.append(None)
        except ClientClosed as closed:
            told.append(closed)

    with elsewhere() as served:
        with blocking(served.place.url) as c:
            session = c.create_session("demo")
            sent = c.send(session.id, "stall")
            seen: list[object] = []
            read: list[object] = []
            waiting = [
                in_thread(lambda: waits(sent.wait)),
                in_thread(lambda: waits(lambda: seen.extend(sent))),
                in_thread(lambda: waits(lambda: read.extend(c.events(session.id)))),
            ]
            wait_until(lambda: bool(seen and read))
            wait_until(lambda: served.place.server.gate.watchers >= 2)
        for thread in waiting:
            thread.join(BOUND_S)
        assert sorted(map(repr, told)).count("None") == 1, "only watching ends without a word"
        assert len(told) == 3
        with pytest.raises(ClientClosed):
            c.health()


def test_nothing_is_left_behind() -> None:
    """No thread, no socket, no task: also where iterating was left in the middle."""
    with elsewhere() as served:
        threads, before = set(threading.enumerate()), set(os.listdir("/proc/self/fd"))
        with left_behind() as complaints:
            for _ in range(5):
                with blocking(served.proxy.url) as c:
                    session = c.create_session("demo")
                    sent = c.send(session.id, "long 50")
                    for event in sent:
                        if event.kind == "output.text":
                            break
                    left = iter(c.events(session.id))
                    next(left)
                    c.runs().page()
                del left, sent
        assert complaints == []
        assert set(threading.enumerate()) <= threads
        wait_until(lambda: len(served.proxy.pairs) == 0)
        wait_until(lambda: set(os.listdir("/proc/self/fd")) <= before)


def test_a_forked_child_is_told_to_make_a_client_of_its_own() -> None:
    program = f"""
import os, sys
from turnkeeper.client import ClientClosed, SyncClient
with SyncClient("http://127.0.0.1:9", token={TOKEN!r}) as client:
    assert client.trouble is None
    child = os.fork()
    if child == 0:
        try:
            client.trouble
        except ClientClosed as told:
            print(told, flush=True)
            os._exit(7)
    _, status = os.waitpid(child, 0)
    sys.exit(os.waitstatus_to_exitcode(status))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program],  # of fork, from 3.12
        capture_output=True, text=True, timeout=BOUND_S,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (7, "")
    assert "make one after the fork" in done.stdout


def test_a_client_that_nobody_closes_does_not_keep_the_program_from_ending() -> None:
    program = f"""
from turnkeeper.client import SyncClient
c = SyncClient({nowhere()!r}, environ={{}})
c.__enter__()
c.post("s", "hello")
print("done")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=BOUND_S
    )
    assert (done.returncode, done.stdout) == (0, "done\n")


WAITING = """
import sys
from turnkeeper.client import Options, SyncClient
url, what = sys.argv[1:]
with SyncClient(url, token="a-token-for-tests", options=Options(flush_s=0.1)) as c:
    session = c.create_session("demo") if what != "send" else None
    try:
        if what == "send":
            print("waiting", flush=True)
            c.send("s", "hello")
        sent = c.send(session.id, "stall")
        if what == "wait":
            print("waiting", flush=True)
            sent.wait()
        for event in sent:
            print("waiting" if event.kind == "message.delivered" else "", flush=True)
    except KeyboardInterrupt:
        if what == "send":
            print("interrupted", len(c.outbox), flush=True)
        else:
            print("interrupted", sent.look().state, flush=True)
            sent.stop()
            print(sent.wait().kind, flush=True)
"""


@pytest.mark.parametrize("what", ["wait", "iterate", "send"])
def test_ctrl_c_ends_the_call_that_waits_and_the_client_goes_on(what: str, tmp_path: Path) -> None:
    script = tmp_path / "waiting.py"
    script.write_text(WAITING)
    with elsewhere() as served:
        url = nowhere() if what == "send" else served.place.url
        started = subprocess.Popen(
            [sys.executable, str(script), url, what], stdout=subprocess.PIPE, text=True
        )
        try:
            assert started.stdout is not None
            while "waiting" not in (line := started.stdout.readline()):
                assert line, "it ended before it waited"
            if what == "wait":
                wait_until(lambda: served.place.server.gate.watchers >= 1)
            started.send_signal(signal.SIGINT)
            rest, _ = started.communicate(timeout=BOUND_S)
        finally:
            if started.poll() is None:
                started.kill()
                started.wait()
    told = [line for line in rest.splitlines() if line]
    assert told == (["interrupted 0"] if what == "send" else ["interrupted running", "cancelled"])
    assert started.returncode == 0
