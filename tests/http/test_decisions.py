"""The client's decisions, without a network: retries, proxies, options, clocks."""

import asyncio
import socket
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.net.proxy import Proxies
from turnkeeper.net.retry import is_final, retry_after_s, wait_before_retry_s
from turnkeeper.net.tcp import TcpOptions, apply
from turnkeeper.net.types import (
    FailureKind,
    HttpFailure,
    HttpLimits,
    HttpRequest,
    shown,
)
from turnkeeper.net.watch import Expired, Watch

NOW = datetime(2030, 1, 1, 12, 0, 0, tzinfo=UTC)
KINDS: list[FailureKind] = [
    "connect", "write", "first_byte", "idle", "deadline", "lost", "protocol", "status",
]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7),
        ("1.5", 1.5),
        ("Tue, 01 Jan 2030 12:00:30 GMT", 30),
        ("Tue, 01 Jan 2030 11:00:00 GMT", 0),
        ("Tuesday, 01-Jan-30 12:00:30 GMT", 30),
        ("soon", None),
        ("-3", None),
        ("", None),
        ("9" * 30, None),
    ],
)
def test_retry_after_is_read_in_all_its_forms(value: str, seconds: float | None) -> None:
    assert retry_after_s({"retry-after": value}, NOW) == seconds


def test_the_finer_retry_after_wins() -> None:
    assert retry_after_s({"retry-after": "7", "retry-after-ms": "250"}, NOW) == 0.25


@given(
    kind=st.sampled_from(KINDS),
    tries=st.integers(1, 50),
    status=st.sampled_from([400, 429, 500, 503, 529]),
    asked=st.none() | st.floats(0, 1e6),
    left_s=st.floats(-10, 1e5),
    chance=st.floats(0, 1),
)
def test_what_may_have_been_taken_is_never_sent_again_unless_idempotent(
    kind: FailureKind, tries: int, status: int, asked: float | None, left_s: float, chance: float
) -> None:
    failure = HttpFailure(kind, "x", maybe_taken=True, status=status, retry_after_s=asked)
    failure.tries = tries
    request = HttpRequest("POST", "http://x/")
    args = {"left_s": left_s, "chance": chance}
    assert wait_before_retry_s(failure, request, HttpLimits(), **args) is None
    again = HttpRequest("POST", "http://x/", idempotent=True)
    wait_s = wait_before_retry_s(failure, again, HttpLimits(), **args)
    assert wait_s is None or 0 <= wait_s < left_s


@pytest.mark.parametrize(
    ("final", "status", "headers", "body"),
    [
        (True, 429, {}, b'{"error": {"type": "insufficient_quota", "code": null}}'),
        (True, 429, {}, b'{"error": {"type": "x", "code" : "credit_balance_exhausted"}}'),
        (True, 429, {"x-should-retry": "false"}, b""),
        (True, 503, {"x-should-retry": "False"}, b""),
        (False, 429, {"x-should-retry": "true"}, b""),
        (False, 429, {}, b'{"error": {"type": "rate_limit_exceeded"}}'),
        (False, 429, {}, b'{"error": {"message": "a \\"code\\": \\"insufficient_quota\\""}}'),
        (False, 429, {}, b'{"error": {"message": "You exceeded your current quota"}}'),
        (False, 429, {}, b"\xff"),
        (False, 400, {}, b'{"error": {"type": "insufficient_quota"}}'),
    ],
)
def test_a_refusal_for_good_is_told_from_one_for_now(
    final: bool, status: int, headers: dict[str, str], body: bytes
) -> None:
    assert is_final(status, headers, body) == final


def test_a_server_that_says_zero_for_ever_is_asked_ever_less_often() -> None:
    waits = []
    for tries in range(1, 12):
        failure = HttpFailure("status", "", maybe_taken=False, status=429, retry_after_s=0)
        failure.tries = tries
        request = HttpRequest("POST", "http://x/")
        waits.append(wait_before_retry_s(failure, request, HttpLimits(), left_s=1e9, chance=1))
    assert waits[:4] == [0.5, 1, 2, 4]
    assert waits[-1] == 30


@pytest.mark.parametrize(
    ("no_proxy", "url", "proxied"),
    [
        ("", "http://api.example.com/", True),
        ("", "http://localhost:1/", False),
        ("", "http://127.1.2.3/", False),
        ("", "http://[::1]/", False),
        ("*", "http://api.example.com/", False),
        ("example.com", "http://api.example.com/", False),
        (".example.com", "http://example.com/", False),
        ("*.example.com", "http://api.example.com/", False),
        ("ample.com", "http://api.example.com/", True),
        ("other.com, API.example.com ", "http://api.example.com/", False),
        ("example.com:81", "http://example.com/", True),
        ("example.com:81", "http://example.com:81/", False),
        ("10.0.0.0/8", "http://10.1.2.3/", False),
        ("10.0.0.0/8", "http://11.1.2.3/", True),
        ("10.1.2.3", "http://10.1.2.3/", False),
        ("1.2.3", "http://10.1.2.3/", True),
        ("fd00::/8", "http://[fd00::1]:80/", False),
        ("[fd00::1]:80", "http://[fd00::1]:80/", False),
    ],
)
def test_who_needs_no_proxy(no_proxy: str, url: str, proxied: bool) -> None:
    proxies = Proxies({"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": no_proxy})
    assert (proxies.proxy_for(url) is not None) is proxied


