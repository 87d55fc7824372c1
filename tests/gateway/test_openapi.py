"""The document of the API says what the server does, and the server does what it says."""

import asyncio
import re
import sys
from pathlib import Path
from typing import get_args

import pytest

from tests.gateway.house import DOCUMENT, DOCUMENTED, House, Json, play
from tests.tidy.source import REPO
from turnkeeper import api

PAGE = REPO / "docs" / "reference" / "http.md"


def test_the_document_is_served_and_is_made_of_the_table() -> None:
    async def scene(home: House) -> None:
        told = await home.get("/openapi.json")
        assert told == DOCUMENT
        assert told["openapi"] == "3.1.0"
        described = {(m.upper(), p) for p, methods in told["paths"].items() for m in methods}
        assert described == {(endpoint.method, endpoint.path) for endpoint in DOCUMENTED}

    play(scene)


def code_of(refusal: Json) -> str:
    """Of a problem, or of a refusal in the form of OpenAI's API."""
    return str(refusal.get("error", refusal)["code"])


def test_every_path_of_the_document_leads_somewhere() -> None:
    async def scene(home: House) -> None:
        for endpoint in DOCUMENTED:
            path = endpoint.path.replace("{id}", "nope")
            body: object = {} if endpoint.body is not None else None
            told = await home.ask(endpoint.method, path, body)
            code = code_of(told.json) if told.status >= 400 else ""
            known = endpoint.path in ("/metrics", "/assets/{id}")
            assert known or code not in ("TK-525", "TK-515"), (endpoint.path, told.body)

    play(scene)


def test_every_operation_has_a_name_of_its_own_and_only_known_shapes() -> None:
    operations = [op for methods in DOCUMENT["paths"].values() for op in methods.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names)
    references = set(re.findall(r"#/components/schemas/(\w+)", str(DOCUMENT)))
    assert references <= set(DOCUMENT["components"]["schemas"])


def test_metrics_are_those_that_are_kept() -> None:
    async def with_some(home: House) -> None:
        told = await home.ask("GET", "/metrics")
        assert (told.status, told.body) == (200, b"runs_total 1\n")
        assert told.headers["content-type"].startswith("text/plain; version=0.0.4")

    async def without(home: House) -> None:
        assert (await home.ask("GET", "/metrics")).status == 404

    play(with_some, metrics=lambda: b"runs_total 1\n")
    play(without)


def test_without_a_built_page_the_first_one_says_where_things_are(tmp_path: Path) -> None:
    async def scene(home: House) -> None:
        told = await home.ask("GET", "/?from=somewhere")
        assert told.headers["content-type"] == "text/plain; charset=utf-8"
        for path in re.findall(r"^(/\S+)", told.body.decode(), re.M):
            assert (await home.ask("GET", path)).status in (200, 404 if path == "/metrics" else 426)

    play(scene, page=tmp_path)


def test_every_endpoint_and_every_message_is_on_the_reference_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    missing = [
        f"{endpoint.method} {endpoint.path}"
        for endpoint in DOCUMENTED
        if f"`{endpoint.method} {endpoint.path}`" not in page
    ]
    messages = [*get_args(api.Incoming), *get_args(api.Outgoing)]
    missing += [
        shape.__struct_config__.tag
        for shape in messages
        if f'"type": "{shape.__struct_config__.tag}"' not in page
    ]
    assert missing == []


@pytest.mark.surfaces
@pytest.mark.timeout(500)
def test_nothing_that_can_be_thought_of_is_a_5xx_or_an_answer_that_is_not_documented(
    tmp_path: Path,
) -> None:
    """All checks but one: what is allowed is not always what a schema alone can say."""

    async def scene(home: House) -> None:
        headers = {"Authorization": "Bearer t"}
        await home.ask("POST", "/v1/sessions", {"agent": "demo", "id": "a"}, **headers)
        probe = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()",
            "run", f"{home.server.url}/openapi.json", "--header", "Authorization: Bearer t",
            "--checks", "all", "--exclude-checks", "positive_data_acceptance",
            "--exclude-path-regex", "/events$", "--phases", "coverage,fuzzing,stateful",
            "--max-examples", "15", "--seed", "1", "--request-timeout", "30",
            "--generation-database", "none", "--no-color",
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        try:
            out, _ = await probe.communicate()
        except asyncio.CancelledError:
            probe.kill()
            raise
        assert probe.returncode == 0, out.decode()[-10_000:]
        assert b" passed" in out

    play(scene, within_s=450, tokens={"t": "admin"}, metrics=lambda: b"# none\n")
