"""The pins of the real programs are read exactly."""

import re

import pytest

from tests.agents.install import VERSIONS, read_versions
from tests.agents.programs import PROGRAMS

CLIENTS = ("a2a", "acpx", "ag-ui", "mcp-conformance")
"""What our surfaces are read with."""


def test_every_program_is_pinned_to_one_version_and_named_without_an_address() -> None:
    versions = read_versions()
    assert set(PROGRAMS) | {"node", *CLIENTS} == set(versions.packages)
    assert all(re.fullmatch(r"\d+(\.\d+)+", p.version) for p in versions.packages.values())
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", versions.npm_before)
    assert "://" not in VERSIONS.read_text(encoding="utf-8")


def test_claude_code_is_there_in_two_versions() -> None:
    assert sum(program.driver == "claude" for program in PROGRAMS.values()) == 2


@pytest.mark.parametrize("line", ["claude pypi claude-agent-sdk", "claude web x 1.0", "pin x"])
def test_a_line_that_is_not_understood_is_refused_by_name(line: str) -> None:
    with pytest.raises(ValueError, match=f"not understood: {line}"):
        read_versions(line)
