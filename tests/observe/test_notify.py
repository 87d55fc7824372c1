"""systemd is told on real sockets; a loop that is stuck gives no sign of life."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from pathlib import Path

import pytest

from turnkeeper.observe.notify import Notifier

WAIT_S = 30.0


def listener(address: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sock.bind(address)
    sock.settimeout(WAIT_S)
    return sock


def heard(sock: socket.socket) -> list[str]:
    return sock.recv(4096).decode().split("\n")


def test_a_socket_with_a_path_is_told(tmp_path: Path) -> None:
    with listener(str(tmp_path / "n")) as sock:
        notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "n")})
        notifier.ready("listening on 127.0.0.1:7433")
        assert heard(sock) == ["READY=1", "STATUS=listening on 127.0.0.1:7433"]
        notifier.status("3 runs\nMAINPID=1")
        assert heard(sock) == ["STATUS=3 runs MAINPID=1"]
        notifier.extend(2.5)
        assert heard(sock) == ["EXTEND_TIMEOUT_USEC=2500000"]
        notifier.stopping()
        assert heard(sock) == ["STOPPING=1"]
        notifier.close()


def test_an_abstract_socket_is_told() -> None:
    name = f"turnkeeper-{secrets.token_hex(8)}"
    with listener(f"\0{name}") as sock:
        notifier = Notifier({"NOTIFY_SOCKET": f"@{name}"})
        notifier.ready()
        assert heard(sock) == ["READY=1"]
        notifier.close()


@pytest.mark.parametrize("named", ["", "vsock:2:9999", "@", "relative"])
def test_without_a_socket_that_can_be_reached_nothing_is_said(named: str) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": named, "WATCHDOG_USEC": "1000000"})
    assert not notifier.is_wanted
    assert notifier.watchdog_s == 0
    notifier.ready("nobody hears it")
    notifier.close()


def test_a_socket_that_is_gone_or_full_neither_raises_nor_blocks(tmp_path: Path) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    notifier.ready()
    full = Notifier({"NOTIFY_SOCKET": str(tmp_path / "full")})
    with listener(str(tmp_path / "full")):
        began = time.monotonic()
        for _ in range(2000):
            full.status("more")
        assert time.monotonic() - began < WAIT_S
    notifier.close()
    full.close()


def test_a_watchdog_of_another_process_or_without_sense_is_none(tmp_path: Path) -> None:
    here = {"NOTIFY_SOCKET": str(tmp_path / "n")}
    own = str(os.getpid())
    assert Notifier({**here, "WATCHDOG_USEC": "500000", "WATCHDOG_PID": own}).watchdog_s == 0.5
    assert Notifier({**here, "WATCHDOG_USEC": "500000", "WATCHDOG_PID": "1"}).watchdog_s == 0
    assert Notifier({**here, "WATCHDOG_USEC": "soon"}).watchdog_s == 0
    assert Notifier(here).watchdog_s == 0


def test_signs_of_life_come_twice_in_each_interval_with_the_status(tmp_path: Path) -> None:
    async def main() -> None:
        with listener(str(tmp_path / "n")) as sock:
            sock.setblocking(False)
            named = {"NOTIFY_SOCKET": str(tmp_path / "n"), "WATCHDOG_USEC": "100000"}
            notifier, loop = Notifier(named), asyncio.get_running_loop()
            began = loop.time()
            notifier.start(lambda: "2 runs")
            async with asyncio.timeout(WAIT_S):
                for _ in range(4):
                    said = (await loop.sock_recv(sock, 4096)).decode().split("\n")
                    assert said == ["WATCHDOG=1", "STATUS=2 runs"]
            assert loop.time() - began >= 3 * 0.05 - 0.01
            notifier.close()

    asyncio.run(main())


def test_a_loop_that_is_stuck_gives_no_sign_of_life(tmp_path: Path) -> None:
    async def main() -> None:
        with listener(str(tmp_path / "n")) as sock:
            sock.setblocking(False)
            named = {"NOTIFY_SOCKET": str(tmp_path / "n"), "WATCHDOG_USEC": "40000"}
            notifier, loop = Notifier(named), asyncio.get_running_loop()
            notifier.start()
            await loop.sock_recv(sock, 4096)
            until = time.monotonic() + 0.3
            while time.monotonic() < until:
                pass
            with pytest.raises(BlockingIOError):
                sock.recv(4096)
            async with asyncio.timeout(WAIT_S):
                assert await loop.sock_recv(sock, 4096) == b"WATCHDOG=1"
            notifier.close()

    asyncio.run(main())


def test_after_the_stop_there_are_no_more_signs(tmp_path: Path) -> None:
    async def main() -> None:
        with listener(str(tmp_path / "n")) as sock:
            sock.setblocking(False)
            named = {"NOTIFY_SOCKET": str(tmp_path / "n"), "WATCHDOG_USEC": "20000"}
            notifier, loop = Notifier(named), asyncio.get_running_loop()
            notifier.start()
            await loop.sock_recv(sock, 4096)
            notifier.stop()
            later = loop.create_future()
            loop.call_later(0.08, later.set_result, None)
            await later
            with pytest.raises(BlockingIOError):
                sock.recv(4096)
            notifier.close()

    asyncio.run(main())
