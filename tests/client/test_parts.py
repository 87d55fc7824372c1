"""The client's decisions, without a network: backoff, outbox, feeds, addresses, errors."""

import inspect
import random
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tidy.source import REPO
from turnkeeper import api
from turnkeeper.api import Problem
from turnkeeper.client import Client, Options, RawEvent, arguments
from turnkeeper.client.address import find, path_of
from turnkeeper.client.backoff import Backoff
from turnkeeper.client.feed import READER_EVENTS, RECENT_BYTES, Feed, Gap, Reader
from turnkeeper.client.outbox import Entry, Outbox
from turnkeeper.client.shapes import AnyEvent, read_event
from turnkeeper.client.trouble import Hitch, from_answer, from_failure
from turnkeeper.client.words import read_told
from turnkeeper.core.errors import (
    CATALOGUE,
    INVALID,
    NOT_TURNKEEPER,
    QUEUE_FULL,
    SHUTTING_DOWN,
    STORE_DOWN,
    UNREACHABLE,
    InvalidValue,
    TurnkeeperError,
)
from turnkeeper.core.events import Event, OutputText, encode
from turnkeeper.net.retry import wait_before_retry_s
from turnkeeper.net.types import HttpFailure, HttpLimits, HttpRequest

# Backoff -------------------------------------------------------------------------------------


@given(st.integers(0, 200), st.integers(0, 2**32))
def test_a_delay_is_never_longer_than_the_bound(failures: int, seed: int) -> None:
    backoff = Backoff(0.1, 15.0, random.Random(seed).random)
    delays = [backoff.next_s() for _ in range(failures)]
    assert all(0 <= delay <= min(15.0, 0.1 * 2**n) for n, delay in enumerate(delays))


def test_delays_are_drawn_from_the_whole_of_what_is_allowed() -> None:
    drawn = iter([0.0, 1.0, 0.5])
    backoff = Backoff(1.0, 100.0, lambda: next(drawn))
    assert [backoff.next_s() for _ in range(3)] == [0.0, 2.0, 2.0]


def test_after_a_success_it_begins_anew() -> None:
    backoff = Backoff(1.0, 100.0, lambda: 1.0)
    assert [backoff.next_s(), backoff.next_s()] == [1.0, 2.0]
    backoff.reset()
    assert backoff.next_s() == 1.0


# Outbox --------------------------------------------------------------------------------------


def entry(session: str, number: int, size: int = 10) -> Entry:
    return Entry(session, f"k{number}", b"x" * size)


def test_of_one_session_only_the_oldest_is_under_way() -> None:
    outbox = Outbox(10, 1000)
    first, second, other = entry("a", 1), entry("a", 2), entry("b", 3)
    for one in (first, second, other):
        outbox.add(one)
    assert [outbox.next(0), outbox.next(0), outbox.next(0)] == [first, other, None]
    assert outbox.remove(first)
    assert outbox.next(0) is second


def test_what_is_put_back_goes_before_what_came_after_it() -> None:
    outbox = Outbox(10, 1000)
    first, second = entry("a", 1), entry("a", 2)
    outbox.add(first)
    outbox.add(second)
    assert outbox.next(0) is first
    outbox.put_back(first, not_before=5.0)
    assert outbox.next(4.9) is None
    assert outbox.due() == 5.0
    assert outbox.next(5.0) is first
    assert first.tries == 2


def test_a_full_outbox_refuses_the_newest_and_keeps_the_rest() -> None:
    outbox = Outbox(2, 1000)
    outbox.add(entry("a", 1))
    outbox.add(entry("b", 2))
    with pytest.raises(TurnkeeperError, match="TK-530 2 messages wait, and no more than 2") as full:
        outbox.add(entry("c", 3))
    assert full.value.fields == {"key": "k3", "waiting": 2, "bytes": 20}
    assert [one.key for one in outbox] == ["k1", "k2"]