def test_the_proxy_is_chosen_by_scheme_and_lower_case_wins() -> None:
    environ = {"http_proxy": "http://a:1", "HTTP_PROXY": "http://b:1", "ALL_PROXY": "https://c"}
    proxies = Proxies(environ)
    assert str(proxies.proxy_for("http://x.test/")) == "Proxy(http://a:1)"
    assert str(proxies.proxy_for("https://x.test/")) == "Proxy(https://c:443)"


def test_a_proxys_password_is_not_shown_and_a_strangers_header_is_no_proxy() -> None:
    assert "pw" not in repr(Proxies({"http_proxy": "http://u:pw@a:1"}).proxy_for("http://x/"))
    cgi = {"REQUEST_METHOD": "GET", "HTTP_PROXY": "http://evil:1"}
    assert Proxies(cgi).proxy_for("http://x/") is None


def test_a_proxy_that_cannot_be_spoken_to_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"all_proxy is socks5://a:1; only http"):
        Proxies({"ALL_PROXY": "socks5://u:pw@a:1"})


class Recorder:
    """Stands for a socket of another system."""

    def __init__(self) -> None:
        self.options: dict[tuple[int, int], int] = {}

    def setsockopt(self, level: int, option: int, value: int) -> None:
        self.options[level, option] = value


def test_macos_has_other_names_for_the_same() -> None:
    recorder = Recorder()
    apply(recorder, TcpOptions(), "darwin")
    tcp = socket.IPPROTO_TCP
    assert recorder.options == {
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE): 1,
        (tcp, 0x10): 15,
        (tcp, 0x101): 5,
        (tcp, 0x102): 4,
        (tcp, 0x80): 30,
    }


def test_the_kernel_is_patient_enough_for_several_lost_probes() -> None:
    tcp = TcpOptions()
    assert tcp.user_s >= tcp.keepalive_idle_s + 2 * tcp.keepalive_every_s
    assert tcp.keepalive_idle_s < 30, "faster than the strictest usual NAT"
    assert tcp.pool_expiry_s < 30
    assert tcp.reused_s < 5


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("https://u:p@host:8/a?key=1#f", "https://host:8/a"),
        ("http://[::1]:8/a", "http://[::1]:8/a"),
        ("http://host:port/", "(an address that cannot be read)"),
    ],
)
def test_an_address_is_shown_without_its_secrets(url: str, text: str) -> None:
    assert shown(url) == text


def test_a_cancel_from_outside_is_not_taken_for_a_clock() -> None:
    async def main() -> None:
        async def wait() -> None:
            watch = Watch(100)
            with watch:
                await asyncio.Event().wait()

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_a_watch_names_the_clock_that_ran_out_first() -> None:
    async def wait(deadline_s: float, budget_s: float) -> Expired:
        watch = Watch(deadline_s)
        watch.allow("idle", budget_s)
        try:
            with watch:
                await asyncio.Event().wait()
        except Expired as expired:
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0
            return expired
        raise AssertionError("unreachable")

    async def main() -> None:
        assert (await wait(0.05, 10)).kind == "deadline"
        assert (await wait(10, 0.05)).kind == "idle"
        assert (await wait(0.05, 0)).kind == "deadline"

    asyncio.run(main())


def test_a_future_under_a_watch_ends_by_the_clock_that_ran_out_first() -> None:
    async def wait(deadline_s: float, budget_s: float) -> Expired:
        watch, loop = Watch(deadline_s), asyncio.get_running_loop()
        come = loop.create_future()
        come.set_result(None)
        await watch.over(come, "idle", budget_s)
        with pytest.raises(Expired) as caught:
            await watch.over(loop.create_future(), "idle", budget_s)
        return caught.value

    async def main() -> None:
        assert (await wait(0.05, 10)).kind == "deadline"
        assert (await wait(10, 0.05)).kind == "idle"
        assert (await wait(0.05, 0)).kind == "deadline"

    asyncio.run(main())


def test_a_future_that_came_is_nobodys_silence_while_it_is_being_looked_at() -> None:
    async def main() -> None:
        watch, loop = Watch(100), asyncio.get_running_loop()
        come = loop.create_future()
        loop.call_soon(come.set_result, None)
        await watch.over(come, "idle", 0.02)
        slow = loop.create_future()
        loop.call_later(0.06, slow.set_result, None)
        await slow
        again = loop.create_future()
        loop.call_soon(again.set_result, None)
        await watch.over(again, "idle", 0.02)
        watch.close()

    asyncio.run(main())
