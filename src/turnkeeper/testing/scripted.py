"""A scripted agent: an agent that does exactly what a script says, for everyone's tests.

Decides nothing; it behaves. It must not know the runtime. Invariant: its processes live in the
agent (the machine), not in the server: they go on when a server is gone, and whoever comes back
reads their stream from any byte; what was read once is the same when it is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from turnkeeper.core import signals as s
from turnkeeper.core.commands import Abilities
from turnkeeper.core.effects import Intent
from turnkeeper.ports import Opening, Sink
from turnkeeper.testing.process import Line, ScriptedProcess, later, read_line
from turnkeeper.testing.script import Script, Witness

ScriptOf = Callable[[str], Script]
"""The script for a run. Asked once for each try at it."""

OUTPUT_MAX_BYTES = 1_000_000

ABLE = Abilities(steer=True, interrupt=True, resume=True, approvals=True, thinking=True)


def in_turn(scripts: Iterable[Script]) -> ScriptOf:
    """The first script for the first try, and so on; then the last one for ever."""
    left = list(scripts)
    return lambda run: left.pop(0) if len(left) > 1 else left[0]


class ScriptedAgent:
    """`ports.Agent`. `processes` is what lives, and what lived, on its machine."""

    def __init__(
        self,
        script_of: ScriptOf,
        *,
        abilities: Abilities = ABLE,
        outlives_server: bool = True,
        witness: Witness | None = None,
        output_max_bytes: int = OUTPUT_MAX_BYTES,
    ) -> None:
        self.abilities = abilities
        self.outlives_server = outlives_server
        self.processes: dict[str, ScriptedProcess] = {}
        self.witness = witness if witness is not None else Witness()
        self.output_max_bytes = output_max_bytes
        self._script_of = script_of

    def open(self, opening: Opening, sink: Sink) -> ScriptedLink:
        script = self._script_of(opening.run)
        spawn = script.body.spawn
        if spawn == "raises":
            raise OSError("there is no such program")
        link = ScriptedLink(self, None, opening.process, opening.run, sink)
        if spawn in ("fails", "fails_once"):
            link.break_off("spawn_failed", "no such program", retry=spawn == "fails_once")
            return link
        process = ScriptedProcess(opening.process, script.body, self.witness)
        self.processes[opening.process] = process
        self.witness.born(opening.process, opening.session, script.body)
        link.attach(process)
        process.start(opening.run, script, opening.conversation)
        return link

    def reattach(self, opening: Opening, pos: int, sink: Sink) -> ScriptedLink:
        process = self.processes.get(opening.process)
        link = ScriptedLink(self, None, opening.process, opening.run, sink)
        link.pos = pos
        if process is None:
            later(0.001, link.tell_gone)
            return link
        link.attach(process)
        if process.lost:
            link.only_wait()
            return link
        process.came_back(opening.run, self._script_of)
        link.stir(process.body.read_s)
        return link

    def server_went(self, *, keepers_live: bool, orphan_s: float) -> None:
        """The server is gone without a word. Without keepers, so is everything of the agent."""
        for process in self.processes.values():
            process.abandoned(orphan_s if keepers_live and self.outlives_server else None)

    def vanish(self, process: str) -> None:
        """The machine under that process is gone, with all that was on it."""
        found = self.processes.get(process)
        if found is not None:
            found.vanish()

    def script_of(self, run: str) -> Script:
        return self._script_of(run)


class ScriptedLink:
    """`ports.Link`: reads the process's stream by bytes, and takes it at its lines."""

    def __init__(
        self, agent: ScriptedAgent, process: ScriptedProcess | None, name: str, run: str, sink: Sink
    ) -> None:
        self.name = name
        self.run = run
        self.pos = 0
        self._agent = agent
        self._process = process
        self._sink = sink
        self._paused = False
        self._broken = False
        self._stirring = False
        self._told_exit = False
        self._told_gone = False
        self._detached = False

    # What the server may do ------------------------------------------------------------------

    def ready_for(self, run: str) -> None:
        self.run = run
        if self._process is not None:
            self._process.ready_for(run, self._agent.script_of(run))

    def write(self, frame: int, intent: Intent) -> None:
        self._agent.witness.was_written(self.name, frame, intent)
        if self._process is not None:
            self._process.stdin(frame, intent)

    def poll(self) -> None:
        self._read()

    def sweep(self) -> None:
        self._or_gone(lambda process: process.sweep())

    def terminate(self) -> None:
        self._or_gone(lambda process: process.terminate())

    def kill(self) -> None:
        self._or_gone(lambda process: process.kill())

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self.stir(0.0)

    def detach(self) -> None:
        self._detached = True
        process = self._process
        if process is not None and process.link is self:
            process.link = None
            if not self._agent.outlives_server:
                process.abandoned(None)

    # What the process does -------------------------------------------------------------------

    def attach(self, process: ScriptedProcess) -> None:
        self._process = process
        process.link = self
        process.attended()

    def stir(self, delay_s: float) -> None:
        """There may be something to read, or an end to report."""
        if not self._stirring and not self._detached:
            self._stirring = True
            later(delay_s, self._stirred)

    def report(self, signal: s.AgentSignal) -> None:
        """Something beside the stream."""
        if not self._detached and not self._told_gone:
            self._agent.witness.reported(self.name, self.run, signal)
            self._sink(s.Group(self.name, self.run, (signal,)))

    def break_off(self, reason: str, detail: str, *, retry: bool = False) -> None:
        """Nothing more is read. Reported a little later, as all things are."""
        self._broken = True
        broken = s.Broken(reason, detail, retry)  # type: ignore[arg-type]
        later(0.001, lambda: self.report(broken))

    def only_wait(self) -> None:
        """Its custodian is gone, and its stream with it: all that can be told is its death."""
        self._broken = self._told_exit = True
        self.stir(0.001)

    def tell_gone(self) -> None:
        self.report(s.Gone())
        self._told_gone = True

    # Reading ---------------------------------------------------------------------------------

    def _stirred(self) -> None:
        self._stirring = False
        process = self._process
        if self._paused or self._detached or process is None:
            return
        self._read()
        if process.exit_code is not None and not self._told_exit:
            self._told_exit = True
            self.report(s.Exited(process.exit_code))
        if process.is_gone:
            self.tell_gone()

    def _read(self) -> None:
        process = self._process
        if process is None or self._broken or self._detached:
            return
        while (line := read_line(process.spool, self.pos)) is not None:
            self.pos = line.end
            if not self._take(line):
                break

    def _take(self, line: Line) -> bool:
        """Whether the stream can be read any further."""
        most = self._agent.output_max_bytes
        if line.run is not None and line.end <= most:
            self._sink(s.Group(self.name, line.run, line.signals, line.end))
            return True
        self._broken = True
        if line.run is None:
            self.report(s.Broken("protocol_error", "a line that is not its protocol"))
        else:
            self.report(s.Broken("output_limit", f"more than {most} bytes"))
        return False

    def _or_gone(self, do: Callable[[ScriptedProcess], None]) -> None:
        process = self._process
        if process is None or process.is_gone:
            later(0.001, self.tell_gone)
        else:
            do(process)
