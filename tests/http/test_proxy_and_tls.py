"""Proxies, TLS and redirects, on real sockets."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.http.peer import OK, Call, Peer, answer_ok, peer
from turnkeeper.net.http import HttpClient, HttpFailure, HttpLimits, HttpRequest

QUICK = HttpLimits(connect_s=10, first_byte_s=10, idle_s=10, deadline_s=30)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost and upstream.test that nobody else trusts."""
    place = tmp_path_factory.mktemp("tls")
    key, cert = place / "key.pem", place / "cert.pem"
    names = "subjectAltName=DNS:localhost,DNS:upstream.test"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2".split()
    command += ["-subj", "/CN=localhost", "-addext", names, "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


def serving(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


def trusting(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate[0]))


@asynccontextmanager
async def tunnelling_proxy(to: Peer) -> AsyncIterator[Peer]:
    """Takes CONNECT for any name and leads to `to`."""

    async def script(call: Call) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", to.port)
        await call.send(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            await asyncio.gather(_copy(call.reader, writer), _copy(reader, call.writer))
        finally:
            writer.close()

    async with peer(script) as proxy:
        yield proxy


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


def test_tls_is_verified_and_a_stranger_is_refused_without_a_second_try(
    certificate: tuple[Path, Path],
) -> None:
    async def main() -> None:
        async with peer(answer_ok, serving(certificate)) as server:
            async with HttpClient(QUICK, environ={}) as client:
                with pytest.raises(HttpFailure, match="cannot be trusted") as caught:
                    await client.send(HttpRequest("POST", server.url(), {}, b"secret"))
            failure = caught.value
            assert (failure.kind, failure.maybe_taken, failure.tries) == ("connect", False, 1)
            context = trusting(certificate)
            async with HttpClient(QUICK, ssl_context=context, environ={}) as client:
                assert (await client.send(HttpRequest("GET", server.url()))).body == b"ok"
                with pytest.raises(HttpFailure, match="cannot be trusted"):
                    await client.send(HttpRequest("GET", f"https://127.0.0.1:{server.port}/"))

    asyncio.run(main())


def test_a_megabyte_goes_both_ways_through_tls(certificate: tuple[Path, Path]) -> None:
    async def script(call: Call) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(call.seen.body)
        await call.send(head + call.seen.body)

    async def main() -> None:
        context = trusting(certificate)
        big = bytes(range(256)) * 8192
        async with (
            peer(script, serving(certificate)) as server,
            HttpClient(QUICK, ssl_context=context, environ={}) as client,
        ):
            for _ in range(2):
                answer = await client.send(HttpRequest("POST", server.url(), {}, big))
                assert answer.body == big

    asyncio.run(main())


def test_plain_http_goes_through_the_proxy_of_the_environment() -> None:
    async def main() -> None:
        async with peer(answer_ok) as proxy:
            environ = {"HTTP_PROXY": f"http://me:pa%40ss@127.0.0.1:{proxy.port}"}
            async with HttpClient(QUICK, environ=environ) as client:
                await client.send(HttpRequest("GET", "http://upstream.test:81/x?a=1"))
        seen = proxy.requests[0]
        assert seen.line == "GET http://upstream.test:81/x?a=1 HTTP/1.1"
        assert seen.headers["host"] == "upstream.test:81"
        assert seen.headers["proxy-authorization"] == "Basic bWU6cGFAc3M="

    asyncio.run(main())


def test_https_goes_through_a_tunnel_and_the_proxy_sees_no_header(
    certificate: tuple[Path, Path],
) -> None:
    async def main() -> None:
        context = trusting(certificate)
        async with (
            peer(answer_ok, serving(certificate)) as server,
            tunnelling_proxy(server) as proxy,
            HttpClient(
                QUICK,
                ssl_context=context,
                environ={"https_proxy": f"127.0.0.1:{proxy.port}"},
            ) as client,
        ):
            request = HttpRequest("POST", "https://upstream.test/x", {"X-Api-Key": "k"}, b"hello")
            for _ in range(2):
                assert (await client.send(request)).body == b"ok"
            assert [r.line for r in proxy.requests] == ["CONNECT upstream.test:443 HTTP/1.1"]
            assert "x-api-key" not in proxy.requests[0].headers
            assert [r.body for r in server.requests] == [b"hello"] * 2

    asyncio.run(main())


def test_a_proxy_that_refuses_is_silent_or_lies_means_that_nothing_was_taken() -> None:
    async def refuse(call: Call) -> None:
        await call.send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    async def silent(call: Call) -> None:
        await call.wait_closed_by_client()

    async def answers_itself(call: Call) -> None:
        await call.send(b"HTTP/1.1 200 Go on\r\n\r\n" + OK)
        await call.wait_closed_by_client()

    async def main() -> None:
        limits = HttpLimits(connect_s=0.3, connect_tries=2, deadline_s=5)
        for script in (refuse, silent, answers_itself):
            async with peer(script) as proxy:
                environ = {"HTTPS_PROXY": f"http://127.0.0.1:{proxy.port}"}
                async with HttpClient(limits, environ=environ) as client:
                    request = HttpRequest("POST", "https://upstream.test/", {}, b"x")
                    with pytest.raises(HttpFailure) as caught:
                        await client.send(request)
                failure = caught.value
                assert (failure.kind, failure.maybe_taken) == ("connect", False)
                assert failure.tries == 2

    asyncio.run(main())


def redirect_to(target: str, status: int = 302) -> bytes:
    return f"HTTP/1.1 {status} Moved\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode()


def test_a_redirect_on_the_same_host_is_followed_and_elsewhere_never_with_credentials() -> None:
    async def main() -> None:
        async with peer(answer_ok) as other:

            async def script(call: Call) -> None:
                path = call.seen.line.split()[1]
                targets = {"/here": "/there", "/away": other.url("/x"), "/loop": "/loop"}
                await (
                    call.send(redirect_to(targets[path])) if path in targets else answer_ok(call)
                )

            async with peer(script) as server, HttpClient(QUICK, environ={}) as client:
                key = {"X-Api-Key": "k"}
                assert (await client.send(HttpRequest("GET", server.url("/here"), key))).body
                assert server.requests[-1].headers["x-api-key"] == "k"
                assert (await client.send(HttpRequest("GET", server.url("/away")))).body == b"ok"
                for request in (
                    HttpRequest("GET", server.url("/away"), key),
                    HttpRequest("POST", server.url("/away"), {}, b"body"),
                    HttpRequest("POST", server.url("/here"), {}, b"body"),
                    HttpRequest("GET", server.url("/loop")),
                ):
                    with pytest.raises(HttpFailure, match="redirects") as caught:
                        await client.send(request)
                    assert (caught.value.kind, caught.value.status) == ("status", 302)
                assert len(other.requests) == 1

    asyncio.run(main())
