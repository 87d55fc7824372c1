"""The few protocols the shell is made of: a clock, ids, agents and their links, the event store.

Decides nothing. It must not know any implementation. Invariant: whatever can block is behind the
store; an agent's link never blocks its caller and never raises for the agent's faults: all that
happens is reported as signals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from turnkeeper.core.commands import Abilities, Command, Reply
from turnkeeper.core.effects import Intent
from turnkeeper.core.events import Event, WhenBusy, encode
from turnkeeper.core.limits import Limits, Moment
from turnkeeper.core.records import (
    ApprovalPage,
    ApprovalQuery,
    ApprovalRecord,
    RunPage,
    RunQuery,
    RunRecord,
    SessionPage,
    SessionQuery,
    SessionRecord,
)
from turnkeeper.core.signals import Group


class Clock(Protocol):
    """Time, fed in. `mono` is the time of the event loop that timers are armed on."""

    def now(self) -> Moment: ...


class Ids(Protocol):
    """Names for what is new: unguessable, never used twice, without a dash or a dot.
    `new("m")` gives `m_…`."""

    def new(self, prefix: str) -> str: ...


Sink = Callable[[Group], None]
"""Takes what a link has read. Called on the event loop; returns at once."""


class Opening(msgspec.Struct, frozen=True):
    """Which process to have ready, for which run, and what of the agent's own to resume.

    `turn_pos` is where in the process's stream the running turn began: a driver that is reattached
    rebuilds what its codec knew by reading from there, and reports only what lies after `pos`.
    """

    process: str
    session: str
    run: str
    conversation: str | None
    cwd: str
    limits: Limits
    turn_pos: int = 0


class Link(Protocol):
    """The hold on one process or connection of an agent. No method blocks; all of them report
    through the sink. A link reports `Gone` when nothing of its tree is left, whatever happened."""

    def ready_for(self, run: str) -> None:
        """A further run on a living process: report `Ready` when it can take that run's message."""

    def write(self, frame: int, intent: Intent) -> None:
        """One whole frame. Report `Taken(frame)` when the agent has it. A frame number that it
        already had is dropped and reported as taken."""

    def poll(self) -> None:
        """Read what is readable now, and give it to the sink before returning. Of an agent that
        writes without end, only some: others in this loop wait for it."""

    def sweep(self) -> None:
        """End what the turn left behind, not the agent; report `Swept`, or `Gone`."""

    def terminate(self) -> None:
        """Ask the whole tree to go; report `Gone` when none is left."""

    def kill(self) -> None:
        """Kill the whole tree; report `Gone` when none is left. May be called again."""

    def pause(self) -> None:
        """Read no more for now: the store is behind."""

    def resume(self) -> None:
        """Read again."""

    def detach(self) -> None:
        """This server goes. An agent in custody goes on; the sink is not called any more."""


class Agent(Protocol):
    """Something that can take a turn; a driver's implementation."""

    @property
    def abilities(self) -> Abilities: ...

    @property
    def outlives_server(self) -> bool:
        """Its processes are in custody and can be reattached after a restart."""

    def open(self, opening: Opening, sink: Sink) -> Link:
        """A new process. It reports `Ready`, or `Broken` or `Exited`."""

    def reattach(self, opening: Opening, pos: int, sink: Sink) -> Link:
        """The process of that name, its stream read from `pos`. It reports `Ready` if it is, and
        whatever it finds; `Gone` if nothing is left."""


class Transcript(msgspec.Struct, frozen=True):
    """What an agent itself keeps of a conversation. `name` is its driver's own word for where."""

    conversation: str
    name: str
    body: bytes


@runtime_checkable
class Carrier(Protocol):
    """An agent whose conversations can be carried to another node. All methods block."""

    def read_transcript(self, conversation: str, cwd: str, most: int) -> Transcript | None:
        """What it has of that conversation; none if there is nothing, or more than so many bytes.
        Raises `OSError`."""

    def count_turns(self, transcript: Transcript, since: int) -> int:
        """How many turns are in it to their end, after the first `since` bytes."""

    def place_transcript(self, transcript: Transcript, cwd: str) -> bool:
        """The agent finds it from now on, or found it before, with what came since. Raises
        `OSError`; false if it cannot be placed here."""


