from __future__ import annotations

from pathlib import Path

from rekindle.transcripts.places import find


def test_only_folders_that_exist_are_found(tmp_path: Path) -> None:
    assert find(tmp_path, {}) == []
    claude = tmp_path / ".claude" / "projects"
    codex = tmp_path / ".codex" / "sessions"
    claude.mkdir(parents=True)
    codex.mkdir(parents=True)
    assert find(tmp_path, {}) == [claude, codex]


def test_the_variables_of_the_agents_replace_the_usual_folders(tmp_path: Path) -> None:
    for name in (".claude/projects", "a/projects", "b/projects", "c/archived_sessions"):
        (tmp_path / name).mkdir(parents=True)
    env = {"CLAUDE_CONFIG_DIR": f"{tmp_path / 'a'}, ~/b", "CODEX_HOME": str(tmp_path / "c")}
    assert find(tmp_path, env) == [
        tmp_path / "a" / "projects",
        tmp_path / "b" / "projects",
        tmp_path / "c" / "archived_sessions",
    ]
