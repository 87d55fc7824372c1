"""The MCP conformance suite against a live server: what passes passes, and what fails is known."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.agents.install import node, read_versions
from tests.gateway.house import House, play

EXPECTED = Path(__file__).with_name("conformance.yaml")
SUITE_S = 200.0

pytestmark = [pytest.mark.agents, pytest.mark.timeout(300)]


def test_the_suite_finds_what_is_expected_and_nothing_else(tmp_path: Path) -> None:
    folder = read_versions().packages["mcp-conformance"].folder
    program = (
        folder / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    )

    async def scene(home: House) -> None:
        url = f"http://127.0.0.1:{home.port}/mcp"
        suite = await asyncio.create_subprocess_exec(
            node(), program, "server", "--url", url, "--suite", "all",
            "--expected-failures", EXPECTED, cwd=tmp_path,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        try:
            said, _ = await asyncio.wait_for(suite.communicate(), SUITE_S)
        finally:
            if suite.returncode is None:
                suite.kill()
                await suite.wait()
        assert suite.returncode == 0, said.decode()[-4000:]
        for passed in ("server-initialize", "ping", "tools-list", "dns-rebinding-protection"):
            assert f"✓ {passed}:" in said.decode()

    play(scene, within_s=SUITE_S + 20)
