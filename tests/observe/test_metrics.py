"""Metrics: counted from stored events, looked up when asked, and cheap enough for every word."""

from __future__ import annotations

import asyncio
import time

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.helpers.shell import FakeAgent, let_pass, settle
from tests.observe.rig import Watched
from turnkeeper.core import commands as c
from turnkeeper.core import events as e
from turnkeeper.core import signals as s
from turnkeeper.core.limits import Limits
from turnkeeper.observe.lag import LagMeter
from turnkeeper.observe.metrics import Metrics
from turnkeeper.testing.virtual import run

MICROSECONDS = 1e6


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"turnkeeper_{name}", labels)


def watched(agent: FakeAgent | None = None, **limits: float) -> tuple[Metrics, Watched]:
    metrics = Metrics(["fake"], version="1")
    rig = Watched(metrics, agent, c.Policy(limits=Limits(**limits)))
    metrics.attend(rig.dispatcher)
    return metrics, rig


# Runs ---------------------------------------------------------------------------------------------


def test_a_run_is_counted_by_how_it_ended() -> None:
    async def main() -> None:
        metrics, rig = watched()
        session = await rig.session()
        await rig.dispatcher.wait((await rig.dispatcher.send(session, "hello")).run)
        told = {"agent": "fake", "outcome": "completed"}
        assert value(metrics, "runs_total", reason="end_turn", **told) == 1
        assert value(metrics, "runs_total", reason="refused", **told) == 0
        assert value(metrics, "run_duration_seconds_count", **told) == 1

    run(main())


def test_a_run_is_timed_from_its_start_and_its_first_output() -> None:
    async def main() -> None:
        metrics, rig = watched(FakeAgent(answers=False))
        session = await rig.session()
        sent = await rig.dispatcher.send(session, "hello")
        await let_pass(3)
        rig.agent.link.say(s.Thinking("hm"))
        await let_pass(4)
        rig.agent.link.say(s.Text("done"), s.Finished())
        await rig.dispatcher.wait(sent.run)
        assert value(metrics, "first_output_seconds_sum", agent="fake") == 3
        told = {"agent": "fake", "outcome": "completed"}
        assert value(metrics, "run_duration_seconds_sum", **told) == 7

    run(main())


def test_first_output_and_ending_in_one_batch_are_both_timed() -> None:
    async def main() -> None:
        metrics, rig = watched()
        session = await rig.session()
        for _ in range(3):
            await rig.dispatcher.wait((await rig.dispatcher.send(session, "hello")).run)
        assert value(metrics, "first_output_seconds_count", agent="fake") == 3

    run(main())


def test_waiting_in_the_queue_is_timed_apart() -> None:
    async def main() -> None:
        metrics, rig = watched(FakeAgent(answers=False))
        session = await rig.session()
        await rig.dispatcher.send(session, "first")
        await settle()
        await rig.dispatcher.send(session, "second")
        await let_pass(5)
        rig.agent.link.say(s.Finished())
        await settle()
        assert value(metrics, "queue_wait_seconds_sum", agent="fake") == 5
        assert value(metrics, "queue_wait_seconds_count", agent="fake") == 2

    run(main())


def test_a_stop_is_timed_from_the_decision_to_the_end_and_to_the_last_process() -> None:
    async def main() -> None:
        agent = FakeAgent(answers=False)
        agent.polite = agent.mortal = False
        metrics, rig = watched(agent, drain_s=5, term_s=2)
        session = await rig.session()
        sent = await rig.dispatcher.send(session, "hello")
        await settle()
        await rig.dispatcher.stop(sent.run)
        await rig.dispatcher.wait(sent.run)
        assert value(metrics, "stop_latency_seconds_sum", agent="fake") == 5
        await let_pass(3)
        agent.link.say(s.Gone())
        await settle()
        assert value(metrics, "cleanup_seconds_sum", agent="fake") == 3
        assert value(metrics, "kills_total", agent="fake") == 1

    run(main())


def test_a_queued_run_that_is_stopped_has_no_duration() -> None:
    async def main() -> None:
        metrics, rig = watched(FakeAgent(answers=False))
        session = await rig.session()
        await rig.dispatcher.send(session, "first")
        waiting = await rig.dispatcher.send(session, "second")
        await rig.dispatcher.stop(waiting.run)
        told = {"agent": "fake", "outcome": "cancelled"}
        assert value(metrics, "runs_total", reason="stopped", **told) == 1
        assert value(metrics, "run_duration_seconds_count", **told) is None

    run(main())


