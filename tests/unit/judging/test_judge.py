# ruff: noqa: E501  (a result stays on one line)
from __future__ import annotations

from typing import Any

import pytest

from rekindle.judging.judge import Outcome, judge_call
from rekindle.types import Message, ToolCall


def call(tool: str = "Bash", **given: Any) -> ToolCall:
    return ToolCall("c1", tool, given)


def result(text: Any = "", **meta: Any) -> Message:
    return Message(role="tool", content=text, tool_call_id="c1", meta=meta or None)


def ran(command: str, text: str, **meta: Any) -> Outcome:
    return judge_call(call(command=command), result(text, **meta))


def short(found: Outcome) -> tuple[str, bool | None]:
    return found.outcome, found.failed


# The protocol is believed before the text


def test_what_the_protocol_calls_an_error_has_failed_whatever_the_text_says() -> None:
    found = judge_call(call("lookup"), result("all good", is_error=True))
    assert (found.outcome, found.failed, found.rule) == ("error", True, "protocol/is-error")
    assert judge_call(call("lookup"), result("fine", success=False)).rule == "protocol/success"
    assert judge_call(call("lookup"), result("fine", error={"message": "x"})).failed is True
    assert judge_call(call("lookup"), result("fine", status="failed")).failed is True
    assert judge_call(call("lookup"), result("fine", timeout=True)).error_kind == "timeout"


def test_what_the_protocol_calls_a_success_is_one_whatever_the_text_says() -> None:
    assert short(ran("make", "make: *** [all] Error 2", is_error=False)) == ("ok", False)
    assert short(ran("make", "make: *** [all] Error 2", exit_code=0)) == ("ok", False)
    assert short(judge_call(call("lookup"), result("Error: no", success=True))) == ("ok", False)


def test_an_exit_code_in_the_text_of_a_shell_is_believed_where_the_flag_only_means_delivered() -> (
    None
):
    text = "nope\n<shellId: 3 completed with exit code 2>"
    assert ran("./x", text, success=True).failed is True
    assert ran("./x", "fine\n<shellId: 3 completed with exit code 0>", success=True).failed is False


def test_a_refusal_is_neither_a_success_nor_an_error() -> None:
    said = "The user doesn't want to proceed with this tool use."
    for tool, text, meta, kind in (
        ("Edit", "no", {"is_error": True, "denial": "user"}, "declined"),
        ("exec_command", "no", {"refused": True}, "declined"),
        ("Edit", said, {"is_error": True}, "declined"),
        ("Edit", said, {}, "declined"),
        ("shell", "exec command rejected by user", {}, "declined"),
        ("edit", "The user rejected permission to use this specific tool call.", {}, "declined"),
        ("replace", "User did not allow tool call", {"refused": True}, "declined"),
        ("bash", "no", {"refused": True, "denial": "denied-interactively-by-user"}, "declined"),
        ("bash", "no", {"refused": True, "denial": "denied-by-rules"}, "blocked"),
        ("Bash", "PreToolUse:Bash hook error: not on Fridays", {"is_error": True}, "blocked"),
        ("Bash", "[Request interrupted by user for tool use]", {"is_error": True}, "stopped"),
        ("Bash", "", {"interrupted": True}, "stopped"),
        ("shell", "x", {"status": "cancelled"}, "stopped"),
    ):
        found = judge_call(call(tool), result(text, **meta))
        assert short(found) == ("refused", None), (tool, text)
        assert (found.error_kind, found.fault) == (kind, None), (tool, text)


def test_a_failed_edit_that_a_harness_calls_refused_is_an_error() -> None:
    failed = "apply_patch verification failed: Failed to find expected lines in a.py"
    found = judge_call(call("apply_patch"), result(failed, refused=True))
    assert (found.outcome, found.error_kind) == ("error", "edit")


def test_a_command_that_goes_on_and_a_call_without_a_result_are_unknown() -> None:
    assert short(ran("./serve", "listening", running=True)) == ("unknown", None)
    assert judge_call(call(), None) == Outcome("unknown", None, None, None, "no-result", 0.0)
    codex = "Chunk ID: 1\nWall time: 1.0 seconds\nProcess running with session ID 7\nOutput:\nup"
    assert short(judge_call(call("exec_command", cmd="./serve"), result(codex))) == (
        "unknown",
        None,
    )
    assert short(ran("touch a", "")) == ("unknown", None)


def test_a_picture_is_an_answer() -> None:
    parts = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,x"}}]
    assert short(judge_call(call("view_image"), result(parts))) == ("ok", False)


