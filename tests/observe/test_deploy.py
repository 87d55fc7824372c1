"""What is in deploy/ can be installed, and says what the documents say of it."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections import defaultdict
from pathlib import Path

import pytest

from turnkeeper.core.limits import Limits

REPO = Path(__file__).resolve().parents[2]
DEPLOY = REPO / "deploy"
UNIT = DEPLOY / "turnkeeper.service"
PAGE = REPO / "docs" / "how-to" / "deploy.md"
CONTAINER = DEPLOY / "Containerfile"


def settings() -> dict[str, list[str]]:
    """Every setting of the unit's [Service], with all its values."""
    found: dict[str, list[str]] = defaultdict(list)
    section = ""
    for line in UNIT.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif section == "Service" and line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found[name].append(value)
    return found


def seconds(value: str) -> float:
    return float(value.removesuffix("s"))


# systemd ------------------------------------------------------------------------------------------


def test_a_restart_leaves_the_keepers_alive_and_their_files_in_place() -> None:
    unit = settings()
    assert unit["KillMode"] == ["process"]
    assert unit["PrivateTmp"] == ["no"]
    assert unit["OOMPolicy"] == ["continue"]
    assert "DynamicUser" not in unit
    assert "RuntimeDirectory" not in unit
    assert seconds(unit["RestartSec"][0]) < Limits().orphan_s


def test_it_says_itself_when_it_is_ready_and_is_watched() -> None:
    unit = settings()
    assert unit["Type"] == ["notify"]
    assert seconds(unit["WatchdogSec"][0]) < Limits().orphan_s


def test_a_stop_has_the_time_of_the_ladder() -> None:
    limits = Limits()
    assert seconds(settings()["TimeoutStopSec"][0]) > limits.drain_s + limits.term_s + 10


def test_nothing_takes_from_the_agents_what_they_need() -> None:
    unit = settings()
    for name in ("MemoryDenyWriteExecute", "RestrictNamespaces", "SystemCallFilter"):
        assert name not in unit
    assert unit["Delegate"] == ["yes"]
    assert "ProtectControlGroups" not in unit
    assert unit["NoNewPrivileges"] == ["yes"]


def test_the_page_explains_what_the_unit_says() -> None:
    page, unit = PAGE.read_text(encoding="utf-8"), settings()
    for name, value in re.findall(r"^\| `(\w+)=([^`]+)` \|", page, re.M):
        assert unit[name] == [value], name


def test_its_files_are_those_that_the_page_installs() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for path in DEPLOY.iterdir():
        if not path.name.endswith(".dockerignore") and path.name != "alerts.yml":
            assert f"deploy/{path.name}" in page, path.name


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    here = UNIT.read_text(encoding="utf-8").replace("/opt/turnkeeper/bin/turnkeeper", "/bin/true")
    (tmp_path / UNIT.name).write_text(here, encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / UNIT.name)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_the_commands_of_the_unit_are_those_of_the_program() -> None:
    unit = settings()
    starts = [*unit["ExecStart"], *unit["ExecStartPre"]]
    ours = [one.split()[1:] for one in starts if "/turnkeeper " in one]
    assert len(ours) == 2
    for words in [*ours, _started()]:
        command = [word for word in words if not word.startswith(("-", "/", "0"))]
        named = command[: 2 if command[0] == "config" else 1]
        done = subprocess.run(
            [sys.executable, "-m", "turnkeeper", *named, "--help"],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        for option in (word for word in words if word.startswith("--")):
            assert option in done.stdout, f"{named} has no {option}"


# The container ------------------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n\s*", " ", CONTAINER.read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2].strip()) for line in lines]


def _last(name: str) -> str:
    return [value for found, value in instructions() if found == name][-1]


def _started() -> list[str]:
    words: list[str] = json.loads(_last("CMD"))
    return words


def test_the_container_runs_as_nobody_in_particular_behind_an_init() -> None:
    assert _last("USER").split(":")[0] not in {"0", "root"}
    assert json.loads(_last("ENTRYPOINT"))[0].endswith("tini")
    assert _last("VOLUME") in _started()


def test_the_image_is_made_of_two_stages_and_keeps_no_tools() -> None:
    stages = [value for name, value in instructions() if name == "FROM"]
    assert len(stages) == 2
    assert stages[0].endswith("AS build")
    last = instructions()[[name for name, _ in instructions()].index("USER") :]
    assert all(name != "RUN" for name, _ in last)


def test_what_the_image_is_built_from_is_enough_for_a_wheel(tmp_path: Path) -> None:
    copied = [value.split()[:-1] for name, value in instructions() if name == "COPY"][:-1]
    allowed = (DEPLOY / "Containerfile.dockerignore").read_text(encoding="utf-8")
    for name in [name for names in copied for name in names]:
        assert f"!{name}\n" in allowed
        here = REPO / name
        if here.is_dir():
            skip = shutil.ignore_patterns("__pycache__", "node_modules")
            shutil.copytree(here, tmp_path / name, ignore=skip)
        else:
            shutil.copy(here, tmp_path / name)
    code = "from hatchling.build import build_wheel; print(build_wheel('out'))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=100,
        check=True,
    )  # fmt: skip
    with zipfile.ZipFile(tmp_path / "out" / done.stdout.split()[-1]) as wheel:
        names = wheel.namelist()
    assert "turnkeeper/page/index.html" in names
    assert [name for name in names if re.fullmatch(r"turnkeeper/page/assets/[\w-]+\.js", name)]


def test_the_health_check_is_a_program_that_asks_the_right_place() -> None:
    check = _last("HEALTHCHECK").partition("CMD ")[2]
    program, option, code = json.loads(check)
    assert (program, option) == ("python", "-c")
    compile(code, "healthcheck", "exec")
    port = _started()[_started().index("--port") + 1]
    assert f"http://127.0.0.1:{port}/healthz" in code
    assert _last("EXPOSE") == port


def test_the_user_of_the_service_is_the_one_that_is_made() -> None:
    made = (DEPLOY / "turnkeeper.sysusers").read_text(encoding="utf-8").splitlines()[-1].split()
    assert [made[1]] == settings()["User"]
    assert "/var/lib/" + settings()["StateDirectory"][0] in made


def test_the_unit_is_a_file_that_others_can_read_too() -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[method-assign, assignment]
    parser.read(UNIT, encoding="utf-8")
    assert parser.sections() == ["Unit", "Service", "Install"]
