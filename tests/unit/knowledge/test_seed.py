from __future__ import annotations

import pytest

from rekindle.knowledge.plain_words import is_plain, keep_sentence
from rekindle.knowledge.seed import extract_seed
from rekindle.types import Message, Seed


def extract(*said: str, system: str = "", files: tuple[str, ...] = ()) -> Seed:
    messages = [Message("system", system, position=0)]
    messages += [Message("user", text, position=place) for place, text in enumerate(said, 1)]
    return extract_seed(messages, files, range(1, len(messages)))


def test_standing_instructions_are_kept_and_requests_of_the_day_are_not() -> None:
    found = extract("Fix the parser. Always run the tests before a commit! Why does it fail?")
    assert found.instructions == ("Always run the tests before a commit!",)


def test_words_that_are_not_known_to_be_harmless_are_left_out() -> None:
    found = extract("Always use the server hunter2 for the tests of the release.")
    assert found.instructions == ("Always use the server … for the tests of the release.",)
    assert extract("Remember: Ada Lovelace, Elm Street 12, 555-0199").instructions == ()


def test_a_seed_holds_no_more_than_fits() -> None:
    rules = " ".join(f"Always run the tests {n} times before a commit." for n in range(9))
    found = extract(rules, system="Use the tools. " * 200)
    assert len(found.system) <= 500
    assert len(found.instructions) == 3
    assert all(len(one) <= 200 for one in found.instructions)


def test_instructions_come_from_the_first_ten_messages_alone() -> None:
    late = [Message("assistant", "…", position=n) for n in range(10)]
    late.append(Message("user", "Never do that again please.", position=10))
    assert extract_seed(late, (), [10]).instructions == ()


def test_what_a_program_said_in_the_name_of_the_user_is_no_instruction() -> None:
    said = [Message("user", "Always run the tests before a commit.", position=0)]
    assert extract_seed(said, (), ()) == Seed()


def test_markers_are_files_of_the_repository() -> None:
    files = tuple(f"src/part_{n}.py" for n in range(30))
    assert extract("look at https://example.org/x", files=files).markers == files[:20]
    assert extract("Never change src/part_1.py without a test.", files=files).instructions == (
        "Never change src/part_1.py without a test.",
    )


def test_the_style_of_a_user_is_counted() -> None:
    style = extract("Fix the parser", "Why does it fail?", "Run the tests", "Add a test").style
    assert style.messages == 4
    assert style.questions == 0.25
    assert style.commands == 0.75
    assert style.preferred == "short commands"


@pytest.mark.parametrize(
    "secret",
    ["hunter2", "AKIAZ7QX3MNB5TRW8KLP", "swordfish", "ada@example.org", "4111111111111111", "Ada"],
)
def test_no_secret_is_a_plain_word(secret: str) -> None:
    assert not is_plain(f"run the tests with {secret}")
    assert secret not in (keep_sentence(f"always run the tests of the app with {secret}") or "")


def test_plain_words_are_what_people_ask_agents_for() -> None:
    for asked in ("run the tests", "Fix the failing test, please.", "commit and push"):
        assert is_plain(asked)


@pytest.mark.parametrize(
    "said",
    [
        "Always use the password fridge for the server.",
        "Remember that the passphrase is window table stone blue.",
        "Always log in as admin with fridge please.",
        "Remember: the PIN is 47 11.",
        "Remember that the master key is black-crate.",
        "Always open the door with fridge.",
        "remember the secret is window-table and the user is root",
        "Never send the report to 47 11 08 15.",
        "Remember that the number is four seven one one.",
    ],
)
def test_an_instruction_about_a_secret_is_dropped(said: str) -> None:
    assert keep_sentence(said) is None


def test_words_that_are_also_used_of_code_are_kept() -> None:
    said = "Always make sure that the tests pass in a private session."
    assert keep_sentence(said) == said
    assert keep_sentence("Remember that the pass is fridge today.") is None


def test_names_of_common_words_are_left_out_of_an_instruction() -> None:
    kept = keep_sentence("Never send the report of the tests to Mark Price.")
    assert kept == "Never send the report of the tests to …"
