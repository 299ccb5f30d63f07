from __future__ import annotations

import pytest

from rekindle.judging.rules import programs
from rekindle.judging.rules.deciding_commands import find_deciding_commands
from rekindle.shell.command_reader import split_commands


def deciding(command: str) -> list[str]:
    return [step.program for step in find_deciding_commands(command).commands]


@pytest.mark.parametrize(
    ("command", "programs"),
    [
        ("ls", ["ls"]),
        ("ls; make", ["make"]),
        ("ls\nmake", ["make"]),
        ("ls && make", ["make", "ls"]),
        ("a || b", ["b"]),
        ("a && b || c", ["c"]),
        ("a | b", ["b"]),
        ("a | grep x", ["grep"]),
        ("cd x && a | tail -3", ["cd"]),
        ("a | tail -3", []),
        ("a || true", []),
        ("a; echo $?", []),
        ("a; exit $?", ["a"]),
        ("a | tee log; exit ${PIPESTATUS[0]}", ["a", "tee"]),
        ("set -o pipefail; a | tail", ["a"]),
        ("set -e; a; b", ["b", "a"]),
        ("sleep 9 &", []),
        ("(cd x && make)", ["make", "cd"]),
        ("for f in *; do wc $f; done", ["wc"]),
        ("if grep -q x y; then make; fi", ["make"]),
        ("echo 'a; b && c' | grep x", ["grep"]),
        ("x=$(a | b) && make", ["make"]),
        ("cat <<E > f\nmake; x\nE\nls", ["ls"]),
        ("cat <<'E' | sort\na | b\nE", []),
        ("bash -lc 'cd x && rg foo'", ["rg", "cd"]),
        ("make 2>&1", ["make"]),
        ("make &> log", ["make"]),
        ("# note; ls\nmake", ["make"]),
        ("cd a && \\\n make", ["make", "cd"]),
    ],
)
def test_the_commands_that_decide_the_end_are_known(command: str, programs: list[str]) -> None:
    assert deciding(command) == programs


def test_a_command_that_only_prints_cannot_fail() -> None:
    assert find_deciding_commands("make || echo no").always_succeeds
    assert not find_deciding_commands("make").always_succeeds
    assert not find_deciding_commands("").always_succeeds


def test_tests_linters_searches_and_readers_are_told_apart() -> None:
    def holds(question: object, *commands: str) -> list[str]:
        assert callable(question)
        return [text for text in commands if question(split_commands(text)[0])]

    tests = (
        "pytest",
        "go test ./...",
        "npm test",
        "npm run test:unit",
        "make check-tests",
        "./gradlew test",
    )
    assert holds(programs.is_test_runner, *tests) == list(tests)
    assert (
        holds(programs.is_test_runner, "python a.py", "npm run build", "go build", "test -f x")
        == []
    )
    lints = (
        "ruff check .",
        "npm run lint",
        "npx tsc",
        "make lint",
        "go vet ./...",
        "black --check .",
    )
    assert holds(programs.is_linter, *lints) == list(lints)
    assert holds(programs.is_linter, "black .", "npm run dev", "make") == []
    searches = ("grep x", "rg x", "git grep x", "diff a b", "[ -f x ]", "git diff --quiet")
    assert holds(programs.is_search, *searches) == list(searches)
    assert holds(programs.is_search, "git diff", "ls", "bin/test x") == []
    reads = ("cat a", "git log", "gh pr view 3", "kubectl logs x", "app --help", "docker ps")
    assert holds(programs.is_reader, *reads) == list(reads)
    assert (
        holds(programs.is_reader, "git commit -m x", "make", "python a.py", "docker build .") == []
    )