class ChildWanted(msgspec.Struct, frozen=True, kw_only=True):
    """A run asks for another below it, in `session` or in a new one with `agent`. `ref` names the
    asking: the same `ref` of the same run is the same child, however often it is asked for."""

    run: str
    ref: str
    text: str
    session: str | None = None
    agent: str | None = None
    cwd: str = ""
    limits: dict[str, float] = {}
    when_busy: WhenBusy = "queue"


class ChildTold(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it: the child's name; then how it ended and what it said; or why not."""

    ref: str
    child: str = ""
    session: str = ""
    outcome: str | None = None
    reason: str = ""
    detail: str = ""
    text: str = ""
    refused: str | None = None


class ChildPort(Protocol):
    """The way from an agent to runs below its own."""

    def start(self, wanted: ChildWanted, told: Callable[[ChildTold], None]) -> None:
        """Start it; `told` is called with its name or a refusal, and again at its true end."""

    def stop(self, run: str, child: str) -> None:
        """Stop that child of the run. Returns at once; its end is told as any other."""


class Batch(msgspec.Struct, frozen=True, gc=False):
    """Events that belong together, in order, and whether the session is then unfinished. `lines`
    are the same events encoded, for stores and watchers that need them so."""

    session: str
    epoch: int
    events: Sequence[Event]
    unfinished: bool
    lines: Sequence[bytes] = ()

    def encoded(self) -> Sequence[bytes]:
        return self.lines or [encode(event) for event in self.events]


class Snapshot(msgspec.Struct, frozen=True):
    """A session's state after the event `seq`, as `core.snapshot` made it."""

    seq: int
    state: bytes


class EventStore(Protocol):
    """Durable logs. Every method may raise `StoreDown`."""

    async def claim(self, session: str) -> int:
        """Own the session from now on: a new epoch, larger than any before. `Elsewhere` if another
        node has it, and lives."""

    async def append(self, batch: Batch) -> None:
        """All of it or nothing, durably. `Fenced` if the epoch is over; `OutOfOrder` if the first
        event does not follow the log's last, or a run would end twice. Who appends to a session
        again waits for the append before: of several at once, any may come first."""

    async def read(self, session: str, after: int, limit: int) -> list[Event]:
        """The events after `after`, at most `limit` of them: fewer where they are large, but one at
        least if there is one."""

    async def read_lines(self, session: str, after: int, limit: int) -> list[bytes]:
        """The same events as `read`, as they were encoded."""

    async def head(self, session: str) -> int:
        """The last event's number; 0 for an unknown session."""

    async def unfinished(self) -> list[str]:
        """The sessions in which something still has to happen."""

    async def session_of(self, run: str) -> str | None:
        """The session that a run belongs to."""

    # A help for long logs: what is lost of it costs time and nothing else.

    async def save(self, session: str, epoch: int, snapshot: Snapshot) -> None:
        """Keep this instead of the snapshot before it. `Fenced` if the epoch is over."""

    async def load(self, session: str) -> Snapshot | None:
        """The last snapshot, if there is one."""

    # What can be listed: always what the logs say, for it is written with them.

    async def sessions(self, query: SessionQuery) -> SessionPage: ...

    async def runs(self, query: RunQuery) -> RunPage: ...

    async def approvals(self, query: ApprovalQuery) -> ApprovalPage: ...

    async def session(self, session: str) -> SessionRecord | None: ...

    async def run(self, run: str) -> RunRecord | None: ...

    async def approval(self, approval: str) -> ApprovalRecord | None: ...


class Observer(Protocol):
    """Whoever counts and times what happens here. It must be quick, and its faults are its own."""

    def stored(self, agent: str, events: Sequence[Event], took_s: float) -> None:
        """These events of one session are now in its log; storing them took that long."""


class Courier(Protocol):
    """Carries what somebody wants to be told to their address. Bounded in time, whatever happens
    there."""

    def check(self, url: str) -> None:
        """`TurnkeeperError` if nothing may be sent to that address, as far as it can be seen."""

    async def deliver(self, url: str, headers: Mapping[str, str], body: bytes) -> None:
        """It was taken when this returns; `TurnkeeperError` says why it was not, and that no more
        is tried."""


class Drawer(Protocol):
    """One small thing that is kept whole. Its methods block; both raise `OSError`."""

    def read(self) -> bytes:
        """What is in it; nothing if it was never used."""

    def write(self, content: bytes) -> None:
        """Instead of what was in it, durably."""


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One node. `sessions` are those that it has; `unfinished` of them have still something to do.
    `left_s` is how long it still lives if it does not say otherwise: of one that is gone, less than
    nothing."""

    id: str
    url: str
    agents: tuple[str, ...] = ()
    since: float = 0.0
    left_s: float = 0.0
    draining: bool = False
    sessions: int = 0
    unfinished: int = 0


class Membership(Protocol):
    """This node among the others that use the same store. Every method may raise `StoreDown`."""

    @property
    def node(self) -> str: ...

    async def join(self, url: str, agents: Sequence[str], lease_s: float) -> None:
        """This node lives for so long, and for as long again whenever it renews that. Another one
        of the same name is over; but whoever joins anew and finds that another has its name is told
        `NodeOver`."""

    async def renew(self, lease_s: float, *, draining: bool = False) -> None:
        """`NodeOver` if this node's time was over before: others may have what it had."""

    async def release(self, session: str) -> None:
        """Whoever wants that session next may have it, as far as this node is concerned."""

    async def leave(self) -> None:
        """What needs nobody now may be had by others. The rest may when the time is over."""

    async def place(self, agent: str) -> str | None:
        """The node that a new session with that agent should go to: this one, unless it has much
        more to do than another, or has no such agent. None if no node has it."""

    async def assign(self, session: str, node: str) -> None:
        """A session that nobody has, and in which nothing has to happen now, is that node's."""

    async def close(self) -> None:
        """Nothing more is asked."""

    async def orphans(self) -> list[str]:
        """The unfinished sessions that no living node has, with agents that this one has."""

    async def nodes(self) -> list[NodeRecord]:
        """All that are known, the oldest first."""


class Desk(Protocol):
    """What a node does for others."""

    async def reply(self, session: str, command: Command) -> Reply:
        """What a session of this node says; `Elsewhere` if it is none of them any more."""

    def watched(self) -> Sequence[str]:
        """The sessions that somebody watches here."""

    def announce(self, session: str, head: int) -> None:
        """The log of that session has grown to there."""


class Others(Protocol):
    """The way to sessions that other nodes have. Every method may raise `StoreDown`."""

    async def ask(self, session: str, command: Command) -> Reply | None:
        """The answer of the node that has the session, or its refusal, raised; none if no other
        node has it now, and nothing was done that may not be done again."""

    async def serve(self, desk: Desk) -> None:
        """Carry what others ask to the desk, and tell it of logs that grew. Until cancelled."""


class KeptTranscript(msgspec.Struct, frozen=True):
    """What is kept of a session's conversation: as it was on `node` after the event `seq`. Without
    a transcript there is only that."""

    conversation: str
    seq: int
    node: str
    transcript: Transcript | None


class Transcripts(Protocol):
    """What agents keep of their conversations, where other nodes find it: the last of each session.
    Every method may raise `StoreDown`."""

    @property
    def node(self) -> str: ...

    async def keep(
        self, session: str, seq: int, conversation: str, transcript: Transcript | None
    ) -> None:
        """Instead of what was kept before, unless that is of a later event."""

    async def find(self, session: str) -> KeptTranscript | None: ...

    async def close(self) -> None: ...


class NodeOver(Exception):
    """This node did not renew its time while it could."""


class Elsewhere(Exception):
    """Another node has that session."""

    def __init__(self, session: str, node: str) -> None:
        super().__init__(f"session {session} is on node {node}")
        self.session = session
        self.node = node


class OutOfOrder(Exception):
    """An append that does not follow the log: it was stored before, or somebody else wrote."""
