"""What is asked wrongly is refused with A2A's own error, names its field, and does nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.surfaces.a2a.bench import TOKEN, Served, play, serving
from turnkeeper.core.records import RunQuery

SAID = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}


def said(**fields: Any) -> dict[str, Any]:
    return {"message": {**SAID, **fields}}


BAD_PARAMS: list[tuple[str, dict[str, Any], int, str]] = [
    ("SendMessage", {}, -32602, "message"),
    ("SendMessage", {"message": {}}, -32602, "message.messageId"),
    ("SendMessage", {"message": "hello"}, -32602, "message"),
    ("SendMessage", said(messageId=" "), -32602, "message.messageId"),
    ("SendMessage", said(role="ROLE_AGENT"), -32602, "message.role"),
    ("SendMessage", said(parts=[]), -32602, "message.parts"),
    ("SendMessage", said(parts=[{}]), -32602, "message.parts[0]"),
    ("SendMessage", said(parts=[{"text": 5}]), -32602, "message.parts[0].text"),
    ("SendMessage", said(parts=[{"text": "  "}]), -32602, "text"),
    ("SendMessage", said(parts=[{"url": "https://x/y"}]), -32005, "message.parts[0]"),
    ("SendMessage", said(parts=[{"raw": "aGk="}]), -32005, "message.parts[0]"),
    ("SendMessage", said(parts=[{"text": "x", "mediaType": "image/png"}]), -32005,
     "message.parts[0]"),
    ("SendMessage", said(contextId="../.."), -32602, "message.contextId"),
    ("SendMessage", said(taskId="r_nope"), -32001, ""),
    ("SendMessage", {**said(), "tenant": "nobody"}, -32602, "tenant"),
    ("SendMessage", {**said(), "configuration": {"historyLength": -1}}, -32602, "historyLength"),
    ("message/send", {"message": {"messageId": "m", "role": "user", "kind": "message",
                                  "parts": [{"kind": "file", "file": {"uri": "x"}}]}},
     -32005, "message.parts[0]"),
    ("message/send", {"message": {"messageId": "m", "role": "user", "kind": "message",
                                  "parts": [{"kind": "smell", "text": "x"}]}},
     -32602, "message.parts[0].kind"),
    ("GetTask", {}, -32602, "id"),
    ("GetTask", {"id": ""}, -32602, "id"),
    ("GetTask", {"id": "r_nope"}, -32001, ""),
    ("GetTask", {"id": "r_nope", "historyLength": "many"}, -32602, "historyLength"),
    ("CancelTask", {"id": "r_nope"}, -32001, ""),
    ("SubscribeToTask", {"id": "r_nope"}, -32001, ""),
    ("ListTasks", {"pageSize": 0}, -32602, "pageSize"),
    ("ListTasks", {"pageSize": 101}, -32602, "pageSize"),
    ("ListTasks", {"status": "TASK_STATE_RUNNING"}, -32602, "status"),
    ("ListTasks", {"pageToken": "???"}, -32602, "pageToken"),
    ("ListTasks", {"statusTimestampAfter": "soon"}, -32602, "statusTimestampAfter"),
    ("ListTasks", {"historyLength": -1}, -32602, "historyLength"),
    ("CreateTaskPushNotificationConfig", {"taskId": "r_nope"}, -32602, "url"),
    ("CreateTaskPushNotificationConfig", {"url": "https://x/"}, -32602, "taskId"),
    ("CreateTaskPushNotificationConfig", {"taskId": "r_nope", "url": "https://x/"}, -32001, ""),
    ("CreateTaskPushNotificationConfig",
     {"taskId": "r_nope", "url": "https://x/", "token": "a\r\nb: c"}, -32602, "token"),
    ("tasks/pushNotificationConfig/set", {"taskId": "r_nope"}, -32602, "pushNotificationConfig"),
    ("DeleteTaskPushNotificationConfig", {"taskId": "r_nope"}, -32602, "id"),
    ("Dance", {}, -32601, ""),
]  # fmt: skip


def test_bad_parameters_are_refused_with_the_name_of_their_field(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as at:
            for method, params, code, field in BAD_PARAMS:
                error = (await at.rpc(method, params))["error"]
                assert error["code"] == code, (method, params, error)
                named = [
                    one["fieldViolations"][0]["field"]
                    for one in error["data"]
                    if "fieldViolations" in one
                ]
                assert named == ([field] if field else []), (method, params, error)
            assert (await at.system.dispatcher.runs(RunQuery())).items == []

    play(scene)


BAD_BODIES: list[tuple[bytes, int, object]] = [
    (b"", -32700, None),
    (b"{", -32700, None),
    (b"\xff\xfe", -32700, None),
    (b"[]", -32600, None),
    (b"7", -32600, None),
    (b'{"jsonrpc": "1.0", "id": 5, "method": "GetTask"}', -32600, 5),
    (b'{"id": "x", "method": "GetTask"}', -32600, "x"),
    (b'{"jsonrpc": "2.0", "method": "GetTask"}', -32602, None),
    (b'{"jsonrpc": "2.0", "method": "Dance", "id": null}', -32601, None),
    (b'{"jsonrpc": "2.0", "id": {}, "method": "GetTask"}', -32600, None),
    (b'{"jsonrpc": "2.0", "id": 1.5, "method": "GetTask"}', -32600, None),
    (b'{"jsonrpc": "2.0", "id": true, "method": "GetTask"}', -32600, None),
    (b'{"jsonrpc": "2.0", "id": 1}', -32600, 1),
    (b'{"jsonrpc": "2.0", "id": 1, "method": 7}', -32600, 1),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": [1]}', -32602, 1),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "' + b"[" * 5000 + b'"}', -32601, 1),
    (b"[" * 100_000, -32700, None),
]


def test_a_body_that_is_no_request_is_answered_as_json_rpc_says(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as at:
            for body, code, id in BAD_BODIES:
                told = await at.post("/a2a", body)
                assert told.status_code == 200, (body[:60], told.text)
                answer = told.json()
                assert (answer["error"]["code"], answer["id"]) == (code, id), body[:60]
                assert answer["jsonrpc"] == "2.0"

    play(scene)


def test_a_version_that_is_not_spoken_here_is_refused_and_names_those_that_are(
    tmp_path: Path,
) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as at:
            for named in ("0.5", "2.0", "1", "x"):
                error = (await at.rpc("GetTask", {"id": "r"}, a2a_version=named))["error"]
                assert error["code"] == -32009
                assert error["data"][0]["metadata"]["supported"] == "1.0, 0.3"
                told = await at.get("/a2a/tasks", a2a_version=named)
                assert told.status_code == 400
                assert reason(told.json()) == "VERSION_NOT_SUPPORTED"
            for named in ("1.0", "1.0.4"):
                error = (await at.rpc("GetTask", {"id": "r"}, a2a_version=named))["error"]
                assert error["code"] == -32001
            error = (await at.rpc("tasks/get", {"id": "r"}, a2a_version="1.0"))["error"]
            assert error["code"] == -32601
            error = (await at.rpc("SendMessage", said(), a2a_version="0.3"))["error"]
            assert error["code"] == -32601
            assert (await at.get("/a2a/tasks?A2A-Version=0.3")).status_code == 400

    play(scene)


def reason(body: dict[str, Any]) -> str:
    return str(body["error"]["details"][0]["reason"])


def test_over_plain_http_errors_have_their_status_and_their_reason(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as at:
            done = await at.post("/a2a/message:send", said())
            task = done.json()["task"]["id"]
            for told, status, why in (
                (await at.get("/a2a/tasks/r_nope"), 404, "TASK_NOT_FOUND"),
                (await at.post(f"/a2a/tasks/{task}:cancel", {}), 400, "TASK_NOT_CANCELABLE"),
                (await at.get(f"/a2a/tasks/{task}:subscribe"), 400, "UNSUPPORTED_OPERATION"),
                (await at.post("/a2a/message:send", b"{"), 400, "JSON_PARSE"),
                (await at.post("/a2a/message:send", {}), 400, "INVALID_PARAMS"),
                (await at.post("/a2a/message:send", [1]), 400, "INVALID_REQUEST"),
                (await at.get("/a2a/tasks?pageSize=many"), 400, "INVALID_PARAMS"),
                (await at.get("/a2a/tasks?includeArtifacts=2"), 400, "INVALID_PARAMS"),
                (await at.get("/a2a/tasks?pageSize=1&pageSize=2"), 400, "INVALID_PARAMS"),
                (await wrong_media(at), 415, "CONTENT_TYPE_NOT_SUPPORTED"),
            ):
                assert told.status_code == status, told.text
                assert reason(told.json()) == why
                assert told.json()["error"]["code"] == status
                assert told.headers["content-type"] == "application/json"

    play(scene)


async def wrong_media(at: Served) -> Any:
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "text/plain"}
    return await at.http.post(f"{at.url}/a2a/message:send", content=b"{}", headers=headers)


def test_names_may_be_written_as_in_the_definition_of_the_protocol(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as at:
            message = {"message_id": "m", "role": "ROLE_USER", "context_id": "here",
                       "parts": [{"text": "hi", "media_type": "text/plain"}],
                       "metadata": {"as_it_is": 1}}  # fmt: skip
            asked = {"message": message, "configuration": {"return_immediately": True}}
            for told in (
                (await at.rpc("SendMessage", asked))["result"],
                (await at.post("/a2a/message:send", asked)).json(),
            ):
                assert told["task"]["contextId"] == "here"
                assert told["task"]["history"][0]["messageId"] == "m"

    play(scene)


def test_in_0_3_a_stream_that_is_refused_is_answered_with_a_stream(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as at:
            asked = {"jsonrpc": "2.0", "id": 3, "method": "tasks/resubscribe",
                     "params": {"id": "r_nope"}}  # fmt: skip
            told = await at.post("/a2a", asked)
            assert told.headers["content-type"].startswith("text/event-stream")
            error = json.loads(told.text.removeprefix("data: "))
            assert (error["id"], error["error"]["code"]) == (3, -32001)

    play(scene)


def test_unknown_fields_are_passed_over(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as at:
            asked = {**said(colour="red"), "shape": {"round": True}}
            told = await at.rpc("SendMessage", asked)
            assert told["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"

    play(scene)


def test_a_body_that_is_too_large_is_refused_as_everywhere(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as at:
            at.server.gate.max_body_bytes = 1000
            assert (await at.post("/a2a", b"x" * 2000)).status_code == 413
            told = await at.post("/a2a/message:send", b"x" * 2000)
            assert (told.status_code, told.json()["error"]["code"]) == (413, 413)

    play(scene)


@pytest.mark.parametrize("text", ["x" * 300, "mit Leerzeichen und ü", "\u0000", "a" * 100_000])
def test_a_message_may_have_any_id(tmp_path: Path, text: str) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as at:
            one = await at.rpc("SendMessage", said(messageId=text, contextId="here"))
            two = await at.rpc("SendMessage", said(messageId=text, contextId="here"))
            assert one["result"]["task"]["id"] == two["result"]["task"]["id"]

    play(scene)
