"""The client through TLS and through a proxy, to the real gateway."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.client.harness import QUICK, TOKEN, collect, gateway, run, text_of
from tests.client.proxy import Proxy
from tests.http.peer import Call, Peer, peer
from tests.http.test_proxy_and_tls import certificate as certificate
from tests.http.test_proxy_and_tls import serving, trusting
from turnkeeper.client import Client
from turnkeeper.core.errors import UNREACHABLE, TurnkeeperError

Certificate = tuple[Path, Path]


async def talk(c: Client) -> None:
    session = await c.create_session("demo")
    sent = await c.send(session.id, "hello")
    assert text_of(await collect(sent)).startswith("Hello!")


async def refused_everywhere(c: Client, words: str) -> None:
    for doing in (c.send("s", "hello"), c.agents(), c.health(), collect(c.events("s"))):
        with pytest.raises(TurnkeeperError, match=words) as told:
            await doing
        assert told.value.entry is UNREACHABLE


def test_requests_and_events_come_through_tls(certificate: Certificate) -> None:
    async def body() -> None:
        async with gateway() as place, Proxy(place.port, serving(certificate)) as proxy:
            context = trusting(certificate)
            async with Client(
                proxy.url, token=TOKEN, ssl_context=context, options=QUICK, environ={}
            ) as c:
                await talk(c)

    run(body)


def test_a_certificate_that_nobody_vouches_for_is_told_at_once(certificate: Certificate) -> None:
    async def body() -> None:
        async with gateway() as place, Proxy(place.port, serving(certificate)) as proxy:
            async with Client(proxy.url, token=TOKEN, options=QUICK, environ={}) as c:
                await refused_everywhere(c, "TK-531 .*cannot be trusted: its certificate")
            context = trusting(certificate)
            other_name = f"https://127.0.0.1:{proxy.port}"
            async with Client(
                other_name, token=TOKEN, ssl_context=context, options=QUICK, environ={}
            ) as c:
                await refused_everywhere(c, "TK-531 .*cannot be trusted: its certificate")

    run(body)


def test_tls_to_a_server_that_has_none_is_told_at_once() -> None:
    async def body() -> None:
        async with gateway() as place:
            url = place.url.replace("http:", "https:")
            async with Client(url, token=TOKEN, options=QUICK, environ={}) as c:
                await refused_everywhere(c, "TK-531 .*(TLS|SSL)")

    run(body)


@asynccontextmanager
async def tunnel_to(port: int) -> AsyncIterator[Peer]:
    """A proxy that takes CONNECT for any name, and leads to that port."""

    async def script(call: Call) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await call.send(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            await asyncio.gather(copy(call.reader, writer), copy(reader, call.writer))
        except OSError:
            pass
        finally:
            writer.close()

    async with peer(script) as proxy:
        yield proxy


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


def test_the_proxy_of_the_environment_is_used_for_requests_and_for_events(
    certificate: Certificate,
) -> None:
    async def body() -> None:
        async with (
            gateway(hosts=["upstream.test"]) as place,
            Proxy(place.port, serving(certificate)) as encrypted,
            tunnel_to(encrypted.port) as tunnel,
        ):
            environ = {"https_proxy": f"http://me:pa%40ss@127.0.0.1:{tunnel.port}"}
            options = replace(QUICK, flush_s=0.1)
            async with Client(
                "https://upstream.test", token=TOKEN, ssl_context=trusting(certificate),
                options=options, environ=environ,
            ) as c:  # fmt: skip
                await talk(c)
            asked = {request.line for request in tunnel.requests}
            assert asked == {"CONNECT upstream.test:443 HTTP/1.1"}
            for request in tunnel.requests:
                assert "authorization" not in request.headers
                assert request.headers["proxy-authorization"] == "Basic bWU6cGFAc3M="

    run(body)
