"""What users wish for: found in their own words, repeated only if nothing in it may be a secret."""

from __future__ import annotations

import pytest

from rekindle.knowledge.common_words import is_common_word
from rekindle.knowledge.wishes.records import Wish
from rekindle.knowledge.wishes.wishes import (
    UserTurn,
    Vocabulary,
    WishSession,
    collect_wishes,
    find_wishes,
    is_harmless_wish,
)
from rekindle.redaction.redactor import Redactor

REDACTOR = Redactor()


def collect(*said: str, vocabulary: Vocabulary | None = None) -> list[Wish]:
    """Collect the wishes of sessions, each of which says one thing after its own request."""
    turns = {f"s{at}": [UserTurn(0, "do it"), UserTurn(4, text)] for at, text in enumerate(said)}
    sessions = [
        WishSession(id, float(at), (at,), find_wishes(found))
        for at, (id, found) in enumerate(turns.items())
    ]
    return collect_wishes(
        sessions,
        vocabulary or Vocabulary(),
        REDACTOR,
        lambda id, position: next(one.text for one in turns[id] if one.position == position),
    )


def tell(*said: str, vocabulary: Vocabulary | None = None) -> list[str]:
    return [wish.text for wish in collect(*said, vocabulary=vocabulary)]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("please always run the tests before a commit", "Always run the tests before a commit."),
        ("never rewrite shared history", "Never rewrite shared history."),
        ("and remember to use pagination", "Remember to use pagination."),
        ("From now on, write the docs in English.", "From now on, write the docs in English."),
        ("don't ever push to main", "Don't ever push to main."),
        ("you must never edit generated files", "You must never edit generated files."),
        (
            "we should be using strong types instead of string wherever we can",
            "We should be using strong types instead of string wherever we can.",
        ),
        ("let's make sure we're using US English everywhere please",
         "Let's make sure we're using US English everywhere."),
        ("ok. Always use `ruff format` on changed files. Thanks!",
         "Always use `ruff format` on changed files."),
    ],
)  # fmt: skip
def test_a_standing_wish_is_told_after_one_session(said: str, told: str) -> None:
    assert tell(said) == [told]


@pytest.mark.parametrize(
    "said",
    [
        "never mind, I found the problem",
        "the old hook never actually worked here",
        "it always fails on the second run",
        "do you always run the tests before a commit?",
        "if there is an error, always exit with one",
        "always do that again",
        "always use it for the tests now",
        "always test",
        "> always run the setup script first",
        "```\nalways run the setup script first\n```",
        "<system-reminder>always run the setup script first</system-reminder>",
        "Implement the following plan:\n\nalways run the setup script first",
        "# Task\n\nalways run the setup script first",
        "[npm] always run the setup script first",
        "always run the setup script first " + "and more " * 30,
    ],
)
def test_what_is_no_wish_or_not_the_users_is_not_told(said: str) -> None:
    assert tell(said) == []


@pytest.mark.parametrize(
    "said",
    [
        "always use the password swordfish for the database",
        "remember the login is admin and swordfish",
        "remember that the token is abc",
        "always connect to db.internal.example for tests",
        "always connect with https://user:pass@host/path first",
        "always write to ada@example.org before a release",
        "always ask Ada Lovelace before a release",
        "always read /home/ada/notes.md before a change",
        "never use the port 48213 for tests",
        "always set API_MODE=8f3b0c7e for the tests",
        "always run the tests with sk-ant-REDACTED",
        "always deploy to the zanzibar cluster first",
        "never touch ~/private/stuff in the tests",
    ],
)
def test_a_wish_with_a_value_that_nobody_shares_is_dropped(said: str) -> None:
    assert tell(said) == []
    assert tell(said, said) == []


def test_a_word_that_independent_sessions_use_may_be_told() -> None:
    said = "always deploy to the zanzibar cluster first"
    known = Vocabulary(lambda word: word == "zanzibar")
    assert tell(said, vocabulary=known) == ["Always deploy to the zanzibar cluster first."]


def test_a_file_of_the_repository_may_be_told() -> None:
    said = "always update zork/frobnicate.md with the code"
    assert tell(said) == []
    known = Vocabulary(paths=frozenset(["zork/frobnicate.md"]))
    assert tell(said, vocabulary=known) == ["Always update zork/frobnicate.md with the code."]


def test_a_preference_needs_two_independent_sessions() -> None:
    said = "use the literal instead of a contains check"
    assert tell(said) == []
    (wish,) = collect(said, "Please use the literal instead of a contains check!")
    assert wish.text == "Use the literal instead of a contains check."
    assert wish.sessions == ("s1", "s0")
    assert (wish.is_standing, wish.last) == (False, 1.0)


def test_sessions_that_begin_alike_count_once() -> None:
    turn = UserTurn(2, "stop adding comments to every line")
    wishes = find_wishes([turn])
    sessions = [WishSession(f"s{at}", float(at), (7, 8), wishes) for at in range(3)]
    assert collect_wishes(sessions, Vocabulary(), REDACTOR, lambda *_: turn.text) == []


def test_a_wish_and_its_opposite_are_two() -> None:
    assert len(tell("always use tabs for the code", "never use tabs for the code")) == 2
    assert len(tell("always use tabs for the code", "Always use tabs for code.")) == 1


def test_what_is_kept_of_a_session_holds_no_words() -> None:
    (kept,) = find_wishes([UserTurn(3, "never use the secret swordfish for tests")])
    assert "swordfish" not in repr(kept)
    assert (kept.position, kept.is_standing) == (3, True)


def test_common_words_are_known_in_all_their_forms() -> None:
    for word in ("use", "using", "uses", "tests", "committed", "directories", "literally", "don't"):
        assert is_common_word(word), word
    for word in ("swordfish", "zanzibar", "ada", "hunter", "lovelace", "qwerty"):
        assert not is_common_word(word), word


def test_a_message_that_is_gone_gives_no_wish() -> None:
    wishes = find_wishes([UserTurn(0, "always run the tests first")])
    sessions = [WishSession("s", 0.0, (), wishes)]
    assert collect_wishes(sessions, Vocabulary(), REDACTOR, lambda *_: "") == []


def test_a_wish_in_which_the_redactor_finds_something_is_dropped() -> None:
    known = Redactor(known={"HOME_SECRET": "run the tests"})
    assert is_harmless_wish("always run the tests first", Vocabulary(), REDACTOR)
    assert not is_harmless_wish("always run the tests first", Vocabulary(), known)
