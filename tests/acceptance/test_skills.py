"""Skills and the plugin for Claude Code, exported by the real command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.test_cli import Rekindle
from tests.acceptance.test_notes import write_session

HERE = ("--project", "shop")


@pytest.fixture
def rekindle(tmp_path: Path) -> Rekindle:
    rekindle = Rekindle(tmp_path)
    transcripts = tmp_path / "transcripts"
    transcripts.mkdir()
    for number in range(6):
        write_session(transcripts, f"a{number}", ("make check", "ok", True))
    rekindle("import", transcripts)
    return rekindle


def test_a_project_is_exported_as_a_skill(rekindle: Rekindle, tmp_path: Path) -> None:
    skills = tmp_path / ".claude" / "skills"
    said = rekindle("skill", "export", *HERE, "-o", skills)
    file = skills / "shop-sessions" / "SKILL.md"
    assert str(file.parent) in said
    text = file.read_text()
    assert text.startswith("---\nname: shop-sessions\ndescription: ")
    assert "- `make check` (6 sessions)" in text
    assert rekindle("skill", "export", *HERE) == text
    assert rekindle.json("skill", "export", *HERE)["text"] == text


def test_an_existing_skill_is_changed_only_after_the_change_was_shown(
    rekindle: Rekindle, tmp_path: Path
) -> None:
    words = ("skill", "export", *HERE, "-o", tmp_path)
    rekindle(*words)
    file = tmp_path / "shop-sessions" / "SKILL.md"
    (file.parent / "notes.txt").write_text("mine")
    assert "up to date" in rekindle.run(*words).stderr.decode()
    before = file.read_text()
    rekindle("warm", "notes", "add", "Compare literals.", *HERE)
    assert "confirmation required" in rekindle.refusal(*words)
    assert "+- Compare literals." in rekindle(*words, "--dry-run")
    assert file.read_text() == before
    shown = rekindle.terminal(*map(str, words), answer="n\n", code=1)
    assert "+- Compare literals." in shown
    assert file.read_text() == before
    assert "+- Compare literals." in rekindle(*words, "--yes")
    assert "- Compare literals." in file.read_text()
    assert (file.parent / "notes.txt").read_text() == "mine"
    assert [one.name for one in file.parent.iterdir() if one.name.startswith(".")] == []


def test_a_plugin_has_the_hook_before_calls_if_the_setting_asks_for_it(
    rekindle: Rekindle, tmp_path: Path
) -> None:
    rekindle.env["REKINDLE_WARM_BEFORE_CALL"] = "true"
    rekindle("plugin", "export", tmp_path / "plugin", *HERE)
    hooks = json.loads((tmp_path / "plugin" / "hooks/hooks.json").read_text())["hooks"]
    (group,) = hooks["PreToolUse"]
    assert group["matcher"] == "Bash"
    assert " claude-code call " in group["hooks"][0]["command"]
    assert all("matcher" not in hooks[event][0] for event in hooks.keys() - {"PreToolUse"})


def test_links_and_other_files_in_the_way_are_refused(rekindle: Rekindle, tmp_path: Path) -> None:
    target = tmp_path / "profile"
    target.write_text("precious")
    folder = tmp_path / "shop-sessions"
    folder.mkdir()
    (folder / "SKILL.md").symlink_to(target)
    assert "is a link" in rekindle.refusal("skill", "export", *HERE, "-o", tmp_path, "--yes")
    assert target.read_text() == "precious"
    (folder / "SKILL.md").unlink()
    (folder / "SKILL.md").write_bytes(b"\xff")
    assert "not valid UTF-8" in rekindle.refusal("skill", "export", *HERE, "-o", tmp_path, "--yes")


def test_a_template_is_exported_once_it_is_accepted(rekindle: Rekindle, tmp_path: Path) -> None:
    rekindle("warm", "build", "--name", "Our tests", "--min-messages", "1")
    text = rekindle("skill", "export", "--template", "our-tests")
    assert text.startswith("---\nname: our-tests\n")
    assert "make check" in text
    rekindle("warm", "retire", "our-tests")
    assert "accept it first" in rekindle.refusal("skill", "export", "--template", "our-tests")
    assert "either --project or --template" in rekindle.refusal(
        "skill", "export", "--template", "x", "--project", "y"
    )


def test_nothing_known_is_said(rekindle: Rekindle) -> None:
    assert "Project not found" in rekindle.refusal("skill", "export", "--project", "nobody")
    assert "Nothing is known about this folder" in rekindle.refusal("skill", "export")


def test_a_plugin_holds_hooks_server_and_skills(rekindle: Rekindle, tmp_path: Path) -> None:
    folder = tmp_path / "plugin"
    rekindle("plugin", "export", folder, *HERE)
    files = {str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file()}
    assert files == {
        ".claude-plugin/plugin.json",
        ".mcp.json",
        "hooks/hooks.json",
        "skills/past-sessions/SKILL.md",
        "skills/shop-sessions/SKILL.md",
    }
    hooks = json.loads((folder / "hooks/hooks.json").read_text())["hooks"]
    launcher = rekindle.home / "rekindle" / "hooks" / "run"
    assert launcher.exists()
    for event in ("SessionStart", "UserPromptSubmit", "PostToolUseFailure", "SessionEnd"):
        (one,) = hooks[event][0]["hooks"]
        assert one["command"].startswith(f"{launcher} claude-code ")
        assert one["timeout"] == 10
    assert "PreToolUse" not in hooks
    server = json.loads((folder / ".mcp.json").read_text())["mcpServers"]["rekindle"]
    assert server["alwaysLoad"] is True
    assert server["args"] == ["mcp"]
    assert Path(server["command"]).exists()
    assert json.loads((folder / ".claude-plugin/plugin.json").read_text())["name"] == "rekindle"
    again = rekindle.run("plugin", "export", folder, *HERE).stderr.decode()
    assert "up to date" in again
    (folder / ".mcp.json").write_text("{}")
    assert "confirmation required" in rekindle.refusal("plugin", "export", folder, *HERE)
    assert (folder / ".mcp.json").read_text() == "{}"
