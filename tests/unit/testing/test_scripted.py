"""The scripted agent speaks real bytes, outlives its server, and dies when it is killed."""

import asyncio
from collections.abc import Callable

import pytest

from turnkeeper.core import effects as f
from turnkeeper.core import signals as s
from turnkeeper.core.limits import Limits
from turnkeeper.ports import Opening
from turnkeeper.testing import script as t
from turnkeeper.testing.scripted import ScriptedAgent, ScriptedLink, in_turn
from turnkeeper.testing.virtual import run

SAY = f.Say("r_1", "m_1", "hello")
HELLO = t.Emit((s.Text("hello"),))
DONE = t.Emit((s.Finished(),))


class Desk:
    """One agent, one process, and all that its link reports."""

    def __init__(self, *steps: t.AnyStep, body: t.Body | None = None, **options: object) -> None:
        whole = t.Script(steps=steps, body=body or t.Body(), **options)  # type: ignore[arg-type]
        self.agent = ScriptedAgent(in_turn([whole]))
        self.groups: list[s.Group] = []
        self.opening = Opening("p", "s", "r_1", None, "", Limits())

    def open(self) -> ScriptedLink:
        return self.agent.open(self.opening, self.groups.append)

    @property
    def signals(self) -> list[s.AgentSignal]:
        return [signal for group in self.groups for signal in group.signals]

    def kinds(self) -> list[str]:
        return [type(signal).__name__ for signal in self.signals]


def play(desk: Desk, then: Callable[[ScriptedLink], None] = lambda link: None) -> Desk:
    """Open it, say hello once it is ready, do something, and wait for all there is."""

    async def main() -> None:
        link = desk.open()
        await asyncio.sleep(0.05)
        link.write(1, SAY)
        await asyncio.sleep(0.05)
        then(link)
        await asyncio.sleep(60)

    run(main())
    return desk


def test_it_gets_ready_takes_the_message_and_follows_its_script() -> None:
    desk = play(Desk(HELLO, DONE))
    assert desk.kinds() == ["Ready", "Taken", "Text", "Finished"]


def test_each_line_says_how_far_the_stream_is_consumed() -> None:
    desk = play(Desk(HELLO, DONE))
    spool = desk.agent.processes["p"].spool
    assert [group.pos for group in desk.groups if group.pos] == [spool.index(b"\n") + 1, len(spool)]


def test_half_a_line_is_read_only_when_it_is_whole() -> None:
    desk = Desk(t.Emit((s.Text("hello"),), 5.0), DONE)
    seen: list[int] = []

    async def main() -> None:
        link = desk.open()
        await asyncio.sleep(0.05)
        link.write(1, SAY)
        await asyncio.sleep(1)
        link.poll()
        seen.append(desk.kinds().count("Text"))
        seen.append(len(desk.agent.processes["p"].spool))
        await asyncio.sleep(10)

    run(main())
    assert seen[0] == 0
    assert seen[1] > 0
    assert desk.kinds()[-2:] == ["Text", "Finished"]


def test_a_line_that_is_not_its_protocol_breaks_the_stream() -> None:
    desk = play(Desk(HELLO, t.Garbage(), DONE))
    assert desk.kinds()[-2:] == ["Text", "Broken"]
    assert desk.signals[-1] == s.Broken("protocol_error", "a line that is not its protocol")


def test_polling_reads_now_what_would_be_read_later() -> None:
    desk = Desk(HELLO, body=t.Body(read_s=10.0))

    async def main() -> list[str]:
        link = desk.open()
        await asyncio.sleep(0.05)
        link.write(1, SAY)
        await asyncio.sleep(0.05)
        before = "Text" in desk.kinds()
        link.poll()
        return [str(before), str("Text" in desk.kinds())]

    assert run(main()) == ["False", "True"]


def test_a_frame_that_it_had_is_dropped_and_reported_as_taken_again() -> None:
    desk = play(Desk(HELLO), lambda link: link.write(1, SAY))
    assert desk.kinds().count("Taken") == 2
    assert desk.kinds().count("Text") == 1


def test_a_frozen_stdin_takes_nothing() -> None:
    assert "Taken" not in play(Desk(HELLO, take_s=None)).kinds()


