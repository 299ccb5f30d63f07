from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from rekindle.knowledge.distill import proposals
from rekindle.knowledge.distill.proposals import Material, read_answer
from rekindle.knowledge.distill.sentences import UserSentence
from rekindle.knowledge.notes.note import NoteDecisions, RecalledNote
from rekindle.redaction.redactor import Redactor

PITFALL = RecalledNote("p", "pitfall", "`go vet` failed; `make vet` then worked (3 sessions).")
ROUTINE = RecalledNote(
    "w", "workflow", "Before a commit: `make fmt`, `make lint` (all of them in 3 of 4 sessions)"
)
RED = RecalledNote("b", "baseline", "`TestCart` failed before any change (2 sessions, last on x)")
COMMAND = RecalledNote("c", "command", "`make test` (9 sessions), also with `-v`, `-run <value>`")
NOTES = {one.id: one for one in (PITFALL, ROUTINE, RED, COMMAND)}


def say(session: str, text: str, *, standing: bool = False) -> UserSentence:
    return UserSentence(session, 1.0, (hash(session),), text, standing)


SENTENCES = {
    "s1": say("a", "Do not use mocks in the database tests"),
    "s2": say("b", "No mocks for tests of the database please, use make instead"),
    "s3": say("c", "Always write the tests before the code", standing=True),
    "s4": say("a", "We do not use mocks for the tests of a database"),
}
MATERIAL = Material(NOTES, SENTENCES, programs=frozenset(("make", "go")))


def reword(note: str, text: str) -> tuple[list[str], dict[str, int]]:
    return read({"rewordings": [{"note": note, "text": text}]})


def wish(text: str, *sentences: str) -> tuple[list[str], dict[str, int]]:
    return read({"wishes": [{"text": text, "sentences": sentences}]})


def read(answer: Mapping[str, Any], **changes: Any) -> tuple[list[str], dict[str, int]]:
    material = MATERIAL._replace(**changes)
    found, discarded = read_answer(json.dumps(answer), material, Redactor())
    return [one.text for one in found], dict(discarded)


@pytest.mark.parametrize(
    ("note", "text"),
    [
        ("p", "`go vet` fails; use `make vet`."),
        ("p", "As `go vet` often fails, run `make vet` instead"),
        ("w", "Run `make fmt` and `make lint` before each commit."),
        ("b", "`TestCart` fails before any change."),
        ("c", "`make test`, or with `-v`, `-run <value>`"),
    ],
)
def test_a_rewording_that_names_the_same_in_plain_words_is_kept(note: str, text: str) -> None:
    assert reword(note, text) == ([text], {})


@pytest.mark.parametrize(
    ("note", "text", "reason"),
    [
        ("p", "`go vet` fails; use `make vet && rm -r build`.", proposals.OTHER_NAMES),
        ("p", "`go vet` fails; use `make vet`, `make all`.", proposals.OTHER_NAMES),
        ("p", "`go vet` fails here and works then.", proposals.OTHER_NAMES),
        ("p", "`make vet` fails; use `go vet`.", proposals.OTHER_NAMES),
        ("p", "`go vet` fails; use `make vet`, then deploy.", proposals.OTHER_WORDS),
        ("p", "`go vet` fails; use `make vet` from /etc.", proposals.OTHER_WORDS),
        ("p", "`go vet` fails; use `make vet` --force.", proposals.OTHER_WORDS),
        ("p", "`go vet` fails; use `make vet` 3 times.", proposals.OTHER_WORDS),
        ("p", "`go vet` fails; use `make vet` `.", proposals.OTHER_WORDS),
        ("p", "`go vet` fails; never use `make vet`.", proposals.OTHER_WORDS),
        ("p", "Use `go vet`; `make vet` fails.", proposals.OTHER_SENSE),
        ("p", "`go vet` fails; use `make vet`, which fails.", proposals.OTHER_SENSE),
        ("p", "`go vet` fails; `make vet`.", proposals.OTHER_SENSE),
        ("p", "`go vet` worked; `make vet` failed.", proposals.OTHER_SENSE),
        ("w", "`make fmt`, `make lint`", proposals.OTHER_SENSE),
        ("w", "Before a commit `make fmt`, `make lint` fail.", proposals.OTHER_SENSE),
        ("b", "`TestCart` failed", proposals.OTHER_SENSE),
        ("c", "`make test` `-v` `-run <value>`", proposals.OTHER_SENSE),
        ("p", "`go vet` fails; use\u00a0`make vet`.", proposals.BAD_CHARACTERS),
        ("p", "`go vet` fails;\nuse `make vet`.", proposals.BAD_CHARACTERS),
        ("p", "`go vet` fаils; use `make vet`.", proposals.BAD_CHARACTERS),
        ("p", "", proposals.BAD_LENGTH),
        ("p", f"`go vet` fails; use `make vet` {'then ' * 20}", proposals.BAD_LENGTH),
        ("p", "`go vet` failed; `make vet` then worked.", proposals.KNOWN),
        ("x", "`go vet` fails; use `make vet`.", proposals.UNKNOWN_ID),
    ],
)  # fmt: skip
def test_any_other_rewording_is_discarded(note: str, text: str, reason: str) -> None:
    assert reword(note, text) == ([], {reason: 1})


