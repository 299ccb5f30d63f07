from __future__ import annotations

from pathlib import Path
from typing import Any

from rekindle.transcripts.discovery import (
    LOCATION_VARIABLES,
    find_database,
    find_parent_folders,
    find_session_paths,
)


def test_only_folders_that_exist_are_found(tmp_path: Path) -> None:
    assert find_session_paths(tmp_path, {}) == []
    claude = tmp_path / ".claude" / "projects"
    codex = tmp_path / ".codex" / "sessions"
    claude.mkdir(parents=True)
    codex.mkdir(parents=True)
    assert find_session_paths(tmp_path, {}) == [claude, codex]


def test_the_variables_of_the_agents_replace_the_usual_folders(tmp_path: Path) -> None:
    for name in (".claude/projects", "a/projects", "b/projects", "c/archived_sessions"):
        (tmp_path / name).mkdir(parents=True)
    env = {"CLAUDE_CONFIG_DIR": f"{tmp_path / 'a'}, ~/b", "CODEX_HOME": str(tmp_path / "c")}
    assert find_session_paths(tmp_path, env) == [
        tmp_path / "a" / "projects",
        tmp_path / "b" / "projects",
        tmp_path / "c" / "archived_sessions",
    ]


def test_the_folders_of_agents_that_keep_them_elsewhere_are_found(tmp_path: Path) -> None:
    places = [
        ".copilot/session-state",
        ".local/share/opencode/storage/session",
        ".pi/agent/sessions",
        ".gemini/tmp/hash/chats",
    ]
    for place in places:
        (tmp_path / place).mkdir(parents=True)
    database = tmp_path / ".local/share/opencode/opencode.db"
    database.touch()
    found = [path.relative_to(tmp_path).as_posix() for path in find_session_paths(tmp_path, {})]
    assert found == [*places[:2], ".local/share/opencode/opencode.db", *places[2:]]


def test_the_variables_of_other_agents_replace_their_folders_too(tmp_path: Path) -> None:
    env = {
        "COPILOT_HOME": "copilot",
        "XDG_DATA_HOME": "data",
        "OPENCODE_DB": "elsewhere.db",
        "PI_CODING_AGENT_DIR": "pi",
        "GEMINI_CLI_HOME": "gemini",
    }
    env = {name: str(tmp_path / path) for name, path in env.items()}
    places = ["copilot/session-state", "data/opencode/storage/session", "elsewhere.db"]
    places += ["pi/sessions", "gemini/.gemini/tmp/hash/chats"]
    for place in (*places, ".copilot/session-state", ".pi/agent/sessions"):
        (tmp_path / place).mkdir(parents=True)
    assert [
        path.relative_to(tmp_path).as_posix() for path in find_session_paths(tmp_path, env)
    ] == places


def test_databases_and_folders_of_hermes_openhands_and_mini_swe_agent_are_found(
    tmp_path: Path,
) -> None:
    usual = [".hermes/state.db", ".hermes/sessions", ".openhands/conversations"]
    usual += [".openhands/sessions", ".config/mini-swe-agent/last_mini_run.traj.json"]
    chosen = ["h/state.db", "h/profiles/work/state.db", "h/sessions", "c", "o/sessions"]
    chosen += ["m/last_mini_run.traj.json"]
    for place in (*usual, *chosen):
        (tmp_path / place).mkdir(parents=True)
    assert [
        path.relative_to(tmp_path).as_posix() for path in find_session_paths(tmp_path, {})
    ] == usual
    env = {
        "HERMES_HOME": "h",
        "OPENHANDS_PERSISTENCE_DIR": "o",
        "OPENHANDS_CONVERSATIONS_DIR": "c",
        "MSWEA_GLOBAL_CONFIG_DIR": "m",
    }
    env = {name: str(tmp_path / path) for name, path in env.items()}
    assert [
        path.relative_to(tmp_path).as_posix() for path in find_session_paths(tmp_path, env)
    ] == chosen


def test_logs_of_inspect_and_the_history_of_aider_are_found(tmp_path: Path) -> None:
    usual, chosen = tmp_path / ".aider.chat.history.md", tmp_path / "history.md"
    usual.touch()
    chosen.touch()
    logs = tmp_path / "logs"
    logs.mkdir()
    assert find_session_paths(tmp_path, {"INSPECT_LOG_DIR": "s3://bucket/logs"}) == [usual]
    env = {"INSPECT_LOG_DIR": str(logs), "AIDER_CHAT_HISTORY_FILE": str(chosen)}
    assert find_session_paths(tmp_path, env) == [logs, chosen]


def test_the_folders_in_which_sessions_may_appear_are_those_that_exist(tmp_path: Path) -> None:
    assert find_parent_folders(tmp_path, {}) == [tmp_path]
    (tmp_path / ".gemini" / "tmp" / "app").mkdir(parents=True)
    (tmp_path / ".hermes" / "profiles" / "work").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    env = {"CODEX_HOME": str(tmp_path / "elsewhere")}
    found = {path.relative_to(tmp_path).as_posix() for path in find_parent_folders(tmp_path, env)}
    assert found == {
        ".", ".gemini", ".gemini/tmp", ".gemini/tmp/app", ".hermes", ".hermes/profiles",
        ".hermes/profiles/work", "elsewhere",
    }  # fmt: skip


def test_every_variable_of_an_agent_is_named(tmp_path: Path) -> None:
    class Asked(dict[str, str]):
        def get(self, name: str, default: Any = None) -> Any:
            asked.add(name)
            return default

    asked: set[str] = set()
    find_session_paths(tmp_path, Asked())
    assert asked == set(LOCATION_VARIABLES)


def test_a_file_beside_a_database_belongs_to_it(tmp_path: Path) -> None:
    database = tmp_path / "state.db"
    database.touch()
    for suffix in ("", "-wal", "-shm", "-journal"):
        assert find_database(f"{database}{suffix}") == database
    assert find_database(f"{tmp_path}/other.db-wal") == tmp_path / "other.db-wal"
