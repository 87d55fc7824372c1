"""A remote agent built with a2a-sdk, which does what the scripted model's commands say.

It runs in the environment of its own that `install` makes, and prints its address. Commands:
`say`, `think`, `stream`, `stall`, `stall-after` (until it is cancelled), `error` (the task fails).
A request that was executed is printed, so that a test can count.
"""

import asyncio
import socket

import uvicorn
from a2a.helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part
from starlette.applications import Starlette

from turnkeeper.testing.model.script import choose


class Scripted(AgentExecutor):
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message
        assert context.task_id
        assert context.context_id
        plan = choose([context.get_user_input()], None)
        print(f"executing {plan.command}", flush=True)
        if not context.current_task:
            await event_queue.enqueue_event(new_task_from_user_message(context.message))
        task = TaskUpdater(event_queue, context.task_id, context.context_id)
        await task.start_work()
        if plan.thinking:
            thought = task.new_agent_message([Part(text=plan.thinking)])
            await task.start_work(thought)
        if plan.status != 200:
            said = task.new_agent_message([Part(text=f"scripted {plan.status}")])
            await task.failed(said)
            return
        for number, chunk in enumerate(plan.chunks):
            if plan.breaks and number == max(plan.breaks_at, 0):
                await asyncio.Event().wait()
            while plan.is_held(number):  # noqa: ASYNC110 - a file rings no bell
                await asyncio.sleep(0.02)
            await task.add_artifact(
                [Part(text=chunk)],
                artifact_id="answer",
                append=number > 0,
                last_chunk=number == len(plan.chunks) - 1,
            )
            await asyncio.sleep(plan.delay_s)
        await task.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id
        assert context.context_id
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def card(url: str) -> AgentCard:
    return AgentCard(
        name="scripted",
        description="does what it is told",
        version="1",
        supported_interfaces=[
            AgentInterface(url=f"{url}/a2a", protocol_binding="JSONRPC", protocol_version="1.0")
        ],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text"],
        default_output_modes=["text"],
        skills=[AgentSkill(id="s", name="scripted", description="commands", tags=["test"])],
    )


async def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    handler = DefaultRequestHandler(Scripted(), InMemoryTaskStore(), card(url))
    routes = create_agent_card_routes(card(url)) + create_jsonrpc_routes(handler, "/a2a")
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="warning"))
    serving = asyncio.ensure_future(server.serve([listener]))
    print(url, flush=True)
    await serving


if __name__ == "__main__":
    asyncio.run(main())
