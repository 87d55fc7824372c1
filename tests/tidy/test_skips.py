"""On CI a test that is skipped without leave makes the session fail, with xdist and without."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.skip_guard import NAME, on_ci, parse_allowed
from tests.tidy.source import REPO

ALLOWED = REPO / "tests" / "allowed_skips.txt"

CONFTEST = """
from pathlib import Path
from tests import skip_guard

def pytest_configure(config):
    skip_guard.install_from_environment(config, Path(__file__).with_name("allowed_skips.txt"))
"""

SUITE = """
import pytest

@pytest.mark.skip(reason="no such thing here")
def test_skipped(): pass

@pytest.mark.parametrize("n", [1, 2])
def test_many(n):
    if n == 2:
        pytest.skip("not this one")

@pytest.mark.xfail(reason="known", strict=True)
def test_expected_to_fail():
    assert False

def test_runs(): pass
"""

ALL_THREE = (
    "# a comment\n\n"
    "suite/test_it.py::test_skipped # cannot be had here\n"
    "suite/test_it.py::test_many # one of them\n"
    "suite/test_it.py::test_expected_to_fail # being mended\n"
)


def run_suite(
    root: Path, *, ci: bool, allowed: str = "", xdist: bool = False, suite: str = SUITE
) -> subprocess.CompletedProcess[str]:
    (root / "suite").mkdir()
    (root / "pytest.ini").write_text("[pytest]\n")
    (root / "suite" / "conftest.py").write_text(CONFTEST)
    (root / "suite" / "allowed_skips.txt").write_text(allowed)
    (root / "suite" / "test_it.py").write_text(suite)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "CI"))}
    environment["PYTHONPATH"] = str(REPO)
    if ci:
        environment["CI"] = "true"
    workers = ["-n", "2"] if xdist else []
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *workers, "suite"],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("xdist", [False, True])
def test_a_skip_without_leave_fails_on_ci_and_says_which(tmp_path: Path, xdist: bool) -> None:
    result = run_suite(tmp_path, ci=True, xdist=xdist)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "suite/test_it.py::test_skipped: Skipped: no such thing here" in result.stdout
    assert "suite/test_it.py::test_many[2]: Skipped: not this one" in result.stdout
    assert "suite/test_it.py::test_expected_to_fail: expected to fail: known" in result.stdout


@pytest.mark.parametrize("xdist", [False, True])
def test_a_listed_skip_is_accepted_on_ci(tmp_path: Path, xdist: bool) -> None:
    result = run_suite(tmp_path, ci=True, allowed=ALL_THREE, xdist=xdist)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("xdist", [False, True])
def test_a_module_that_skips_itself_is_not_overlooked(tmp_path: Path, xdist: bool) -> None:
    suite = "import pytest\npytest.importorskip('no_such_module')\ndef test_x(): pass\n"
    result = run_suite(tmp_path, ci=True, xdist=xdist, suite=suite)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "suite/test_it.py: " in result.stdout


def test_a_skip_is_nobodys_business_outside_ci(tmp_path: Path) -> None:
    assert run_suite(tmp_path, ci=False).returncode == 0


def test_a_line_without_a_reason_is_refused(tmp_path: Path) -> None:
    result = run_suite(tmp_path, ci=True, allowed="suite/test_it.py::test_skipped\n")
    assert result.returncode == pytest.ExitCode.USAGE_ERROR
    assert "line 1 gives no reason" in result.stderr


def test_the_guard_watches_this_very_session_on_ci(pytestconfig: pytest.Config) -> None:
    is_worker = hasattr(pytestconfig, "workerinput")
    watched = pytestconfig.pluginmanager.has_plugin(NAME)
    assert watched == (on_ci(os.environ) and not is_worker)


def test_every_listed_skip_names_a_file_that_exists() -> None:
    listed = parse_allowed(ALLOWED.read_text(encoding="utf-8"))
    assert [nodeid for nodeid in listed if not (REPO / nodeid.partition("::")[0]).is_file()] == []