def test_an_outbox_is_also_full_by_bytes() -> None:
    outbox = Outbox(100, 1000)
    outbox.add(entry("a", 1, size=600))
    with pytest.raises(TurnkeeperError, match="TK-530 1 messages of 600 bytes wait"):
        outbox.add(entry("a", 2, size=401))
    outbox.add(entry("a", 3, size=400))
    assert outbox.bytes == 1000


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["ok", "again", "gone"]))))
def test_whatever_fails_messages_of_a_session_are_settled_in_the_order_they_came(
    plan: list[tuple[str, str]],
) -> None:
    outbox = Outbox(1000, 10**9)
    for number, (session, _) in enumerate(plan):
        outbox.add(Entry(session, str(number), b""))
    fates = random.Random(0)
    settled: list[Entry] = []
    while len(outbox):
        under_way: list[Entry] = []
        while (found := outbox.next(0)) is not None:
            under_way.append(found)
        assert len({one.session for one in under_way}) == len(under_way)
        for one in under_way:
            if fates.random() < 0.5:
                outbox.put_back(one)
            else:
                assert outbox.remove(one)
                settled.append(one)
    for session in "abc":
        keys = [int(one.key) for one in settled if one.session == session]
        assert keys == sorted(keys)
    assert len(settled) == len(plan)
    assert outbox.bytes == 0


def test_a_session_that_sends_much_does_not_keep_others_from_their_turn() -> None:
    outbox = Outbox(1000, 10**6)
    for number in range(10):
        outbox.add(entry("busy", number))
    outbox.add(entry("quiet", 99))
    first = outbox.next(0)
    assert first is not None
    assert outbox.remove(first)
    second = outbox.next(0)
    assert second is not None
    assert second.session == "quiet"


# Feeds ---------------------------------------------------------------------------------------


def events(first: int, last: int) -> list[AnyEvent]:
    return [Event(seq, "s", None, 0.0, OutputText(str(seq))) for seq in range(first, last + 1)]


def reader(after: int = 0) -> Reader:
    return Reader("s", after, lambda: None)


def read(one: Reader) -> list[int]:
    found: list[int] = []
    while batch := one.take():
        found.extend(event.seq for event in batch)
    return found


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 10)), max_size=30), st.integers(0, 40))
def test_whatever_comes_again_a_reader_sees_each_number_once_and_in_order(
    batches: list[tuple[int, int]], after: int
) -> None:
    feed, one = Feed("s", after), reader(after)
    assert feed.join(one)
    for first, more in batches:
        with suppress(Gap):
            feed.take(events(first, first + more), 1)
    seen = read(one)
    assert seen == list(range(after + 1, feed.position + 1))


def test_a_number_that_is_left_out_is_never_passed_over() -> None:
    feed, one = Feed("s", 0), reader()
    feed.join(one)
    feed.take(events(1, 3), 1)
    with pytest.raises(Gap, match="event 5 of session s came after event 3"):
        feed.take(events(5, 6), 1)
    with pytest.raises(Gap):
        feed.take([*events(4, 4), *events(6, 6)], 1)
    assert read(one) == [1, 2, 3]
    feed.take(events(2, 6), 1)
    assert read(one) == [4, 5, 6]


def test_who_comes_a_little_late_is_given_what_it_lacks() -> None:
    feed, late = Feed("s", 0), reader(2)
    feed.take(events(1, 5), 100)
    assert feed.join(late)
    feed.take(events(6, 7), 100)
    assert read(late) == [3, 4, 5, 6, 7]


def test_who_comes_too_late_is_told_so() -> None:
    feed, late = Feed("s", 0), reader()
    feed.take(events(1, 5), RECENT_BYTES)
    feed.take(events(6, 7), RECENT_BYTES)
    assert not feed.join(late)
    assert feed.join(reader(5))


def test_who_reads_too_slowly_is_let_go_and_can_go_on_from_where_it_is() -> None:
    feed, slow, quick = Feed("s", 0), reader(), reader()
    feed.join(slow)
    feed.join(quick)
    for start in range(1, READER_EVENTS + 2002, 1000):
        feed.take(events(start, start + 999), 1)
        assert len(read(quick)) == 1000
    assert slow.behind
    assert not quick.behind
    seen = read(slow)
    assert seen == list(range(1, slow.last + 1))
    assert slow.last < feed.position


def test_an_event_of_an_unknown_kind_or_version_or_shape_is_given_as_it_is() -> None:
    known = encode(Event(1, "s", "r", 2.0, OutputText("hi")))
    assert read_event(known) == Event(1, "s", "r", 2.0, OutputText("hi"))
    for changed in (
        known.replace(b"output.text", b"output.song"),
        known.replace(b'"data":', b'"v":7,"data":'),
        known.replace(b'"hi"', b'{"rich":"hi"}'),
    ):
        told = read_event(changed)
        assert isinstance(told, RawEvent)
        assert (told.seq, told.session, told.run) == (1, "s", "r")
        assert told.data["text"] in ("hi", {"rich": "hi"})


