"""What the HTTP client makes of peers that do not do what they should, on real sockets."""

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from tests.helpers.ports import closed_socket, refused_port
from tests.http.peer import OK, Call, Peer, answer_ok, peer
from turnkeeper.net.http import (
    HttpClient,
    HttpFailure,
    HttpLimits,
    HttpRequest,
    TcpOptions,
    Waiting,
)

PATIENT = HttpLimits(connect_s=10, write_s=10, first_byte_s=10, idle_s=10, deadline_s=30)
SHORT = HttpLimits(first_byte_s=0.3, idle_s=0.3, deadline_s=30)
"""For a peer that is silent; the others may be slow on a busy machine."""
SHORT_IDLE = HttpLimits(first_byte_s=10, idle_s=0.3, deadline_s=30)
"""For one that falls silent after it has begun."""
Body = Callable[[HttpClient, Peer], Awaitable[None]]


def run(
    script: Callable[[Call], Awaitable[None]], body: Body, limits: HttpLimits = PATIENT
) -> None:
    async def main() -> None:
        async with peer(script) as server, HttpClient(limits, environ={}) as client:
            await body(client, server)

    asyncio.run(main())


def post(server: Peer, body: bytes = b"{}", *, idempotent: bool = False) -> HttpRequest:
    return HttpRequest("POST", server.url("/v1/x"), {}, body, idempotent=idempotent)


async def failure_of(client: HttpClient, request: HttpRequest) -> HttpFailure:
    with pytest.raises(HttpFailure) as caught:
        await client.send(request)
    return caught.value


async def read_until_failure(
    client: HttpClient, request: HttpRequest, seen: Callable[[], object] = lambda: None
) -> tuple[list[bytes], HttpFailure]:
    """The chunks that came before the stream failed; `seen` is called for each."""
    got: list[bytes] = []
    try:
        async with client.stream(request) as stream:
            async for chunk in stream.chunks():
                got.append(chunk)
                seen()
    except HttpFailure as failure:
        return got, failure
    raise AssertionError(f"it did not fail: {got}")


async def take_time(steps: int = 8) -> None:
    """0.4 s, or that many times 0.05 s, that pass: what is tested is that nothing comes of them."""
    for _ in range(steps):
        await asyncio.sleep(0.05)


async def never_answer(call: Call) -> None:
    await call.wait_closed_by_client()


def test_an_answer_is_given_whole_and_the_connection_is_used_again() -> None:
    async def body(client: HttpClient, server: Peer) -> None:
        answers = [await client.send(post(server, b"hello")) for _ in range(3)]
        assert [(a.status, a.body) for a in answers] == [(200, b"ok")] * 3
        assert [r.body for r in server.requests] == [b"hello"] * 3
        assert server.connections == 1

    run(answer_ok, body)


def test_a_peer_that_accepts_and_never_answers_ends_by_the_first_byte_clock() -> None:
    async def body(client: HttpClient, server: Peer) -> None:
        began = time.monotonic()
        failure = await failure_of(client, post(server))
        assert (failure.kind, failure.maybe_taken) == ("first_byte", True)
        assert 0.25 < time.monotonic() - began < 5
        await asyncio.wait_for(server.arrived.wait(), 10)
        assert len(server.requests) == 1, "what may have been taken is not sent again"

    run(never_answer, body, SHORT)


def test_a_header_that_trickles_in_does_not_reset_the_first_byte_clock() -> None:
    async def script(call: Call) -> None:
        for byte in b"HTTP/1.1 200 OK\r\nX-Slow: " + b"y" * 10_000:
            await call.send(bytes([byte]))
            await asyncio.sleep(0.02)

    async def body(client: HttpClient, server: Peer) -> None:
        assert (await failure_of(client, post(server))).kind == "first_byte"

    run(script, body, SHORT)


def test_an_idempotent_request_that_is_lost_is_sent_again_once_over_a_fresh_connection() -> None:
    async def script(call: Call) -> None:
        if len(call.seen.body) and call.seen.connection == 1:
            call.writer.close()
        else:
            await call.send(OK)

    async def body(client: HttpClient, server: Peer) -> None:
        assert (await client.send(post(server, idempotent=True))).body == b"ok"
        assert [r.connection for r in server.requests] == [1, 2]

    run(script, body)