def test_content_blocks_are_read_like_text() -> None:
    parts = [{"type": "text", "text": "<tool_use_error>File does not exist.</tool_use_error>"}]
    assert judge_call(call("Read"), result(parts)).error_kind == "path"


# The tool's contract


@pytest.mark.parametrize(
    "text",
    [
        "Exit code {}\nboom",
        "Error: Exit code {}\nboom",
        "Exit code: {}\nWall time: 1.2 seconds\nOutput:\nboom",
        "Chunk ID: a1\nWall time: 0.1 seconds\nProcess exited with code {}\nOutput:\nboom",
        "Command: /bin/sh -c x\nChunk ID: a1\nProcess exited with code {}\nOutput:\nboom",
        "boom\n<exited with exit code {}>",
        "boom\n<shellId: 12 completed with exit code {}>",
        "boom\n\nCommand exited with code {}",
        "boom\n[The command completed with exit code {}.]",
        "boom\n[Current working directory: /srv]\n[Command finished with exit code {}]",
        "<returncode>{}</returncode>\n<output>\nboom\n</output>",
        "Command: x\nDirectory: (root)\nOutput: boom\nError: (none)\nExit Code: {}\nSignal: (none)",
        '{{"output": "boom", "exit_code": {}, "error": null}}',
        '{{"output": "boom", "metadata": {{"exit_code": {}, "duration_seconds": 0.1}}}}',
        '{{"returncode": {}, "stdout": "boom", "stderr": ""}}',
        '{{"stdout": "boom", "exitCode": {}}}',
    ],
)
def test_an_exit_code_is_read_in_every_form_that_harnesses_write(text: str) -> None:
    for code, failed in ((0, False), (1, True), (2, True), (-1, True), (139, True)):
        assert ran("./x", text.format(code)).failed is failed, code


def test_an_exit_code_that_a_command_printed_is_not_the_harness_speaking() -> None:
    assert ran('./x; echo "Exit code: $?"', "no\nExit code: 1").failed is False
    assert ran("cat notes", "The end\nProcess exited with code 1\nmore\nand more").failed is False
    codex = (
        "Chunk ID: a\nProcess exited with code 0\nOutput:\nExit code: 1\nProcess exited with code 3"
    )
    assert judge_call(call("exec_command", cmd="cat log"), result(codex)).failed is False


def test_a_truthy_error_field_is_a_failure_and_an_empty_one_is_not() -> None:
    assert judge_call(call("lookup"), result('{"error": "no such user"}')).failed is True
    assert judge_call(call("lookup"), result('{"success": false, "message": "no"}')).failed is True
    assert judge_call(call("lookup"), result('{"isError": true, "content": []}')).failed is True
    assert judge_call(call("lookup"), result('{"status": "error", "message": "no"}')).failed is True
    for text in ('{"error": null, "user": 1}', '{"error": "", "x": 1}', '{"error": false}'):
        assert short(judge_call(call("lookup"), result(text))) == ("ok", False)
    assert (
        judge_call(call("get_job"), result('{"job": 3, "status": "failed", "log": ""}')).failed
        is False
    )


def test_json_that_a_command_printed_or_a_file_holds_is_not_the_tool_speaking() -> None:
    assert ran("curl -s https://x.example", '{"error": "not found"}').failed is False
    assert ran("cat report.json", '{"success": false, "error": "x"}').failed is False
    held = '{"error": "x", "rows": [1, 2], "title": "how to fail"}'
    assert judge_call(call("read_file", path="a.json"), result(held)).failed is False


def test_the_reports_of_a_tool_that_answers_in_json_are_believed() -> None:
    missing = '{"content": "", "total_lines": 0, "error": "File not found: a", "similar_files": []}'
    assert judge_call(call("read_file", path="a"), result(missing)).error_kind == "path"
    there = '{"content": "1|raise Error", "total_lines": 1, "error": null}'
    assert judge_call(call("read_file", path="a"), result(there)).failed is False
    ran_well = '{"status": "success", "output": "Traceback (most recent call last):\\nKeyError: 1"}'
    assert judge_call(call("execute_code", code="x"), result(ran_well)).failed is False
    ran_badly = '{"status": "error", "output": "", "error": "NameError: x"}'
    assert judge_call(call("execute_code", code="x"), result(ran_badly)).error_kind == "syntax"


def test_an_object_that_the_harness_cut_still_tells_its_exit_code() -> None:
    text = '{"output": "' + "x" * 500 + ' [truncated]  "exit_code": 1, "error": null}'
    assert judge_call(call("terminal", command="./x"), result(text)).failed is True


