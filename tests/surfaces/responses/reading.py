"""How an ending looks to the `openai` client: in the words that the client itself was told.

It judges nothing. `read` and `read_stream` send a text to an agent in a new session and wait for
the end; `ending_of` looks at any run of the server, whoever started it.
"""

from __future__ import annotations

from typing import Any

from openai import AsyncOpenAI
from openai.types.responses import Response

Words = tuple[str, ...]
"""The status; and the code of the error or the reason of the incompleteness, if it has one."""


def client_of(server_url: str, token: str) -> AsyncOpenAI:
    return AsyncOpenAI(
        api_key=token or "none", base_url=f"{server_url}/v1", max_retries=0, timeout=60
    )


async def read(server_url: str, token: str, agent: str, text: str, **options: Any) -> Words:
    """A response that is waited for. `options` are those of the extension `turnkeeper`."""
    async with client_of(server_url, token) as client:
        told = await client.responses.create(
            model=agent, input=text, extra_body={"turnkeeper": options}
        )
        return words_of(told)


async def read_stream(server_url: str, token: str, agent: str, text: str, **options: Any) -> Words:
    """A response that is streamed: the words of its last event, whose type says the same."""
    async with client_of(server_url, token) as client:
        stream = await client.responses.create(
            model=agent, input=text, stream=True, extra_body={"turnkeeper": options}
        )
        return await last_words(stream)


async def last_words(stream: Any) -> Words:
    last: Any = None
    async for event in stream:
        last = event
    assert last is not None, "nothing was streamed"
    response = Response.construct(**last.response) if isinstance(last.response, dict) else None
    words = words_of(response or last.response)
    assert last.type == f"response.{words[0]}", (last.type, words)
    return words


async def ending_of(server_url: str, token: str, run: str) -> Words:
    """How that run (`r_…`) looks as a response: retrieved, and replayed from the log."""
    async with client_of(server_url, token) as client:
        name = run.partition("-")[0].replace("r_", "resp_", 1)
        words = words_of(await client.responses.retrieve(name))
        if words[0] in ("queued", "in_progress"):
            return words
        replayed = await last_words(await client.responses.retrieve(name, stream=True))
        assert replayed == words, (replayed, words)
        return words


def words_of(response: Any) -> Words:
    """What the client was told of an ending."""
    details = response.incomplete_details
    reason = details["reason"] if isinstance(details, dict) else details and details.reason
    error = response.error
    code = error["code"] if isinstance(error, dict) else error and error.code
    return tuple(str(word) for word in (response.status, code or reason) if word)