@pytest.mark.parametrize("end", ["close", "reset"])
def test_a_drop_before_the_headers_is_lost_and_may_have_been_taken(end: str) -> None:
    async def script(call: Call) -> None:
        call.reset() if end == "reset" else call.writer.close()

    async def body(client: HttpClient, server: Peer) -> None:
        failure = await failure_of(client, post(server))
        assert (failure.kind, failure.maybe_taken, failure.tries) == ("lost", True, 1)
        assert len(server.requests) == 1

    run(script, body)


@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize("framing", ["Content-Length: 10", "Transfer-Encoding: chunked"])
def test_a_drop_in_the_body_is_told_after_the_bytes_that_came(end: str, framing: str) -> None:
    async def script(call: Call) -> None:
        part = b"hel" if "Length" in framing else b"3\r\nhel\r\n"
        await call.send(f"HTTP/1.1 200 OK\r\n{framing}\r\n\r\n".encode() + part)
        await released.wait()
        call.reset() if end == "reset" else call.writer.close()

    async def body(client: HttpClient, server: Peer) -> None:
        request = post(server, idempotent=True)
        got, failure = await read_until_failure(client, request, released.set)
        assert (got, failure.kind, failure.maybe_taken) == ([b"hel"], "lost", True)
        assert len(server.requests) == 1, "a stream that has begun is not begun again"

    released = asyncio.Event()
    run(script, body)


def test_silence_between_chunks_ends_by_the_idle_clock() -> None:
    async def script(call: Call) -> None:
        await call.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n")
        await call.wait_closed_by_client()

    async def body(client: HttpClient, server: Peer) -> None:
        got, failure = await read_until_failure(client, post(server))
        assert (got, failure.kind) == ([b"hel"], "idle")
        assert "0.3 s (idle_s)" in str(failure)

    run(script, body, SHORT_IDLE)


async def trickle_for_ever(call: Call) -> None:
    await call.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while not call.writer.is_closing():
        await call.send(b"1\r\nx\r\n")
        await asyncio.sleep(0.02)


def test_a_trickle_is_not_idle_but_meets_the_deadline() -> None:
    async def body(client: HttpClient, server: Peer) -> None:
        began = time.monotonic()
        got, failure = await read_until_failure(client, post(server))
        assert failure.kind == "deadline"
        assert 1.9 < time.monotonic() - began < 20
        assert len(got) > 5

    run(trickle_for_ever, body, HttpLimits(idle_s=1.5, deadline_s=2))


def test_time_that_the_reader_takes_is_not_the_peers_silence() -> None:
    async def script(call: Call) -> None:
        await call.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        await released.wait()
        await call.send(b"1\r\nb\r\n0\r\n\r\n")

    async def body(client: HttpClient, server: Peer) -> None:
        got = []
        async with client.stream(post(server)) as stream:
            async for chunk in stream.chunks():
                got.append(chunk)
                if not released.is_set():
                    await take_time(24)
                    released.set()
        assert got == [b"a", b"b"]

    released = asyncio.Event()
    run(script, body, HttpLimits(first_byte_s=10, idle_s=1, deadline_s=30))


def test_a_connection_that_is_refused_is_tried_again_and_was_never_taken() -> None:
    async def main() -> None:
        async with HttpClient(HttpLimits(connect_tries=3), environ={}) as client:
            url = f"http://127.0.0.1:{refused_port()}/"
            waits: list[Waiting] = []
            with pytest.raises(HttpFailure) as caught:
                await client.send(HttpRequest("POST", url, {}, b"x"), on_wait=waits.append)
        failure = caught.value
        assert (failure.kind, failure.maybe_taken, failure.tries) == ("connect", False, 3)
        assert [w.why for w in waits] == ["unreachable"] * 2

    asyncio.run(main())


def test_a_server_that_comes_up_between_the_tries_is_reached() -> None:
    async def main() -> None:
        sock = closed_socket()
        servers: list[asyncio.Server] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(OK)
            writer.close()

        async def come_up() -> None:
            servers.append(await asyncio.start_server(serve, sock=sock))

        tasks: list[asyncio.Task[None]] = []
        async with HttpClient(PATIENT, environ={}) as client:
            answer = await client.send(
                HttpRequest("GET", f"http://127.0.0.1:{sock.getsockname()[1]}/"),
                on_wait=lambda _: tasks.append(asyncio.ensure_future(come_up())),
            )
            assert answer.body == b"ok"
        assert len(tasks) == 1
        servers[0].close()

    asyncio.run(main())