def test_a_blocked_command_in_json_is_refused() -> None:
    text = '{"output": "", "exit_code": -1, "error": "BLOCKED: user denied", "status": "blocked"}'
    found = judge_call(call("terminal", command="rm -rf /"), result(text))
    assert short(found) == ("refused", None)


def test_a_harness_that_says_there_was_no_output_says_that_it_worked() -> None:
    for text in ("(Bash completed with no output)", "(no output)"):
        assert short(ran("touch a", text)) == ("ok", False)


def test_code_mode_tells_how_the_script_ended() -> None:
    code = ToolCall("c1", "exec", "await tools.x()")
    parts = [{"type": "text", "text": "Script failed\nWall time 0.1 seconds\nOutput:"}]
    assert judge_call(code, result(parts)).failed is True
    parts = [{"type": "text", "text": "Script completed\nWall time 0.1\nOutput:"}]
    assert judge_call(code, result(parts)).failed is False


# What an exit code means


@pytest.mark.parametrize(
    "command",
    [
        "grep -rn foo src",
        "cat a | grep foo",
        "cd src && rg foo",
        "git grep foo",
        "find . -name x | grep y",
        "ls; grep foo a",
        "git diff --exit-code",
        "test -f x",
        "[ -f x ]",
        "bash -lc 'rg foo'",
        "git diff --no-index a b",
        "xargs grep foo < list",
    ],
)
def test_a_search_that_ran_and_found_nothing_has_not_failed(command: str) -> None:
    found = ran(command, "Exit code 1")
    assert short(found) == ("expected", False)
    assert found.rule.endswith("search-without-hit")


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("grep foo nope.txt", "Exit code 2\ngrep: nope.txt: No such file or directory"),
        ("rg '(' src", "Exit code 2\nregex parse error:"),
        ("sed -n 1p nope && rg foo", "Exit code 1\nsed: nope: No such file or directory"),
        ("rg foo *.zig", "Exit code 1\nzsh:1: no matches found: *.zig"),
        ("bin/test core", "Exit code 1\n1 failed"),
        ("grep foo a && make", "Exit code 2\nmake: *** [all] Error 1"),
        ("grep -c foo a; make", "Exit code 2\nmake: *** [all] Error 1"),
    ],
)
def test_a_search_that_could_not_run_has_failed(command: str, text: str) -> None:
    assert ran(command, text).failed is True


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("pytest -q", "Exit code 1\n1 failed in 0.1s"),
        ("cd app && npm test", "Exit code 1\nTests: 1 failed, 1 total"),
        ("FOO=1 uv run pytest tests", "Exit code 1\n1 failed in 0.1s"),
        ("go test ./... 2>&1", "Exit code 1\nFAIL"),
        ("cargo test", "Exit code 101\ntest result: FAILED."),
        ("make test", "Exit code 2\nmake: *** [test] Error 1"),
        ("python manage.py test app", "Exit code 1\nFAILED (failures=1)"),
        ("ruff check .", "Exit code 1\nFound 1 error."),
        ("npx tsc --noEmit", "Exit code 2\na.ts(1,1): error TS1005: ';' expected."),
        ("npm run lint", "Exit code 1\n✖ 1 problem (1 error, 0 warnings)"),
        ("mise run lint", "Exit code 1\n3 issues:"),
        ("which foo", "Exit code 1"),
    ],
)
def test_red_tests_and_findings_are_expected_answers_that_failed(command: str, text: str) -> None:
    assert short(ran(command, text)) == ("expected", True)


def test_tests_that_do_not_compile_or_cannot_be_started_are_errors() -> None:
    text = "Exit code 1\n# x.example/a\n./a.go:1:2: undefined: b\nFAIL\tx.example/a [build failed]"
    assert (ran("go test ./...", text).outcome, ran("go test ./...", text).error_kind) == (
        "error",
        "syntax",
    )
    assert ran("pytest", "Exit code 127\nbash: pytest: command not found").outcome == "error"


@pytest.mark.parametrize(
    ("text", "kind", "fault"),
    [
        ("Exit code 1\ncat: a: No such file or directory", "path", "agent"),
        ("Exit code 1\nbash: ./x: Permission denied", "permission", "agent"),
        ("Exit code 127\nbash: line 1: foo: command not found", "command", "agent"),
        ('Exit code 1\n  File "x.py", line 1\nSyntaxError: invalid syntax', "syntax", "agent"),
        ("Exit code 2\nx: unrecognized option '--foo'", "arguments", "agent"),
        ("Exit code 6\ncurl: (6) Could not resolve host: x.example", "network", "environment"),
        ("Exit code 1\nError: 429 Too Many Requests", "rate_limit", "environment"),
        ("Exit code 124", "timeout", "environment"),
        ("Exit code 137", "interrupted", "environment"),
        ("Exit code 1\nCannot connect to the Docker daemon", "service", "environment"),
        ("Exit code 1\nwrite: No space left on device", "resources", "environment"),
    ],
)
def test_agent_errors_are_told_apart_from_those_of_the_environment(
    text: str, kind: str, fault: str
) -> None:
    found = ran("cat a; ./x --foo", text)
    assert (found.outcome, found.error_kind, found.fault) == ("error", kind, fault)