def test_the_exit_comes_after_all_that_was_written() -> None:
    desk = play(Desk(HELLO, HELLO, t.Exit(3), body=t.Body(read_s=0.5)))
    assert desk.kinds()[-4:] == ["Text", "Text", "Exited", "Gone"]


def test_it_goes_on_without_a_server_and_is_read_from_any_byte() -> None:
    desk = Desk(HELLO, t.Pause(5.0), t.Emit((s.Text("again"),)), DONE)
    later: list[s.Group] = []

    async def main() -> None:
        link = desk.open()
        await asyncio.sleep(0.05)
        link.write(1, SAY)
        await asyncio.sleep(1)
        consumed = max(group.pos for group in desk.groups)
        link.detach()
        await asyncio.sleep(6)
        desk.agent.reattach(desk.opening, consumed, later.append)
        await asyncio.sleep(1)

    run(main())
    texts = [x for group in later for x in group.signals if isinstance(x, s.Text)]
    assert texts == [s.Text("again")]


def test_without_its_keeper_all_that_can_be_told_is_that_it_is_gone() -> None:
    desk = Desk(HELLO, t.Hang())
    later: list[s.Group] = []

    async def main() -> None:
        desk.open()
        await asyncio.sleep(0.05)
        desk.agent.server_went(keepers_live=False, orphan_s=60.0)
        desk.agent.reattach(desk.opening, 0, later.append)
        await asyncio.sleep(1)

    run(main())
    assert [group.signals for group in later] == [(s.Gone(),)]


def test_a_keeper_without_a_server_ends_its_tree_after_a_while() -> None:
    desk = Desk(t.Leave(), t.Hang())

    async def main() -> list[bool]:
        desk.open().write(1, SAY)
        await asyncio.sleep(1)
        desk.agent.server_went(keepers_live=True, orphan_s=60.0)
        await asyncio.sleep(59)
        early = desk.agent.processes["p"].is_gone
        await asyncio.sleep(2)
        return [early, desk.agent.processes["p"].is_gone]

    assert run(main()) == [False, True]


@pytest.mark.parametrize("how", ["terminate", "kill"])
def test_the_whole_tree_dies_and_that_is_confirmed(how: str) -> None:
    desk = play(Desk(t.Leave(), t.Hang()), lambda link: getattr(link, how)())
    assert desk.kinds()[-1] == "Gone"
    assert desk.agent.processes["p"].is_gone


def test_one_that_ignores_a_polite_signal_still_dies_of_a_kill() -> None:
    def stubborn() -> Desk:
        return Desk(t.Hang(), body=t.Body(exit_on_term_s=None))

    assert "Gone" not in play(stubborn(), lambda link: link.terminate()).kinds()
    assert play(stubborn(), lambda link: link.kill()).kinds()[-1] == "Gone"


def test_sweeping_ends_what_was_left_behind_and_not_the_agent() -> None:
    desk = play(Desk(t.Leave(), DONE), lambda link: link.sweep())
    process = desk.agent.processes["p"]
    assert desk.kinds()[-1] == "Swept"
    assert (process.children, process.is_alive) == (0, True)


def test_it_executes_what_it_was_allowed_and_waits_for_the_answer() -> None:
    done: list[str] = []

    class Watchful(t.Witness):
        def executed(self, process: str, run: str, ref: str) -> None:
            done.append(ref)

    desk = Desk(t.Ask("q1"), t.Ask("q2"), DONE)
    desk.agent.witness = Watchful()

    def answer(link: ScriptedLink) -> None:
        link.write(2, f.Answer("r_1", "q1", True))
        link.write(3, f.Answer("r_1", "q2", False))

    assert "Finished" in play(desk, answer).kinds()
    assert done == ["q1"]


def test_a_stale_conversation_is_refused_aloud() -> None:
    desk = Desk(DONE, body=t.Body(stale=True))
    desk.opening = Opening("p", "s", "r_1", "c-old", "", Limits())
    assert s.ContextLost("c-old") in play(desk).signals


def test_a_program_that_cannot_be_started_is_reported_and_gone() -> None:
    desk = play(Desk(body=t.Body(spawn="fails")), lambda link: link.kill())
    assert desk.kinds() == ["Broken", "Gone"]
