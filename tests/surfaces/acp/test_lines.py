"""The lines of the protocol: what is wrong is answered and harms nothing; what is told is whole."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.gateway.house import House, house, until
from tests.surfaces.acp.pipe import HELLO, Pipe, pipe, prompt


def play(scene: Callable[[House, Pipe], Coroutine[Any, Any, None]], *arguments: str) -> None:
    async def act() -> None:
        async with asyncio.timeout(100), house() as home:
            given = ("--server", home.server.url, "--agent", "demo", *arguments)
            async with pipe(*given) as one:
                await scene(home, one)

    asyncio.run(act())


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{not json}\n", -32700),
        (b'{"jsonrpc": "2.0", "id": 7, "method": "session/new", \n', -32700),
        (b"\xff\xfe\n", -32700),
        (b"[" * 100_000 + b"\n", -32700),
        (b'[{"jsonrpc": "2.0", "id": 7, "method": "initialize"}]\n', -32600),
        (b'"hello"\n', -32600),
        (b'{"jsonrpc": "2.0"}\n', -32600),
        (b'{"jsonrpc": "2.0", "id": {}, "method": "initialize"}\n', -32600),
        (b"x" * (16 * 1024 * 1024 + 2) + b"\n", -32600),
    ],
    ids=["no JSON", "half", "no UTF-8", "deep", "batch", "text", "nothing", "bad id", "oversize"],
)
def test_a_line_that_is_none_is_answered_and_the_next_one_is_heard(line: bytes, code: int) -> None:
    async def scene(home: House, one: Pipe) -> None:
        await one.write(line)
        told = await one.next()
        assert (told["id"], told["error"]["code"]) == (None, code)
        assert told["error"]["data"]["message"]
        assert "result" in await one.ask(1, "initialize", protocolVersion=1)
        assert await one.close() == 0

    play(scene)


@pytest.mark.parametrize("method", ["session/fork", "session/delete", "logout", "x", "_own/x"])
def test_a_method_that_is_not_served_is_named(method: str) -> None:
    async def scene(home: House, one: Pipe) -> None:
        await one.session()
        told = await one.ask("a", method)
        assert told["error"]["code"] == -32601
        assert told["error"]["data"] == {"method": method}

    play(scene)


@pytest.mark.parametrize(
    ("method", "params", "field"),
    [
        ("session/new", {}, "cwd"),
        ("session/new", {"cwd": 5}, "params.cwd"),
        ("session/new", {"cwd": "/tmp", "additionalDirectories": ["/x"]}, "additionalDirectories"),
        ("session/new", [], "params"),
        ("session/new", {"cwd": "/tmp", "_meta": {"turnkeeper": {"agent": 5}}}, "_meta"),
        ("session/prompt", {"sessionId": "s"}, "prompt"),
        ("session/prompt", {"sessionId": 1, "prompt": []}, "params.sessionId"),
        ("session/list", {"cursor": 1}, "params.cursor"),
        ("session/load", {"sessionId": "s", "cwd": "tmp"}, "cwd"),
    ],
)
def test_wrong_parameters_are_refused_by_their_name(method: str, params: Any, field: str) -> None:
    async def scene(home: House, one: Pipe) -> None:
        await one.session()
        await one.say({"jsonrpc": "2.0", "id": 9, "method": method, "params": params})
        error = (await one.answer(9))["error"]
        assert error["code"] == -32602
        assert field in error["message"]

    play(scene)


def test_everything_waits_for_the_greeting() -> None:
    async def scene(home: House, one: Pipe) -> None:
        assert (await one.ask(1, "session/new", cwd="/tmp"))["error"]["code"] == -32600
        await one.session()

    play(scene)


def test_notices_and_answers_that_nobody_expects_are_passed_over() -> None:
    async def scene(home: House, one: Pipe) -> None:
        session = await one.session()
        heard = len(one.heard)
        await one.say(
            {"jsonrpc": "2.0", "method": "who/knows", "params": {}},
            {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "nope"}},
            {"jsonrpc": "2.0", "method": "session/cancel", "params": 5},
            {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 99}},
            {"jsonrpc": "2.0", "id": 99, "result": {}},
            {"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "?"}},
            prompt("p", session, "refuse"),
        )
        assert (await one.answer("p"))["result"]["stopReason"] == "refusal"
        told = one.heard[heard:-1]
        assert {each.get("method") for each in told} == {"session/update"}

    play(scene)


def test_the_id_of_a_prompt_is_not_used_twice_at_the_same_time() -> None:
    async def scene(home: House, one: Pipe) -> None:
        session = await one.session()
        await one.say(prompt(5, session, "stall after 1"), prompt(5, session, "hello"))
        assert (await one.answer(5))["error"]["code"] == -32600
        cancel = {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}}
        await one.say(cancel)
        assert (await one.answer(5))["result"]["stopReason"] == "cancelled"

    play(scene)


def test_lines_are_whole_though_many_prompts_write_at_the_same_time() -> None:
    async def scene(home: House, one: Pipe) -> None:
        await one.say(HELLO)
        await one.answer(1)
        sessions = []
        for number in range(8):
            made = await one.ask(f"n{number}", "session/new", cwd="/tmp")
            sessions.append(made["result"]["sessionId"])
        for number, session in enumerate(sessions):
            await one.say(prompt(number + 100, session, "long 500"))
        waiting = {number + 100 for number in range(8)}
        while waiting:
            waiting.discard((await one.next()).get("id"))
        for session in sessions:
            assert _text(one, session).count("word ") == 500

    play(scene)


def _text(one: Pipe, session: str) -> str:
    updates = [told["params"] for told in one.heard if told.get("method") == "session/update"]
    own = [params["update"] for params in updates if params["sessionId"] == session]
    return "".join(each["content"]["text"] for each in own if "messageId" in each)


def test_an_editor_that_does_not_read_delays_itself_alone() -> None:
    """The run goes on and ends; what it said is all there when the editor reads again."""

    async def scene(home: House, one: Pipe) -> None:
        session = await one.session()
        one.stop_reading()
        await one.say(prompt(5, session, "long 20000"))
        await until(lambda: _has_ended(home, session), 60)
        one.read_on()
        await one.answer(5)
        assert _text(one, session).count("word ") == 20_000

    play(scene)


async def _has_ended(home: House, session: str) -> bool:
    runs = (await home.get(f"/v1/runs?session={session}"))["items"]
    return bool(runs) and all(run["state"] == "ended" for run in runs)


# Leaving -------------------------------------------------------------------------------------


def test_when_the_editor_leaves_its_turns_go_on() -> None:
    async def scene(home: House, one: Pipe) -> None:
        session = await one.session()
        await one.say(prompt(5, session, "tool 2"))
        await one.until_told("tool_call")
        assert await one.close() == 0
        (run,) = (await home.get(f"/v1/runs?session={session}"))["items"]
        assert run["state"] == "running"
        assert (await home.ended(run["id"]))["kind"] == "completed"

    play(scene)


def test_a_prompt_whose_editor_leaves_at_once_is_taken_all_the_same() -> None:
    async def scene(home: House, one: Pipe) -> None:
        session = await one.session()
        await one.say(prompt(5, session, "hello"))
        assert await one.close() == 0
        (run,) = (await home.get(f"/v1/runs?session={session}"))["items"]
        assert (await home.ended(run["id"]))["kind"] == "completed"

    play(scene)


def test_when_the_editor_leaves_its_turns_are_stopped_if_that_was_asked_for() -> None:
    async def scene(home: House, one: Pipe) -> None:
        session = await one.session()
        await home.session("other")
        other = await home.send("other", "tool 2")
        await one.say(prompt(5, session, "stall after 1"))
        await one.until_told("word 1")
        assert await one.close() == 0
        (run,) = (await home.get(f"/v1/runs?session={session}"))["items"]
        assert (await home.ended(run["id"]))["reason"] == "stopped"
        assert (await home.ended(other))["kind"] == "completed"

    play(scene, "--on-close", "stop")


def test_an_editor_that_crashes_leaves_a_program_that_ends() -> None:
    async def scene(home: House, one: Pipe) -> None:
        session = await one.session()
        await one.say(prompt(5, session, "long 100000"))
        assert one.process.stdin is not None
        one.process._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]
        one.process.stdin.close()
        assert await one.ended() == 0

    play(scene)


def test_sigterm_ends_it_and_no_turn() -> None:
    async def scene(home: House, one: Pipe) -> None:
        session = await one.session()
        await one.say(prompt(5, session, "tool 2"))
        await one.until_told("tool_call")
        one.process.terminate()
        assert await one.ended() == 0
        (run,) = (await home.get(f"/v1/runs?session={session}"))["items"]
        assert (await home.ended(run["id"]))["kind"] == "completed"

    play(scene)


def test_sigterm_ends_it_though_its_editor_does_not_read() -> None:
    async def scene(home: House, one: Pipe) -> None:
        session = await one.session()
        one.stop_reading()
        await one.say(prompt(5, session, "long 20000"))
        await until(lambda: _has_ended(home, session), 60)
        one.process.terminate()
        assert await one.ended() == 0

    play(scene)


def test_the_output_has_nothing_but_the_protocol_and_remarks_go_to_the_error_stream() -> None:
    async def scene(home: House, one: Pipe) -> None:
        await one.say(HELLO)
        await one.answer(1)
        server = {"name": "m", "command": "/bin/true", "args": [], "env": []}
        await one.ask(2, "session/new", cwd="/tmp", mcpServers=[server])
        assert one.process.stdin is not None
        one.process.stdin.close()
        out, err = await one.process.communicate()
        assert [json.loads(line) for line in out.splitlines()] == []
        assert b"MCP servers" in err

    play(scene)
