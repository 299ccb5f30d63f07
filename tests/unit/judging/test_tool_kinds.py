from __future__ import annotations

import pytest

from rekindle.judging.tool_kinds import classify_tool, get_tool_work, runs_code


@pytest.mark.parametrize(
    ("tools", "kind"),
    [
        (
            "terminal Bash bash exec_command shell run_shell_command execute_bash write_stdin",
            "terminal",
        ),
        ("execute_code skill_manage python code_interpreter execute_ipython_cell", "code"),
        ("read_file write_file patch search_files Read Edit Write MultiEdit Grep Glob", "file"),
        ("apply_patch str_replace_editor view create list_directory replace", "file"),
        ("web_search web_extract web_fetch WebFetch WebSearch google_web_search", "research"),
        ("browser_navigate browser_click browser mcp__playwright__browser_click", "research"),
        ("warm_session", "meta"),
        ("clarify memory fact_store fact_feedback session_search skill_view", "bookkeeping"),
        ("skills_list TodoWrite update_plan TaskUpdate todowrite ExitPlanMode", "bookkeeping"),
        ("Task get_user_details mcp__linear__create_issue spawn_agent whatever", "general"),
    ],
)
def test_tools_are_counted_under_their_kind_of_work_whoever_named_them(
    tools: str, kind: str
) -> None:
    assert {tool: get_tool_work(tool) for tool in tools.split()} == dict.fromkeys(
        tools.split(), kind
    )


def test_a_namespace_a_date_or_another_spelling_does_not_change_the_kind() -> None:
    for name in ("functions.exec_command", "default_api:exec_command", "Exec-Command"):
        assert get_tool_work(name) == "terminal"
    assert get_tool_work("bash_20250124") == "terminal"
    assert classify_tool("mcp__files__read_file").shape == "read"


@pytest.mark.parametrize(
    "command",
    [
        "python a.py",
        "cd app && npm test",
        "FOO=1 uv run pytest -q | tail",
        "go build ./...",
        "./run.sh",
        "cat > a.py <<'E'\nprint(1)\nE\npython3 a.py",
        "bash -lc 'make all'",
        "npx tsc",
        "cargo test",
        "node -e 'console.log(1)'",
    ],
)
def test_commands_that_run_code_are_known(command: str) -> None:
    assert runs_code(command)


@pytest.mark.parametrize(
    "command",
    [
        "ls -la",
        "cat a.py",
        "grep -rn python src",
        "git log --oneline | head",
        "echo 'python a.py'",
        "python --version",
        "npm install",
        "rm -rf node_modules",
        "cat > run.py <<'E'\npython a.py\nE",
        "",
    ],
)
def test_commands_that_only_look_or_move_files_run_no_code(command: str) -> None:
    assert not runs_code(command)