# Text alone


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("ls -la", "total 8\n-rw-r--r-- 1 me me 12 error.log\n-rw-r--r-- 1 me me 9 failed.txt"),
        ("git status", "On branch main\nnothing to commit, working tree clean"),
        (
            "git commit -m 'fix error: x'",
            "[main 1a2b3c4] fix error: x\n 1 file changed, 1 insertion(+)",
        ),
        (
            "git add . && git commit -m x",
            "🥊 lefthook\n✔️ lint (0.1 seconds)\n[main 1a2b3c4] x\n 2 files changed, 9 deletions(-)",
        ),
        (
            "npm install",
            "npm warn deprecated x@1: this had an error\n\nadded 3 packages in 2s\n\n2 vulnerabilities",
        ),
        (
            "pip install x",
            "WARNING: Retrying after connection broken\nSuccessfully installed x-1.0",
        ),
        ("pytest", "tests/test_error.py ..... [100%]\n\n===== 5 passed, 1 xfailed in 0.12s ====="),
        ("pytest -q", "ERROR: logged in a test\n5 passed in 0.1s"),
        ("python -m unittest", "test_failed_login ... ok\n\nRan 3 tests in 0.1s\n\nOK"),
        ("go test ./...", "ok  \tx.example/errors\t0.01s\nok  \tx.example/b\t0.01s"),
        (
            "cargo test",
            "test error_is_shown ... ok\n\ntest result: ok. 3 passed; 0 failed; 0 ignored",
        ),
        (
            "npx jest",
            "PASS src/error.test.ts\nTests:       3 passed, 3 total\nTime: 1 s\nRan all test suites.",
        ),
        ("npx eslint .", "✖ 3 problems (0 errors, 3 warnings)"),
        ("ruff check --fix .", "Found 3 errors (3 fixed, 0 remaining)."),
        ("golangci-lint run", "0 issues."),
        (
            "cargo build",
            "warning: unused variable\n    Finished `dev` profile [unoptimized] in 0.1s",
        ),
        ("./app --help", "Usage: app [OPTIONS]\n\nOptions:\n  --fail  Fail on error"),
        ('node -e "console.log(1)"', "error handling\nis fine"),
        (
            "python3 - <<'E'\nprint(1)\nE",
            "Traceback (most recent call last):\n  File x\nKeyError: 1\nwas shown\nand then\nthe script\nwent on\nfor long",
        ),
        ("curl -s x.example", "<html>Error: 404 Not Found</html>"),
        ("make build", "compiling errors.c\nDone"),
        ("docker ps -a", "CONTAINER ID  STATUS\nabc  Exited (1) 3 hours ago"),
        ("gh run view 3 --log", "build\tError: Process completed with exit code 1."),
        ("./x; echo done", "bash: ./x: No such file or directory\ndone"),
        ("cat a.txt 2>/dev/null; ls", "error.txt"),
        ("./deploy.sh", "checked 4 hosts, 0 failed"),
        ("git diff HEAD~1", "+    raise ValueError('fatal: x')\n-Error: y"),
        ("gcloud run list", "ERROR is a service name here"),
        ("sed -n '1,3p' a.py", "try:\n    x()\nexcept Error: pass"),
        ("kubectl logs pod", "panic: runtime error"),
    ],
)
def test_an_output_that_only_speaks_of_failures_has_not_failed(command: str, text: str) -> None:
    assert short(ran(command, text)) == ("ok", False)


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("foo --bar", "bash: line 1: foo: command not found"),
        ("foo", "/bin/sh: 1: foo: not found"),
        ("foo", "zsh:1: command not found: foo"),
        ("foo", "(eval):1: command not found: foo"),
        ("cd /nope && ls", "(eval):cd:1: no such file or directory: /nope"),
        ("cd /nope && ls", "bash: line 0: cd: /nope: No such file or directory"),
        ("./run", "bash: ./run: Permission denied"),
        ("echo 'x", "bash: -c: line 0: unexpected EOF while looking for matching `''"),
        ("cat nope", "cat: nope: No such file or directory"),
        ("ls nope", "ls: cannot access 'nope': No such file or directory"),
        ("cp a b", "cp: cannot stat 'a': No such file or directory"),
        ("ls *.zig", "zsh: no matches found: *.zig"),
        ("foo", "'foo' is not recognized as an internal or external command,\noperable program"),
        ("git show nope", "fatal: ambiguous argument 'nope': unknown revision"),
        ("git log nope", "fatal: ambiguous argument 'nope'"),
        (
            "git push",
            "To x.example\n ! [rejected]        main -> main (fetch first)\nerror: failed to push some refs",
        ),
        (
            "python a.py",
            "start\nTraceback (most recent call last):\n  File \"a.py\", line 1, in <module>\nKeyError: 'x'",
        ),
        (
            "python -c 'import x'",
            "Traceback (most recent call last):\n  File \"<string>\", line 1\nModuleNotFoundError: No module named 'x'",
        ),
        (
            "node a.js",
            "/srv/a.js:1\nthrow new Error('x')\n^\n\nError: x\n    at Object.<anonymous> (/srv/a.js:1:7)\n\nNode.js v20.1.0",
        ),
        ("npm run build", '\x1b[31mnpm error\x1b[0m Missing script: "build"'),
        ("make", "gcc -c a.c\r\na.c:1:1: error: unknown type name 'x'\r\nmake: *** [a.o] Error 1"),
        ("sudo apt-get install x", "Reading package lists...\nE: Unable to locate package x"),
        ("curl -fsS https://x.example", "curl: (22) The requested URL returned error: 404"),
        ("jq . a.json", "jq: parse error: Invalid numeric literal at line 1, column 4"),
        ("rm a", "rm: a: No such file or directory"),
        ("sed -n 1p a | cat -A", "cat: illegal option -- A\nusage: cat [-belnstuv] [file ...]"),
        ("tsc -p .", "error TS5058: The specified path does not exist: 'x'."),
    ],
)
def test_a_command_that_failed_is_known_by_its_last_words(command: str, text: str) -> None:
    assert ran(command, text).failed is True


