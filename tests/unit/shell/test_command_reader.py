"""Command lines as they stand in transcripts, whole or broken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.judging.rules.deciding_commands import find_deciding_commands
from rekindle.shell.command_reader import (
    drop_heredocs,
    iter_tokens,
    join_words,
    split_commands,
    unwrap_shell,
)


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
        ("uv run --with rich --python 3.12 pytest -q", "pytest -q"),
        ("docker compose exec -u root web pytest -q", "pytest -q"),
        ("mise exec node@20 -- npm test", "npm test"),
        ("npm exec -- jest a", "jest a"),
        ("npm test", "npm test"),
        ("flock /tmp/lock make", "make "),
    ],
)
def test_wrappers_are_taken_off_a_command(command: str, text: str) -> None:
    assert [step.text for step in split_commands(command)] == [text]


@pytest.mark.parametrize(
    ("command", "programs"),
    [
        ('git commit -m "$(cat <<\'E\'\nit\'s "here"; a && b\nE\n)" && git push', "git git"),
        ("cat <<A <<B\na; x\nA\nb; y\nB\nmake", "cat make"),
        ("echo '<<E'\nmake", "echo make"),
        ("cat <<E\nno end; x", "cat"),
        ("x=$(a $(b | c)) make", "make"),
        ("echo `a | b`", "echo"),
        ("a=(1 2); make", "make"),
        ("make 2>&1 >log <in", "make"),
        ("> log make", "make"),
        ("echo 'not closed; x", "echo"),
        ("diff <(a; b) c", "diff"),
        ("(cd x; make) | tail", "cd make tail"),
    ],
)
def test_the_commands_of_a_line_are_found(command: str, programs: str) -> None:
    assert [one.program for one in split_commands(command)] == programs.split()


def test_only_the_body_of_a_here_document_is_dropped() -> None:
    assert drop_heredocs("cat <<'E' > f\nmake; x\nE\nls") == "cat <<'E' > f\nls"
    assert drop_heredocs("cat <<-E\n\ta\n\tE\nls") == "cat <<-E\nls"
    assert drop_heredocs("a <<< b\nls") == "a <<< b\nls"


@pytest.mark.parametrize(
    ("command", "inner"),
    [
        ("bash -lc 'cd x && rg foo'", "cd x && rg foo"),
        ('/bin/sh -c "echo \\"a\\""', 'echo "a"'),
        ("bash -c 'it'\"'\"'s'", "it's"),
        ("bash -c 'a' && bash -c 'b'", "bash -c 'a' && bash -c 'b'"),
        ("bash run.sh", "bash run.sh"),
    ],
)
def test_the_command_of_a_shell_is_taken_out(command: str, inner: str) -> None:
    assert unwrap_shell(command) == inner


def test_a_list_of_words_becomes_a_line() -> None:
    assert join_words(["bash", "-lc", "ls | wc"]) == "ls | wc"
    assert join_words(["git", "commit", "-m", "two words"]) == "git commit -m 'two words'"


def test_words_keep_their_quotes_and_masks_are_words() -> None:
    line = "app --key <secret:token> 'a b' 2>&1 | head # note"
    assert [(one.kind, one.text) for one in iter_tokens(line)] == [
        ("word", "app"), ("word", "--key"), ("mask", "<secret:token>"), ("word", "'a b'"),
        ("redirect", "2>&1"), ("operator", "|"), ("word", "head"), ("comment", "# note"),
    ]  # fmt: skip


@given(st.text(alphabet="ab |&;<>()'\"\\\n$#{}=-E", max_size=60))
def test_no_command_is_too_odd(command: str) -> None:
    assert len(split_commands(command)) <= len(command)
    find_deciding_commands(command)


def test_a_command_of_any_length_is_taken_apart_quickly() -> None:
    assert len(split_commands("a;" * 100_000)) <= 200
    assert find_deciding_commands("'" * 100_000).commands is not None
    assert find_deciding_commands("((((" * 20_000) is not None
    assert split_commands("$(" * 50_000) is not None
