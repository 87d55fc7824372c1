"""Decides whether a skipped test is acceptable: on CI only if it is listed with a reason.

It must not know any particular test. Invariant: with `CI` set, a session in which an unlisted
test was skipped or failed as expected does not exit with 0. Under xdist the controller decides,
for all reports reach it.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

NAME = "turnkeeper-skip-guard"


def parse_allowed(text: str) -> dict[str, str]:
    """Read `test id # reason` lines; a line without a reason is refused, naming it."""
    allowed: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        nodeid, _, reason = line.partition(" # ")
        if not reason.strip():
            raise ValueError(f"line {number} gives no reason after ' # ': {line.strip()}")
        allowed[nodeid.strip()] = reason.strip()
    return allowed


def on_ci(environ: Mapping[str, str]) -> bool:
    return environ.get("CI", "").lower() not in {"", "0", "false", "no"}


class SkipGuard:
    """Collects what was skipped and turns a green session red if it should have been run."""

    def __init__(self, allowed: Mapping[str, str]) -> None:
        self._allowed = allowed
        self._refused: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._refused and session.exitstatus in {pytest.ExitCode.OK, 5}:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._refused:
            return
        terminalreporter.section("skipped on CI without leave", red=True)
        for nodeid, why in sorted(self._refused.items()):
            terminalreporter.line(f"{nodeid}: {why}")
        terminalreporter.line("Make it run, or list it with a reason in tests/allowed_skips.txt.")

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if not report.skipped:
            return
        nodeid = report.nodeid
        if nodeid in self._allowed or nodeid.partition("[")[0] in self._allowed:
            return
        self._refused[nodeid] = _reason(report)


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    expected = getattr(report, "wasxfail", None)
    if expected is not None:
        return f"expected to fail: {expected}"
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2]
    return "skipped"


def install(config: pytest.Config, allowed_file: Path, environ: Mapping[str, str]) -> None:
    """Put the guard on this session, if it is CI's and not a mere xdist worker's."""
    try:
        allowed = parse_allowed(allowed_file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise pytest.UsageError(f"{allowed_file.name}: {error}") from error
    if on_ci(environ) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SkipGuard(allowed), NAME)


def install_from_environment(config: pytest.Config, allowed_file: Path) -> None:
    install(config, allowed_file, os.environ)
