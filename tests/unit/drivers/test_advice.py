"""What agents say when they have no login, and what they are told to be lacking."""

import pytest

from turnkeeper.core import signals as s
from turnkeeper.drivers.advice import advised, is_about_login


@pytest.mark.parametrize(
    "words",
    [
        "Not logged in · Please run /login",
        "Invalid API key · Fix external API key",
        "Missing environment variable: `OPENAI_API_KEY`.",
        "it would not open a session: Gemini API key is missing or not configured.",
        "Authentication required",
        "unexpected status 401 Unauthorized",
    ],
)
def test_what_the_real_programs_say_is_understood(words: str) -> None:
    assert is_about_login(words)


@pytest.mark.parametrize(
    "words", ["API Error: 529 overloaded", "it gave no reason", "", "log 4012"]
)
def test_another_complaint_is_not_about_a_login(words: str) -> None:
    assert not is_about_login(words)


def told(*signals: s.AgentSignal) -> tuple[s.AgentSignal, ...]:
    heard: list[s.Group] = []
    advised(heard.append, "Log in.")(s.Group("p", "r", signals, 7))
    assert heard[0].pos == 7
    return heard[0].signals


def test_a_complaint_keeps_its_words_and_gets_what_to_do() -> None:
    assert told(s.Failed("Not logged in.")) == (s.Failed("Not logged in. Log in."),)


def test_a_start_or_an_exit_for_want_of_a_login_is_the_agents_error() -> None:
    broken = s.Broken("spawn_failed", "Authentication required", True)
    assert told(broken) == (s.Broken("agent_error", "Authentication required. Log in."),)
    exited = s.Exited(1, "its last words: Not logged in")
    assert told(exited) == (s.Broken("agent_error", "its last words: Not logged in. Log in."),)


def test_everything_else_is_as_it_was() -> None:
    signals = (s.Text("Not logged in"), s.Failed("no"), s.Exited(0, "Not logged in"), s.Gone())
    assert told(*signals) == signals
