"""What counts as the fix of a call that failed, and what of it is kept."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rekindle.knowledge.notes.calls import ObservedCall
from rekindle.knowledge.notes.failures import recall_failure
from rekindle.knowledge.notes.note import list_notes
from rekindle.knowledge.notes.observations import MAX_CALLS_TO_FIX
from rekindle.knowledge.notes.records import Fix
from rekindle.types import ToolCall
from tests.unit.knowledge.notes.test_recall import DENIED, ROOT, bash, build, observe

EDIT = ObservedCall(ToolCall("1", "Edit", {"file_path": f"{ROOT}/a.go"}), "edited", False, "", 0)


def fail(command: str) -> ObservedCall:
    return bash(command, failed=True, result=DENIED)


def find_fixes(*calls: ObservedCall) -> Sequence[Fix]:
    return observe(0, "fix the parser", *calls).fixes


@pytest.mark.parametrize(
    ("failed", "fixed"),
    [
        ("rg -P foo src", "rg -F foo src"),
        ("go test -race ./a", "go test -short ./a"),
        ("go test ./a", "CGO_ENABLED=0 go test ./a"),
    ],
)
def test_a_command_that_worked_with_another_option_or_setting_is_a_fix_to_tell(
    failed: str, fixed: str
) -> None:
    notes = list_notes(build([fail(failed), bash(fixed)]))
    assert len([one for one in notes if one.kind == "pitfall"]) == 1


@pytest.mark.parametrize(("pattern", "is_fix"), [("-F foo src", True), ("-F other lib", False)])
def test_a_search_is_fixed_only_by_one_that_is_much_alike(pattern: str, is_fix: bool) -> None:
    assert bool(find_fixes(fail("rg foo src"), bash(f"rg {pattern}"))) is is_fix


def test_a_command_that_worked_many_calls_later_is_no_fix() -> None:
    assert MAX_CALLS_TO_FIX == 6
    others = [bash(f"make step{number}") for number in range(MAX_CALLS_TO_FIX)]
    fixed = bash("go test -short ./a")
    assert len(find_fixes(fail("go test ./a"), *others[1:], fixed)) == 1
    assert find_fixes(fail("go test ./a"), *others, fixed) == ()


def test_what_ran_between_a_failure_and_its_fix_is_a_step_unless_a_file_was_edited() -> None:
    failed, step, fixed = fail("go test ./a"), bash("go generate"), bash("go test -short ./a")
    assert [one.steps for one in find_fixes(failed, step, fixed)] == [("go generate",)]
    assert [one.steps for one in find_fixes(failed, EDIT, step, fixed)] == [()]


def test_the_same_command_after_an_edit_was_fixed_by_the_edit() -> None:
    failed, again = fail("go test ./a"), bash("go test ./a")
    assert find_fixes(failed, EDIT, again) == ()
    assert len(find_fixes(failed, bash("go generate"), again)) == 1


def test_a_red_test_that_is_green_with_an_option_is_fixed_by_it() -> None:
    red = fail("go test ./a")._replace(result="--- FAIL: TestA (0.01s)\nFAIL")
    (fix,) = find_fixes(red, bash("go test -short ./a"))
    assert fix.fixed_text == "go test -short ./a"


def test_a_setting_that_fixed_another_command_is_told_at_a_failure_that_looks_the_same() -> None:
    look = "error: lock file cannot be opened, other process expected"
    failed = bash("go list ./...", failed=True, result=look)
    call = bash("cargo build").call

    def tell(fixed: str, result: str = look) -> str:
        return recall_failure(build([failed, bash(fixed)]), ROOT, call, result).text

    assert "LOCK_MODE=off" in tell("env LOCK_MODE=off go list ./...")
    assert tell("go list -short ./...") == ""
    assert tell("env LOCK_MODE=off go list ./...", "error: linker is missing") == ""
