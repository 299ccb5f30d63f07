"""`rekindle install`, `uninstall` and `doctor`, in a home of its own."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from rekindle.hooks.command import get_launcher
from rekindle.hooks.troubles import record_trouble
from rekindle.transcripts.discovery import SAMPLE
from tests import command
from tests.acceptance.test_cli import Rekindle
from tests.waiting import PATIENCE

DAY = 86_400
SETTINGS = (
    '{\n    // my settings\n    "model": "opus",\n    "hooks": {\n        "Stop": []\n    }\n}'
)


@pytest.fixture
def rekindle(tmp_path: Path) -> Rekindle:
    made = Rekindle(tmp_path)
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        made.env.pop(name, None)
    return made


@pytest.fixture
def settings(rekindle: Rekindle) -> Path:
    file = rekindle.home / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text(SETTINGS)
    return file


def test_the_change_is_shown_as_a_diff_and_nothing_is_done_in_a_dry_run(
    rekindle: Rekindle, settings: Path
) -> None:
    shown = rekindle("install", "claude-code", "--dry-run")
    assert f"--- {settings}\n+++ {settings}\n@@ " in shown
    assert '\n+        "SessionStart": [\n' in shown
    assert '\n     "model": "opus",\n' in shown
    assert settings.read_text() == SETTINGS
    assert not (rekindle.home / "rekindle").exists()
    assert not (rekindle.home / ".claude.json").exists()


def test_people_are_told_that_some_sessions_start_without_notes(
    rekindle: Rekindle, settings: Path
) -> None:
    line = (
        "1 in 10 sessions starts without notes, to measure whether they help;"
        " `warm.control_share = 0` turns it off.\n"
    )
    assert line in rekindle("install", "claude-code", "--yes")
    off = rekindle.home / "rekindle" / "config.toml"
    doctor = rekindle.run("doctor", code=0).stdout.decode()
    assert line in doctor
    off.write_text("[warm]\ncontrol_share = 0\n")
    assert "without notes" not in rekindle("doctor")
    off.write_text("[warm]\ncontrol_share = 0.3\n")
    assert "30% of the sessions start without notes" in rekindle("doctor")


def test_in_a_pipe_nothing_is_changed_without_yes(rekindle: Rekindle, settings: Path) -> None:
    for verb in ("install", "uninstall"):
        if verb == "uninstall":
            rekindle("install", "claude-code", "--yes")
        before = settings.read_text()
        assert "--yes" in rekindle.refusal(verb, "claude-code")
        assert settings.read_text() == before


def test_a_person_is_asked(rekindle: Rekindle, settings: Path) -> None:
    shown = rekindle.terminal("install", "claude-code", answer="n\n", code=1)
    assert "Apply this change?" in shown
    assert settings.read_text() == SETTINGS
    rekindle.terminal("install", "claude-code", answer="y\n")
    assert "hooks/run claude-code start" in settings.read_text()


def test_install_is_idempotent_and_uninstall_restores_every_byte(
    rekindle: Rekindle, settings: Path
) -> None:
    said = rekindle("install", "claude-code", "--yes")
    backup = Path(said.split("backup: ")[1].splitlines()[0])
    assert backup.read_text() == SETTINGS
    assert os.access(get_launcher(rekindle.home / "rekindle"), os.X_OK)
    installed = settings.read_text()
    assert "nothing to change" in rekindle("install", "claude-code")
    assert settings.read_text() == installed
    rekindle("uninstall", "claude-code", "--yes")
    assert settings.read_text() == SETTINGS
    assert not (rekindle.home / ".claude.json").exists()
    assert "not installed" in rekindle("uninstall", "claude-code")


def test_the_hook_before_calls_comes_and_goes_with_its_setting(
    rekindle: Rekindle, settings: Path
) -> None:
    config = rekindle.home / "rekindle" / "config.toml"
    rekindle("install", "claude-code", "--yes")
    usual = settings.read_text()
    assert "claude-code call" not in usual
    config.write_text("[warm]\nbefore_call = true\n")
    shown = rekindle("doctor", code=1)
    assert "The setting warm.before_call is on, but its hook is not installed" in shown
    assert "rekindle install claude-code" in shown
    rekindle("install", "claude-code", "--yes")
    (group,) = json.loads(settings.read_text().replace("// my settings", ""))["hooks"]["PreToolUse"]
    assert group["matcher"] == "Bash"
    assert " claude-code call " in group["hooks"][0]["command"]
    rekindle("doctor")
    config.unlink()
    assert "warm.before_call is off, but its hook is still" in rekindle("doctor", code=1)
    rekindle("install", "claude-code", "--yes")
    assert settings.read_text() == usual
    config.write_text("[warm]\nbefore_call = true\n")
    rekindle("install", "claude-code", "--yes")
    config.write_text("[warm]\nbefore_call = 5\n")  # what cannot be read is no reason to stay
    rekindle("uninstall", "claude-code", "--yes")
    assert settings.read_text() == SETTINGS


def test_what_others_write_meanwhile_stays(rekindle: Rekindle, settings: Path) -> None:
    rekindle("install", "claude-code", "--yes")
    settings.write_text(settings.read_text().replace('"opus"', '"haiku"'))
    config = rekindle.home / ".claude.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "numStartups": 3}))
    rekindle("uninstall", "claude-code", "--yes")
    assert settings.read_text() == SETTINGS.replace('"opus"', '"haiku"')
    assert json.loads(config.read_text()) == {"numStartups": 3}


def test_a_file_that_cannot_be_parsed_is_refused_with_its_line(
    rekindle: Rekindle, settings: Path
) -> None:
    settings.write_text('{\n  "model": oops\n}\n')
    said = rekindle.refusal("install", "codex", "claude-code", "--yes")
    assert f"{settings}: not valid JSON: line 2, column 12" in said
    assert not (rekindle.home / ".codex").exists()  # all or nothing


def test_several_installs_at_once_leave_one_entry_each(rekindle: Rekindle, settings: Path) -> None:
    agents = ("claude-code", "codex", "gemini", "opencode", "pi")
    words = ["install", *agents, "--yes"]
    running = [
        command.start(
            words,
            env=rekindle.env,
            cwd=rekindle.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(6)
    ]
    for one in running:
        said = one.communicate(timeout=PATIENCE)
        assert one.returncode == 0, said
    assert settings.read_text().count("hooks/run claude-code start") == 1
    hooks = json.loads((rekindle.home / ".codex" / "hooks.json").read_text())["hooks"]
    assert {len(groups) for groups in hooks.values()} == {1}
    rekindle("uninstall", *agents, "--yes")
    assert settings.read_text() == SETTINGS
    assert sorted(path.name for path in rekindle.home.iterdir()) == [".claude", "rekindle"]


def test_a_project_has_its_own_entries(rekindle: Rekindle) -> None:
    project = rekindle.home / "project"
    (project / "src").mkdir(parents=True)
    (project / ".git").mkdir()

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return command.run(
            words, env=rekindle.env, cwd=project / "src", capture_output=True, text=True
        )

    agents = ("claude-code", "codex", "opencode", "gemini", "pi", "mcp")
    done = run("install", *agents, "--project", "--yes")
    assert done.returncode == 0, done.stderr
    written = sorted(
        str(path.relative_to(project)) for path in project.rglob("*") if path.is_file()
    )
    assert written == [
        ".claude/settings.json",
        ".codex/config.toml",
        ".codex/hooks.json",
        ".gemini/settings.json",
        ".mcp.json",
        ".opencode/plugins/rekindle.js",
        ".pi/extensions/rekindle.js",
        "opencode.json",
    ]
    assert all(str(rekindle.home) not in (project / name).read_text() for name in written)
    assert run("uninstall", *agents, "--project", "--yes").returncode == 0
    assert sorted(path.name for path in project.iterdir()) == [".git", "src"]
    assert "home folder" in rekindle.refusal("install", "codex", "--project", "--yes")


def test_the_entry_for_any_mcp_client_is_printed(rekindle: Rekindle) -> None:
    entry = json.loads(rekindle("install", "mcp"))["mcpServers"]["rekindle"]
    assert Path(entry["command"]).is_absolute()
    assert entry["args"] == ["mcp"]


def test_codex_users_are_told_to_trust_the_hooks(rekindle: Rekindle) -> None:
    said = rekindle("install", "codex", "--yes")
    assert "/hooks" in said
    assert "trusted_hash" not in (rekindle.home / ".codex" / "config.toml").read_text()


def test_an_unknown_agent_is_refused_with_the_known_ones(rekindle: Rekindle) -> None:
    assert "claude-code" in rekindle.refusal("install", "emacs")


# ── doctor


def test_the_doctor_names_what_is_to_do_until_nothing_is(rekindle: Rekindle) -> None:
    transcript = rekindle.home / ".claude" / "projects" / "-src" / "one.jsonl"
    transcript.parent.mkdir(parents=True)
    shutil.copy(SAMPLE / "claude-code-backup.jsonl", transcript)
    old = transcript.stat().st_mtime - 26 * DAY
    os.utime(transcript, (old, old))
    shown = rekindle("doctor", code=1)
    assert "Claude Code: Rekindle is not installed; 1 session file, 1 not imported" in shown
    assert "rekindle install claude-code" in shown
    assert "will delete 1 session file within 7 days that Rekindle has not imported" in shown
    assert not rekindle.store.exists()
    rekindle("install", "claude-code", "--yes")
    rekindle("import")
    shown = rekindle("doctor")
    assert "Claude Code: installed for this user" in shown
    assert "Rekindle keeps the sessions" in shown
    assert "Nothing needs your attention." in shown
    report = rekindle.json("doctor")
    assert report["ok"] is True
    (claude,) = [one for one in report["agents"] if one["name"] == "claude-code"]
    assert claude["installations"][0]["state"] == "installed"
    (deletion,) = claude["deletions"]
    assert deletion["file"] == str(transcript)
    assert deletion["is_imported"] is True
    assert deletion["time"] == pytest.approx(old + 30 * DAY)


def test_the_doctor_sees_stale_and_broken_installations(rekindle: Rekindle, settings: Path) -> None:
    rekindle("install", "claude-code", "--yes")
    installed = settings.read_text()
    settings.write_text(installed.replace("claude-code prompt", "claude-code forget"))
    assert "outdated or incomplete" in rekindle("doctor", code=1)
    settings.write_text("{")
    shown = rekindle("doctor", code=1)
    assert "broken for this user" in shown
    assert f"{settings}: not valid JSON" in shown
    settings.write_text(installed)
    get_launcher(rekindle.home / "rekindle").unlink()
    assert "does not exist" in rekindle("doctor", code=1)
    rekindle("install", "claude-code", "--yes")
    rekindle("doctor")


def test_the_doctor_reports_failures_of_hooks_until_they_are_cleared(
    rekindle: Rekindle, settings: Path
) -> None:
    rekindle("install", "claude-code", "--yes")
    rekindle("doctor")
    record_trouble(rekindle.home / "rekindle", "claude-code start", "the disk is full")
    shown = rekindle("doctor", code=1)
    assert "1 hook failed; the last (claude-code start): the disk is full" in shown
    rekindle("doctor", "--clear")


def test_the_doctor_survives_a_damaged_store(rekindle: Rekindle) -> None:
    transcript = rekindle.home / ".codex" / "sessions" / "one.jsonl"
    transcript.parent.mkdir(parents=True)
    shutil.copy(SAMPLE / "codex-slow-search.jsonl", transcript)
    rekindle.store.parent.mkdir()
    rekindle.store.write_bytes(b"this is no database" * 1000)
    report = rekindle.json("doctor", code=1)
    assert report["ok"] is False
    assert report["store_problem"]
