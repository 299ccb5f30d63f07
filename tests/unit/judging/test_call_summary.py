"""What a call did and what went wrong, each in one line."""

from __future__ import annotations

import pytest

from rekindle.judging.call_summary import find_problem, find_refusal_reason, summarize_call
from rekindle.types import Message, ToolCall


def call(tool: str, **given: str) -> ToolCall:
    return ToolCall("c", tool, given)


def answer(text: str, **meta: object) -> Message:
    return Message("tool", text, tool_call_id="c", meta=meta or None)  # pyright: ignore


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (call("Bash", command="npm test"), "npm test"),
        (call("Bash", command="cd /work/app && npm test"), "npm test"),
        (call("Bash", command="# check\nnpm ci\nnpm test"), "npm ci …"),
        (call("Bash", command="npm \\\n  test"), "npm test"),
        (call("Read", file_path="/work/app/src/a.py"), "Read src/a.py"),
        (call("Grep", pattern="def main", path="/work/app/src"), "Grep def main in src"),
        (call("WebFetch", url="example.org"), "WebFetch example.org"),
        (
            ToolCall("c", "apply_patch", "*** Begin Patch\n*** Update File: a.go\n"),
            "apply_patch a.go",
        ),
        (ToolCall("c", "Task", "{not json"), "Task"),
    ],
)
def test_a_call_is_summed_up_by_its_command_or_file(made: ToolCall, said: str) -> None:
    assert summarize_call(made, "/work/app") == said


GO_TEST = """=== RUN   TestParse
--- FAIL: TestParse (0.00s)
    parse_test.go:12: got 3, want 4
FAIL
FAIL	example.org/app	0.010s
FAIL"""
TRACEBACK = """Traceback (most recent call last):
  File "a.py", line 3, in <module>
    main()
KeyError: 'first'

During handling of the above exception, another exception occurred:

ValueError: no such key"""
PYTEST = (
    "E   assert 1 == 2\n=== short test summary ===\nFAILED t.py::test_a - assert 1 == 2\n1 failed"
)
LINT = "[lint] $ lint\ncmd/a.go:7:2: undefined: x (typecheck)\n1 issues:\n[lint] ERROR task failed"
USAGE = "flag needs an argument\n\nUsage:  gh pr create [flags]\n\nFlags:\n  -w, --web   Open it"


@pytest.mark.parametrize(
    ("command", "output", "said"),
    [
        ("go test ./...", GO_TEST, "--- FAIL: TestParse (0.00s) parse_test.go:12: got 3, want 4"),
        ("python a.py", TRACEBACK, "ValueError: no such key"),
        ("pytest", PYTEST, "FAILED t.py::test_a - assert 1 == 2"),
        ("mise run lint", LINT, "cmd/a.go:7:2: undefined: x (typecheck)"),
        ("gh pr create --base", USAGE, "flag needs an argument"),
        (
            "sed -n 1p x.go",
            "sed: x.go: No such file or directory",
            "sed: x.go: No such file or directory",
        ),
        ("foo", "bash: foo: command not found", "bash: foo: command not found"),
        (
            "make",
            "compiling\n\x1b[31merror: bad token\x1b[0m\nmake: *** [all] Error 1",
            "error: bad token",
        ),
        ("git commit", "hint: use -f\nfatal: nothing to commit", "fatal: nothing to commit"),
        ("./quiet", "", "exit code 3, no output"),
    ],
)
def test_the_line_that_decides_is_found_in_the_output(command: str, output: str, said: str) -> None:
    assert find_problem(call("Bash", command=command), answer(output, exit_code=3)) == said


def test_tools_say_what_is_wrong_in_their_first_line() -> None:
    text = "<tool_use_error>String to replace not found in file.\nString: x</tool_use_error>"
    assert find_problem(call("Edit", file_path="a"), answer(text)) == (
        "String to replace not found in file."
    )
    assert (
        find_problem(call("edit", path="a"), answer("ERROR:\nNo replacement")) == "No replacement"
    )
    record = '{"success": false, "error": "no such user"}'
    assert find_problem(call("lookup", id="1"), answer(record)) == "no such user"
    assert find_problem(call("Bash", command="x"), None) == "no result"


def test_a_refusal_is_told_in_the_words_of_the_user() -> None:
    plain = "The user doesn't want to proceed with this tool use. The tool use was rejected"
    assert find_refusal_reason(answer(plain)) == ""
    said = f"{plain}. To tell you how to proceed, the user said:\nuse pnpm, not npm"
    assert find_refusal_reason(answer(said)) == "use pnpm, not npm"
    assert find_refusal_reason(answer("Blocked: not on Fridays")) == "Blocked: not on Fridays"


@pytest.mark.parametrize("piece", ["error ", "a.go:1: ", "x" * 50 + "\n", "--- FAIL: ", "/a", "'"])
def test_a_hostile_result_is_a_short_line(piece: str) -> None:
    text = piece * 50_000
    for tool in ("Bash", "Edit", "x"):
        made = ToolCall("c", tool, {"command": text})
        assert len(find_problem(made, answer(text))) <= 400
        assert len(summarize_call(made)) <= 500
        assert "\n" not in find_problem(made, answer(text))
