from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.judging.rules import programs, shell_commands


def deciding(command: str) -> list[str]:
    return [step.program for step in shell_commands.find_deciding_commands(command).commands]


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


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("FOO=1 BAR='x y' make all", "make all"),
        ("sudo -u me timeout 20 ./run.sh", "./run.sh "),
        ("env -i A=1 nice -n 5 go test ./...", "go test ./..."),
        ("uv run --frozen pytest -q", "pytest -q"),
        ("python -m pytest -q", "pytest -q"),
        ("/usr/bin/git status", "git status"),
        (".venv/bin/pytest", "pytest "),
        ("bin/test core", "bin/test core"),
        ("npx -y jest a", "jest a"),
        ("xargs -0 grep foo", "grep foo"),
        ("time make", "make "),
        ("command -v git", "command -v git"),
    ],
)
def test_wrappers_are_taken_off_a_command(command: str, text: str) -> None:
    assert [step.text for step in shell_commands.split_commands(command)] == [text]


def test_a_command_that_only_prints_cannot_fail() -> None:
    assert shell_commands.find_deciding_commands("make || echo no").always_succeeds
    assert not shell_commands.find_deciding_commands("make").always_succeeds
    assert not shell_commands.find_deciding_commands("").always_succeeds


def test_tests_linters_searches_and_readers_are_told_apart() -> None:
    def holds(question: object, *commands: str) -> list[str]:
        assert callable(question)
        return [text for text in commands if question(shell_commands.split_commands(text)[0])]

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


@given(st.text(alphabet="ab |&;<>()'\"\\\n$#{}=-E", max_size=60))
def test_no_command_is_too_odd(command: str) -> None:
    assert len(shell_commands.split_commands(command)) <= len(command)
    shell_commands.find_deciding_commands(command)


def test_a_command_of_any_length_is_taken_apart_quickly() -> None:
    assert len(shell_commands.split_commands("a;" * 100_000)) <= 200
    assert shell_commands.find_deciding_commands("'" * 100_000).commands is not None
    assert shell_commands.find_deciding_commands("((((" * 20_000) is not None
