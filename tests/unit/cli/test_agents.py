"""The list of agents: columns that are columns, whatever stands in them."""

from turnkeeper.cli.agents import NAME_CHARS_MAX, lay_out
from turnkeeper.compose import Found, built_in_agents

FOUND = [
    Found("codex", "codex", "does not answer", "/opt/codex", todo="it was ended"),
    Found("claude", "claude", "ready", "/opt/claude", "2.1.325"),
    Found("codex-acp", "acp", "needs login", "/opt/codex-acp", todo="log in"),
    Found("gemini", "acp", "not installed", todo="install it"),
]


def test_the_columns_are_aligned_and_never_touch() -> None:
    assert lay_out({}, FOUND) == [
        "claude     ready            2.1.325  /opt/claude",
        "codex      does not answer           /opt/codex",
        "                            it was ended",
        "codex-acp  needs login               /opt/codex-acp",
        "                            log in",
        "gemini     not installed",
        "                            install it",
    ]


def test_what_a_built_in_agent_can_do_stands_in_the_same_column() -> None:
    lines = lay_out(built_in_agents(), FOUND)
    assert lines[0].index("steer") == lines[1].index("2.1.325")
    assert lay_out(built_in_agents(), [])[0].startswith("demo  ready  steer")


def test_a_long_name_or_version_moves_its_own_line_alone() -> None:
    long = Found("n" * 50, "acp", "ready", "/opt/x", "1." + "0" * 40)
    lines = lay_out({}, [long, FOUND[1]])
    assert lines[0] == f"{'n' * 50}  ready  1.{'0' * 40}  /opt/x"
    assert lines[1].index("ready") == NAME_CHARS_MAX + 2


def test_nothing_in_a_path_reaches_the_terminal_as_a_command() -> None:
    evil = Found("claude", "claude", "ready", "/opt/\x1b[2J\n/claude", "1.0")
    (line,) = lay_out({}, [evil])
    assert line.endswith("/opt/\\x1b[2J\\n/claude")