def test_a_full_backlog_that_never_accepts_ends_by_the_connect_clock() -> None:
    async def main() -> None:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            address = listener.getsockname()
            fillers = [socket.socket() for _ in range(4)]
            try:
                for filler in fillers:
                    filler.setblocking(False)
                    filler.connect_ex(address)
                limits = HttpLimits(connect_s=0.3, connect_tries=2, deadline_s=10)
                async with HttpClient(limits, environ={}) as client:
                    url = f"http://127.0.0.1:{address[1]}/"
                    failure = await failure_of(client, HttpRequest("POST", url))
            finally:
                for filler in fillers:
                    filler.close()
        assert (failure.kind, failure.maybe_taken, failure.tries) == ("connect", False, 2)

    asyncio.run(main())


def test_a_body_that_is_not_taken_ends_by_the_write_clock() -> None:
    async def main() -> None:
        with socket.socket() as listener:  # accepts in the kernel only, and reads nothing
            listener.bind(("127.0.0.1", 0))
            listener.listen(8)
            limits = HttpLimits(write_s=0.5, deadline_s=10)
            async with HttpClient(limits, environ={}) as client:
                url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
                request = HttpRequest("POST", url, {}, b"x" * 20_000_000)
                failure = await failure_of(client, request)
        assert (failure.kind, failure.maybe_taken) == ("write", True)

    asyncio.run(main())


def refuse_then_ok(*refusals: bytes) -> Callable[[Call], Awaitable[None]]:
    left = list(refusals)

    async def script(call: Call) -> None:
        await call.send(left.pop(0) if left else OK)

    return script


def refusal(status: int, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} No", "Content-Length: 4", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\nbusy"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (refusal(429, "Retry-After: 0"), "rate_limited"),
        (refusal(429, "Retry-After-Ms: 10"), "rate_limited"),
        (refusal(429), "rate_limited"),
        (refusal(529), "overloaded"),
        (refusal(503, "Retry-After: 0"), "overloaded"),
    ],
)
def test_a_refusal_for_now_is_waited_for_and_reported_as_no_progress(
    answer: bytes, why: str
) -> None:
    async def body(client: HttpClient, server: Peer) -> None:
        waits: list[Waiting] = []
        assert (await client.send(post(server), on_wait=waits.append)).body == b"ok"
        assert [w.why for w in waits] == [why]
        assert len(server.requests) == 2

    run(refuse_then_ok(answer), body)


def test_retry_after_is_honoured_in_seconds_and_as_a_date() -> None:
    came: list[datetime] = []

    def two_seconds_later(moment: datetime) -> datetime:
        return moment.replace(microsecond=0) + timedelta(seconds=2)

    async def script(call: Call) -> None:
        came.append(datetime.now(UTC))
        after = ["1", format_datetime(two_seconds_later(came[-1]), usegmt=True)]
        refused = len(came) <= len(after)
        await call.send(refusal(429, f"Retry-After: {after[len(came) - 1]}") if refused else OK)

    async def body(client: HttpClient, server: Peer) -> None:
        waits: list[Waiting] = []
        await client.send(post(server), on_wait=waits.append)
        first, second, third = came
        assert waits[0].left_s == 1
        assert second - first > timedelta(seconds=0.9)
        assert 0 <= waits[1].left_s <= 2
        assert third > two_seconds_later(second) - timedelta(seconds=0.1)

    run(script, body)


def test_retry_after_beyond_the_deadline_fails_at_once_and_says_how_long() -> None:
    async def body(client: HttpClient, server: Peer) -> None:
        began = time.monotonic()
        failure = await failure_of(client, post(server))
        assert time.monotonic() - began < 5
        assert (failure.kind, failure.status, failure.maybe_taken) == ("status", 429, False)
        assert (failure.retry_after_s, failure.body) == (3600, b"busy")

    run(refuse_then_ok(refusal(429, "Retry-After: 3600")), body)


def test_a_503_that_does_not_say_when_may_have_been_taken_and_stands() -> None:
    async def body(client: HttpClient, server: Peer) -> None:
        failure = await failure_of(client, post(server))
        assert (failure.status, failure.maybe_taken) == (503, True)
        assert (await client.send(post(server, idempotent=True))).status == 200

    run(refuse_then_ok(refusal(503), refusal(503)), body)


