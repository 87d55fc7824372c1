"""Model APIs as agents: a conversation with a model that may run commands, read and write files.

Decides how the runtime's words become a turn with a model, and which conversation a process has. It
must not know any API's form nor how a turn goes. Invariants: a conversation lives as long as this
server, outlives its processes, and is named; one that is not known any more is reported lost, never
begun anew in silence. The key is read when it is needed, and shown to nobody.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from typing import assert_never

from turnkeeper.core import effects as f
from turnkeeper.core import signals as s
from turnkeeper.core.commands import Abilities
from turnkeeper.core.limits import LONGEST_S
from turnkeeper.custody.client import Custodian
from turnkeeper.drivers import chat_errors
from turnkeeper.drivers.chat_apis import APIS, ChatOptions
from turnkeeper.drivers.chat_link import TaskLink
from turnkeeper.drivers.chat_turn import Means, Memory, Turn
from turnkeeper.drivers.tools_run import SAMPLE_S, Place, end_leftovers
from turnkeeper.net.http import HttpClient, HttpLimits
from turnkeeper.ports import Opening, Sink

__all__ = ["ChatAgent", "ChatLink", "ChatOptions"]

CONVERSATIONS_MAX = 1000
TOOL_TERM_S = 2.0
"""How long a command that is asked to go may take, at most; then it is killed."""


class ChatAgent:
    """`Agent` on a model API. Without a custodian, commands run in bare processes, which is weaker.
    Close it when done."""

    outlives_server = False

    def __init__(
        self,
        options: ChatOptions,
        custodian: Custodian | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        client: HttpClient | None = None,
        sample_s: float = SAMPLE_S,
    ) -> None:
        self.options = options
        self.api = APIS[options.api](options)
        self.custodian = custodian
        self.sample_s = sample_s
        self._environ = os.environ if environ is None else environ
        self.client = client or HttpClient()
        self._memories: OrderedDict[str, Memory] = OrderedDict()

    @property
    def abilities(self) -> Abilities:
        return Abilities(steer=True, interrupt=True, resume=True, approvals=True, thinking=True)

    @property
    def key(self) -> str:
        return self._environ.get(self.api.key_env, "").strip()

    def open(self, opening: Opening, sink: Sink) -> ChatLink:
        link = ChatLink(self, opening, sink)
        link.begin(opening.conversation)
        return link

    def reattach(self, opening: Opening, pos: int, sink: Sink) -> ChatLink:
        """The connection died with the server that had it; what its commands left is ended."""
        link = ChatLink(self, opening, sink)
        link.bury()
        return link

    def recall(self, conversation: str) -> Memory | None:
        memory = self._memories.get(conversation)
        if memory is not None:
            self._memories.move_to_end(conversation)
        return memory

    def new_memory(self) -> Memory:
        memory = Memory(f"chat-{secrets.token_hex(8)}")
        self._memories[memory.id] = memory
        while len(self._memories) > CONVERSATIONS_MAX:
            self._memories.popitem(last=False)
        return memory

    async def aclose(self) -> None:
        await self.client.aclose()


class ChatLink(TaskLink):
    """One process's worth of a conversation; a `ports.Link`, and the turn's `Person`."""

    def __init__(self, agent: ChatAgent, opening: Opening, sink: Sink) -> None:
        super().__init__(opening, sink)
        self._agent = agent
        self._memory = Memory("")
        self._limits = _http_limits(opening)
        self._questions: dict[str, asyncio.Future[tuple[bool, str]]] = {}
        self._place = Place(
            process=opening.process,
            cwd=opening.cwd or os.path.expanduser(agent.options.cwd) or os.getcwd(),
            env=agent.options.env,
            custodian=agent.custodian,
            orphan_s=opening.limits.orphan_s,
            term_s=min(TOOL_TERM_S, opening.limits.term_s),
            sample_s=agent.sample_s,
        )

    def begin(self, conversation: str | None) -> None:
        found = self._agent.recall(conversation) if conversation is not None else None
        self._memory = found or self._agent.new_memory()
        lost = () if found is not None or conversation is None else (s.ContextLost(conversation),)
        self._soon(lambda: self._report(*lost, s.Ready(self._memory.id)))

    def bury(self) -> None:
        self._going = True
        self._start(self._end_leftovers())

    async def _end_leftovers(self) -> None:
        await end_leftovers(self._place)

    def detach(self) -> None:
        self._place.let_go = True
        super().detach()

    def ready_for(self, run: str) -> None:
        self._run = run
        self._agent.recall(self._memory.id)
        self._soon(lambda: self._report(s.Ready(self._memory.id)))

    def _take(self, frame: int, intent: f.Intent) -> None:
        if isinstance(intent, f.SteerIn) and not self._is_working:
            return  # the run is over: it is not taken, and goes back to the queue
        self._report(s.Taken(frame))
        match intent:
            case f.Say():
                self._say(intent)
            case f.SteerIn():
                self._memory.steers.append(intent.text)
            case f.Answer():
                question = self._questions.pop(intent.ref, None)
                if question is not None and not question.done():
                    question.set_result((intent.allow, intent.note))
            case f.Interrupt():
                if intent.run == self._run:
                    self._cancel()
            case _:
                assert_never(intent)

    def _say(self, intent: f.Say) -> None:
        self._run = intent.run
        agent, key = self._agent, self._agent.key
        if not key and agent.api.needs_key:
            self._report(chat_errors.no_key(agent.api))
            return
        means = Means(agent.api, key, agent.client, self._limits, self._place, self)
        self._start(Turn(means, self._memory).run(intent.text))

    # chat_turn.Person ---------------------------------------------------------------------------

    def tell(self, *signals: s.AgentSignal) -> None:
        self._report(*signals)

    async def wait_leave(self, ref: str, tool: str, given: object) -> tuple[bool, str]:
        answer: asyncio.Future[tuple[bool, str]] = self._loop.create_future()
        self._questions[ref] = answer
        self._report(s.Asked(ref, tool, given))
        try:
            return await answer
        finally:
            self._questions.pop(ref, None)


def _http_limits(opening: Opening) -> HttpLimits:
    """Silence is judged by the run's own clocks, and by nobody else."""
    deadline_s = opening.limits.ceiling_s or LONGEST_S
    return HttpLimits(write_s=0, first_byte_s=0, idle_s=0, deadline_s=deadline_s)
