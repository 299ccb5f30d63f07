from __future__ import annotations

import pytest

from rekindle.knowledge.distill.sentences import UserSentence, choose_sentences, pick_sentences
from rekindle.knowledge.wishes.wishes import UserTurn, Vocabulary
from rekindle.redaction.redactor import Redactor


def pick(*texts: str) -> list[tuple[str, bool]]:
    turns = [UserTurn(number, text) for number, text in enumerate(texts)]
    picked = pick_sentences(turns, Vocabulary(), Redactor())
    return [(one.text, one.is_standing) for one in picked]


@pytest.mark.parametrize(
    ("said", "standing"),
    [
        ("No, use the other file for the tests.", False),
        ("That is wrong, the tests need the server.", False),
        ("Never push to the main branch.", True),
        ("Please use spaces instead of tabs in tests", False),
        ("Revert that, the old layout was better.", False),
        ("Great, the short answers are what we want.", False),
    ],
)
def test_what_corrects_forbids_prefers_or_rejects_is_picked(said: str, standing: bool) -> None:
    assert pick("fix the cart", said) == [(said, standing)]


@pytest.mark.parametrize(
    "said",
    ["add a button to the page", "why is the test red?", "thanks", "No.", "x " * 500,
     "> No, use the other file for the tests.", "<tool>No, use the other file</tool>"],
)  # fmt: skip
def test_anything_else_is_not(said: str) -> None:
    assert pick("fix the cart", said) == []


def test_words_that_may_be_a_name_or_a_value_are_left_out() -> None:
    said = "No, use the Zanzibar file for the tests of the page."
    assert pick("fix it", said) == [("No, use the … file for the tests of the page.", False)]
    assert pick("fix it", "No, Zanzibar Lovelace Kowalski wants tests.") == []


@pytest.mark.parametrize(
    "said",
    ["No, use the password hunter2 for the tests.", "No, mail it to ada@corp.example for the tests.",
     "No, always log in to the server for the tests.",
     "No, use AKIAIOSFODNN7EXAMPLE for all of the tests."],
)  # fmt: skip
def test_a_sentence_with_a_secret_is_left_out(said: str) -> None:
    kept = " ".join(text for text, _ in pick("fix the cart", said))
    assert not {"hunter2", "ada@corp.example", "AKIAIOSFODNN7EXAMPLE"} & {*kept.split()}
    assert "password" not in kept


def test_standing_and_shared_sentences_are_sent_first() -> None:
    texts = ("use dark colors instead of light ones", "use mocks rather than a database",
             "no mocks for the database", "always run the tests")  # fmt: skip
    sentences = [
        UserSentence(f"s{number}", float(number), (number,), text, text.startswith("always"))
        for number, text in enumerate(texts)
    ]
    assert [one.text for one in choose_sentences(sentences, 3)] == [texts[3], texts[2], texts[1]]
