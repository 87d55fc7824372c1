"""A server as a process, with a Chromium before it. It judges nothing; every wait has a bound."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.cli.house import SERVING, wait_said
from tests.client.proxy import Proxy
from tests.helpers.ports import free_port
from tests.helpers.terminal import COMMAND, TIMEOUT_S
from turnkeeper.gateway.page import BUILT

SOON_MS = 30_000
expect.set_options(timeout=SOON_MS)

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str:
    """The browser that is installed here. Without one the tests fail, and say what to do."""
    found = next((path for name in PROGRAMS if (path := which(name)) is not None), None)
    assert found is not None, "there is no Chromium; run: sh scripts/debian-tools chromium:chromium"
    assert (BUILT / "index.html").is_file(), "the page is not built; run: make page"
    return found


@contextmanager
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        here = playwright.chromium.launch(executable_path=chromium(), args=flags)
        try:
            yield here
        finally:
            here.close()


class Network:
    """What is between a browser and a server, to be broken: a proxy on a thread of its own."""

    def __init__(self, target: int) -> None:
        self._proxy = Proxy(target)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def url(self) -> str:
        return self._proxy.url

    @property
    def opened(self) -> int:
        """How many connections have come this way."""
        return self._proxy.opened

    def __enter__(self) -> Network:
        self._thread.start()
        self._do(self._proxy.listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._proxy.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def reset(self) -> None:
        """Every connection is torn; new ones can be made."""
        self._call(self._proxy.reset)

    def fall_silent(self) -> None:
        """Every connection stays open, and nothing moves: the other side is gone without a word."""
        self._call(self._proxy.stall)

    def come_back(self) -> None:
        """New connections work again; the other side knows nothing of the old ones."""

        def forget() -> None:
            self._proxy.stalled = False
            self._proxy.reset()

        self._call(forget)

    def _call(self, what: Callable[[], None]) -> None:
        async def act() -> None:
            what()

        self._do(act())

    def _do(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(10)


@dataclass
class House:
    """A server on a port of its own, which it has again after it was ended."""

    data: Path
    config: Path | None = None
    """Without one it is the demo."""
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        return (self.data / "token").read_text().strip()

    @property
    def address(self) -> str:
        """Where the page is, with the token."""
        return f"{self.url}/#token={self.token}"

    def ask(self, path: str, body: object = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers)
        with urllib.request.urlopen(request, timeout=60) as told:
            return json.loads(told.read())

    def calm(self) -> None:
        """Whatever still runs is stopped, and over."""
        for run in self.ask("/v1/runs?state=unfinished&limit=500")["items"]:
            self.ask(f"/v1/runs/{run['id']}/stop", {})
        wait_while("something runs", lambda: self.ask("/v1/runs?state=unfinished")["items"])

    def start(self) -> None:
        log = self.data.parent / "log"
        what = ["demo"] if self.config is None else ["serve", "--config", str(self.config)]
        with log.open("ab") as err:
            self.process = subprocess.Popen(
                [COMMAND, *what, "--port", str(self.port), "--data", str(self.data)],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=err,
                env={**os.environ, "BROWSER": "none"},
            )  # fmt: skip
        wait_said(self.process, SERVING.pattern + r"\s")

    def kill(self) -> None:
        """As if the machine had taken it away."""
        assert self.process is not None
        self.process.kill()
        self._over()

    def end(self) -> None:
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._over()

    def _over(self) -> None:
        assert self.process is not None
        self.process.wait(TIMEOUT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process = None


@dataclass
class Person:
    """Somebody with a browser before that server. Whatever the page complains of is kept."""

    house: House
    context: BrowserContext
    page: Page
    complaints: list[str] = field(default_factory=list)
    through: Network | None = None
    """What is between them and the server, if it is not the machine's own network."""

    @property
    def url(self) -> str:
        return self.house.url if self.through is None else self.through.url

    def listen(self) -> Person:
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda line: self._hear(line.type, line.text))
        return self

    def _hear(self, kind: str, text: str) -> None:
        # A server that is away is not a fault of the page, and browsers say so by themselves.
        is_away = re.search(r"ERR_|WebSocket connection|Failed to load resource", text)
        if kind == "error" and not is_away:
            self.complaints.append(text)

    def come(self) -> Person:
        self.page.goto(f"{self.url}/#token={self.house.token}")
        expect(self.page.locator("nav")).to_be_visible()
        return self

    def begin(self, agent: str, text: str = "") -> str:
        """A new session, with its first message; its id."""
        page = self.page
        self.go("new")
        page.locator(f'input[name="agent"][value="{agent}"]').check()
        page.get_by_label("First message").fill(text)
        page.get_by_role("button", name="Start").click()
        expect(page.locator("#say")).to_be_visible()
        return page.url.partition("#/s/")[2]

    def say(self, text: str) -> None:
        self.page.locator("#say").fill(text)
        self.page.locator("#say").press("Enter")

    def go(self, where: str) -> None:
        """To a view, by its address."""
        self.page.goto(f"{self.url}/#/{where}")

    def another(self) -> Person:
        """A second tab of the same browser."""
        page = self.context.new_page()
        return Person(self.house, self.context, page, self.complaints, self.through).listen()

    def ask(self, path: str, body: object = None) -> Any:
        """Over HTTP, beside the page, as a program would."""
        return self.house.ask(path, body)

    def play(self, session: str, text: str, limits: object = None, agent: str = "demo") -> str:
        """A message to a session that is made for it; the run."""
        self.ask("/v1/sessions", {"agent": agent, "id": session})
        return self.send(session, text, limits=limits or {})

    def send(self, session: str, text: str, **more: object) -> str:
        """A message, beside the page; the run."""
        sent = self.ask(f"/v1/sessions/{session}/messages", {"text": text, **more})
        return str(sent["run_id"])

    def ended(self, run: str) -> None:
        """Until that run is over."""
        self.ask(f"/v1/runs/{run}/wait?timeout_s=30")


def wait_while(what: str, is_so: Callable[[], object]) -> None:
    """Wait until a fact no longer holds."""
    until = time.monotonic() + SOON_MS / 1000
    while is_so():
        assert time.monotonic() < until, f"still: {what}"
        time.sleep(0.02)
