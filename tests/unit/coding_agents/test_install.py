import json
import os
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from rekindle.coding_agents.agent import CodingAgent, InstallTarget
from rekindle.coding_agents.agents import AGENTS
from rekindle.coding_agents.agents.claude_code import CLAUDE_CODE
from rekindle.coding_agents.agents.codex import CODEX
from rekindle.coding_agents.agents.opencode import OPENCODE
from rekindle.coding_agents.install import (
    apply_install,
    apply_uninstall,
    find_project,
    plan_install,
    plan_uninstall,
)
from rekindle.coding_agents.install_records import InstallRecords
from rekindle.errors import InvalidInput


@pytest.fixture
def target(tmp_path: Path) -> InstallTarget:
    (tmp_path / "home").mkdir()
    return InstallTarget(tmp_path / "home", {}, tmp_path / "rekindle")


@pytest.fixture
def records(target: InstallTarget) -> InstallRecords:
    return InstallRecords(target.rekindle_home)


def install(agent: CodingAgent, target: InstallTarget, records: InstallRecords) -> int:
    changes = plan_install(agent, target, records)
    for change in changes:
        apply_install(change, records)
    return len(changes)


def uninstall(agent: CodingAgent, target: InstallTarget, records: InstallRecords) -> int:
    changes = plan_uninstall(agent, target, records)
    for change in changes:
        apply_uninstall(change, records)
    return len(changes)


def read_tree(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("agent", AGENTS.values(), ids=AGENTS)
@pytest.mark.parametrize("scope", ["user", "project"])
def test_an_empty_home_is_empty_again_after_install_and_uninstall(
    agent: CodingAgent, scope: str, target: InstallTarget, records: InstallRecords
) -> None:
    project = target.home / "project"
    project.mkdir()
    if scope == "project":
        target = InstallTarget(target.home, {}, target.rekindle_home, project)
    before = read_tree(target.home)
    assert install(agent, target, records) > 0
    installed = read_tree(target.home)
    assert all(
        Path(name).is_relative_to("project") is (scope == "project")
        for name in installed - before.keys()
    )
    assert install(agent, target, records) == 0
    assert read_tree(target.home) == installed
    assert uninstall(agent, target, records) > 0
    assert read_tree(target.home) == before
    assert uninstall(agent, target, records) == 0


SETTINGS = b'{\r\n\t// mine\r\n\t"model": "opus",\r\n\t"hooks": {}\r\n}'


def test_a_file_that_nobody_else_changed_is_restored_byte_for_byte(
    target: InstallTarget, records: InstallRecords
) -> None:
    file = target.home / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_bytes(SETTINGS)
    install(CLAUDE_CODE, target, records)
    assert file.read_bytes() != SETTINGS
    uninstall(CLAUDE_CODE, target, records)
    assert file.read_bytes() == SETTINGS


def test_of_a_file_that_others_changed_only_our_entries_are_removed(
    target: InstallTarget, records: InstallRecords
) -> None:
    file = target.home / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_bytes(SETTINGS)
    install(CLAUDE_CODE, target, records)
    file.write_bytes(file.read_bytes().replace(b'"opus"', b'"sonnet"'))
    uninstall(CLAUDE_CODE, target, records)
    assert file.read_bytes() == SETTINGS.replace(b'"opus"', b'"sonnet"')


def test_a_new_form_is_installed_over_an_old_one_and_the_original_comes_back(
    target: InstallTarget, records: InstallRecords
) -> None:
    file = target.home / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_bytes(SETTINGS)
    old = InstallTarget(target.home, {}, target.home / "another home")
    install(CLAUDE_CODE, old, records)
    assert install(CLAUDE_CODE, target, records) == 1
    assert b"another home" not in file.read_bytes()
    uninstall(CLAUDE_CODE, target, records)
    assert file.read_bytes() == SETTINGS


def test_without_records_uninstall_removes_our_entries_alone(
    target: InstallTarget, records: InstallRecords
) -> None:
    file = target.home / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text('{\n  "model": "opus"\n}\n')
    install(CLAUDE_CODE, target, records)
    for record in records.folder.glob("*.json"):
        record.write_text("{broken")
    uninstall(CLAUDE_CODE, target, records)
    assert file.read_text() == '{\n  "model": "opus"\n}\n'


def test_a_lost_backup_costs_no_setting(target: InstallTarget, records: InstallRecords) -> None:
    file = target.home / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text('{\n  "model": "opus"\n}\n')
    install(CLAUDE_CODE, target, records)
    for backup in (records.folder / "backups").iterdir():
        backup.unlink()
    uninstall(CLAUDE_CODE, target, records)
    assert file.read_text() == '{\n  "model": "opus"\n}\n'


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"hooks": 1}', b"\xff", b'{"a": 1}{}'])
def test_a_file_that_cannot_be_edited_is_refused_and_named(
    content: bytes, target: InstallTarget, records: InstallRecords
) -> None:
    file = target.home / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_bytes(content)
    with pytest.raises(InvalidInput, match=r"settings\.json"):
        plan_install(CLAUDE_CODE, target, records)
    assert file.read_bytes() == content


