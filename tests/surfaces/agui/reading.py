"""How an ending looks to an AG-UI client: the type of the last event, and its outcome or code.

Every event on the way is read with the models of `ag-ui-protocol`, and their order is verified.
"""

from __future__ import annotations

from uuid import uuid4

from tests.surfaces.agui.page import LAST, Page, events_of, last_words

Words = tuple[str, ...]


async def read(server_url: str, token: str, session_or_agent: str, text: str) -> Words:
    """The text goes to that session, if there is one of that name; else to a new thread with the
    agent of that name."""
    async with Page(server_url, token) as page:
        known = await page.http.get(f"/v1/sessions/{session_or_agent}")
        run = uuid4().hex
        if known.status_code == 200:
            told = await page.run(session_or_agent, run, text, agent="")
        else:
            told = await page.run(uuid4().hex, run, text, agent=session_or_agent)
        return last_words(told)


async def ending_of(server_url: str, token: str, run: str) -> Words:
    """How that run (`r_…`), whoever started it, ended for somebody who watches its session."""
    async with Page(server_url, token) as page:
        session = (await page.http.get(f"/v1/runs/{run}")).json()["session"]
        path = f"/v1/sessions/{session}/ag-ui/events"
        async with page.http.stream("GET", path) as answer:
            async for event in events_of(answer):
                if event.type in LAST and event.metadata["turnkeeper"]["run"] == run:
                    return last_words([event])
    raise AssertionError(f"run {run} did not end there")
