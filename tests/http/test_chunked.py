"""What is read of a chunked body without its parser is what the parser would have read."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.http.peer import Call, Peer, Script, peer
from turnkeeper.net.chunked import Chunks, Head, NotChunked
from turnkeeper.net.http import HttpClient, HttpFailure, HttpLimits, HttpRequest

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"

chunks = st.binary(min_size=1, max_size=40).map(lambda data: b"%x\r\n%b\r\n" % (len(data), data))
odd = st.sampled_from(
    [
        LAST, b"0\r\nTrailer: x\r\n\r\n", b"00\r\n\r\n", b"3;ext=1\r\nabc\r\n", b"03\r\nabc\r\n",
        b"A\r\n0123456789\r\n", b"3 \r\nabc\r\n", b"3\nabc\n", b"-3\r\nabc\r\n", b"+3\r\nabc\r\n",
        b"0x3\r\nabc\r\n", b"3_0\r\n", b"3\r\nabcd\r\n", b"3\r\nab\r\n", b"3\r\nabc\r", b"\r\n",
        b"3\r\nabc\n\n", b"g\r\n", b"ffffffff\r\nabc", b"f" * 21 + b"\r\n", b"3", b"0",
        b"00000000003\r\nabc\r\n", b"HTTP/1.1 200 OK\r\n\r\n",
    ]
)  # fmt: skip
bodies = st.lists(chunks | odd | st.binary(max_size=4), max_size=8).map(b"".join)
heads = st.sampled_from(
    [
        HEAD,
        HEAD.replace(b"\r\n", b"\n"),
        b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD,
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 \r\n\r\n" + HEAD,
    ]
)
cuts = st.lists(st.integers(0, 400), max_size=12)


def cut(data: bytes, at: list[int]) -> Iterator[bytes]:
    places = sorted({0, len(data), *(place for place in at if place < len(data))})
    for begin, end in pairwise(places):
        yield data[begin:end]


def asked() -> h11.Connection:
    parser = h11.Connection(h11.CLIENT)
    parser.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
    parser.send(h11.EndOfMessage())
    return parser


def parse(parser: h11.Connection, came: bytes) -> tuple[bytes, str]:
    """The data, and how it went: it wants more, it is whole, or it is wrong."""
    if came:
        parser.receive_data(came)
    data = b""
    try:
        while (event := parser.next_event()) is not h11.NEED_DATA:
            if isinstance(event, h11.Data):
                data += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return data, "whole"
    except h11.RemoteProtocolError:
        return data, "wrong"
    return data, "more"


def read_with_the_parser(pieces: list[bytes]) -> tuple[bytes, str]:
    parser, whole, how = asked(), b"", "more"
    for piece in pieces:
        data, how = parse(parser, piece)
        whole += data
        if how != "more":
            break
    return whole, how


def read_as_we_do(pieces: list[bytes]) -> tuple[bytes, str]:
    parser, head, plain = asked(), Head(), Chunks()
    whole, how, buffer = b"", "more", bytearray()
    for piece in pieces:
        buffer += piece
        while buffer and not head.over and how == "more":
            many = head.take(buffer)
            _, how = parse(parser, bytes(buffer[:many]))
            del buffer[:many]
        if how == "more" and head.over and not plain.over:
            assert parser.trailing_data == (b"", False), "the parser has something of the body"
            try:
                whole += plain.take(buffer)
            except NotChunked:
                how = "wrong"
        if how == "more" and plain.over:
            assert plain.is_between
            data, how = parse(parser, bytes(buffer))
            whole += data
            buffer.clear()
        if how != "more":
            break
    return whole, how


@given(heads, bodies, cuts)
@example(HEAD, b"3\r\nabc\r\n" + LAST, [len(HEAD) + 7])
@example(HEAD, b"3\r\nabcd\r\n", [])
def test_we_read_what_the_parser_reads_wherever_it_is_cut(
    head: bytes, body: bytes, at: list[int]
) -> None:
    pieces = list(cut(head + body, at))
    expected, how = read_with_the_parser(pieces)
    found, how_ours = read_as_we_do(pieces)
    assert how_ours == how
    if how == "wrong":
        # What comes with the mistake may be told or not: the stream has failed.
        assert expected.startswith(found) or found.startswith(expected)
    else:
        assert found == expected


def test_plain_chunks_are_taken_without_the_parser() -> None:
    plain, came = Chunks(), bytearray(b"3\r\nabc\r\n2\r\nde\r\n4\r\nfg")
    assert plain.take(came) == b"abcdefg"
    assert not came
    assert not plain.is_between
    came += b"hi\r\n" + LAST
    assert plain.take(came) == b"hi"
    assert plain.over
    assert came == LAST


@pytest.mark.parametrize(
    "last",
    [LAST, b"0\r\nX-Sum: 1\r\n\r\n", b"2;last\r\n!!\r\n" + LAST],
    ids=["plain", "trailer", "extension"],
)
def test_a_stream_that_was_read_to_its_end_leaves_its_connection_for_the_next(last: bytes) -> None:
    async def script(call: Call) -> None:
        await call.send(b"HTTP/1.1 103 Early Hints\r\n\r\n" + HEAD + b"3\r\nabc\r\n2\r\nd")
        await call.send(b"e\r\n" + last)

    async def body(client: HttpClient, server: Peer) -> None:
        for _ in range(3):
            async with client.stream(HttpRequest("POST", server.url())) as stream:
                assert stream.headers["transfer-encoding"] == "chunked"
                read = b"".join([chunk async for chunk in stream.chunks()])
                assert read.replace(b"!!", b"") == b"abcde"
        assert server.connections == 1

    run(script, body)


def test_an_answer_that_has_no_body_by_its_status_is_over_with_its_head() -> None:
    async def script(call: Call) -> None:
        head = HEAD.replace(b"200 OK", b"204 No Content")
        await call.send(head)

    async def body(client: HttpClient, server: Peer) -> None:
        for _ in range(2):
            assert (await client.send(HttpRequest("POST", server.url()))).body == b""
        assert server.connections == 1

    run(script, body)


def test_a_chunk_without_its_line_end_is_not_http() -> None:
    async def script(call: Call) -> None:
        await call.send(HEAD + b"3\r\nabcd\r\n")
        await call.wait_closed_by_client()

    async def body(client: HttpClient, server: Peer) -> None:
        with pytest.raises(HttpFailure) as caught:
            await client.send(HttpRequest("POST", server.url()))
        assert caught.value.kind == "protocol"

    run(script, body)


def run(script: Script, body: Callable[[HttpClient, Peer], Awaitable[None]]) -> None:
    async def main() -> None:
        limits = HttpLimits(first_byte_s=10, idle_s=10, deadline_s=30)
        async with peer(script) as server, HttpClient(limits, environ={}) as client:
            await body(client, server)

    asyncio.run(main())