def test_backups_are_for_the_user_alone(target: InstallTarget, records: InstallRecords) -> None:
    file = target.home / ".codex" / "config.toml"
    file.parent.mkdir()
    file.write_text('key = "secret"\n')
    (change,) = [
        one for one in plan_install(CODEX, target, records) if one.path.name == "config.toml"
    ]
    backup = apply_install(change, records)
    assert backup is not None
    assert backup.read_text() == 'key = "secret"\n'
    assert backup.stat().st_mode & 0o077 == 0
    assert backup.parent.stat().st_mode & 0o077 == 0


def test_a_link_out_of_the_project_is_refused(
    target: InstallTarget, records: InstallRecords
) -> None:
    project = target.home / "project"
    (project / ".claude").mkdir(parents=True)
    (project / ".claude" / "settings.json").symlink_to(target.home / ".claude.json")
    inside = InstallTarget(target.home, {}, target.rekindle_home, project)
    with pytest.raises(InvalidInput, match="leads out of the project"):
        plan_install(CLAUDE_CODE, inside, records)


def test_the_project_is_the_worktree_around_a_folder(tmp_path: Path) -> None:
    inner = tmp_path / "repo" / "src"
    inner.mkdir(parents=True)
    (tmp_path / "repo" / ".git").write_text("gitdir: elsewhere\n")
    assert find_project(inner, tmp_path) == tmp_path / "repo"
    assert find_project(tmp_path, tmp_path / "home") == tmp_path
    with pytest.raises(InvalidInput, match="home folder"):
        find_project(tmp_path, tmp_path)


def test_entries_are_the_same_in_every_version() -> None:
    """Codex asks its user again when an entry changes, so a change here needs a reason."""
    target = InstallTarget(Path("/home/ada"), {}, Path("/home/ada/.local/share/rekindle"))
    hooks, _ = CODEX.list_files(target)
    run = "/home/ada/.local/share/rekindle/hooks/run codex"
    expected = {
        native: [
            {
                "hooks": [
                    {
                        "type": "command",
                        "command": f"{run} {event} 2>/dev/null || true",
                        "timeout": seconds,
                    }
                ]
            }
        ]
        for native, event, seconds in [
            ("SessionStart", "start", 5),
            ("UserPromptSubmit", "prompt", 5),
            ("PostToolUse", "failure", 5),
            ("SessionEnd", "end", 3),
            ("PreCompact", "compact", 5),
        ]
    }
    text = hooks.parts[0].add_to("")
    assert json.loads(text) == {"hooks": expected}
    assert text == json.dumps({"hooks": expected}, indent=2) + "\n"


@pytest.mark.parametrize("agent", AGENTS.values(), ids=AGENTS)
@pytest.mark.parametrize("scope", ["user", "project"])
def test_the_hook_before_calls_comes_and_goes_with_the_setting(
    agent: CodingAgent, scope: str, target: InstallTarget, records: InstallRecords
) -> None:
    project = target.home / "project"
    project.mkdir()
    target = replace(target, project=project if scope == "project" else None)
    asked = replace(target, before_call=True)
    before = read_tree(target.home)
    install(agent, target, records)
    usual = read_tree(target.home)
    assert install(agent, asked, records) == 1
    assert read_tree(target.home) != usual
    assert install(agent, asked, records) == 0
    assert install(agent, target, records) == 1
    assert read_tree(target.home) == usual
    install(agent, asked, records)
    uninstall(agent, target, records)
    assert read_tree(target.home) == before


def test_a_file_with_hooks_of_others_is_restored_after_the_setting_was_changed(
    target: InstallTarget, records: InstallRecords
) -> None:
    file = target.home / ".claude" / "settings.json"
    file.parent.mkdir()
    theirs = {"matcher": "Bash", "hooks": [{"type": "command", "command": "echo mine"}]}
    text = json.dumps({"hooks": {"PreToolUse": [theirs]}}, indent=3).encode()
    file.write_bytes(text)
    install(CLAUDE_CODE, target, records)
    install(CLAUDE_CODE, replace(target, before_call=True), records)
    first, ours = json.loads(file.read_bytes())["hooks"]["PreToolUse"]
    assert first == theirs
    assert ours["matcher"] == "Bash"
    assert "claude-code call" in ours["hooks"][0]["command"]
    uninstall(CLAUDE_CODE, target, records)
    assert file.read_bytes() == text


