"""What may stand in turnkeeper.toml and in the environment, and what is said of the rest."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.config import DRIVERS, load, read, read_tokens
from turnkeeper.config.keys import Store
from turnkeeper.config.sources import find_file, parse_value
from turnkeeper.core.errors import InvalidValue
from turnkeeper.drivers import registry

EVERYTHING = """
data = "kept"
[server]
host = "0.0.0.0"
port = 8000
hosts = ["turns.example.com"]
origins = ["https://turns.example.com"]
max_body_bytes = 100000
drain = true
drain_s = "2m"
[store]
url = "sqlite:///var/lib/turns.db"
[log]
level = "debug"
json = true
[limits]
idle_s = "15m"
deadline_s = 600
[agents.claude]
driver = "claude"
command = ["claude"]
cwd = "code"
env = { NAME = "value" }
limits.tool_s = 7200
warm_s = "10m"
[tokens.ci]
scope = "operate"
file = "ci-token"
"""


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "turnkeeper.toml"
    file.write_text(text)
    return file


def faults_of(
    path: Path | None, environ: Mapping[str, str] | None = None, **given: Any
) -> list[str]:
    return [str(fault) for fault in read(path, environ or {}, given).faults]


def test_without_a_file_everything_has_its_default(tmp_path: Path) -> None:
    config = load(None, {"HOME": str(tmp_path)})
    assert (config.server.host, config.server.port) == ("127.0.0.1", 7433)
    assert config.data == tmp_path / ".local/share/turnkeeper"
    assert (config.agents, config.limits, config.file) == ({}, {}, None)


def test_every_key_is_read(tmp_path: Path) -> None:
    file = written(tmp_path, EVERYTHING)
    config = load(file, {})
    assert config.server.drain_s == 120
    assert config.store.at == Path("/var/lib/turns.db")
    assert config.log.level == "debug"
    assert config.limits == {"idle_s": 900, "deadline_s": 600}
    assert config.agents["claude"] == {
        "driver": "claude",
        "command": ["claude"],
        "cwd": str(tmp_path / "code"),
        "env": {"NAME": "value"},
        "limits": {"tool_s": 7200},
        "warm_s": 600,
    }
    assert config.tokens["ci"].file == str(tmp_path / "ci-token")
    assert (config.file, config.data) == (file, tmp_path / "kept")
    assert config.origins["server.port"] == str(file)


def test_paths_of_agents_are_seen_from_the_folder_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    file = written(
        tmp_path,
        "[agents.file]\ndriver = 'python'\ntarget = 'mine/agent.py:f'\n"
        "[agents.module]\ndriver = 'python'\ntarget = 'mine.agent:f'\n"
        "[agents.placed]\ndriver = 'python'\ntarget = 'agent:f'\ncwd = 'work'\n"
        "[agents.found]\ndriver = 'python'\ntarget = 'agent:f'\npaths = ['lib', '/opt/lib']\n"
        "[agents.own]\ndriver = 'acp'\ncommand = ['bin/agent', 'bin/argument']\n"
        "[agents.known]\ndriver = 'acp'\ncommand = ['agent']\n",
    )
    monkeypatch.chdir(tmp_path / "elsewhere")
    agents = load(os.path.relpath(file), {}).agents
    here = str(tmp_path)
    assert agents["file"]["target"] == f"{here}/mine/agent.py:f"
    assert (agents["module"]["target"], agents["module"]["paths"]) == ("mine.agent:f", [here])
    assert (agents["placed"]["cwd"], "paths" in agents["placed"]) == (f"{here}/work", False)
    assert agents["found"]["paths"] == [f"{here}/lib", "/opt/lib"]
    assert agents["own"]["command"] == [f"{here}/bin/agent", "bin/argument"]
    assert agents["known"]["command"] == ["agent"]


def test_a_path_in_a_variable_is_seen_from_where_we_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path, "[agents.mine]\ndriver = 'python'\n")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    agents = load(file, {"TURNKEEPER__AGENTS__MINE__TARGET": '"agent.py:f"'}).agents
    assert agents["mine"]["target"] == f"{tmp_path}/elsewhere/agent.py:f"


# What is wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "[server]\nprot = 1",
            "server.prot = 1 is not allowed: there is no such key (did you mean",
        ),
        ("[sever]\nport = 1", "(did you mean server?)"),
        ("[log]\nlevel = 'loud'", "log.level = 'loud' is not allowed: give one of debug, "),
        ("colour = 1", "there is no such key; there are: data, server, store, log, limits"),
        ("server = 5", "server = 5 is not allowed: give a table: [server]"),
        ("[server]\nport = '80'", "server.port = '80' is not allowed: give a whole number from 0"),
        ("[server]\nport = true", "server.port = True is not allowed: give a whole number"),
        (
            "[server]\nport = 65536",
            "server.port = 65536 is not allowed: give a whole number from 0",
        ),
        ("[server]\nhosts = 'a'", "server.hosts = 'a' is not allowed: give a list of texts"),
        ("[server]\nhosts = ['http://a']", "'http://a' is no host's name"),
        ("[server]\norigins = ['a.org']", "'a.org' is no origin"),
        ("[server]\nhost = ''", "server.host = '' is not allowed: give a name or an address"),
        ("[server]\nmax_body_bytes = 1", "give a whole number from 1024 to 1073741824"),
        (
            "[server]\ndrain_s = '5x'",
            "server.drain_s = '5x' is not allowed: '5x' is not a duration",
        ),
        (
            "[server]\ndrain_s = -1",
            "server.drain_s = -1 is not allowed: give 0 to 31622400 seconds",
        ),
        ("[store]\nurl = 'mysql://h/d'", "store.url = 'mysql://h/d' is not allowed: give sqlite"),
        ("[store]\nurl = 'turns.db'", "store.url = 'turns.db' is not allowed: give sqlite:///"),
        ("[log]\nlevel = 'loud'", "log.level = 'loud' is not allowed: give one of debug, info,"),
        ("[log]\njson = 'yes'", "log.json = 'yes' is not allowed: give true or false"),
        ("[server]\nhost = 5", "server.host = 5 is not allowed: give a text"),
        ("[limits]\npatience_s = 5", "limits.patience_s = 5 is not allowed: there is no such key"),
        ("[limits]\nidle_s = 'soon'", "limits.idle_s = 'soon' is not allowed: 'soon' is not a dur"),
        ("[limits]\nidle_s = -5", "limits.idle_s = -5 is not allowed: give 0 (off) to"),
        ("[limits]\nidle_s = true", "limits.idle_s = True is not allowed: give a duration"),
        ("limits = 5", "limits = 5 is not allowed: give a table: [limits]"),
        ("[agents.x]", "agents.x.driver = None is not allowed: give one of claude, codex"),
        ("[agents.x]\ndriver = 'gpt'", "agents.x.driver = 'gpt' is not allowed: give one of"),
        ("[agents.x]\ndriver = 'demo'\nwarm_s = 'no'", "agents.x.warm_s = 'no' is not allowed"),
        ("[agents]\nx = 5", "agents.x = 5 is not allowed: give a table of its settings"),
        ("[agents.'a b']", "agents.a b = 'a b' is not allowed: a name has"),
        (
            "[agents.claude]\ndriver = 'claude'\nlimits.tool_s = '5x'",
            "agents.claude.limits.tool_s = '5x' is not allowed: '5x' is not a duration",
        ),
        (
            "[agents.claude]\ndriver = 'claude'\nlimits.tol_s = 5",
            "agents.claude.limits.tol_s = 5 is not allowed: there is no such key (did you mean",
        ),
        ("[tokens.a]\nscope = 'read'", "tokens.a.file = None is not allowed: say where its value"),
        ("[tokens.a]\nfile = 'f'", "tokens.a.scope = None is not allowed: give one of read, op"),
        (
            "[tokens.a]\nscope = 'root'\nfile = 'f'",
            "tokens.a.scope = 'root' is not allowed: give one of",
        ),
        ("tokens.a = 'secret'", "tokens.a = '…' is not allowed: give a table"),
        ("data = 5", "data = 5 is not allowed: give the path of a directory"),
    ],
)
def test_a_fault_names_the_key_the_value_the_file_and_what_to_do(
    tmp_path: Path, text: str, told: str
) -> None:
    file = written(tmp_path, text)
    fault, *_ = faults_of(file)
    assert fault.startswith("TK-501 ")
    assert told in fault
    assert f"(in {file})" in fault


def test_all_faults_are_found_at_once(tmp_path: Path) -> None:
    file = written(tmp_path, "[server]\nport = 'x'\nprot = 1\n[limits]\nidle_s = 'soon'\n")
    assert len(faults_of(file, {"TURNKEEPER__LOG__LEVEL": "loud"})) == 4


def test_loading_raises_the_first_of_them(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match=r"server\.port"):
        load(written(tmp_path, "[server]\nport = 'x'\n[limits]\nidle_s = 'soon'\n"), {})


def test_a_file_that_is_not_toml_is_told_with_the_place_in_it(tmp_path: Path) -> None:
    (fault,) = faults_of(written(tmp_path, "[server]\nport 5\n"))
    assert "is not TOML: " in fault
    assert "line 2" in fault


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_bytes(b"data = '\xff'")
    assert "is not UTF-8" in faults_of(file)[0]


def test_the_drivers_are_those_that_can_be_made() -> None:
    assert set(DRIVERS) == set(registry.DRIVERS)


# Where it is looked for ----------------------------------------------------------------------


def test_the_first_file_that_is_there_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {"HOME": str(tmp_path / "home")}
    own = tmp_path / "home/.config/turnkeeper/turnkeeper.toml"
    own.parent.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert find_file(None, environ) is None
    own.write_text("")
    assert find_file(None, environ) == own
    here = written(tmp_path, "")
    assert find_file(None, environ) == here
    named = tmp_path / "named.toml"
    named.write_text("")
    assert find_file(None, {**environ, "TURNKEEPER_CONFIG": str(named)}) == named
    assert find_file(here, {**environ, "TURNKEEPER_CONFIG": str(named)}) == here


def test_a_file_that_is_named_has_to_be_there(tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    (fault,) = faults_of(missing)
    assert fault.startswith("TK-501 config = ")
    assert f"there is no file {missing}" in fault
    (fault,) = faults_of(None, {"TURNKEEPER_CONFIG": str(tmp_path)})
    assert fault.startswith("TK-501 TURNKEEPER_CONFIG = ")
    assert f"{tmp_path} is not a file" in fault


def test_a_file_of_another_user_in_this_folder_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path, "")
    if os.geteuid() == 0:
        os.chown(file, 12345, 12345)
    else:  # it is the user who is another one
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    monkeypatch.chdir(tmp_path)
    assert "it belongs to another user" in faults_of(None)[0]
    assert faults_of(Path("turnkeeper.toml")) == []


# The environment and the command line --------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7433", 7433),
        ("1.5", 1.5),
        ("true", True),
        ('["a", "b"]', ["a", "b"]),
        ('"7433"', "7433"),
        ("127.0.0.1", "127.0.0.1"),
        ("5m", "5m"),
        ("", ""),
        ("1\nother = 2", "1\nother = 2"),
    ],
)
def test_a_variable_is_written_like_toml_and_is_text_otherwise(text: str, value: object) -> None:
    assert parse_value(text) == value


def test_the_environment_is_on_top_of_the_file_and_the_command_line_on_top_of_both(
    tmp_path: Path,
) -> None:
    file = written(tmp_path, "[server]\nport = 1\nhost = 'a'\n[log]\njson = true\n")
    environ = {"TURNKEEPER__SERVER__PORT": "2", "TURNKEEPER__SERVER__HOST": "b"}
    config = load(file, environ, {"server.port": (3, "--port")})
    assert (config.server.port, config.server.host, config.log.json) == (3, "b", True)
    assert config.origins == {
        "server.port": "--port",
        "server.host": "TURNKEEPER__SERVER__HOST",
        "log.json": str(file),
    }


def test_a_variable_can_name_an_agent_with_dashes_and_a_new_one(tmp_path: Path) -> None:
    file = written(tmp_path, "[agents.My-Agent]\ndriver = 'demo'\n")
    environ = {
        "TURNKEEPER__AGENTS__MY_AGENT__LIMITS__IDLE_S": "2m",
        "TURNKEEPER__AGENTS__OTHER__DRIVER": "claude",
        "TURNKEEPER__AGENTS__OTHER__ENV__Mixed_Case": "text",
    }
    assert load(file, environ).agents == {
        "My-Agent": {"driver": "demo", "limits": {"idle_s": 120}},
        "other": {"driver": "claude", "env": {"Mixed_Case": "text"}},
    }


def test_a_fault_of_a_variable_names_the_variable() -> None:
    (fault,) = faults_of(None, {"TURNKEEPER__SERVER__PORT": "many"})
    assert "server.port = 'many' is not allowed" in fault
    assert "(in TURNKEEPER__SERVER__PORT)" in fault


def test_a_number_where_text_is_wanted_says_that_it_can_be_quoted() -> None:
    assert "; quote it" in faults_of(None, {"TURNKEEPER__SERVER__HOST": "5"})[0]


@pytest.mark.parametrize("name", ["TURNKEEPER__", "TURNKEEPER__SERVER__", "TURNKEEPER____PORT"])
def test_a_variable_that_names_no_key_is_a_fault(name: str) -> None:
    assert "name a key, with two underscores for each dot" in faults_of(None, {name: "1"})[0]


def test_nothing_can_be_set_in_what_is_no_table(tmp_path: Path) -> None:
    file = written(tmp_path, "data = 'x'\n")
    (fault,) = faults_of(file, {"TURNKEEPER__DATA__X": "1"})
    assert "data is no table" in fault


# Tokens --------------------------------------------------------------------------------------


def token_config(tmp_path: Path, where: str) -> Path:
    return written(tmp_path, f"[tokens.ci]\nscope = 'read'\n{where}\n")


def test_a_token_is_read_from_its_file_or_its_variable(tmp_path: Path) -> None:
    (tmp_path / "ci").write_text("0123456789abcdef\n")
    from_file = load(token_config(tmp_path, "file = 'ci'"), {})
    assert read_tokens(from_file, {}) == {"0123456789abcdef": "read"}
    from_env = load(token_config(tmp_path, "env = 'CI_TOKEN'"), {})
    assert read_tokens(from_env, {"CI_TOKEN": "fedcba9876543210"}) == {"fedcba9876543210": "read"}


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("file = 'none'", "tokens.ci.file"),
        ("file = 'short'", "a token has 16 to 256"),
        ("env = 'NOT_SET'", "tokens.ci.env = 'NOT_SET' is not allowed: there is no such variable"),
    ],
)
def test_a_token_without_a_value_to_use_is_refused_and_not_shown(
    tmp_path: Path, where: str, told: str
) -> None:
    (tmp_path / "short").write_text("hunter2")
    with pytest.raises(InvalidValue) as refused:
        read_tokens(load(token_config(tmp_path, where), {}), {})
    assert told in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_two_tokens_do_not_have_the_same_value(tmp_path: Path) -> None:
    text = "[tokens.a]\nscope='read'\nenv='T'\n[tokens.b]\nscope='admin'\nenv='T'\n"
    with pytest.raises(InvalidValue, match="another token has the same value"):
        read_tokens(load(written(tmp_path, text), {}), {"T": "0123456789abcdef"})


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:geheim@h/d", "postgresql://u:…@h/d"),
        ("postgresql://u:geh@im@h/d", "postgresql://u:…@h/d"),
        ("postgresql://u@h:5432/d?password=geheim&x=1", "postgresql://u@h:5432/d?password=…&x=1"),
        (
            "postgresql://u@/d?host=/run&sslpassword=geheim",
            "postgresql://u@/d?host=/run&sslpassword=…",
        ),
        (
            "postgresql://u@h:5432/d?application_name=a@b",
            "postgresql://u@h:5432/d?application_name=a@b",
        ),
    ],
)
def test_no_password_of_a_store_is_shown(url: str, shown: str) -> None:
    assert Store(url=url).shown == shown
