"""What an observation keeps of a session's calls."""

from __future__ import annotations

from rekindle.knowledge.notes.calls import ObservedCall
from rekindle.knowledge.notes.observations import observe_session
from rekindle.types import ToolCall


def run(command: str, failed: bool | None, kind: str = "") -> ObservedCall:
    return ObservedCall(ToolCall("c", "Bash", {"command": command}), "", failed, kind, 0)


def test_a_command_that_the_user_declined_neither_worked_nor_failed() -> None:
    calls = [run("npm publish", None, "declined"), run("npm test", True), run("npm test", False)]
    found = observe_session("s", 0.0, "/work", "publish it", calls)
    assert [(one.key, one.worked, one.failed) for one in found.commands] == [("npm test", 1, 1)]


def test_what_works_after_a_refusal_is_not_taken_for_its_fix() -> None:
    calls = [run("npm test --all", None, "declined"), run("npm test --quick", False)]
    assert observe_session("s", 0.0, "/work", "test it", calls).fixes == ()


def test_files_that_commands_and_patches_use_are_kept_apart_from_those_of_tools() -> None:
    patch = "*** Begin Patch\n*** Update File: src/lexer.go\n@@\n-a\n+b\n*** End Patch"
    calls = [
        run("sed -n '1,200p' src/parser.go | head -50", False),
        run("cd docs && cat usage.md", False),
        run("rg -n parser.go src/scan.go", False),
        run("cat src/missing.go", True),
        run("git diff main && git log", False),
        ObservedCall(ToolCall("1", "apply_patch", patch), "Done", False, "", 0),
        run(f"apply_patch <<'EOF'\n{patch.replace('lexer', 'token')}\nEOF", False),
        run("cat src/main.go", False),
        ObservedCall(ToolCall("2", "Read", '{"file_path": "src/main.go"}'), "x", False, "", 0),
    ]
    found = observe_session("s", 0.0, "/home/me/project", "fix it", calls)
    assert [one.path for one in found.files] == ["src/main.go"]
    assert {one.path for one in found.command_files} == {
        "src/parser.go",
        "docs/usage.md",
        "src/scan.go",
        "src/lexer.go",
        "src/token.go",
    }