@pytest.mark.parametrize(
    ("agent", "event", "tool"),
    [
        ("claude-code", "PreToolUse", "Bash"),
        ("codex", "PreToolUse", "Bash"),
        ("gemini", "BeforeTool", "run_shell_command"),
    ],
)
def test_the_hook_before_calls_runs_for_commands_alone_and_changes_no_other_entry(
    agent: str, event: str, tool: str, target: InstallTarget
) -> None:
    usual, asked = (
        json.loads(AGENTS[agent].list_files(one)[0].parts[0].add_to(""))["hooks"]
        for one in (target, replace(target, before_call=True))
    )
    (group,) = asked.pop(event)
    assert asked == usual
    assert group["matcher"] == tool
    assert len(group["hooks"]) == 1


@pytest.mark.parametrize(
    ("agent", "env", "expected"),
    [
        ("claude-code", {}, [".claude/settings.json", ".claude.json"]),
        (
            "claude-code",
            {"CLAUDE_CONFIG_DIR": "~/c"},
            ["c/settings.json", "c/.claude.json"],
        ),
        ("codex", {"CODEX_HOME": "~/x"}, ["x/hooks.json", "x/config.toml"]),
        (
            "opencode",
            {"XDG_CONFIG_HOME": "~/cfg"},
            ["cfg/opencode/plugins/rekindle.js", "cfg/opencode/opencode.json"],
        ),
        ("gemini", {"GEMINI_CLI_HOME": "~/g"}, ["g/.gemini/settings.json"]),
        ("pi", {"PI_CODING_AGENT_DIR": "~/p"}, ["p/extensions/rekindle.js"]),
    ],
)
def test_the_variables_of_an_agent_say_where_its_files_are(
    agent: str, env: dict[str, str], expected: list[str], tmp_path: Path
) -> None:
    target = InstallTarget(tmp_path, env, tmp_path / "rekindle")
    found = [str(file.path.relative_to(tmp_path)) for file in AGENTS[agent].list_files(target)]
    assert found == expected


def test_an_existing_jsonc_file_of_opencode_is_used(
    target: InstallTarget, records: InstallRecords
) -> None:
    folder = target.home / ".config" / "opencode"
    folder.mkdir(parents=True)
    (folder / "opencode.jsonc").write_text('{\n  // mine\n  "theme": "x",\n}\n')
    install(OPENCODE, target, records)
    assert not (folder / "opencode.json").exists()
    text = (folder / "opencode.jsonc").read_text()
    assert "// mine" in text
    assert '"rekindle"' in text


def test_project_entries_name_no_folder_of_this_machine(
    target: InstallTarget, records: InstallRecords
) -> None:
    project = target.home / "project"
    project.mkdir()
    shared = InstallTarget(target.home, {}, target.rekindle_home, project)
    for agent in AGENTS.values():
        for change in plan_install(agent, shared, records):
            assert change.after is not None
            assert os.fsencode(target.home) not in change.after
            assert os.fsencode(target.rekindle_home) not in change.after


@pytest.mark.parametrize("agent", ["claude-code", "codex", "opencode", "gemini"])
def test_a_server_is_told_of_a_home_that_is_not_the_usual_one(
    agent: str, target: InstallTarget, records: InstallRecords
) -> None:
    moved = InstallTarget(target.home, {"REKINDLE_HOME": "x"}, target.rekindle_home)
    for where, expected in ((target, False), (moved, True)):
        changes = plan_install(AGENTS[agent], where, records)
        server = next(change.after for change in reversed(changes) if change.after)
        assert (b"REKINDLE_HOME" in server) is expected
        if agent == "codex" and expected:
            (env,) = [tomllib.loads(server.decode())["mcp_servers"]["rekindle"]["env"]]
            assert env == {"REKINDLE_HOME": str(target.rekindle_home)}


@pytest.mark.parametrize(
    ("agent", "user", "project"),
    [
        ("claude-code", ".claude/skills", ".claude/skills"),
        ("codex", ".agents/skills", ".agents/skills"),
        ("opencode", ".config/opencode/skills", ".opencode/skills"),
        ("gemini", ".gemini/skills", ".gemini/skills"),
        ("pi", ".pi/agent/skills", ".pi/skills"),
    ],
)
def test_skills_have_a_folder_for_the_user_and_for_the_project(
    agent: str, user: str, project: str, target: InstallTarget
) -> None:
    root = target.home / "project"
    shared = InstallTarget(target.home, {}, target.rekindle_home, root)
    assert AGENTS[agent].find_skills(target) == target.home / user
    assert AGENTS[agent].find_skills(shared) == root / project
