"""The gate: which calls run, which are asked about, which are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from rekindle.agent.tools.builtin.execute_code import EXECUTE_CODE
from rekindle.agent.tools.builtin.read_file import READ_FILE
from rekindle.agent.tools.builtin.search_files import SEARCH_FILES
from rekindle.agent.tools.builtin.terminal import TERMINAL
from rekindle.agent.tools.builtin.todo import TODO
from rekindle.agent.tools.builtin.toolset import BUILTIN_TOOLS
from rekindle.agent.tools.builtin.write_file import WRITE_FILE
from rekindle.agent.tools.registry import ToolRegistry
from rekindle.agent.tools.tool import (
    HARMLESS_ABILITIES,
    Answer,
    ApprovalRequest,
    Approver,
    PermissionRules,
    ToolContext,
)
from rekindle.sandbox.sandbox import Sandbox
from tests.unit.agent.tools.calling import call, error, text


def answering(answer: Answer) -> tuple[list[ApprovalRequest], Approver]:
    asked: list[ApprovalRequest] = []

    async def approve(request: ApprovalRequest) -> Answer:
        asked.append(request)
        return answer

    return asked, approve


def test_always_asks_before_code_and_changes_but_not_before_reading(
    context: ToolContext, work: Path
) -> None:
    asked, approve = answering("no")
    strict = context._replace(approval="always", approve=approve)
    (work / "a").write_text("x\n")
    assert "refused by the user" in error(EXECUTE_CODE, strict, code="print(1)")
    assert "refused by the user" in error(WRITE_FILE, strict, path="b", content="x")
    assert [one.tool for one in asked] == ["execute_code", "write_file"]
    assert asked[0].command == "print(1)"
    assert "x" in text(READ_FILE, strict, path="a")
    assert len(asked) == 2


def test_without_a_sandbox_everything_that_runs_code_is_asked_about(context: ToolContext) -> None:
    asked, approve = answering("no")
    bare = context._replace(approve=approve, sandbox=Sandbox("none", problem="not installed"))
    assert "runs without a sandbox" in error(TERMINAL, bare, command="ls")
    assert "runs without a sandbox" in error(EXECUTE_CODE, bare, code="print(1)")
    assert len(asked) == 2


@pytest.mark.parametrize(("access", "reason"), [("network", "reaches the network"),
                                                ("system", "runs outside the sandbox")])  # fmt: skip
def test_more_than_the_sandbox_is_asked_about(
    context: ToolContext, access: str, reason: str
) -> None:
    assert reason in error(TERMINAL, context, command="ls", access=access)
    assert reason in error(EXECUTE_CODE, context, code="print(1)", access=access)


def test_an_answer_for_the_session_is_not_asked_again(context: ToolContext) -> None:
    asked, approve = answering("session")
    granted = context._replace(approve=approve, granted=set())
    for _ in range(2):
        call(TERMINAL, granted, command="ls", access="network")
    assert len(asked) == 1
    call(TERMINAL, granted, command="ls -l", access="network")
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("rule", "command", "is_allowed"),
    [
        ("terminal: git push", "git push origin main", True),
        ("terminal: git push", "git pushy", False),
        ("terminal: git push", "git push; rm -rf /", False),
        ("terminal: git push", "git push $(rm -rf x)", False),
        ("terminal", "rm -rf x", True),
        ("mcp__*", "rm -rf x", False),
    ],
)
def test_a_rule_allows_one_simple_command_that_begins_so(
    context: ToolContext, rule: str, command: str, is_allowed: bool
) -> None:
    ruled = context._replace(rules=PermissionRules(allow=(rule,)))
    result = call(TERMINAL, ruled, command=command, access="network")
    assert (result.meta.get("refused") is not True) is is_allowed


def test_a_rule_that_refuses_holds_even_if_nothing_is_asked(context: ToolContext) -> None:
    ruled = context._replace(approval="never", rules=PermissionRules(refuse=("terminal: git",)))
    assert "a rule in the settings forbids" in error(TERMINAL, ruled, command="git status; ls")
    assert call(TERMINAL, ruled, command="ls").meta["exit_code"] == 0


def test_a_stranger_is_offered_only_tools_that_change_nothing(context: ToolContext) -> None:
    stranger = context._replace(abilities=HARMLESS_ABILITIES, approval="never")
    box = ToolRegistry(BUILTIN_TOOLS).select()
    offered = {one["function"]["name"] for one in box.build_definitions(stranger)}
    assert offered == {"read_file", "search_files", "todo"}
    assert "not allowed in this conversation" in error(EXECUTE_CODE, stranger, code="print(1)")
    assert not call(TODO, stranger, items=[]).meta.get("refused")


def test_file_tools_ask_before_credentials_and_files_that_run_code_later(
    context: ToolContext, work: Path
) -> None:
    (work / ".env").write_text("TOKEN=hidden-value\n")
    assert "reads credentials" in error(READ_FILE, context, path=".env")
    assert "hidden-value" not in text(SEARCH_FILES, context, pattern="TOKEN", path=".")
    for path in (".git/hooks/pre-commit", ".git/config", ".envrc", ".vscode/tasks.json"):
        assert "runs code later" in error(WRITE_FILE, context, path=path, content="x")
        assert not (work / path).exists()
