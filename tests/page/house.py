"""A server as a process, with a Chromium before it. It judges nothing; every wait has a bound."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which

from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.cli.house import SERVING, wait_said
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
    def address(self) -> str:
        """Where the page is, with the token."""
        return f"{self.url}/#token={(self.data / 'token').read_text().strip()}"

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
        self.page.goto(self.house.address)
        expect(self.page.locator("nav")).to_be_visible()
        return self

    def begin(self, agent: str, text: str = "") -> str:
        """A new session, with its first message; its id."""
        page = self.page
        page.goto(f"{self.house.url}/#/new")
        page.locator(f'input[name="agent"][value="{agent}"]').check()
        page.get_by_label("First message").fill(text)
        page.get_by_role("button", name="Start").click()
        expect(page.locator("#say")).to_be_visible()
        return page.url.partition("#/s/")[2]

    def say(self, text: str) -> None:
        self.page.locator("#say").fill(text)
        self.page.locator("#say").press("Enter")

    def another(self) -> Person:
        """A second tab of the same browser."""
        return Person(self.house, self.context, self.context.new_page(), self.complaints).listen()


def wait_while(what: str, is_so: object) -> None:
    """Wait until a fact no longer holds."""
    until = time.monotonic() + SOON_MS / 1000
    assert callable(is_so)
    while is_so():
        assert time.monotonic() < until, f"still: {what}"
        time.sleep(0.02)
