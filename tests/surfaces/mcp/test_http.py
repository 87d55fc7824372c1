"""MCP over streamable HTTP, read by the `mcp` package's own client."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from tests.gateway.house import Answer, House, play, read_head, until
from tests.surfaces.mcp.reading import MODES, call, client, read

TOOLS = {
    "start_run", "wait_run", "get_run", "list_runs", "steer_run", "stop_run", "list_agents",
}  # fmt: skip
ACCEPT = "application/json, text/event-stream"
VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")


def url(home: House) -> str:
    return f"http://127.0.0.1:{home.port}"


# With its own client ---------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_run_is_started_waited_for_and_listed(mode: str) -> None:
    async def scene(home: House) -> None:
        async with client(url(home), mode=mode) as mcp:
            tools = (await mcp.list_tools()).tools
            assert {tool.name for tool in tools} == TOOLS
            started = await call(mcp, "start_run", agent="demo", text="hello")
            assert started["outcome"] is None
            told = await call(mcp, "wait_run", run=started["run"], timeout_s=20)
            assert (told["state"], told["outcome"]["kind"]) == ("ended", "completed")
            assert told["answer"].startswith("Hello!")
            assert (await call(mcp, "get_run", run=started["run"])) == told
            listed = await call(mcp, "list_runs", state="ended")
            assert [one["run"] for one in listed["runs"]] == [started["run"]]
            assert await call(mcp, "list_agents") == {"agents": [{"name": "demo"}]}

    play(scene)


@pytest.mark.parametrize("mode", MODES)
def test_a_wait_that_is_over_says_still_running_and_the_run_goes_on(mode: str) -> None:
    async def scene(home: House) -> None:
        async with client(url(home), mode=mode) as mcp:
            run = (await call(mcp, "start_run", agent="demo", text="stall"))["run"]
            result = await mcp.call_tool("wait_run", {"run": run, "timeout_s": 0.2})
            told: Any = result.structured_content
            assert (told["state"], told["outcome"], result.is_error) == ("running", None, False)
            assert "still running" in result.content[0].text  # type: ignore[union-attr]
            stopped = await call(mcp, "stop_run", run=run)
            assert stopped["changed"]
            told = await call(mcp, "wait_run", run=run, timeout_s=20)
            assert (told["outcome"]["kind"], told["outcome"]["reason"]) == ("cancelled", "stopped")
            assert not (await call(mcp, "stop_run", run=run))["changed"]

    play(scene)


@pytest.mark.parametrize(
    ("text", "words"),
    [("hello", ("completed", "end_turn")), ("fail", ("failed", "agent_error")),
     ("exit", ("failed", "agent_exited"))],
)  # fmt: skip
def test_an_ending_is_told_in_the_words_of_the_table_and_is_no_error(
    text: str, words: tuple[str, str]
) -> None:
    async def scene(home: House) -> None:
        for mode in MODES:
            assert await read(url(home), "", "demo", text, mode) == words

    play(scene)


def test_a_refusal_is_an_error_that_says_what_to_do() -> None:
    async def scene(home: House) -> None:
        async with client(url(home)) as mcp:
            for tool, arguments, word in (
                ("get_run", {"run": "r_nope"}, "TK-503"),
                ("start_run", {"agent": "nobody", "text": "x"}, "TK-511"),
                ("start_run", {"text": "x"}, "TK-501"),
                ("start_run", {"text": "x", "session": "s_nope"}, "TK-502"),
                ("wait_run", {"run": "r_nope", "timeout_s": 1e9}, "timeout_s"),
                ("stop_run", {"run": "r_nope"}, "TK-503"),
                ("steer_run", {"run": "r_nope", "text": "x"}, "TK-503"),
            ):
                result = await mcp.call_tool(tool, arguments)
                assert result.is_error, tool
                assert word in result.content[0].text  # type: ignore[union-attr]
            with pytest.raises(MCPError):
                await mcp.call_tool("answer_approval", {"id": "a_1", "decision": "allow"})

    play(scene)


def test_a_run_that_is_over_cannot_be_steered_and_nothing_is_queued_instead() -> None:
    async def scene(home: House) -> None:
        async with client(url(home)) as mcp:
            run = (await call(mcp, "start_run", agent="demo", text="hello", wait_s=20))["run"]
            result = await mcp.call_tool("steer_run", {"run": run, "text": "more"})
            assert result.is_error
            assert "TK-577" in result.content[0].text  # type: ignore[union-attr]
            assert len((await home.get("/v1/runs"))["items"]) == 1

    play(scene)


def test_the_events_of_a_session_can_be_read() -> None:
    async def scene(home: House) -> None:
        async with client(url(home)) as mcp:
            told = await call(mcp, "start_run", agent="demo", text="hello", wait_s=20)
            found = await mcp.read_resource(f"turnkeeper://sessions/{told['session']}/events")
            lines = found.contents[0].text.splitlines()  # type: ignore[union-attr]
            kinds = [json.loads(line)["kind"] for line in lines]
            assert kinds[0] == "session.created"
            assert "run.ended" in kinds
            with pytest.raises(MCPError):
                await mcp.read_resource("turnkeeper://sessions/s_nope/events")

    play(scene)


def test_who_may_only_read_starts_and_stops_nothing() -> None:
    async def scene(home: House) -> None:
        run = (await home.ask("POST", "/v1/sessions", {"agent": "demo", "id": "s"},
                              authorization="Bearer boss"))  # fmt: skip
        assert run.status == 201
        async with client(url(home), "looker") as mcp:
            result = await mcp.call_tool("start_run", {"session": "s", "text": "hello"})
            assert result.is_error
            assert "TK-522" in result.content[0].text  # type: ignore[union-attr]
            assert await call(mcp, "list_runs") == {"runs": []}

    play(scene, tokens={"boss": "admin", "looker": "read"})


def test_the_same_key_starts_one_run_in_one_session() -> None:
    async def scene(home: House) -> None:
        async with client(url(home)) as mcp:
            asked = {"agent": "demo", "text": "hello", "key": "k"}
            first = await call(mcp, "start_run", **asked)
            second = await call(mcp, "start_run", **asked)
            assert (first["run"], first["session"]) == (second["run"], second["session"])

    play(scene)


# Byte by byte ----------------------------------------------------------------------------------


def asked(method: str, params: object = None, id: object = None) -> dict[str, object]:
    """A message; without an id it is a notification."""
    body: dict[str, object] = {"jsonrpc": "2.0", "method": method, "params": params or {}}
    return body if id is None else {**body, "id": id}


async def post(
    home: House, method: str, params: object = None, id: object = 1, **more: str
) -> Answer:
    body = asked(method, params, id)
    return await home.ask("POST", "/mcp", body, **{"accept": ACCEPT, **more})


async def opened(home: House, version: str = VERSIONS[-1], **more: str) -> dict[str, str]:
    """The headers of a session that is open."""
    hello = {"protocolVersion": version, "capabilities": {},
             "clientInfo": {"name": "t", "version": "1"}}  # fmt: skip
    told = await post(home, "initialize", hello, **more)
    assert told.status == 200
    assert told.json["result"]["protocolVersion"] == version
    return {"mcp-session-id": told.headers["mcp-session-id"], "mcp-protocol-version": version,
            **more}  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
def test_every_older_version_is_agreed_on(version: str) -> None:
    async def scene(home: House) -> None:
        session = await opened(home, version)
        assert (await post(home, "notifications/initialized", id=None, **session)).status == 202
        assert (await post(home, "ping", **session)).json["result"] == {}
        (tool, *_) = (await post(home, "tools/list", **session)).json["result"]["tools"]
        assert ("outputSchema" in tool) == (version >= "2025-06-18")
        asked = {"name": "list_runs", "arguments": {}}
        result = (await post(home, "tools/call", asked, **session)).json["result"]
        assert ("structuredContent" in result) == (version >= "2025-06-18")

    play(scene)


def test_an_unknown_version_is_answered_with_the_newest_that_is_agreed_on() -> None:
    async def scene(home: House) -> None:
        told = await post(home, "initialize", {"protocolVersion": "1999-01-01", "capabilities": {}})
        assert told.json["result"]["protocolVersion"] == VERSIONS[-1]

    play(scene)


def test_several_messages_in_one_are_answered_in_one_where_the_version_has_that() -> None:
    async def scene(home: House) -> None:
        session = await opened(home, "2025-03-26")
        await home.session("a")
        run = await home.send("a", "stall")
        wait = {"name": "wait_run", "arguments": {"run": run, "timeout_s": 60}}
        stop = {"name": "stop_run", "arguments": {"run": run}}
        batch = [
            asked("ping", id=1), asked("initialize", id="two"), 5,
            asked("notifications/initialized"),
            asked("tools/call", wait, id=3), asked("tools/call", stop, id=4),
        ]  # fmt: skip
        told = await home.ask("POST", "/mcp", batch, accept=ACCEPT, **session)
        assert told.status == 200
        found = {one["id"]: one for one in told.json}
        assert set(found) == {1, "two", None, 3, 4}
        assert found[1]["result"] == {}
        assert found["two"]["error"]["code"] == found[None]["error"]["code"] == -32600
        assert "ended: cancelled (stopped)" in found[3]["result"]["content"][0]["text"]
        told = await home.ask("POST", "/mcp", batch[3:4], accept=ACCEPT, **session)
        assert (told.status, told.body) == (202, b"")
        for wrong in ([], [asked("ping", id=1)] * 101):
            told = await home.ask("POST", "/mcp", wrong, accept=ACCEPT, **session)
            assert (told.status, told.json["error"]["code"]) == (400, -32600)

    play(scene)


@pytest.mark.parametrize("version", [one for one in VERSIONS if one != "2025-03-26"])
def test_other_versions_have_one_message_at_a_time(version: str) -> None:
    async def scene(home: House) -> None:
        session = await opened(home, version)
        batch = [asked("ping", id=1)]
        told = await home.ask("POST", "/mcp", batch, accept=ACCEPT, **session)
        assert (told.status, told.json["error"]["code"]) == (400, -32600)
        modern = {"mcp-protocol-version": "2026-07-28"}
        told = await home.ask("POST", "/mcp", batch, accept=ACCEPT, **modern)
        assert (told.status, told.json["error"]["code"]) == (400, -32600)

    play(scene)


def test_a_session_is_needed_and_ends_when_it_is_deleted() -> None:
    async def scene(home: House) -> None:
        assert (await post(home, "ping")).status == 400
        assert (await post(home, "ping", mcp_session_id="x.y.z")).status == 404
        session = await opened(home)
        assert (await post(home, "ping", **session)).status == 200
        assert (await home.ask("DELETE", "/mcp", **session)).status == 204
        assert (await post(home, "ping", **session)).status == 404
        assert (await home.ask("DELETE", "/mcp", **session)).status == 404

    play(scene)


def test_a_session_is_good_for_its_own_token_alone() -> None:
    async def scene(home: House) -> None:
        session = await opened(home, authorization="Bearer boss")
        assert (await post(home, "ping", **session)).status == 200
        session["authorization"] = "Bearer looker"
        assert (await post(home, "ping", **session)).status == 404

    play(scene, tokens={"boss": "admin", "looker": "read"})


def test_what_is_no_request_is_refused_by_the_protocols_own_codes() -> None:
    async def scene(home: House) -> None:
        session = await opened(home)
        told = await home.ask("POST", "/mcp", b"{", accept=ACCEPT, **session)
        assert (told.status, told.json["error"]["code"]) == (400, -32700)
        told = await home.ask("POST", "/mcp", [], accept=ACCEPT, **session)
        assert (told.status, told.json["error"]["code"]) == (400, -32600)
        told = await post(home, "tools/call", {"name": "nope"}, **session)
        assert told.json["error"]["code"] == -32602
        told = await post(home, "nope/nope", **session)
        assert told.json["error"]["code"] == -32601
        told = await post(home, "ping", **{**session, "accept": "text/html"})
        assert told.status == 406
        told = await post(home, "ping", **{**session, "mcp-protocol-version": "1999-01-01"})
        assert (told.status, told.json["error"]["code"]) == (400, -32602)

    play(scene)


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, 0),
        ({"mcp-method": "tools/list"}, -32020),
        ({"mcp-name": "get_run"}, -32020),
        ({"mcp-protocol-version": "2025-11-25"}, -32020),
    ],
)
def test_a_request_that_says_one_thing_twice_has_to_say_the_same(
    headers: dict[str, str], code: int
) -> None:
    async def scene(home: House) -> None:
        prefix = "io.modelcontextprotocol/"
        meta = {f"{prefix}protocolVersion": "2026-07-28", f"{prefix}clientCapabilities": {}}
        asked = {"name": "list_runs", "arguments": {}, "_meta": meta}
        said = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call",
                "mcp-name": "list_runs", **headers}  # fmt: skip
        told = await post(home, "tools/call", asked, **said)
        if code:
            assert (told.status, told.json["error"]["code"]) == (400, code)
        else:
            assert told.json["result"]["resultType"] == "complete"

    play(scene)


def test_a_page_of_another_origin_is_refused_at_the_door() -> None:
    async def scene(home: House) -> None:
        told = await post(home, "ping", origin="https://evil.example")
        assert told.status == 403
        told = await post(home, "ping", host="evil.example")
        assert told.status == 421

    play(scene)


# Streams ---------------------------------------------------------------------------------------


async def stream(home: House, method: str, body: object, **headers: str) -> tuple[Any, Any]:
    """An open stream, after its head."""
    data = b"" if body is None else json.dumps(body).encode()
    lines = {"host": f"127.0.0.1:{home.port}", "accept": ACCEPT, "content-length": str(len(data)),
             "content-type": "application/json", **headers}  # fmt: skip
    head = "\r\n".join(
        [f"{method} /mcp HTTP/1.1", *(f"{k}: {v}" for k, v in lines.items()), "", ""]
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", home.port)
    writer.write(head.encode() + data)
    status, told = await read_head(reader)
    assert (status, told["content-type"].partition(";")[0]) == (200, "text/event-stream")
    return reader, writer


async def next_event(reader: asyncio.StreamReader) -> dict[str, str]:
    """The next event of a chunked stream."""
    found: dict[str, str] = {}
    async with asyncio.timeout(20):
        while True:
            line = (await reader.readline()).decode().strip()
            name, colon, value = line.partition(": ")
            if name in ("id", "data", "event", "retry") and (colon or line.endswith(":")):
                found[name] = value
            elif line == "data:":
                found["data"] = ""
            elif not line and "id" in found and ("data" in found or "retry" in found):
                return found


def waiting(run: str, timeout_s: float = 20.0, id: int = 7) -> dict[str, Any]:
    arguments = {"run": run, "timeout_s": timeout_s}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": {"name": "wait_run", "arguments": arguments}}  # fmt: skip


def test_a_stream_that_was_lost_is_taken_up_after_its_last_event() -> None:
    async def scene(home: House) -> None:
        session = await opened(home)
        run = await home.send(await home.session("s"), "stall")
        reader, writer = await stream(home, "POST", waiting(run), **session)
        first = await next_event(reader)
        assert first["id"]
        writer.transport.abort()
        await home.ask("POST", f"/v1/runs/{run}/stop")
        again, other = await stream(home, "GET", None, last_event_id=first["id"], **{
            **session, "last-event-id": first["id"]})  # fmt: skip
        told = json.loads((await next_event(again))["data"])
        assert told["id"] == 7
        assert told["result"]["structuredContent"]["outcome"]["kind"] == "cancelled"
        other.close()

    play(scene)


def test_a_stream_of_another_session_cannot_be_taken_up() -> None:
    async def scene(home: House) -> None:
        session, other = await opened(home), await opened(home)
        run = await home.send(await home.session("s"), "stall")
        reader, writer = await stream(home, "POST", waiting(run), **session)
        first = await next_event(reader)
        told = await home.ask("GET", "/mcp", accept=ACCEPT, last_event_id=first["id"], **other)
        assert told.status == 404
        writer.close()

    play(scene)


def test_whoever_leaves_or_cancels_a_wait_does_not_end_the_run() -> None:
    async def scene(home: House) -> None:
        session = await opened(home)
        run = await home.send(await home.session("s"), "stall")
        reader, writer = await stream(home, "POST", waiting(run), **session)
        await next_event(reader)
        told = await post(home, "notifications/cancelled", {"requestId": 7}, id=None, **session)
        assert told.status == 202
        async with asyncio.timeout(20):
            assert b"result" not in await reader.readuntil(b"\r\n0\r\n\r\n")
        writer.close()
        reader, writer = await stream(home, "POST", waiting(run, id=8), **session)
        await next_event(reader)
        writer.transport.abort()
        assert (await home.get(f"/v1/runs/{run}"))["state"] == "running"
        await home.ask("DELETE", "/mcp", **session)
        assert (await home.get(f"/v1/runs/{run}"))["state"] == "running"

    play(scene)


def test_whoever_wants_it_is_told_how_the_waiting_goes() -> None:
    async def scene(home: House) -> None:
        heard: list[float] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            heard.append(progress)

        async with client(url(home)) as mcp:
            run = (await call(mcp, "start_run", agent="demo", text="stall"))["run"]
            asked = {"run": run, "timeout_s": 20}
            going = asyncio.ensure_future(
                mcp.call_tool("wait_run", asked, progress_callback=on_progress)
            )
            await until(lambda: len(heard) >= 2)
            await home.ask("POST", f"/v1/runs/{run}/stop")
            told: Any = (await going).structured_content
            assert told["outcome"]["kind"] == "cancelled"

    play(scene, keep_alive_s=0.05)


def test_a_server_that_goes_does_not_wait_for_those_who_wait() -> None:
    async def scene(home: House) -> None:
        session = await opened(home)
        run = await home.send(await home.session("s"), "stall")
        reader, writer = await stream(home, "POST", waiting(run, 300), **session)
        idle, other = await stream(home, "GET", None, **session)
        await next_event(reader)
        async with asyncio.timeout(15):
            await home.server.stop(2.0)
            await reader.read()
            await idle.read()
        writer.close()
        other.close()

    play(scene)
