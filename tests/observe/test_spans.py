"""Spans of runs, attempts and tools, as OpenTelemetry's own exporter gets them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.trace import StatusCode

from tests.helpers.shell import FakeAgent, let_pass, settle
from tests.observe.rig import Watched
from turnkeeper.core import commands as c
from turnkeeper.core import events as e
from turnkeeper.core import signals as s
from turnkeeper.core.errors import MISSING_PART, InvalidValue, TurnkeeperError
from turnkeeper.core.limits import Limits
from turnkeeper.observe import otel
from turnkeeper.observe.span import span_id, trace_id
from turnkeeper.observe.spans import Spans
from turnkeeper.testing.virtual import WALL_AT_START, run

NS = 1_000_000_000


class Collector:
    """OpenTelemetry's SDK with its exporter in memory."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self._kept = InMemorySpanExporter()
        self._sender = otel.Sender(SimpleSpanProcessor(self._kept), version="1", sampler=sampler)
        self.send = self._sender.send

    def spans(self) -> Sequence[ReadableSpan]:
        return self._kept.get_finished_spans()

    def named(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.spans() if span.name == name]
        return found


def at(span: ReadableSpan) -> tuple[float, float]:
    """From when to when, in seconds of virtual time."""
    assert span.start_time is not None
    assert span.end_time is not None
    start, end = span.start_time / NS - WALL_AT_START, span.end_time / NS - WALL_AT_START
    return round(start, 3), round(end, 3)


def ids(span: ReadableSpan) -> tuple[int, int, int | None]:
    assert span.context is not None
    above = span.parent.span_id if span.parent is not None else None
    return span.context.trace_id, span.context.span_id, above