@pytest.mark.parametrize(("status", "taken"), [(400, False), (401, False), (500, True)])
def test_a_final_status_is_a_failure_with_the_beginning_of_what_was_said(
    status: int, taken: bool
) -> None:
    async def body(client: HttpClient, server: Peer) -> None:
        failure = await failure_of(client, post(server))
        assert (failure.kind, failure.status, failure.body) == ("status", status, b"busy")
        assert failure.maybe_taken is taken

    run(refuse_then_ok(refusal(status)), body)


def test_what_an_earlier_try_may_have_done_is_not_forgotten() -> None:
    async def body(client: HttpClient, server: Peer) -> None:
        failure = await failure_of(client, post(server, idempotent=True))
        assert (failure.kind, failure.status, failure.maybe_taken) == ("status", 400, True)

    async def script(call: Call) -> None:
        await call.send(refusal(400)) if call.seen.connection == 2 else call.writer.close()

    run(script, body)


@pytest.mark.parametrize(
    "answer", [b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"]
)
def test_what_is_not_http_is_a_protocol_failure(answer: bytes) -> None:
    async def script(call: Call) -> None:
        await call.send(answer)

    async def body(client: HttpClient, server: Peer) -> None:
        assert (await failure_of(client, post(server, idempotent=True))).kind == "protocol"
        assert len(server.requests) == 1

    run(script, body)


def test_headers_without_end_are_refused() -> None:
    async def script(call: Call) -> None:
        await call.send(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 300_000)

    async def body(client: HttpClient, server: Peer) -> None:
        assert (await failure_of(client, post(server))).kind == "protocol"

    run(script, body)


def test_a_body_and_a_line_over_their_limits_are_refused() -> None:
    async def script(call: Call) -> None:
        text = b"ab\n" * 1000 if call.seen.line.startswith("GET /lines") else b"x" * 3000
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(text)
        await call.send(head + text)

    async def body(client: HttpClient, server: Peer) -> None:
        short_lines = HttpLimits(line_bytes=1000)
        get = HttpRequest("GET", server.url("/lines"))
        assert len((await client.send(get, limits=short_lines)).body) == 3000
        for limits in (short_lines, HttpLimits(body_bytes=2999)):
            with pytest.raises(HttpFailure, match="_bytes") as caught:
                await client.send(HttpRequest("GET", server.url()), limits=limits)
            assert caught.value.kind == "protocol"

    run(script, body)


def test_cancelling_a_call_closes_its_connection_at_once() -> None:
    async def body(client: HttpClient, server: Peer) -> None:
        call = asyncio.ensure_future(client.send(post(server), limits=HttpLimits()))
        await server.arrived.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.wait_for(closed.wait(), 10)

    async def script(call: Call) -> None:
        await call.wait_closed_by_client()
        closed.set()

    closed = asyncio.Event()
    run(script, body)


def test_a_stream_that_is_left_early_closes_its_connection() -> None:
    async def body(client: HttpClient, server: Peer) -> None:
        async with client.stream(post(server)) as stream:
            async for _ in stream.chunks():
                break
        assert (await client.send(HttpRequest("GET", server.url("/ok")))).body == b"ok"
        assert server.connections == 2

    async def script(call: Call) -> None:
        await (answer_ok(call) if "/ok" in call.seen.line else trickle_for_ever(call))

    run(script, body)


def test_the_options_are_on_the_live_socket() -> None:
    async def body(client: HttpClient, server: Peer) -> None:
        async with client.stream(post(server)) as stream:
            sock = stream.network.get_extra_info("socket")
            tcp = socket.IPPROTO_TCP
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert sock.getsockopt(tcp, socket.TCP_KEEPIDLE) == TcpOptions().keepalive_idle_s
            assert sock.getsockopt(tcp, socket.TCP_KEEPINTVL) == TcpOptions().keepalive_every_s
            assert sock.getsockopt(tcp, socket.TCP_KEEPCNT) == TcpOptions().keepalive_probes
            assert sock.getsockopt(tcp, socket.TCP_USER_TIMEOUT) == TcpOptions().user_s * 1000
            assert sock.getsockopt(tcp, socket.TCP_NODELAY) == 1

    run(answer_ok, body)


def test_a_reused_connection_is_on_probation_until_it_answers() -> None:
    user_timeouts: list[int] = []
    socks: list[socket.socket] = []

    def note() -> None:
        option = socks[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        user_timeouts.append(option)

    async def body(client: HttpClient, server: Peer) -> None:
        for _ in range(2):
            async with client.stream(post(server)) as stream:
                socks.append(stream.network.get_extra_info("socket"))
                note()
                async for _ in stream.chunks():
                    pass
        assert server.connections == 1

    async def script(call: Call) -> None:
        if socks:
            note()  # while the second request waits for its answer
        await call.send(OK)

    run(script, body)
    assert user_timeouts == [30_000, 3_000, 30_000]


def test_an_idle_connection_is_dropped_after_the_pools_expiry() -> None:
    async def main() -> None:
        tcp = TcpOptions(pool_expiry_s=0.05)
        async with peer(answer_ok) as server, HttpClient(PATIENT, tcp=tcp, environ={}) as client:
            await client.send(post(server))
            await take_time()
            await client.send(post(server))
            assert server.connections == 2

    asyncio.run(main())


def test_a_connection_that_the_server_closed_while_idle_is_not_used() -> None:
    async def script(call: Call) -> None:
        await call.send(OK)
        call.writer.close()

    async def body(client: HttpClient, server: Peer) -> None:
        for _ in range(5):
            assert (await client.send(post(server))).body == b"ok"
            await asyncio.sleep(0.01)
        assert server.connections == 5

    run(script, body)


def test_no_secret_is_in_an_error_a_log_or_a_repr(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "sk-do-not-tell"
    headers = {"Authorization": f"Bearer {secret}", "X-Api-Key": secret}

    async def body(client: HttpClient, server: Peer) -> None:
        where = f"http://u:{secret}@localhost:{server.port}/v1/x?key={secret}"
        requests = [
            HttpRequest("POST", where, headers, secret.encode()),
            HttpRequest("POST", where, {"X-Api-Key": f"{secret}\n"}),
        ]
        for request in requests:
            failure = await failure_of(client, request)
            for text in (str(failure), repr(failure), repr(request), failure.detail):
                assert secret not in text
                assert "/v1/x" in text or text.startswith("HttpFailure")

    run(never_answer, body, SHORT)
    assert secret not in caplog.text


def test_a_limit_that_makes_no_sense_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="idle_s is -1"):
        HttpLimits(idle_s=-1)
    with pytest.raises(ValueError, match="deadline_s is 0"):
        HttpLimits(deadline_s=0)
    with pytest.raises(ValueError, match="content-length: the client sets"):
        HttpRequest("POST", "http://x/", {"Content-Length": "4"})
    with pytest.raises(ValueError, match="not an http or https address: file:"):
        HttpRequest("GET", "file:///etc/passwd")


def test_as_many_streams_as_are_wanted_go_on_at_once_and_their_connections_are_used_again() -> None:
    many = 1100
    go_on = asyncio.Event()

    async def script(call: Call) -> None:
        await call.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n")
        await go_on.wait()
        await call.send(b"0\r\n\r\n")

    async def body(client: HttpClient, server: Peer) -> None:
        begun, beginning = 0, asyncio.Semaphore(50)  # a server accepts no more than so many at once

        async def read() -> None:
            nonlocal begun
            await beginning.acquire()
            async with client.stream(post(server)) as stream:
                async for _ in stream.chunks():
                    beginning.release()
                    begun += 1
                    if begun == many:
                        go_on.set()

        await asyncio.gather(*(read() for _ in range(many)))
        assert server.connections == many
        await asyncio.gather(*(read() for _ in range(10)))
        assert server.connections == many

    run(script, body, HttpLimits(connect_s=60, first_byte_s=60, idle_s=60, deadline_s=120))


def test_a_request_that_is_given_up_takes_its_connection_with_it() -> None:
    async def body(client: HttpClient, server: Peer) -> None:
        for _ in range(3):
            asking = asyncio.ensure_future(client.send(post(server)))
            await server.arrived.wait()
            server.arrived.clear()
            asking.cancel()
            await asyncio.wait([asking])
        assert server.connections == 3

    run(never_answer, body)
