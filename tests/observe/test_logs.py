"""Logs: a line for each record, every fact of an ending, no secret, no waiting for a reader."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers.shell import FakeAgent, Rig, let_pass, settle
from turnkeeper.core import commands as c
from turnkeeper.core import signals as s
from turnkeeper.core.errors import InvalidValue
from turnkeeper.core.limits import Limits
from turnkeeper.observe import logs
from turnkeeper.observe.redact import Redactor
from turnkeeper.testing.virtual import run

log = logging.getLogger("turnkeeper.test")


@pytest.fixture(autouse=True)
def _leave_logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    level = root.level
    yield
    logs.release()
    root.setLevel(level)


class Page(io.StringIO):
    """What was written, once all of it is."""

    def lines(self) -> list[str]:
        logs.release()
        return self.getvalue().splitlines()

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines()]


# The line of an ending ----------------------------------------------------------------------------


def ending_of(agent: FakeAgent, text: str, *said: s.AgentSignal, **limits: float) -> dict[str, Any]:
    """The fields of the one line that a run leaves."""
    page = Page()
    logs.configure(json=True, stream=page)

    async def main() -> None:
        rig = Rig(agent, c.Policy(limits=Limits(**limits)))
        session = await rig.session()
        sent = await rig.dispatcher.send(session, text)
        await settle()
        if said:
            await let_pass(2)
            agent.link.say(*said)
        await rig.dispatcher.wait(sent.run)

    run(main())
    (found,) = [one for one in page.records() if "outcome" in one]
    return found


def test_a_clock_that_ended_a_run_is_named_with_its_budget_and_what_was_last_seen() -> None:
    agent = FakeAgent(answers=False)
    agent.abilities = c.Abilities()
    found = ending_of(agent, "hello", s.Text("half an"), idle_s=10)
    assert found["message"].startswith("run r_1 timed_out/idle TK-103 ")
    named = {key: found[key] for key in ("run", "session", "agent", "outcome", "reason", "code")}
    assert named == {
        "run": "r_1", "session": "s_1", "agent": "fake", "outcome": "timed_out", "reason": "idle",
        "code": "TK-103",
    }  # fmt: skip
    assert (found["clock"], found["budget_s"], found["silent_s"]) == ("idle", 10, 10)
    assert (found["last"], found["cleanup"], found["duration_s"]) == ("output.text", "term", 12)


def test_who_stopped_a_run_is_named() -> None:
    page = Page()
    logs.configure(json=True, stream=page)

    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        sent = await rig.dispatcher.send(await rig.session(), "hello")
        await let_pass(3)
        await rig.dispatcher.stop(sent.run, by="ann")
        await rig.dispatcher.wait(sent.run)

    run(main())
    (found,) = [one for one in page.records() if "outcome" in one]
    assert (found["outcome"], found["reason"], found["by"]) == ("cancelled", "stopped", "ann")
    assert (found["duration_s"], found["cleanup"]) == (3, "sweep")


def test_the_exit_code_of_an_agent_that_died_is_named() -> None:
    found = ending_of(FakeAgent(answers=False), "hello", s.Text("x"), s.Exited(7, "it fell over"))
    assert (found["reason"], found["exit_code"]) == ("agent_exited", 7)


def test_a_completed_run_leaves_the_same_fields() -> None:
    completed = ending_of(FakeAgent(), "hello")
    broken = ending_of(FakeAgent(answers=False), "hello", s.Text("x"), s.Failed("no"))
    assert set(completed) == set(broken)
    assert completed["code"] is None
    assert broken["code"] == "TK-201"


def test_a_run_that_never_started_has_no_duration() -> None:
    page = Page()
    logs.configure(json=True, stream=page)

    async def main() -> None:
        rig = Rig(FakeAgent(answers=False))
        session = await rig.session()
        await rig.dispatcher.send(session, "first")
        waiting = await rig.dispatcher.send(session, "second")
        await let_pass(1)
        await rig.dispatcher.stop(waiting.run)

    run(main())
    (found,) = [one for one in page.records() if "outcome" in one]
    assert found["duration_s"] is None


def test_the_duration_of_a_run_counts_from_its_start_also_after_a_restart() -> None:
    page = Page()
    logs.configure(json=True, stream=page)

    async def main() -> None:
        rig = Rig(FakeAgent(answers=False, outlives_server=True))
        sent = await rig.dispatcher.send(await rig.session(), "hello")
        await let_pass(10)
        await rig.another_server()
        await let_pass(10)
        rig.agent.link.say(s.Text("done"), s.Finished())
        await rig.dispatcher.wait(sent.run)

    run(main())
    (found,) = [one for one in page.records() if "outcome" in one]
    assert found["duration_s"] == 20


# Lines --------------------------------------------------------------------------------------------


def test_whatever_is_given_as_extra_is_a_field() -> None:
    page = Page()
    logs.configure(json=True, stream=page)
    log.info("hello %s", "you", extra={"session": "s_1", "n": 3, "odd": object})
    (found,) = page.records()
    assert found["message"] == "hello you"
    assert (found["level"], found["logger"]) == ("info", "turnkeeper.test")
    assert (found["session"], found["n"]) == ("s_1", 3)
    assert found["at"].endswith("Z")


@pytest.mark.parametrize("as_json", [True, False])
def test_one_record_is_one_line_whatever_an_agent_put_into_it(as_json: bool) -> None:
    page, redact = Page(), Redactor()
    handler = logs.Lines(page)  # by itself: a lone surrogate is too much for others who listen
    handler.setFormatter(logs.JsonLines(redact) if as_json else logs.PlainLines(redact))
    said = "a\nb\r\x1b[31mred\x85\u2028end \ud800"
    record = {"name": "turnkeeper.test", "levelname": "INFO", "msg": "it said %s", "args": (said,)}
    handler.handle(logging.makeLogRecord(record))
    handler.close()
    lines = page.getvalue().splitlines()
    assert len(lines) == 1
    assert "\x1b" not in lines[0]


@pytest.mark.parametrize("as_json", [True, False])
def test_a_fault_is_shown_with_its_traceback(as_json: bool) -> None:
    page = Page()
    logs.configure(json=as_json, stream=page)
    try:
        raise ValueError("boom\x1b[2J")
    except ValueError:
        log.exception("it failed")
    text = "\n".join(page.lines())
    assert "Traceback" in text
    assert "boom" in text
    assert "\x1b" not in text


@pytest.mark.parametrize("as_json", [True, False])
def test_no_secret_is_written_in_a_message_a_field_or_a_traceback(as_json: bool) -> None:
    page = Page()
    redact = logs.configure(json=as_json, stream=page, secrets=["correct horse"])
    redact.hide(["battery staple"])
    try:
        raise ValueError("correct horse")
    except ValueError:
        log.exception(
            "battery staple, Bearer %s", "Zk3" * 9,
            extra={"detail": "correct horse", "deep": {"a": ["battery staple"]}, "token": "short"},
        )  # fmt: skip
    text = "\n".join(page.lines())
    assert "it" not in text or "Traceback" in text
    for secret in ("correct horse", "battery staple", "Zk3Zk3", '"short"'):
        assert secret not in text


def test_a_bad_log_call_harms_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    page = Page()
    handler = logs.Lines(page)
    for said, args in (("%d of them", ("many",)), ("next", ())):
        handler.handle(logging.makeLogRecord({"msg": said, "args": args}))
    handler.close()
    assert page.getvalue() == "next\n"
    assert "many" in capsys.readouterr().err


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(InvalidValue, match="loud"):
        logs.configure(level="loud")


def test_a_level_keeps_what_is_below_it_out() -> None:
    page = Page()
    logs.configure(level="warning", stream=page)
    log.info("no")
    log.warning("yes")
    assert [line.rpartition(" ")[2] for line in page.lines()] == ["yes"]


def test_configuring_again_replaces_and_writes_nothing_twice() -> None:
    first, second = Page(), Page()
    logs.configure(stream=first)
    logs.configure(stream=second)
    log.info("hello")
    assert len(second.lines()) == 1
    assert first.getvalue() == ""


# Readers ------------------------------------------------------------------------------------------


def test_a_reader_that_does_not_read_costs_lines_and_no_time() -> None:
    reading, writing = os.pipe()
    with open(reading, "rb", buffering=0) as reader:
        handler = logs.Lines(open(writing, "w", encoding="utf-8"), behind_max=100)  # noqa: SIM115
        handler.setFormatter(logging.Formatter("%(message)s"))
        record = logging.makeLogRecord({"msg": "x" * 1000})
        began = time.monotonic()
        for _ in range(5000):
            handler.emit(record)
        assert time.monotonic() - began < 10
        assert handler.dropped > 4000
        text = b""
        while b"lines were dropped: nobody read the log" not in text:
            text += reader.read(65536)
    handler.close()  # whose reader is gone by now
    handler._stream.close()


def test_a_program_ends_although_nobody_reads_its_log() -> None:
    code = (
        "import logging; from turnkeeper.observe import logs; logs.configure()\n"
        "for n in range(2000): logging.getLogger('turnkeeper').info('x' * 1000)\n"
        "print('done')"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        assert program.wait(60) == 0
        assert program.stdout is not None
        assert program.stdout.read() == b"done\n"


def test_the_last_lines_of_a_program_are_written() -> None:
    code = (
        "import logging; from turnkeeper.observe import logs; logs.configure()\n"
        "for n in range(500): logging.getLogger('turnkeeper').info('line %s', n)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=True)
    assert done.stderr.count(b"\n") == 500
    assert b"line 499" in done.stderr


def test_the_journal_is_told_each_lines_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    found = os.fstat(writing)
    monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino}")
    with open(writing, "w", encoding="utf-8") as stream:
        logs.configure(stream=stream)
        log.info("so so")
        log.error("bad")
        logs.release()
    with open(reading, encoding="utf-8") as reader:
        lines = reader.read().splitlines()
    assert [line[:3] for line in lines] == ["<6>", "<3>"]