def test_what_is_not_even_the_outline_of_an_event_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        read_event(b'{"seq": "one"}')


def test_a_message_that_only_a_newer_server_knows_is_passed_over() -> None:
    assert read_told(b'{"type":"sung","tune":[1]}', "x") is None
    assert read_told(b'{"type":"pong","key":"of c","id":"7"}', "x") == api.Pong(id="7")
    for strange in (b"hello", b"[]", b'{"kind":"pong"}', b"\xff\xfe"):
        with pytest.raises(TurnkeeperError, match="TK-532 x says what is no message"):
            read_told(strange, "x")


# Addresses -----------------------------------------------------------------------------------


def test_the_environment_is_asked_for_what_is_not_given() -> None:
    environ = {"TURNKEEPER_URL": "http://there:1", "TURNKEEPER_TOKEN": "secret"}
    found = find(None, None, environ)
    assert (found.base, found.token) == ("http://there:1", "secret")
    given_too = find("https://here/", "other", environ)
    assert (given_too.base, given_too.token) == ("https://here", "other")


@pytest.mark.parametrize(
    ("url", "base", "ws"),
    [
        ("http://127.0.0.1:7433", "http://127.0.0.1:7433", "ws://127.0.0.1:7433/v1/ws"),
        ("https://example.com/tk/", "https://example.com/tk", "wss://example.com/tk/v1/ws"),
        ("http://[::1]:80/", "http://[::1]:80", "ws://[::1]:80/v1/ws"),
    ],
)
def test_an_address_may_have_a_path_and_a_slash(url: str, base: str, ws: str) -> None:
    found = find(url, "t", {})
    assert (found.base, found.ws) == (base, ws)


def test_the_token_may_be_in_the_address_as_the_server_prints_it_and_is_not_shown() -> None:
    found = find("http://127.0.0.1:7433/?token=abc", None, {"TURNKEEPER_TOKEN": "no"})
    assert (found.base, found.token) == ("http://127.0.0.1:7433", "abc")
    assert "abc" not in repr(found)


@pytest.mark.parametrize(
    "url",
    [
        "", "127.0.0.1:7433", "ftp://x", "http://", "http://h:0", "http://h:99999",
        "http://user:pw@h", "http://h/?a=b", "http://h/#x", "http://[::1", "http://hé",
    ],
)  # fmt: skip
def test_an_address_that_cannot_be_used_is_refused_by_its_name(url: str) -> None:
    with pytest.raises(InvalidValue, match="TK-501") as refused:
        find(url, None, {})
    assert refused.value.field == "url"
    assert "pw" not in str(refused.value)


def test_a_wrong_address_in_the_environment_is_refused_by_the_variables_name() -> None:
    with pytest.raises(InvalidValue, match="TURNKEEPER_URL = 'nowhere'"):
        find(None, None, {"TURNKEEPER_URL": "nowhere"})
    with pytest.raises(InvalidValue, match="set TURNKEEPER_URL"):
        find(None, None, {})


@pytest.mark.parametrize("token", ["", "two words", "umläut", "line\nbreak"])
def test_a_token_that_cannot_be_sent_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(InvalidValue, match="token") as refused:
        find("http://h", token, {})
    assert token not in str(refused.value) or not token


def test_names_in_paths_cannot_lead_elsewhere() -> None:
    assert path_of("sessions", "a/../b?c#d e:f") == "/v1/sessions/a%2F..%2Fb%3Fc%23d%20e:f"


# Errors --------------------------------------------------------------------------------------


def problem(**given: Any) -> bytes:
    told: dict[str, Any] = {
        "type": "about:blank", "title": "it rained", "status": 400, "detail": "rain fell",
        "code": "TK-999", "todo": "wait",
    }  # fmt: skip
    return msgspec.json.encode(msgspec.convert(told | given, Problem))


@pytest.mark.parametrize("known", CATALOGUE, ids=lambda known: known.code)
def test_every_refusal_of_the_catalogue_comes_back_as_its_own_entry(known: Any) -> None:
    told = from_answer("there", known.http, problem(code=known.code, status=known.http))
    found = told.final if isinstance(told, Hitch) else told
    assert isinstance(found, TurnkeeperError)
    assert found.entry is known
    assert found.what == "rain fell"


