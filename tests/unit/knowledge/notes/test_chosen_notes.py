"""Which notes are worth a line: at a start, at a failure, and among the arguments of a command."""

from __future__ import annotations

import msgspec

from rekindle.knowledge.notes.failures import recall_failure
from rekindle.knowledge.notes.note import NO_DECISIONS, list_notes, split_evidence
from rekindle.knowledge.notes.playbook import build_playbook
from rekindle.knowledge.notes.recall import recall_start
from rekindle.knowledge.notes.records import hash_branch
from rekindle.knowledge.notes.scoring import Scorer, add_name_words
from tests.unit.knowledge.notes.test_recall import ROOT, bash, build, observe, read

FAILED = "exec format error"


def test_a_rare_fix_is_told_at_a_start_only_if_the_request_speaks_of_it() -> None:
    plain = [[bash("go test ./...")]] * 60
    fixed = [
        [
            bash(f"GOOS=windows go test {folder}", failed=True, result=FAILED),
            bash(f"GOOS=windows go test -exec=true {folder}"),
        ]
        for folder in ("./...", "./auth")
    ]
    heading = "What failed, and what worked instead:"
    often, seldom = build(*plain[:10], *fixed), build(*plain[:30], *fixed, *plain[30:])
    assert heading in recall_start(often, "run the go test").text
    assert heading not in recall_start(seldom, "run the go test").text
    assert heading in recall_start(seldom, "run the go test for Windows").text
    call = bash("GOOS=windows go test ./...").call
    assert "-exec=true" in recall_failure(seldom, ROOT, call, FAILED).text


def test_a_question_about_a_program_is_no_failure_that_was_fixed() -> None:
    def list_pitfalls(failed: str) -> list[str]:
        session = [bash(failed, failed=True, result="bad"), bash("make check -k")]
        return [one.text for one in list_notes(build(*[session] * 3)) if one.kind == "pitfall"]

    assert len(list_pitfalls("make check")) == 1
    assert list_pitfalls("make check --help") == []


def test_few_arguments_are_told_and_none_of_a_temporary_folder() -> None:
    options = ("-v", "-race", "-short", "-count=1", "-json", "-cover", "-vet=off", "-failfast")
    calls = [bash(f"go test {one} ./...") for one in options]
    playbook = build(*[[bash("go test ./..."), *calls, bash("go test -o /tmp/x ./...")]] * 6)
    (text,) = [one.text for one in list_notes(playbook) if one.command == "go test ./..."]
    assert text.partition("also with")[2].count("`, `") == 5
    assert "/tmp" not in text


def test_the_arguments_of_sessions_like_this_one_are_told_first() -> None:
    branch = "ada/windows-locks"
    options = ("-v", "-race", "-short", "-count=1", "-json", "-cover")
    usual = [bash("go test ./..."), *(bash(f"go test {one} ./...") for one in options)]
    locks = [bash("go test ./..."), bash("go test ./locks")]
    mail = [bash("go test ./..."), bash("go test ./mail")]
    told = [("fix the mail", mail, None), ("lock it", locks, branch), ("tidy up", usual, None)]
    sessions = [("tidy up", usual, None)] * 2 + told * 2
    playbook = build_playbook(
        observe(number, request, *calls, branch=branch)
        for number, (request, calls, branch) in enumerate(sessions)
    )

    def list_told(request: str, branch: str | None = None) -> list[str]:
        text = recall_start(playbook, request, branch=hash_branch(branch)).text
        return text.partition("also with ")[2].partition("\n")[0].split(", ")

    assert "`./locks`" not in list_told("go on")
    assert "`./locks`" in list_told("go on", branch)
    assert "`./mail`" not in list_told("go on")
    assert "`./mail`" in list_told("fix the mail again")


def test_a_command_that_was_put_in_other_words_keeps_its_arguments() -> None:
    usual = [bash("go test ./..."), bash("go test -race ./...")]
    mail = [bash("go test ./..."), bash("go test ./mail")]
    playbook = build_playbook(
        observe(number, request, *calls)
        for number, (request, calls) in enumerate([("tidy", usual)] * 4 + [("mail", mail)] * 2)
    )
    (note,) = [one for one in list_notes(playbook) if one.kind == "command"]
    words = split_evidence(note.text)[0].replace("also with", "or with")
    worded = NO_DECISIONS._replace(reworded={note.id: msgspec.structs.replace(note, text=words)})
    assert "also with `./mail`, `-race`" in recall_start(playbook, "mail").text
    assert "or with `-race`, `./mail`" in recall_start(playbook, "mail", worded).text


def test_a_failed_request_is_not_answered_with_one_of_another_method() -> None:
    reading = [bash("gh api repos/o/n/pulls --jq .url"), bash("gh api repos/o/n/pulls")]
    playbook = build(*[reading] * 6)
    look = "unknown flag: --jqq"
    assert "--jq" in recall_failure(playbook, ROOT, bash("gh api --jqq .url").call, look).text
    for words in ("--method POST", "-X DELETE", "-f body=hi"):
        call = bash(f"gh api {words} --jqq .url").call
        assert "--jq`" not in recall_failure(playbook, ROOT, call, look).text
        assert "worked (" not in recall_failure(playbook, ROOT, call, look).text


def test_a_request_names_a_program_and_a_file_without_the_rest_of_their_names() -> None:
    steps = [bash("golangci-lint run"), bash("gofmt -l ."), read("README.md"), read("src/API.md")]
    playbook = build(*[steps] * 3)

    def list_named(request: str) -> list[str]:
        scorer = Scorer(playbook.sessions, frozenset(), request)
        return [
            item.name
            for items in (playbook.commands, playbook.files)
            for item, found in zip(items, scorer.describe_items(add_name_words(items)), strict=True)
            if found.is_named
        ]

    assert list_named("fix what golangci-lint says") == ["golangci-lint run"]
    assert list_named("update the README, please") == ["README.md"]
    assert list_named("read me the API of my-golangci-lint-x") == []
    assert list_named("describe README.rst") == []
    both = build(*[[*steps, bash("golangci-lint fmt")]] * 3)
    scorer = Scorer(both.sessions, frozenset(), "fix what golangci-lint says")
    features = scorer.describe_items(add_name_words(both.commands))
    assert not any(one.is_named for one in features), "which of the commands is not known"
