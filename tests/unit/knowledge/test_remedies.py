"""Rules of common programs: each is found by a failure of its kind, and by no other."""

from __future__ import annotations

import pytest

from rekindle.knowledge.remedies.remedies import REMEDIES, find_missing_program, find_remedy

# rule, command, what it reports
FAILURES = [
    (
        "go-test-for-another-system",
        "GOOS=windows go test ./a",
        "fork/exec /tmp/go-build1/a.test.exe: exec format error\nFAIL example/a 0.001s",
    ),
    (
        "go-cache",
        "go list ./...",
        "open /home/me/.cache/go-build/ab/cd-a: operation not permitted",
    ),
    ("go-package-path", "go vet internal/a", "package internal/a is not in std (/go/src)"),
    (
        "go-single-files",
        "go test a_test.go",
        "# command-line-arguments [command-line-arguments.test]\n./a_test.go:9:2: undefined: parse",
    ),
    (
        "go-build-tags",
        "go test ./e2e",
        "package x/e2e: build constraints exclude all Go files in e2e",
    ),
    ("gofmt-packages", "gofmt -l ./...", "stat ./...: no such file or directory"),
    ("gofmt-reports", "gofmt -d a.go", "diff a.go.orig a.go\n@@ -2,8 +2,8 @@\n-x"),
    (
        "go-test-binaries",
        "go test -c ./...",
        "cannot write test binary a.test for multiple packages:\nx/a\nx/b",
    ),
    (
        "branch-in-worktree",
        "git checkout main",
        "fatal: 'main' is already used by worktree at '/w'",
    ),
    (
        "unknown-revision",
        "git log origin/next",
        "fatal: ambiguous argument 'origin/next': unknown revision or path not in the working tree.",
    ),
    ("pr-diff-options", "gh pr diff 7 --stat", "unknown flag: --stat\n\nUsage:  gh pr diff"),
    (
        "classic-projects",
        "gh pr edit 7 --title x",
        "GraphQL: Projects (classic) is being deprecated in favor of the new Projects",
    ),
    ("gh-typed-fields", "gh api repos/a/b -f id=7", '"7" is not a number. (HTTP 422)'),
    (
        "go-module-below",
        "go test ./a",
        "go: cannot find main module, but found .git/config in /w\n\tto create a module there, run:",
    ),
    (
        "gh-repository",
        "gh pr comment 7 --repo a/b --body x",
        "GraphQL: Could not resolve to a Repository with the name 'a/b'. (repository)",
    ),
    (
        "not-fast-forward",
        "git switch main && git pull --ff-only",
        "fatal: Not possible to fast-forward, aborting.",
    ),
    ("zsh-equals", "ls; echo ===; ls", "(eval):1: == not found"),
    ("missing-script", "npm run lint", 'npm error Missing script: "lint"'),
    ("missing-script", "bun run lint", 'error: Script not found "lint"'),
    ("no-pull-request", "gh pr view", 'no pull requests found for branch "topic"'),
    (
        "jq-not-equal",
        "jq '.[] | select(.a != 1)' a.json",
        "jq: error: syntax error, unexpected INVALID_CHARACTER at <top-level>, line 1",
    ),
    (
        "folder-of-output",
        "echo x > out/a.txt",
        "bash: line 1: out/a.txt: No such file or directory",
    ),
    ("folder-of-output", "echo x > out/a.txt", "(eval):1: no such file or directory: out/a.txt"),
    (
        "quotes",
        "git commit -m 'it's done'",
        "bash: -c: line 1: unexpected EOF while looking for matching `''",
    ),
    ("zsh-pattern", "gh api a?page=2", "zsh: no matches found: a?page=2"),
    ("zsh-parser", "X=$(pwd) && ls", "(eval):1: parse error near `('"),
    ("search-pattern", "rg 'f(' src", "rg: regex parse error:\n    f("),
    ("rg-include", "rg --include '*.py' x", "rg: unrecognized flag --include"),
    ("bsd-grep", "grep -P x a", "grep: invalid option -- P"),
    ("bsd-sed", "sed -i s/a/b/ f", 'sed: 1: "f": invalid command code f'),
    ("bsd-head", "head -n -1 a", "head: illegal line count -- -1"),
    ("port-in-use", "npm run dev", "Error: listen EADDRINUSE: address already in use :::3000"),
    ("pytest-plugin", "pytest -n 4", "error: unrecognized arguments: -n 4"),
    ("pytest-node", "pytest a.py::test_b", "ERROR: not found: a.py::test_b"),
    (
        "node-module",
        "node -e 'import a'",
        "SyntaxError: Cannot use import statement outside a module",
    ),
    ("node-typescript", "node a.ts", 'TypeError [ERR_UNKNOWN_FILE_EXTENSION]: extension ".ts"'),
    (
        "go-module-folders",
        "go vet ./e2e/...",
        "pattern ./e2e/...: directory prefix e2e does not contain main module",
    ),
    ("go-module-folders", "go test ./...", 'go: warning: "./..." matched no packages'),
    (
        "go-run-test-file",
        "go run /tmp/a_test.go",
        "go: cannot run *_test.go files (/tmp/a_test.go)",
    ),
    (
        "go-build-output",
        "go build ./tool/",
        'go: build output "tool" already exists and is a directory',
    ),
    (
        "local-changes",
        "git checkout main",
        "error: Your local changes to the following files would be overwritten by checkout:\n\ta.go",
    ),
    (
        "local-changes",
        "git pull --rebase",
        "error: cannot pull with rebase: You have unstaged changes.",
    ),
    (
        "protected-branch",
        "git push origin main",
        "remote: error: GH006: Protected branch update failed for refs/heads/main.",
    ),
    ("ssh-key", "git fetch origin", "git@github.com: Permission denied (publickey)."),
    ("pathspec", "git add a.py", "fatal: pathspec 'a.py' did not match any files"),
    (
        "auto-merge",
        "gh pr merge 7 --squash --auto",
        "GraphQL: Auto merge is not allowed for this repository (enablePullRequestAutoMerge)",
    ),
    ("pending-checks", "gh pr checks 7", "build\tpending\t0\thttps://example.com/1"),
    (
        "jq-missing-field",
        "jq '.a[]' a.json",
        "jq: error (at <stdin>:131): Cannot iterate over null (null)",
    ),
    (
        "jq-types",
        "jq '.a + .b' a.json",
        'jq: error (at <stdin>:3): number (1) and string ("x") cannot be added',
    ),
    (
        "no-json",
        "curl -s localhost | jq .",
        "jq: parse error: Invalid numeric literal at line 1, column 10",
    ),
    (
        "no-json",
        "npx eslint -f json 2>&1 | python3 -c 'import json'",
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
    ),
    (
        "backticks",
        'rg -n "the `default` mode" docs',
        "bash: line 1: default: command not found",
    ),
    (
        "parentheses",
        "git add app/(home)/page.tsx",
        "bash: eval: line 1: syntax error near unexpected token `('",
    ),
    ("parentheses", "git add app/(home)/page.tsx", "(eval):1: unknown file attribute: h"),
    ("zsh-variable", "make; status=$?", "zsh:1: read-only variable: status"),
    (
        "windows-path",
        "wsl bash /mnt/c/a.sh",
        "bash: C:/Program Files/Git/mnt/c/a.sh: No such file or directory",
    ),
    (
        "settings-in-sandbox",
        "npx wrangler deploy",
        "EPERM: operation not permitted, open '/Users/me/Library/Preferences/.wrangler/logs/a.log'",
    ),
    (
        "sql-not-equal",
        "psql -c \"select 1 where a != 'b'\"",
        'ERROR:  syntax error at or near "\\"\nLINE 1: select 1 where a \\!= ...',
    ),
    (
        "psql-peer",
        "psql -U postgres",
        'FATAL:  Peer authentication failed for user "postgres"',
    ),
    (
        "markdownlint",
        "npx markdownlint-cli2 a.md",
        "a.md:7:121 error MD013/line-length Line length [Expected: 120; Actual: 130]",
    ),
    ("program-folder", "go build ./...", "bash: line 1: go: command not found"),
    ("missing-program", "python a.py", "zsh: command not found: python"),
    ("missing-program", "timeout 9 make", "bash: line 1: timeout: command not found"),
]