def test_a_refusal_that_only_a_newer_server_knows_is_told_in_its_words() -> None:
    told = from_answer("there", 418, problem(status=418, extra={"mm": 12}))
    assert str(told) == "TK-999 rain fell. Wait."
    assert isinstance(told, TurnkeeperError)
    assert (told.entry.http, told.fields) == (418, {"mm": 12})


def test_a_value_that_the_server_does_not_allow_names_its_field() -> None:
    told = from_answer("there", 400, problem(code=INVALID.code, field="limits.idle_s"))
    assert isinstance(told, InvalidValue)
    assert told.field == "limits.idle_s"


def test_a_full_queue_stands_and_a_store_that_is_down_is_tried_again() -> None:
    full = from_answer("there", 429, problem(code=QUEUE_FULL.code, status=429))
    assert isinstance(full, TurnkeeperError)
    down = from_answer("there", 503, problem(code=STORE_DOWN.code, status=503), wait_s=2.0)
    assert isinstance(down, Hitch)
    assert (down.maybe_taken, down.reached, down.wait_s) == (True, True, 2.0)
    going = from_answer("there", 503, problem(code=SHUTTING_DOWN.code, status=503))
    assert isinstance(going, Hitch)
    assert not going.maybe_taken


@pytest.mark.parametrize("status", [502, 503, 504, 429])
def test_what_stands_before_the_server_and_cannot_reach_it_is_tried_again(status: int) -> None:
    told = from_answer("http://there", status, b"<html>Bad gateway</html>")
    assert isinstance(told, Hitch)
    assert told.final.entry is UNREACHABLE
    assert not told.reached


@pytest.mark.parametrize("status", [200, 301, 400, 401, 403, 404, 500])
def test_any_other_words_are_not_a_turnkeepers(status: int) -> None:
    told = from_answer("http://there", status, b"<html>Hello</html>")
    assert isinstance(told, TurnkeeperError)
    assert told.entry is NOT_TURNKEEPER
    assert f"http://there answered {status}: '<html>Hello</html>'" in str(told)


def test_a_refusal_for_now_is_told_after_as_many_tries_as_are_wanted() -> None:
    refused = HttpFailure("status", "x answered 429", maybe_taken=False, status=429)
    request = HttpRequest("POST", "http://x/")
    for most, waits in ((0, True), (1, False), (2, True)):
        limits = HttpLimits(refused_tries=most)
        wait_s = wait_before_retry_s(refused, request, limits, left_s=100, chance=0.5)
        assert (wait_s is not None) is waits


def test_a_server_that_does_not_speak_tls_is_not_asked_again() -> None:
    wrong = HttpFailure("connect", "x: [SSL: WRONG_VERSION_NUMBER] oh", maybe_taken=False)
    refused = HttpFailure("connect", "x: no connection: refused", maybe_taken=False)
    assert isinstance(from_failure(wrong, "x"), TurnkeeperError)
    assert isinstance(from_failure(refused, "x"), Hitch)


# Options and arguments -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [("ping_s", 0), ("connect_s", -1), ("request_s", float("nan")), ("outbox_messages", 1.5),
     ("answer_s", "30"), ("flush_s", True), ("frame_bytes", float("inf"))],
)  # fmt: skip
def test_a_bound_that_is_none_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidValue, match=name):
        Options(**{name: value})


def test_every_option_is_on_its_page_with_its_default() -> None:
    page = (REPO / "docs" / "reference" / "client.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+_(?:s|messages|bytes))` \| ([\d.]+) \|", page, re.M)
    defaults = {field.name: field.default for field in fields(Options)}
    assert {name: float(value) for name, value in rows} == defaults


@pytest.mark.parametrize(
    ("table", "method"),
    [
        (arguments.ClientArguments, Client.__init__),
        (arguments.MessageArguments, Client.post),
        (arguments.SendArguments, Client.send),
        (arguments.SessionArguments, Client.create_session),
        (arguments.SessionFilters, Client.sessions),
        (arguments.RunFilters, Client.runs),
        (arguments.ApprovalFilters, Client.approvals),
        (arguments.AnswerArguments, Client.answer),
    ],
)
def test_the_blocking_client_takes_what_the_other_takes(table: Any, method: Any) -> None:
    taken: Sequence[inspect.Parameter] = list(inspect.signature(method).parameters.values())
    named = {one.name for one in taken if one.kind is one.KEYWORD_ONLY} - {"allow"}
    assert set(table.__annotations__) == named
