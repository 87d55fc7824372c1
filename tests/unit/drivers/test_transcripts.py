"""Where agents keep their conversations, and what is written there of those that come along."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.drivers.claude import ClaudeAgent, ClaudeOptions, project_of
from turnkeeper.drivers.codex import CodexAgent, CodexOptions
from turnkeeper.ports import Carrier, Transcript

NOBODY: Any = None
MOST = 1000
ID = "01a1de07-640e-73f2-8fb7-b1334e8af9ca"
ROLLOUT = f"2026/11/15/rollout-2026-11-15T07-06-28-{ID}.jsonl"
BODY = b'{"n": 1}\n{"n": 2}\n'


def claude(home: Path, **env: str) -> ClaudeAgent:
    return ClaudeAgent(NOBODY, ClaudeOptions(env={"HOME": str(home), **env}))


def codex(home: Path, **env: str) -> CodexAgent:
    return CodexAgent(NOBODY, CodexOptions(env={"HOME": str(home), **env}))


@pytest.fixture(autouse=True)
def _nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)


def write(path: Path, body: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)
    return path


def files_in(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()
    )


def test_a_conversation_of_claude_is_the_file_of_its_name_in_its_places_folder(
    tmp_path: Path,
) -> None:
    home, work = tmp_path / "home", tmp_path / "my.work"
    work.mkdir()
    project = home / ".claude" / "projects" / str(work).replace("/", "-").replace(".", "-")
    write(project / f"{ID}.jsonl", BODY)
    found = claude(home).read_transcript(ID, str(work), MOST)
    assert found == Transcript(ID, "", BODY)


def test_a_thread_of_codex_is_the_rollout_that_ends_with_its_name(tmp_path: Path) -> None:
    write(tmp_path / ".codex" / "sessions" / ROLLOUT, BODY)
    assert codex(tmp_path).read_transcript(ID, "/", MOST) == Transcript(ID, ROLLOUT, BODY)
    assert codex(tmp_path).read_transcript(ID[:-1], "/", MOST) is None


def test_the_agents_own_variables_say_where_its_files_are(tmp_path: Path) -> None:
    write(tmp_path / "c" / "projects" / "-" / f"{ID}.jsonl", BODY)
    write(tmp_path / "x" / "sessions" / ROLLOUT, BODY)
    for agent in (
        claude(tmp_path / "home", CLAUDE_CONFIG_DIR=str(tmp_path / "c")),
        codex(tmp_path / "home", CODEX_HOME=str(tmp_path / "x")),
    ):
        found = agent.read_transcript(ID, "/", MOST)
        assert found is not None
        assert found.body == BODY


@pytest.mark.parametrize(
    ("body", "read"),
    [(BODY + b'{"half', BODY), (b"half", None), (b"x" * MOST + b"\n", None)],
    ids=["half a line at its end", "not a line", "too much"],
)
def test_only_whole_lines_are_read_and_nothing_of_what_is_too_large(
    tmp_path: Path, body: bytes, read: bytes | None
) -> None:
    write(tmp_path / ".codex" / "sessions" / ROLLOUT, body)
    found = codex(tmp_path).read_transcript(ID, "/", MOST)
    assert (found.body if found is not None else None) == read


def test_what_comes_along_is_where_the_agent_looks_and_for_its_user_alone(tmp_path: Path) -> None:
    here, there, work = tmp_path / "a", tmp_path / "b", tmp_path / "work"
    work.mkdir()
    agents: list[tuple[Carrier, str]] = [(claude(there), ""), (codex(there), ROLLOUT)]
    before = os.umask(0)
    try:
        for agent, name in agents:
            assert agent.place_transcript(Transcript(ID, name, BODY), str(work))
            assert agent.read_transcript(ID, str(work), MOST) == Transcript(ID, name, BODY)
    finally:
        os.umask(before)
    project = project_of(str(work))
    assert files_in(there) == [
        f".claude/projects/{project}/{ID}.jsonl", f".codex/sessions/{ROLLOUT}",
    ]  # fmt: skip
    modes = {stat.S_IMODE(one.stat().st_mode) for one in there.rglob("*.jsonl")}
    assert modes == {0o600}
    folders = [there, *(one for one in there.rglob("*") if one.is_dir())]
    assert {stat.S_IMODE(one.stat().st_mode) for one in folders} == {0o700}
    assert not here.exists()


def test_a_file_that_has_it_and_more_is_left_and_an_older_one_is_replaced(tmp_path: Path) -> None:
    path, agent = tmp_path / ".codex" / "sessions" / ROLLOUT, codex(tmp_path)
    write(path, BODY + b"more\n")
    assert agent.place_transcript(Transcript(ID, ROLLOUT, BODY), "/")
    assert path.read_bytes() == BODY + b"more\n"
    write(path, BODY[:9])
    assert agent.place_transcript(Transcript(ID, ROLLOUT, BODY), "/")
    assert path.read_bytes() == BODY
    assert files_in(tmp_path) == [f".codex/sessions/{ROLLOUT}"]


@pytest.mark.parametrize("name", ["../../x", "a/b", "..", "", "a\0b", ".hidden", "*", "x" * 200])
def test_a_conversations_name_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    for agent in (claude(tmp_path), codex(tmp_path)):
        told = f"2026/11/15/rollout-2026-11-15T07-06-28-{name}.jsonl"
        assert not agent.place_transcript(Transcript(name, told, BODY), "/")
        assert agent.read_transcript(name, "/", MOST) is None
    assert files_in(tmp_path) == []


@pytest.mark.parametrize(
    "name",
    [
        "", "rollout-1.jsonl", f"../../../rollout-1-{ID}.jsonl", f"2026/11/15/{ID}.jsonl",
        f"2026/11/15/rollout-1-{ID}.jsonl/../../x", f"/2026/11/15/rollout-1-{ID}.jsonl",
        "2026/11/15/rollout-1-another.jsonl",
    ],
)  # fmt: skip
def test_a_rollout_is_placed_under_no_other_name_than_codex_gives(
    tmp_path: Path, name: str
) -> None:
    assert not codex(tmp_path).place_transcript(Transcript(ID, name, BODY), "/")
    assert files_in(tmp_path) == []


def test_no_link_is_followed_to_write_or_to_read(tmp_path: Path) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    outside.mkdir()
    secret = write(outside / "secret", BODY)
    (home / ".codex" / "sessions").mkdir(parents=True)
    (home / ".codex" / "sessions" / "2026").symlink_to(outside)
    with pytest.raises(OSError):
        codex(home).place_transcript(Transcript(ID, ROLLOUT, BODY), "/")
    path = home / ".claude" / "projects" / "-" / f"{ID}.jsonl"
    path.parent.mkdir(parents=True)
    path.symlink_to(secret)
    with pytest.raises(OSError):
        claude(home).read_transcript(ID, "/", MOST)
    with pytest.raises(OSError):
        claude(home).place_transcript(Transcript(ID, "", b"other\n"), "/")
    assert secret.read_bytes() == BODY
    assert files_in(outside) == ["secret"]


def test_a_place_whose_folder_has_a_name_that_we_cannot_know_is_not_written_to(
    tmp_path: Path,
) -> None:
    deep = tmp_path.joinpath(*["d" * 60] * 4)
    deep.mkdir(parents=True)
    assert project_of("/a_b/c.d/é") == "-a-b-c-d--"
    assert project_of(str(deep)) is None
    assert not claude(tmp_path).place_transcript(Transcript(ID, "", BODY), str(deep))
    assert files_in(tmp_path) == []


PROMPT = b'{"type": "user", "message": {"content": "hello"}}\n'
CALL = b'{"type": "assistant", "message": {"content": [{"type": "tool_use"}]}}\n'
WORD = b'{"type": "assistant", "message": {"content": [{"type": "text"}]}}\n'
ASIDE = b'{"type": "user", "isSidechain": true}\n{"type": "system"}\nnot JSON\n[]\n'


@pytest.mark.parametrize(
    ("body", "since", "turns"),
    [
        (PROMPT + WORD, 0, 1),
        (PROMPT + CALL + PROMPT + WORD + ASIDE, 0, 1),
        (PROMPT + WORD + CALL + PROMPT + WORD, 0, 1),
        (PROMPT + WORD, len(PROMPT + WORD), 0),
        (PROMPT + WORD + PROMPT, 0, 1),
        (PROMPT + WORD + PROMPT + WORD, 0, 2),
        (PROMPT + CALL, 0, 0),
        (b'{"type": "assistant", "message": 1}\n', 0, 0),
        (b"", 0, 0),
    ],
)
def test_a_turn_of_claude_ends_with_its_own_word(
    body: bytes, since: int, turns: int, tmp_path: Path
) -> None:
    assert claude(tmp_path).count_turns(Transcript(ID, "", body), since) == turns


BEGUN = b'{"type": "event_msg", "payload": {"type": "task_started"}}\n'
ENDED = b'{"type": "event_msg", "payload": {"type": "task_complete"}}\n'
OTHER = b'{"type": "event_msg", "payload": 1}\n{"type": "x", "payload": {"type": "task_started"}}\n'


@pytest.mark.parametrize(
    ("body", "since", "turns"),
    [
        (BEGUN + ENDED + OTHER, 0, 1),
        (BEGUN + ENDED + BEGUN + ENDED, 0, 2),
        (BEGUN + ENDED + BEGUN + ENDED, len(BEGUN + ENDED), 1),
        (BEGUN + ENDED, len(BEGUN + ENDED), 0),
        (BEGUN + ENDED + BEGUN, 0, 1),
        (OTHER, 0, 0),
    ],
)
def test_a_turn_of_codex_ends_where_that_is_marked(
    body: bytes, since: int, turns: int, tmp_path: Path
) -> None:
    assert codex(tmp_path).count_turns(Transcript(ID, ROLLOUT, body), since) == turns
