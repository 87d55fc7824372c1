"""Secrets are taken out of what people are shown, and ordinary words are not."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.observe.redact import HIDDEN, SHORTEST, Redactor, looks_secret, secrets_in

# Written in parts, so that nobody takes them for real ones.
LONG = "Zk3" * 12
SHOWN = [
    f"Authorization: Bearer {LONG}",
    f'{{"authorization": "Basic {LONG}"}}',
    f"curl -H 'Authorization: token {LONG}' there",
    f"bearer {LONG}",
    f"GET /v1/ws?token={LONG}&after=3",
    f"OPENAI_API_KEY={LONG}",
    f'"api_key": "{LONG}"',
    f"client_secret: {LONG}",
    f"agent --api-key {LONG} --verbose",
    f"agent --token '{LONG}'",
    f"password={LONG};",
    "postgresql://somebody:" + LONG + "@db.example/x",
    "sk-" + LONG,
    "sk-ant-api03-" + LONG,
    "ghp_" + LONG,
    "github_pat_" + LONG,
    "glpat-" + LONG,
    "xoxb-" + LONG,
    "AKIA" + "A1B2C3D4E5F6G7H8",
    "AIza" + LONG,
    "hf_" + LONG,
    "eyJ" + LONG + "." + LONG + "." + LONG,
    "-----BEGIN RSA " + "PRIVATE KEY-----\n" + LONG + "\n-----END RSA " + "PRIVATE KEY-----",
    f"Set-Cookie: session={LONG}; HttpOnly",
]


@pytest.mark.parametrize("text", SHOWN)
def test_what_looks_like_a_secret_is_not_shown(text: str) -> None:
    shown = Redactor()(text)
    assert HIDDEN in shown
    assert LONG not in shown
    assert "A1B2C3D4E5F6G7H8" not in shown


@pytest.mark.parametrize(
    "text",
    [
        "run r_8f2 timed_out/idle TK-103 the agent fell silent: claude in run r_8f2, idle_s = 300",
        "the token expired yesterday, and the password is wrong",
        "it took 1200 tokens; the key question is open",
        "see https://example.com/a/b?after=3#token",
        "task-oriented desk-bound risk-free",
        "basic use",
        "",
    ],
)
def test_ordinary_words_are_left_alone(text: str) -> None:
    assert Redactor()(text) == text


def test_a_given_value_is_hidden_wherever_it_is() -> None:
    redact = Redactor(["correct horse battery"])
    assert redact("x=correct horse battery.") == f"x={HIDDEN}."
    redact.hide(["another one"])
    assert redact("another one, correct horse battery") == f"{HIDDEN}, {HIDDEN}"


@given(st.text(min_size=SHORTEST), st.text(), st.text())
def test_a_given_value_never_passes_whole(value: str, before: str, after: str) -> None:
    shown = Redactor([value])(before + value + after)
    assert value not in shown.replace(HIDDEN, "\x00" * 3) or value in HIDDEN


def test_a_value_that_begins_another_does_not_let_the_rest_pass() -> None:
    assert Redactor(["secret-1", "secret-1-and-more"])("secret-1-and-more") == HIDDEN


@pytest.mark.parametrize(
    "name", ["API_TOKEN", "apiKey", "DB_PASSWORD", "AUTH", "MY_KEY", "PGPASSWORD"]
)
def test_a_name_that_looks_secret_is_known(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize("name", ["PATH", "KEYBOARD", "AUTHOR", "MONKEY", "LANG", "PATTERN"])
def test_a_name_that_looks_harmless_is_left_alone(name: str) -> None:
    assert not looks_secret(name)


def test_the_values_of_secret_settings_are_found() -> None:
    agents = {
        "claude": {"driver": "claude", "env": {"API_KEY": "abcdef", "LANG": "C"}},
        "model": {"headers": {"X-Auth": ["one", "two"]}, "timeout_s": 3},
    }
    assert secrets_in(agents) == ["abcdef", "one", "two"]


@pytest.mark.parametrize(
    "text",
    ["token " * 50_000, "a" * 300_000, "://" * 100_000, "eyJ" * 100_000, "a:" * 150_000 + "@",
     "--token" * 40_000, "Authorization:" * 20_000, "-----BEGIN " + "A" * 300_000,
     "token" + " " * 300_000],
)  # fmt: skip
def test_long_nonsense_takes_no_longer_than_its_length(text: str) -> None:
    began = time.process_time()
    Redactor(["correct horse"])(text)
    assert time.process_time() - began < 2.0