def test_a_wish_that_rests_on_independent_sessions_is_kept() -> None:
    text = "Do not use mocks in database tests."
    assert wish(text, "s1", "s2") == ([text], {})
    assert wish("Always write tests before code.", "s3") == (
        ["Always write tests before code."],
        {},
    )


@pytest.mark.parametrize(
    ("text", "sentences", "reason"),
    [
        ("Do not use mocks in database tests.", ("s1",), proposals.FEW_SESSIONS),
        ("Do not use mocks in database tests.", ("s1", "s4"), proposals.FEW_SESSIONS),
        ("Do not use mocks in database tests.", ("s1", "s3"), proposals.FEW_SESSIONS),
        ("Use mocks in database tests.", ("s1", "s2"), proposals.FEW_SESSIONS),
        ("Do not use mocks in database tests.", (), proposals.UNKNOWN_ID),
        ("Do not use mocks in database tests.", ("s1", "s9"), proposals.UNKNOWN_ID),
        ("Do not use tests in database mocks.", ("s1", "s4", "s2"), proposals.OTHER_SENSE),
        ("Do not use mocks in database tests, skip them.", ("s1", "s2"), proposals.OTHER_WORDS),
        ("Do not use mocks in database tests; run curl.", ("s1", "s2"), proposals.OTHER_PROGRAMS),
        ("Do not use mocks in database tests; run just.", ("s1", "s2"), proposals.OTHER_PROGRAMS),
        ("Do not use mocks in database tests `npx x`.", ("s1", "s2"), proposals.OTHER_PROGRAMS),
        ("Do not use mocks in database tests, zanzibar.", ("s1", "s2"), proposals.NOT_HARMLESS),
        ("Do not use mocks in … database tests.", ("s1", "s2"), proposals.NOT_HARMLESS),
        ("Do not use mocks in https://evil.example/tests.", ("s1", "s2"), proposals.NOT_HARMLESS),
        ("Do not use\u200b mocks in database tests.", ("s1", "s2"), proposals.BAD_CHARACTERS),
        ("Do not use mocks.", ("s1", "s2"), proposals.BAD_LENGTH),
        (f"Do not use mocks in database tests {'and ' * 60}", ("s1", "s2"), proposals.BAD_LENGTH),
    ],
)  # fmt: skip
def test_any_other_wish_is_discarded(text: str, sentences: tuple[str, ...], reason: str) -> None:
    assert wish(text, *sentences) == ([], {reason: 1})


def test_a_program_that_sessions_ran_may_be_in_a_wish() -> None:
    text = "No mocks for tests of the database, use make instead."
    assert wish(text, "s2", "s1") == ([text], {})
    answer = {"wishes": [{"text": text, "sentences": ["s2", "s1"]}]}
    assert read(answer, programs=frozenset()) == ([], {proposals.OTHER_PROGRAMS: 1})


def test_what_is_known_is_not_proposed_again() -> None:
    answer = {
        "wishes": [{"text": "Do not use mocks in database tests.", "sentences": ["s1", "s2"]}]
    }
    known = ("Please do not use mocks for tests of the database.",)
    assert read(answer, known=known) == ([], {proposals.KNOWN: 1})
    twice = {"wishes": [*answer["wishes"], *answer["wishes"]]}
    assert read(twice) == (["Do not use mocks in database tests."], {proposals.KNOWN: 1})


@pytest.mark.parametrize(
    "answer",
    ["", "no", "[]", "{}}", "[" * 10_000, '{"wishes": 1}', "{" + " " * 60_000 + "}", "\ud800{"],
)
def test_an_answer_in_another_format_is_one_discarded_proposal(answer: str) -> None:
    assert read_answer(answer, MATERIAL, Redactor()) == ([], {proposals.NO_FORMAT: 1})


def test_an_item_in_another_format_does_not_spoil_the_others() -> None:
    good = {"note": "p", "text": "`go vet` fails; use `make vet`."}
    items = [3, None, {"note": "p"}, {"note": ["p"], "text": "x"}, good, *[good] * 60]
    found, discarded = read({"rewordings": items, "wishes": [[[]]]})
    assert found == [good["text"]]
    assert discarded == {proposals.NO_FORMAT: 4 + 5 + 1, proposals.KNOWN: 55}


def test_an_accepted_rewording_is_told_with_the_evidence_while_the_note_names_the_same() -> None:
    rewording = RecalledNote("r", "pitfall", "`go vet` fails; use `make vet`.")
    decisions = NoteDecisions(reworded={"p": rewording})
    told = decisions.reword(PITFALL)
    assert told.text == "`go vet` fails; use `make vet` (3 sessions)"
    assert told.id == "p"
    changed = RecalledNote(
        "p", "pitfall", "`go vet` failed; `make vet -v` then worked (3 sessions)."
    )
    assert decisions.reword(changed) is changed
    assert decisions.reword(ROUTINE) is ROUTINE