def test_an_exception_that_the_script_told_of_itself_did_not_end_it() -> None:
    shown = 'could not: no key x\nTraceback (most recent call last):\n  File "a.py", line 1\nKeyError: no key x'
    assert short(ran("python a.py", shown)) == ("ok", False)
    assert ran("python a.py", f"{shown}\nTest failed").failed is True
    assert ran("python a.py", shown.replace("could not: no key x", "starting")).failed is True
    caught = "python - <<'E'\nimport traceback\ntry: x()\nexcept E: traceback.print_exc()\nE"
    assert ran(caught, shown.partition("\n")[2]).failed is False


@pytest.mark.parametrize(
    ("tool", "text"),
    [
        ("Edit", "The file /srv/not_found.py has been updated successfully."),
        ("Edit", "The file /srv/a.py has been updated. Here's the result:\n  1→raise Error: x"),
        ("Write", "File created successfully at: /srv/errors.py"),
        ("Read", "     1→Error: this is what the file says"),
        ("Grep", "src/a.py:3: raise Exception('failed')"),
        ("Glob", "/srv/errors/failed.py"),
        ("TodoWrite", "Todos have been modified successfully."),
        ("Task", "Error handling in this project is done in errors.py. Nothing failed."),
        ("WebFetch", "# Errors\n\nAn error is a value."),
        ("apply_patch", "Success. Updated the following files:\nM errors.py"),
        ("get_order_details", "order 12 was cancelled by the customer on Monday"),
        ("mcp__x__search_issues", "Found 3 matches\n1. Error: x"),
    ],
)
def test_an_answer_about_errors_is_an_answer(tool: str, text: str) -> None:
    assert judge_call(call(tool, file_path="a"), result(text)).failed is False


@pytest.mark.parametrize(
    ("tool", "text"),
    [("Grep", "No matches found"), ("Glob", "No files found"), ("grep", "Found 0 matches")],
)
def test_a_search_tool_without_a_hit_is_expected(tool: str, text: str) -> None:
    assert short(judge_call(call(tool), result(text))) == ("expected", False)
    assert short(judge_call(call(tool), result(text, is_error=False))) == ("expected", False)


def test_a_very_long_result_is_judged_by_its_ends() -> None:
    middle, calm = "Error: fatal\nnpm ERR! x\n" * 40_000, "ok\n" * 2_000
    assert ran("./x", f"begin\n{calm}{middle}{calm}end").failed is False
    assert ran("./x", f"{middle}\nmake: *** [all] Error 2").failed is True
