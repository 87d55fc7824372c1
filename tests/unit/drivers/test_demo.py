"""The demo agent: what it plays, and that its link keeps to the rules of `ports.Link`."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from turnkeeper.core import effects as f
from turnkeeper.core import signals as s
from turnkeeper.core.limits import Limits
from turnkeeper.drivers.demo import DemoAgent, DemoLink
from turnkeeper.drivers.demo_turns import REQUESTS
from turnkeeper.ports import Opening
from turnkeeper.testing import virtual

OPENING = Opening("r_1.1", "s_1", "r_1", None, "", Limits())
HORIZON_S = 60.0


class Bench:
    """A demo process on virtual time, and everything it reported."""

    def __init__(self) -> None:
        self.groups: list[s.Group] = []
        self.link: DemoLink = DemoAgent(pace_s=0.1, ready_after_s=1.0).open(
            OPENING, self.groups.append
        )

    @property
    def signals(self) -> list[s.AgentSignal]:
        return [signal for group in self.groups for signal in group.signals]

    @property
    def text(self) -> str:
        return "".join(x.text for x in self.signals if isinstance(x, s.Text))

    def count(self, kind: type[s.Signal]) -> int:
        return sum(isinstance(signal, kind) for signal in self.signals)

    def say(self, text: str, frame: int = 1) -> None:
        self.link.write(frame, f.Say("r_1", "m_1", text))

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def play(scene: Callable[[Bench], Coroutine[None, None, None]]) -> Bench:
    """A scene with a process that is ready; whatever is still pending afterwards is dropped."""

    async def act() -> Bench:
        bench = Bench()
        await bench.wait(1.5)
        await scene(bench)
        return bench

    return virtual.run(act())


def said(text: str, seconds: float = HORIZON_S) -> Bench:
    async def scene(bench: Bench) -> None:
        bench.say(text)
        await bench.wait(seconds)

    return play(scene)


def test_it_is_ready_when_its_start_took_its_time_and_not_before() -> None:
    async def act() -> tuple[int, int]:
        bench = Bench()
        await bench.wait(0.9)
        before = len(bench.groups)
        await bench.wait(0.2)
        return before, bench.count(s.Ready)

    assert virtual.run(act()) == (0, 1)


def test_a_plain_message_is_echoed_word_by_word_and_then_finished() -> None:
    bench = said("good morning")
    assert "You said: “good morning”." in bench.text
    assert bench.count(s.Text) > 10
    assert bench.signals[-1] == s.Finished()


def test_words_come_at_its_pace() -> None:
    assert said("long", seconds=1.05).count(s.Text) == 10


def test_help_tells_every_request() -> None:
    text = said("help").text
    assert [words for words in REQUESTS if f"  {words}" not in text] == []


@pytest.mark.parametrize("text", ["HELP", " help. ", "help!", "Help?"])
def test_a_request_is_understood_however_it_is_spelled(text: str) -> None:
    assert "Say one of these" in said(text).text


@pytest.mark.parametrize("text", ["help me with my taxes", "ask me", "think about it", "tools"])
def test_a_sentence_that_only_looks_like_a_request_is_echoed(text: str) -> None:
    assert f"You said: “{text}”" in said(text).text


@pytest.mark.parametrize(
    ("text", "takes"),
    [
        ("tool abc", "“tool” takes a number of seconds (0 to 999999) after it, or nothing"),
        ("build 99999999999", "“build” takes a number of seconds (0 to 999999)"),
        ("long -3", "“long” takes a number of words (0 to 999999)"),
        ("exit now", "“exit” takes an exit code (0 to 999999)"),
        ("stall 5", "“stall” takes nothing after it"),
    ],
)
def test_a_request_with_a_nonsense_number_is_told_what_it_takes(text: str, takes: str) -> None:
    told = said(text).text
    assert takes in told
    assert f"you said “{text.rpartition(' ')[2]}”" in told
    assert "I have played nothing" in told


def test_a_number_says_how_much() -> None:
    assert said("long 7").count(s.Text) == 7
    assert said("stall after 2").text == "word 1 word 2 "
    assert s.Exited(9, "stderr ended with: demo: out of ideas") in said("exit 9").signals


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("refuse", s.Finished),
        ("think", s.Finished),
        ("tool", s.Finished),
        ("build", s.Finished),
        ("slow start", s.Finished),
        ("escape", s.Finished),
        ("fail", s.Failed),
        ("exit", s.Exited),
        ("exit at once", s.Exited),
        ("garbage", s.Broken),
        ("vanish", s.Gone),
        ("ask", s.Asked),
        ("stall", s.Taken),
        ("stall after", s.Text),
        ("stuck tool", s.Sampled),
        ("pings", s.Heartbeat),
        ("stubborn", s.Text),
    ],
)
def test_each_request_leads_to_the_end_that_it_is_for(text: str, last: type[s.Signal]) -> None:
    assert isinstance(said(text).signals[-1], last)


def test_every_signal_is_of_its_process_and_run() -> None:
    bench = said("tool")
    assert {(group.process, group.run) for group in bench.groups} == {("r_1.1", "r_1")}


def test_a_build_is_quiet_and_seen_to_be_at_work() -> None:
    bench = said("build 10")
    samples = [x.sample for x in bench.signals if isinstance(x, s.Sampled)]
    assert len(samples) == 10
    assert all(sample.busy for sample in samples)
    assert bench.count(s.ToolProgress) == 0


def test_a_stuck_tool_is_seen_not_to_be_at_work() -> None:
    samples = [x.sample for x in said("stuck tool").signals if isinstance(x, s.Sampled)]
    assert samples
    assert not any(sample.busy for sample in samples)


@pytest.mark.parametrize("allow", [True, False])
def test_what_it_asks_leave_for_is_done_only_if_it_is_allowed(allow: bool) -> None:
    async def scene(bench: Bench) -> None:
        bench.say("ask")
        await bench.wait(5)
        bench.link.write(2, f.Answer("r_1", "q1", allow))
        await bench.wait(5)

    bench = play(scene)
    assert bench.count(s.ToolStarted) == allow
    assert bench.signals[-1] == s.Finished()


def test_an_answer_to_another_question_is_ignored() -> None:
    async def scene(bench: Bench) -> None:
        bench.say("ask")
        await bench.wait(5)
        bench.link.write(2, f.Answer("r_1", "another", True))
        await bench.wait(5)

    assert play(scene).signals[-1] == s.Taken(2)


def test_steering_is_noted_in_the_middle_of_the_answer() -> None:
    async def scene(bench: Bench) -> None:
        bench.say("long 20")
        await bench.wait(1)
        bench.link.write(2, f.SteerIn("r_1", "m_2", "in French"))
        await bench.wait(5)

    text = play(scene).text
    assert text.index("word 5") < text.index("“in French”") < text.index("word 20")


def test_nothing_is_steered_into_a_turn_that_is_over() -> None:
    async def scene(bench: Bench) -> None:
        bench.say("hello")
        await bench.wait(HORIZON_S)
        bench.link.write(2, f.SteerIn("r_1", "m_2", "in French"))
        await bench.wait(5)

    assert s.Taken(2) not in play(scene).signals


def test_an_interrupted_turn_is_aborted_and_says_no_more() -> None:
    async def scene(bench: Bench) -> None:
        bench.say("long")
        await bench.wait(1)
        bench.link.write(2, f.Interrupt("r_1"))
        await bench.wait(HORIZON_S)

    bench = play(scene)
    assert bench.signals[-2:] == [s.Taken(2), s.Aborted()]


def test_an_interrupt_of_another_run_is_ignored() -> None:
    async def scene(bench: Bench) -> None:
        bench.say("long 20")
        bench.link.write(2, f.Interrupt("r_0"))
        await bench.wait(HORIZON_S)

    assert play(scene).signals[-1] == s.Finished()


def test_an_interrupt_after_the_end_is_not_answered() -> None:
    async def scene(bench: Bench) -> None:
        bench.say("hello")
        await bench.wait(20)
        bench.link.write(2, f.Interrupt("r_1"))
        await bench.wait(20)

    assert play(scene).count(s.Aborted) == 0


def test_a_frame_that_comes_again_is_taken_and_not_played_again() -> None:
    async def scene(bench: Bench) -> None:
        bench.say("long 3")
        bench.say("long 3")
        await bench.wait(HORIZON_S)

    bench = play(scene)
    assert bench.count(s.Taken) == 2
    assert bench.count(s.Text) == 3


def test_it_takes_one_turn_after_another() -> None:
    async def scene(bench: Bench) -> None:
        bench.say("long 2")
        await bench.wait(5)
        bench.link.ready_for("r_2")
        await bench.wait(1)
        bench.link.write(2, f.Say("r_2", "m_2", "long 3"))
        await bench.wait(5)

    bench = play(scene)
    assert [group.run for group in bench.groups if s.Finished() in group.signals] == ["r_1", "r_2"]
    assert s.Group("r_1.1", "r_2", (s.Ready(),)) in bench.groups


def test_a_sweep_is_confirmed() -> None:
    async def scene(bench: Bench) -> None:
        bench.link.sweep()
        await bench.wait(1)

    assert play(scene).signals[-1] == s.Swept()


def test_a_polite_process_goes_when_it_is_asked_to() -> None:
    async def scene(bench: Bench) -> None:
        bench.say("long")
        await bench.wait(1)
        bench.link.terminate()
        await bench.wait(HORIZON_S)

    bench = play(scene)
    assert bench.count(s.Gone) == 1
    assert bench.signals[-1] == s.Gone()


def test_a_stubborn_one_listens_to_nothing_but_a_kill() -> None:
    async def scene(bench: Bench) -> None:
        bench.say("stubborn")
        await bench.wait(2)
        bench.link.write(2, f.Interrupt("r_1"))
        bench.link.terminate()
        await bench.wait(HORIZON_S)
        assert isinstance(bench.signals[-1], s.Text)
        bench.link.kill()
        await bench.wait(HORIZON_S)

    assert play(scene).signals[-1] == s.Gone()


@pytest.mark.parametrize("text", [*REQUESTS, "hello"])
@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.1, 1.0, 7.3])
def test_after_a_kill_it_is_gone_once_and_silent(text: str, after_s: float) -> None:
    async def scene(bench: Bench) -> None:
        bench.say(text)
        await bench.wait(after_s)
        bench.link.kill()
        bench.link.kill()
        await bench.wait(1)
        bench.link.write(2, f.Interrupt("r_1"))
        bench.link.sweep()
        bench.link.terminate()
        bench.link.kill()
        bench.link.resume()
        await bench.wait(HORIZON_S)

    bench = play(scene)
    assert bench.count(s.Gone) == 1
    assert bench.signals[-1] == s.Gone()


def test_a_kill_does_not_wait_for_a_store_that_is_behind() -> None:
    async def scene(bench: Bench) -> None:
        bench.say("long")
        bench.link.pause()
        bench.link.kill()
        await bench.wait(0.01)

    assert play(scene).signals[-1] == s.Gone()


def test_while_it_is_paused_nothing_is_read_and_nothing_is_lost() -> None:
    async def scene(bench: Bench) -> None:
        bench.say("long 20")
        await bench.wait(0.55)
        bench.link.pause()
        heard = len(bench.signals)
        await bench.wait(HORIZON_S)
        assert len(bench.signals) == heard
        bench.link.resume()
        await bench.wait(HORIZON_S)

    bench = play(scene)
    assert bench.count(s.Text) == 20
    assert bench.signals[-1] == s.Finished()


@pytest.mark.parametrize("end", ["detach", "kill"])
@pytest.mark.parametrize("text", ["long", "stubborn", "pings", "build", "ask"])
def test_no_timer_of_it_is_left_once_it_is_let_go_of_or_ended(text: str, end: str) -> None:
    """On virtual time, a loop with nothing left to wait for says so, and says when."""
    moments: list[float] = []

    async def act() -> None:
        loop = asyncio.get_running_loop()
        bench = Bench()
        await bench.wait(1.5)
        bench.say(text)
        await bench.wait(1)
        getattr(bench.link, end)()
        heard = len(bench.groups)
        await bench.wait(0)
        await bench.wait(0)
        moments.append(loop.time())
        try:
            await loop.create_future()
        finally:
            moments.append(loop.time())
            assert len(bench.groups) == heard + (end == "kill")

    with pytest.raises(virtual.Deadlock):
        virtual.run(act())
    assert moments == [2.5, 2.5]


def test_after_a_restart_nothing_of_it_is_left_and_that_is_said() -> None:
    async def act() -> list[s.Group]:
        groups: list[s.Group] = []
        DemoAgent().reattach(OPENING, 17, groups.append)
        assert groups == []
        await asyncio.sleep(1)
        return groups

    assert virtual.run(act()) == [s.Group("r_1.1", "r_1", (s.Gone(),))]


def test_it_says_what_it_can_do() -> None:
    abilities = DemoAgent().abilities
    assert abilities.steer
    assert abilities.interrupt
    assert abilities.approvals
    assert abilities.thinking
    assert not abilities.resume
    assert not DemoAgent().outlives_server