def values(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


# What there is ------------------------------------------------------------------------------------


def test_a_run_its_attempt_and_its_tool_are_spans_within_one_another() -> None:
    collector = Collector()

    async def main() -> None:
        rig = Watched(Spans(collector.send), FakeAgent(answers=False))
        sent = await rig.dispatcher.send(await rig.session(), "hello")
        await let_pass(1)
        rig.agent.link.say(s.Text("I look"))
        await let_pass(1)
        rig.agent.link.say(s.ToolStarted("t1", "bash", {"command": "export TOKEN=very-secret"}))
        await let_pass(3)
        rig.agent.link.say(s.ToolEnded("t1"))
        await let_pass(1)
        rig.agent.link.say(s.Finished())
        await rig.dispatcher.wait(sent.run)

    run(main())
    whole, attempt, tool = map(collector.named, ("run fake", "attempt 1", "tool bash"))
    trace = trace_id("r_1")
    assert ids(whole) == (trace, span_id("r_1"), None)
    assert ids(attempt) == (trace, span_id("r_1", "attempt", 1), span_id("r_1"))
    assert ids(tool) == (trace, span_id("r_1", "tool", "t1"), span_id("r_1", "attempt", 1))
    assert [at(span) for span in (whole, attempt, tool)] == [(0, 6), (0, 6), (2, 5)]
    assert values(whole)["turnkeeper.outcome"] == "completed"
    assert values(whole)["gen_ai.conversation.id"] == "s_1"
    assert values(tool)["gen_ai.tool.name"] == "bash"
    assert whole.status.status_code is StatusCode.UNSET
    assert whole.resource.attributes["service.name"] == "turnkeeper"
    assert "very-secret" not in "".join(span.to_json() for span in collector.spans())


def test_what_happened_in_a_run_is_noted_with_its_time() -> None:
    collector = Collector()

    async def main() -> None:
        rig = Watched(Spans(collector.send), FakeAgent(answers=False))
        sent = await rig.dispatcher.send(await rig.session(), "hello")
        await let_pass(1)
        rig.agent.link.say(s.Thinking("hm"), s.Text("I"))
        rig.agent.link.say(s.Asked("q", "bash"))
        await settle()
        await rig.dispatcher.answer("a_1.1", allow=False, by="ann")
        rig.agent.link.say(s.Finished())
        await rig.dispatcher.wait(sent.run)

    run(main())
    notes = collector.named("run fake").events
    assert [note.name for note in notes] == [
        "message.delivered", "first output", "approval.requested", "approval.settled",
    ]  # fmt: skip
    assert dict(notes[-1].attributes or {})["by"] == "ann"
    assert round(notes[1].timestamp / NS - WALL_AT_START, 3) == 1


def test_a_bad_ending_is_an_error_with_its_cause_and_a_stop_is_none() -> None:
    collector = Collector()

    async def main() -> None:
        rig = Watched(Spans(collector.send), FakeAgent(answers=False), _limits(idle_s=10))
        session = await rig.session()
        late = await rig.dispatcher.send(session, "late")
        await settle()
        rig.agent.link.say(s.Text("x"))
        await rig.dispatcher.wait(late.run)
        stopped = await rig.dispatcher.send(session, "stopped")
        await settle()
        await rig.dispatcher.stop(stopped.run)
        await rig.dispatcher.wait(stopped.run)

    run(main())
    late, stopped = [span for span in collector.spans() if span.name == "run fake"]
    assert late.status.status_code is StatusCode.ERROR
    assert (late.status.description or "").startswith("TK-103 ")
    assert (values(late)["turnkeeper.code"], values(late)["turnkeeper.clock"]) == ("TK-103", "idle")
    assert stopped.status.status_code is StatusCode.UNSET
    assert values(stopped)["turnkeeper.reason"] == "stopped"


def test_a_tool_that_is_open_when_its_run_ends_is_told_as_unfinished() -> None:
    collector = Collector()

    async def main() -> None:
        rig = Watched(Spans(collector.send), FakeAgent(answers=False))
        sent = await rig.dispatcher.send(await rig.session(), "hello")
        await settle()
        rig.agent.link.say(s.ToolStarted("t1", "bash"))
        await let_pass(2)
        await rig.dispatcher.stop(sent.run)
        await rig.dispatcher.wait(sent.run)

    run(main())
    tool = collector.named("tool bash")
    assert at(tool) == (0, 2)
    assert values(tool)["turnkeeper.unfinished"] is True


def test_a_tool_that_is_used_twice_under_one_id_is_two_spans() -> None:
    collector = Collector()

    async def main() -> None:
        rig = Watched(Spans(collector.send), FakeAgent(answers=False))
        sent = await rig.dispatcher.send(await rig.session(), "hello")
        await settle()
        for ok in (True, False):
            rig.agent.link.say(s.ToolStarted("t1", "bash"), s.ToolEnded("t1", ok))
            await settle()
        rig.agent.link.say(s.Finished())
        await rig.dispatcher.wait(sent.run)

    run(main())
    first, second = [span for span in collector.spans() if span.name == "tool bash"]
    assert ids(first)[1] != ids(second)[1]
    assert [one.status.status_code for one in (first, second)] == [
        StatusCode.UNSET, StatusCode.ERROR,
    ]  # fmt: skip


def test_a_try_that_failed_and_the_next_one_are_both_told() -> None:
    collector = Collector()

    async def main() -> None:
        agent = FakeAgent(answers=False)
        agent.ready = False
        rig = Watched(Spans(collector.send), agent)
        sent = await rig.dispatcher.send(await rig.session(), "hello")
        await settle()
        agent.ready = agent.answers = True
        agent.link.say(s.Broken("protocol_error", "it said Bearer " + "Zk3" * 9, retry=True))
        await rig.dispatcher.wait(sent.run)

    run(main())
    first, second = collector.named("attempt 1"), collector.named("attempt 2")
    assert first.status.status_code is StatusCode.ERROR
    assert "Zk3" not in (first.status.description or "")
    assert second.status.status_code is StatusCode.UNSET
    assert values(collector.named("run fake"))["turnkeeper.attempts"] == 2


def test_a_run_that_never_started_is_told_from_its_acceptance() -> None:
    collector = Collector()

    async def main() -> None:
        rig = Watched(Spans(collector.send), FakeAgent(answers=False))
        session = await rig.session()
        await rig.dispatcher.send(session, "first")
        waiting = await rig.dispatcher.send(session, "second")
        await let_pass(4)
        await rig.dispatcher.stop(waiting.run)

    run(main())
    (span,) = collector.spans()
    assert at(span) == (0, 4)
    assert values(span)["turnkeeper.attempts"] == 0


# Traces -------------------------------------------------------------------------------------------


def test_a_child_run_and_its_own_child_are_in_the_trace_of_the_root() -> None:
    collector = Collector()

    async def main() -> None:
        rig = Watched(Spans(collector.send), FakeAgent(answers=False))
        sessions = [await rig.session() for _ in range(3)]
        root = await rig.dispatcher.send(sessions[0], "root")
        await settle()
        child = await rig.dispatcher.start_child(root.run, sessions[1], "child")
        await settle()
        await rig.dispatcher.start_child(child.run, sessions[2], "grandchild")
        await settle()
        for link in reversed(rig.agent.links):
            link.say(s.Finished())
            await settle()

    run(main())
    child, root = "r_2", "r_1"
    found = {values(x)["turnkeeper.run"]: ids(x) for x in collector.spans() if x.name[:3] == "run"}
    trace = trace_id(root)
    assert found[root] == (trace, span_id(root), None)
    assert found[child] == (trace, span_id(child), span_id(root))
    assert found["r_3"] == (trace, span_id("r_3"), span_id(child))


def test_work_that_comes_back_is_in_the_same_trace_and_follows_what_made_way() -> None:
    collector = Collector()

    async def main() -> None:
        rig = Watched(Spans(collector.send), FakeAgent(answers=False))
        session = await rig.session()
        await rig.dispatcher.send(session, "slow", priority="background")
        await settle()
        await rig.dispatcher.send(session, "quick")
        for _ in range(2):
            await settle()
            rig.agent.link.say(s.Finished())
        await settle()

    run(main())
    found = {values(x)["turnkeeper.run"]: x for x in collector.spans() if x.name == "run fake"}
    again = found["r_1-2"]
    assert ids(again) == (trace_id("r_1"), span_id("r_1-2"), None)
    assert [link.context.span_id for link in again.links] == [span_id("r_1")]


def test_a_restart_goes_on_with_the_trace_and_the_run_keeps_its_beginning() -> None:
    before, after = Collector(), Collector()

    async def main() -> None:
        rig = Watched(Spans(before.send), FakeAgent(answers=False, outlives_server=True))
        sessions = [await rig.session() for _ in range(3)]
        root = await rig.dispatcher.send(sessions[0], "root")
        await settle()
        child = await rig.dispatcher.start_child(root.run, sessions[1], "child")
        await settle()
        rig.agent.link.say(s.ToolStarted("t1", "bash"), s.ToolEnded("t1"))
        rig.agent.link.say(s.ToolStarted("t2", "bash"))
        await let_pass(10)
        rig.observer = new = Spans(after.send)
        await new.take_up(rig.store, WALL_AT_START + 10)
        await rig.another_server()
        await settle()
        await rig.dispatcher.start_child(child.run, sessions[2], "grandchild")
        await let_pass(5)
        for link in reversed(rig.agent.links[2:]):
            said = (s.ToolEnded("t2"),) if link.run == child.run else ()
            link.say(*said, s.Finished())
            await settle()

    run(main())
    trace = trace_id("r_1")
    assert ids(before.named("tool bash")) == (
        trace, span_id("r_2", "tool", "t1"), span_id("r_2", "attempt", 1),
    )  # fmt: skip
    assert {ids(span)[0] for span in after.spans()} == {trace}
    runs = {values(x)["turnkeeper.run"]: x for x in after.spans() if x.name == "run fake"}
    assert set(runs) == {"r_1", "r_2", "r_3"}
    assert at(runs["r_2"]) == (0, 15)
    assert ids(runs["r_3"]) == (trace, span_id("r_3"), span_id("r_2"))
    assert values(runs["r_2"])["turnkeeper.taken_up"] is True
    tool = after.named("tool")
    assert (ids(tool)[1], at(tool)) == (span_id("r_2", "tool", "t2"), (10, 15))


def test_every_span_of_a_trace_is_sampled_or_none_is() -> None:
    half, none = Collector(ParentBased(TraceIdRatioBased(0.5))), Collector(ALWAYS_OFF)

    async def main(collector: Collector) -> None:
        rig = Watched(Spans(collector.send))
        session = await rig.session()
        for _ in range(30):
            await rig.dispatcher.wait((await rig.dispatcher.send(session, "hello")).run)

    run(main(half))
    run(main(none))
    assert none.spans() == ()
    names: dict[int, list[str]] = {}
    for span in half.spans():
        names.setdefault(ids(span)[0], []).append(span.name)
    assert 0 < len(names) < 30
    assert all(sorted(found) == ["attempt 1", "run fake"] for found in names.values())


# Costs and bounds ---------------------------------------------------------------------------------


def test_nothing_is_kept_of_what_has_ended() -> None:
    found = Spans(lambda span: None)

    async def main() -> None:
        rig = Watched(found, FakeAgent())
        session = await rig.session()
        for _ in range(10):
            await rig.dispatcher.wait((await rig.dispatcher.send(session, "hello")).run)
        rig.agent.answers = False
        sent = await rig.dispatcher.send(session, "hello")
        await settle()
        await rig.dispatcher.stop(sent.run)
        await rig.dispatcher.wait(sent.run)
        await settle()

    run(main())
    assert (len(found._runs), found._silent) == (0, 0)


def test_a_word_of_an_agent_costs_next_to_nothing() -> None:
    found = Spans(lambda span: None)
    words = [e.Event(n, "s_1", "r_1", 0.0, e.OutputText("word ")) for n in range(100)]
    best = float("inf")
    for _ in range(10):
        began = time.process_time()
        for _ in range(200):
            found.stored("fake", words, 0.001)
        best = min(best, (time.process_time() - began) / (200 * len(words)))
    assert best < 1e-6


# Without the extra --------------------------------------------------------------------------------


def _python(code: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


def test_without_the_extra_the_error_says_what_to_install() -> None:
    said = _python(
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from turnkeeper.core.errors import TurnkeeperError\n"
        "from turnkeeper.observe import spans\n"
        "try: spans.from_environment({})\n"
        "except TurnkeeperError as refused: print(refused)"
    )
    assert said.startswith(MISSING_PART.code)
    assert "pip install 'turnkeeper[otel]'" in said


@pytest.mark.parametrize(
    ("protocol", "package"),
    [
        ("", "opentelemetry-exporter-otlp-proto-http"),
        ("grpc", "opentelemetry-exporter-otlp-proto-grpc"),
    ],
)
def test_without_the_exporter_the_error_says_which(protocol: str, package: str) -> None:
    with pytest.raises(TurnkeeperError, match=package):
        otel.processor_of({"OTEL_EXPORTER_OTLP_PROTOCOL": protocol})


def test_an_unknown_protocol_or_exporter_is_refused_by_name() -> None:
    with pytest.raises(InvalidValue, match="pigeon"):
        otel.processor_of({"OTEL_EXPORTER_OTLP_PROTOCOL": "pigeon"})
    with pytest.raises(TurnkeeperError, match="OTEL_TRACES_EXPORTER"):
        otel.processor_of({"OTEL_TRACES_EXPORTER": "pigeon"})


def test_the_exporter_of_the_environment_is_used() -> None:
    said = _python(
        "from turnkeeper.core import events as e\n"
        "from turnkeeper.core.outcome import Kind, Outcome, Seen\n"
        "from turnkeeper.observe import spans\n"
        "found, close = spans.from_environment({'OTEL_TRACES_EXPORTER': 'console'}, version='1')\n"
        "accepted = e.MessageAccepted('m_1', 'r_1', 'hello')\n"
        "ended = e.RunEnded(Outcome(Kind.CANCELLED, 'stopped', '', Seen(), 2.0))\n"
        "log = [e.Event(1, 's', None, 1.0, accepted), e.Event(2, 's', 'r_1', 2.0, ended)]\n"
        "found.stored('demo', log, 0.0)\n"
        "close(10.0)"
    )
    assert '"name": "run demo"' in said


def _limits(**limits: float) -> c.Policy:
    return c.Policy(limits=Limits(**limits))
