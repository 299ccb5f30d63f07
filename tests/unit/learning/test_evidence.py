"""The evidence for notes: what supports them, what contradicts them, and since when they hold."""

from __future__ import annotations

from typing import get_args

from msgspec import structs

from rekindle.knowledge.examples.records import SessionExample
from rekindle.knowledge.notes.note import list_notes
from rekindle.knowledge.notes.playbook import MAX_SESSIONS, Playbook, build_playbook
from rekindle.knowledge.notes.recall import KIND_ORDER
from rekindle.knowledge.notes.records import (
    CommandUse,
    FileUse,
    Fix,
    SessionObservation,
    hash_word,
)
from rekindle.knowledge.skill import SECTION_TITLES
from rekindle.learning.notes.evidence import NoteEvidence, find_evidence, find_new_notes
from rekindle.types import NoteKind
from rekindle.web.home.learned import KINDS_BY_WORTH
from rekindle.web.projects.note_text import KIND_NAMES

DAY = 86_400.0


def observe(
    number: int,
    *uses: CommandUse,
    fixes: tuple[Fix, ...] = (),
    checks: tuple[str, ...] | None = None,
    files: tuple[FileUse, ...] = (),
) -> SessionObservation:
    return SessionObservation(
        session=f"s{number}",
        started=number * DAY,
        words=(number,),
        commands=uses,
        files=files,
        fixes=fixes,
        checks=checks,
    )


def use(text: str, worked: int = 1, failed: int = 0) -> CommandUse:
    return CommandUse(text, text, "", worked, failed)


def find(playbook: Playbook, observed: list[SessionObservation], text: str) -> NoteEvidence:
    (note,) = [one for one in list_notes(playbook) if text in one.text]
    return find_evidence(playbook, observed, note.id)


def test_a_command_that_only_fails_contradicts_its_note() -> None:
    observed = [
        observe(1, use("go test")),
        observe(2, use("go test", 1, 3)),
        observe(3, use("go test", 0, 2)),
        observe(4, use("go build", 0, 1)),
    ]
    found = find(build_playbook(observed), observed, "go test")
    assert found == NoteEvidence(("s2", "s1"), ("s3",))


def test_an_example_has_the_sessions_that_were_asked_like_it() -> None:
    def ask(day: int) -> SessionObservation:
        parts = (f"Book 3{day} boxes.", f"quay load --boxes 3{day}", f"Booked 3{day} boxes.")
        example = SessionExample("quay load", "quay load --boxes 3", *parts, digest=day)
        command = CommandUse("quay load", "quay load --boxes 3", "", 1, 0)
        named = (hash_word("quay"),)
        return structs.replace(observe(day, command), examples=(example,), programs=named)

    observed = [ask(1), ask(2), observe(3, CommandUse("quay load", "quay load", "", 0, 1))]
    playbook = build_playbook(observed)
    assert find(playbook, observed, "Asked “Book") == NoteEvidence(("s2", "s1"), ("s3",))
    assert "example" in [one.note.kind for one in find_new_notes(playbook, 0.0)]


def test_every_kind_of_note_has_its_places() -> None:
    for kinds in (SECTION_TITLES, KIND_NAMES, KINDS_BY_WORTH, KIND_ORDER):
        assert {*kinds} == {*get_args(NoteKind)}


def test_a_fix_that_fails_later_is_contradicted() -> None:
    fix = Fix("go test", "go test -x", "", "usage", (), "go test -v", "")
    observed = [
        observe(1, use("go test -v"), fixes=(fix,)),
        observe(2, CommandUse("go test", "go test -v", "", 0, 1)),
    ]
    found = find(build_playbook(observed), observed, "then worked")
    assert found == NoteEvidence(("s1",), ("s2",))


def test_a_commit_without_its_checks_contradicts_a_routine() -> None:
    both = ("go fmt", "go test")
    uses = (use("go fmt"), use("go test"))
    observed = [observe(number, *uses, checks=both) for number in range(1, 6)]
    observed += [observe(6, *uses, checks=("go fmt",)), observe(7, *uses)]
    found = find(build_playbook(observed), observed, "Before a commit")
    assert found.supporting == ("s5", "s4", "s3", "s2", "s1")
    assert found.contradicting == ("s6",)


def test_a_note_that_nobody_learned_has_no_evidence() -> None:
    assert find_evidence(Playbook(), [], "00000000") == NoteEvidence()


def test_a_note_is_new_since_the_session_that_made_it_one() -> None:
    observed = [observe(1, use("go test")), observe(5, use("go test")), observe(6, use("go vet"))]
    playbook = build_playbook(observed)
    (new,) = find_new_notes(playbook, 4 * DAY)
    assert "go test" in new.note.text
    assert new.time == 5 * DAY
    assert find_new_notes(playbook, 5.5 * DAY) == []  # `go vet` has one session only


def test_a_note_is_not_new_because_older_sessions_were_forgotten() -> None:
    observed = [observe(number, use("go test")) for number in range(MAX_SESSIONS + 50)]
    assert find_new_notes(build_playbook(observed), 0.0) == []
    late = observe(MAX_SESSIONS + 51, use("go vet"))
    later = observe(MAX_SESSIONS + 52, use("go vet"))
    (new,) = find_new_notes(build_playbook([*observed, late, later]), 0.0)
    assert "go vet" in new.note.text