def find(command: str, result: str) -> str | None:
    found = find_remedy(command, result)
    return found[0] if found else None


@pytest.mark.parametrize(("rule", "command", "result"), FAILURES)
def test_a_failure_finds_its_rule(rule: str, command: str, result: str) -> None:
    assert find(command, result) == rule
    assert find(command, "FAIL: 3 tests failed") is None


def test_every_rule_has_a_failure() -> None:
    assert {rule.name for rule in REMEDIES} <= {rule for rule, _, _ in FAILURES}


def test_a_rule_of_another_program_is_not_found() -> None:
    assert find("cargo test", "exec format error") is None
    assert find("git diff 7 --stat", "unknown flag: --stat") is None
    assert find("ls app", "syntax error near unexpected token `('") is None


def test_a_rule_says_nothing_new_to_a_command_that_follows_it() -> None:
    assert find("gh pr checks 7 --watch", "build\tpending\t0\thttps://example.com/1") is None
    assert find("markdownlint-cli2 --fix a.md", "a.md:7 MD013/line-length Line length") is None


def test_a_program_that_is_not_there_is_no_output() -> None:
    result = "bash: line 1: /home/me/bin/x: No such file or directory"
    assert find_remedy("~/bin/x build 2>&1 | tail", result) is None


def test_a_folder_that_is_not_there_is_no_output() -> None:
    assert find("cd src && make > log", "bash: line 1: cd: src: No such file or directory") is None


@pytest.mark.parametrize(
    ("result", "program"),
    [
        ("zsh: command not found: ruff", "ruff"),
        ("/bin/sh: 1: ruff: not found", "ruff"),
        ("ERROR: file or directory not found: a.py", None),
        ("all passed", None),
    ],
)
def test_a_missing_program_is_read_from_the_report(result: str, program: str | None) -> None:
    assert find_missing_program(result) == program