def test_a_stall_is_counted_by_its_clock() -> None:
    async def main() -> None:
        metrics, rig = watched(FakeAgent(answers=False), first_output_s=10)
        session = await rig.session()
        sent = await rig.dispatcher.send(session, "hello")
        await rig.dispatcher.wait(sent.run)
        assert value(metrics, "stalls_total", agent="fake", clock="first_output") == 1
        told = {"agent": "fake", "outcome": "timed_out", "reason": "first_output"}
        assert value(metrics, "runs_total", **told) == 1

    run(main())


def test_work_that_made_way_is_counted() -> None:
    async def main() -> None:
        metrics, rig = watched(FakeAgent(answers=False))
        session = await rig.session()
        await rig.dispatcher.send(session, "slow", priority="background")
        await settle()
        await rig.dispatcher.send(session, "quick")
        await settle()
        assert value(metrics, "runs_requeued_total", agent="fake", cause="preempted") == 1

    run(main())


def test_an_approval_is_counted_and_timed() -> None:
    async def main() -> None:
        metrics, rig = watched(FakeAgent(answers=False))
        session = await rig.session()
        sent = await rig.dispatcher.send(session, "hello")
        await settle()
        rig.agent.link.say(s.Asked("q1", "bash", {}))
        await let_pass(12)
        await rig.dispatcher.answer(f"a{sent.run[1:]}.1", allow=True)
        assert value(metrics, "approvals_total", agent="fake", decision="allowed") == 1
        assert value(metrics, "approval_wait_seconds_sum", agent="fake") == 12

    run(main())


# Now ----------------------------------------------------------------------------------------------


def test_what_runs_and_what_waits_is_shown_by_phase() -> None:
    async def main() -> None:
        metrics, rig = watched(FakeAgent(answers=False))
        session = await rig.session()
        for _ in range(3):
            await rig.dispatcher.send(session, "hello")
        await settle()
        assert value(metrics, "runs_now", agent="fake", phase="waiting") == 1
        assert value(metrics, "runs_now", agent="fake", phase="queued") == 2
        assert value(metrics, "runs_now", agent="fake", phase="tool") == 0
        assert value(metrics, "sessions_loaded") == 1
        assert value(metrics, "agent_processes") == 1

    run(main())


def test_those_who_watch_are_counted_as_long_as_they_do() -> None:
    async def main() -> None:
        metrics, rig = watched()
        session = await rig.session()
        watchers = [await rig.dispatcher.watch(session) for _ in range(3)]
        assert value(metrics, "watchers") == 3
        watchers[0].close()
        assert value(metrics, "watchers") == 2

    run(main())


def test_trouble_of_the_store_is_shown() -> None:
    async def main() -> None:
        trouble: list[str] = []
        metrics = Metrics(version="1")
        rig = Watched(metrics)
        metrics.attend(rig.dispatcher, lambda: trouble[0] if trouble else None)
        assert value(metrics, "store_trouble") == 0
        trouble.append("the disk is full")
        assert value(metrics, "store_trouble") == 1

    run(main())


def test_the_page_has_the_process_and_the_build() -> None:
    metrics = Metrics(version="1.2.3")
    page = {family.name: family for family in _families(metrics)}
    assert page["process_resident_memory_bytes"].samples[0].value > 1_000_000
    assert page["process_cpu_seconds"].samples[0].value > 0
    assert page["turnkeeper_build_info"].samples[0].labels["version"] == "1.2.3"


def test_a_loop_that_stands_still_is_on_the_page() -> None:
    async def main() -> None:
        metrics, told = Metrics(version="1"), asyncio.Event()

        def heard(lag_s: float) -> None:
            metrics.lagged(lag_s)
            if lag_s >= 0.2:
                told.set()

        meter = LagMeter(heard, every_s=0.01)
        meter.start()
        until = time.monotonic() + 0.25
        while time.monotonic() < until:
            pass
        await asyncio.wait_for(told.wait(), 30)
        meter.stop()
        slow = (value(metrics, "loop_lag_seconds_count") or 0) - (
            value(metrics, "loop_lag_seconds_bucket", le="0.1") or 0
        )
        assert slow >= 1

    asyncio.run(main())


# Restarts -----------------------------------------------------------------------------------------


async def _restarted(metrics: Metrics, rig: Watched, *, take_up: bool) -> None:
    rig.observer = metrics
    if take_up:
        await metrics.take_up(rig.store)
    await rig.another_server()
    metrics.attend(rig.dispatcher)


