"""Agents from tables: what is wrong in one is refused by its full name."""

from typing import Any

import pytest

from turnkeeper.core.errors import InvalidValue
from turnkeeper.custody.client import Custodian
from turnkeeper.drivers.demo import DemoAgent
from turnkeeper.drivers.registry import make_agent, read_agent


def no_custody() -> Custodian:
    raise AssertionError("nothing is to be started")


def test_an_agent_without_processes_needs_no_custody() -> None:
    agent, limits = make_agent("it", {"driver": "demo", "limits": {"idle_s": 5}}, no_custody)
    assert isinstance(agent, DemoAgent)
    assert limits == {"idle_s": 5.0}


@pytest.mark.parametrize(
    ("field", "spec"),
    [
        ("agents.it", "claude"),
        ("agents.it.driver", {}),
        ("agents.it.driver", {"driver": "clod"}),
        ("agents.it.driver", {"driver": ["claude"]}),
        ("agents.it.limits.idle_s", {"driver": "claude", "limits": {"idle_s": "long"}}),
        ("agents.it.limits", {"driver": "claude", "limits": 5}),
    ],
)
def test_a_table_that_means_no_agent_is_refused(field: str, spec: Any) -> None:
    with pytest.raises(InvalidValue) as refused:
        make_agent("it", spec, no_custody)
    assert str(refused.value).startswith(f"TK-501 {field} ")


@pytest.mark.parametrize(
    ("field", "rest"),
    [
        ("agents.it.comand", {"comand": ["x"]}),
        ("agents.it.command", {"command": "claude"}),
        ("agents.it.command", {"command": [5]}),
        ("agents.it.env", {"env": {"A": 1}}),
        ("agents.it.cwd", {"cwd": 5}),
        ("agents.it.command", {"command": [""]}),
        ("agents.it.command", {"command": []}),
        ("agents.it.command", {"command": ["x", "a\0b"]}),
        ("agents.it.command", {"command": ["\ud800"]}),
        ("agents.it.args", {"args": ["\0"]}),
        ("agents.it.env", {"env": {"A": "b\0"}}),
        ("agents.it.env", {"env": {"A\0": "b"}}),
        ("agents.it.env", {"env": {"A=B": "c"}}),
        ("agents.it.env", {"env": {"": "c"}}),
        ("agents.it.cwd", {"cwd": "/tmp/\0"}),
        ("agents.it.variables", {"variables": ["A\0"]}),
        ("agents.it.sample_s", {"sample_s": "often"}),
        ("agents.it.sample_s", {"sample_s": -1}),
        ("agents.it.sample_s", {"sample_s": float("nan")}),
    ],
)
@pytest.mark.parametrize("driver", ["claude", "codex", "acp"])
def test_a_wrong_setting_is_refused_by_its_full_name(
    driver: str, field: str, rest: dict[str, Any]
) -> None:
    with pytest.raises(InvalidValue) as refused:
        make_agent("it", {"driver": driver, "command": ["x"], **rest}, _made)
    assert str(refused.value).startswith(f"TK-501 {field} ")


@pytest.mark.parametrize(
    ("field", "spec"),
    [
        ("agents.it.model", {"driver": "claude", "model": "a\0"}),
        ("agents.it.python", {"driver": "python", "target": "a:b", "python": ""}),
        ("agents.it.cwd", {"driver": "python", "target": "a:b", "cwd": "\0"}),
        ("agents.it.paths", {"driver": "python", "target": "a:b", "paths": ["\0"]}),
        ("agents.it.target", {"driver": "python", "target": "a\0.py:b"}),
        ("agents.it.target", {"driver": "python", "target": lambda turn: None}),
        ("agents.it.env", {"driver": "chat", "model": "m", "env": {"A": "\0"}}),
        ("agents.it.cwd", {"driver": "chat", "model": "m", "cwd": "\0"}),
    ],
)
def test_what_no_program_can_be_given_is_refused_before_there_is_one(
    field: str, spec: dict[str, Any]
) -> None:
    with pytest.raises(InvalidValue) as refused:
        read_agent("it", spec)
    assert refused.value.field == field
    assert str(refused.value).count("TK-501") == 1


@pytest.mark.parametrize("env", [{"KEY": "s3cret\0"}, {"KEY": "s3cret", "N": 5}])
def test_a_secret_is_not_in_the_words_of_a_refusal(env: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue) as refused:
        read_agent("it", {"driver": "claude", "env": env})
    assert "s3cret" not in str(refused.value)
    assert "KEY" in str(refused.value)


def _made() -> Custodian:
    custodian: Any = object()
    return custodian  # type: ignore[no-any-return]


def test_an_acp_agent_has_to_have_a_command_and_a_function_its_target() -> None:
    with pytest.raises(InvalidValue, match=r"agents\.it\.command"):
        make_agent("it", {"driver": "acp"}, no_custody)
    with pytest.raises(InvalidValue, match=r"agents\.it\.target"):
        make_agent("it", {"driver": "python"}, no_custody)