def test_a_run_that_a_restart_took_up_is_shown_counted_once_and_timed_from_its_start() -> None:
    async def main() -> None:
        first, rig = watched(FakeAgent(answers=False, outlives_server=True))
        session = await rig.session()
        sent = await rig.dispatcher.send(session, "hello")
        queued = await rig.dispatcher.send(session, "next")
        await let_pass(10)
        second = Metrics(["fake"], version="1")
        await _restarted(second, rig, take_up=True)
        assert value(second, "runs_now", agent="fake", phase="queued") == 1
        assert value(second, "runs_now", agent="fake", phase="waiting") == 1
        await let_pass(10)
        rig.agent.link.say(s.Text("done"), s.Finished())
        await rig.dispatcher.wait(sent.run)
        await settle()
        told = {"agent": "fake", "outcome": "completed"}
        assert value(second, "runs_total", reason="end_turn", **told) == 1
        assert value(second, "run_duration_seconds_sum", **told) == 20
        assert value(second, "queue_wait_seconds_sum", agent="fake") == 20
        assert value(second, "runs_now", agent="fake", phase="queued") == 0
        assert (await rig.dispatcher.look(queued.run)).state == "running"
        assert value(first, "runs_total", reason="end_turn", **told) == 0

    run(main())


def test_a_run_whose_beginning_nobody_told_of_is_counted_and_not_timed() -> None:
    async def main() -> None:
        _, rig = watched(FakeAgent(answers=False, outlives_server=True))
        session = await rig.session()
        sent = await rig.dispatcher.send(session, "hello")
        await let_pass(10)
        second = Metrics(["fake"], version="1")
        await _restarted(second, rig, take_up=False)
        rig.agent.link.say(s.Text("done"), s.Finished())
        await rig.dispatcher.wait(sent.run)
        told = {"agent": "fake", "outcome": "completed"}
        assert value(second, "runs_total", reason="end_turn", **told) == 1
        assert value(second, "run_duration_seconds_count", **told) is None

    run(main())


# Bounds -------------------------------------------------------------------------------------------


def _families(metrics: Metrics) -> list[Metric]:
    return list(text_string_to_metric_families(metrics.render().decode()))


def _series(metrics: Metrics) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    return {
        (sample.name, tuple(sorted(sample.labels.items())))
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def test_more_sessions_and_runs_make_no_more_series() -> None:
    async def main() -> None:
        metrics, rig = watched()
        for _ in range(2):
            session = await rig.session()
            await rig.dispatcher.wait((await rig.dispatcher.send(session, "hello")).run)
        before = _series(metrics)
        for _ in range(50):
            session = await rig.session(title="a title of its own")
            await rig.dispatcher.wait((await rig.dispatcher.send(session, "hello")).run)
        assert _series(metrics) == before
        labels = {name for _, found in before for name, _ in found}
        assert labels <= set(
            "agent outcome reason cause clock decision kind phase le version python".split()
        )

    run(main())


def test_what_has_ended_is_not_kept() -> None:
    async def main() -> None:
        metrics, rig = watched()
        session = await rig.session()
        for _ in range(20):
            await rig.dispatcher.wait((await rig.dispatcher.send(session, "hello")).run)
        await settle()
        kept = (metrics._times, metrics._awaiting, metrics._cleaning, metrics._asked)
        assert [len(one) for one in kept] == [0, 0, 0, 0]

    run(main())


def test_counting_a_word_of_an_agent_takes_less_than_a_microsecond() -> None:
    metrics = Metrics(["fake"], version="1")
    started = e.RunStarted("m_1", Limits())
    metrics.stored("fake", [e.Event(1, "s_1", "r_1", 0.0, started)], 0.0)
    words = [e.Event(n, "s_2", "r_2", 0.0, e.OutputText("word ")) for n in range(100)]
    best = float("inf")
    for _ in range(10):
        began = time.process_time()
        for _ in range(200):
            metrics.stored("fake", words, 0.001)
        best = min(best, (time.process_time() - began) / (200 * len(words)))
    assert value(metrics, "events_total", agent="fake", kind="output.text") == 10 * 200 * 100
    assert best * MICROSECONDS <= 1.0


def test_every_batch_is_counted_with_its_size_and_its_time() -> None:
    metrics = Metrics(version="1")
    metrics.stored("a", [e.Event(1, "s", "r", 0.0, e.OutputText("x"))], 0.002)
    metrics.stored("a", [e.Event(n, "s", "r", 0.0, e.OutputText("x")) for n in range(7)], 3.0)
    assert value(metrics, "append_events_sum") == 8
    assert value(metrics, "append_events_bucket", le="5.0") == 1
    assert value(metrics, "append_seconds_bucket", le="0.0025") == 1
    assert value(metrics, "append_seconds_count") == 2
    assert value(metrics, "events_total", agent="a", kind="output.text") == 8
