from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.store.sessions.titles import clean, numbered, split
from rekindle.types import MAX_TITLE


@given(title=st.text(max_size=300))
def test_a_cleaned_title_is_short_visible_and_stays_as_it_is(title: str) -> None:
    cleaned = clean(title)
    if cleaned is None:
        return
    assert 0 < len(cleaned) <= MAX_TITLE
    assert clean(cleaned) == cleaned
    assert cleaned == " ".join(cleaned.split())
    assert not any(unicodedata.category(char) in ("Cc", "Cf", "Cs") for char in cleaned)


def test_cleaning_is_quick_to_give_up_on_a_huge_text() -> None:
    assert clean("\u200b" * 1_000_000) is None
    assert clean("x" * 1_000_000) == "x" * 100


@pytest.mark.parametrize(
    ("title", "base", "number"),
    [
        ("Plan", "Plan", 1),
        ("Plan #2", "Plan", 2),
        ("Plan #10", "Plan", 10),
        ("Plan #2 #3", "Plan #2", 3),
        ("Plan #1", "Plan #1", 1),
        ("Plan #0", "Plan #0", 1),
        ("Plan #02", "Plan #02", 1),
        ("Plan#2", "Plan#2", 1),
        ("#2", "#2", 1),
        ("Plan #1234567890", "Plan #1234567890", 1),
        ("Plan #٣", "Plan #٣", 1),
    ],
)
def test_a_title_is_split_into_its_line_and_number(title: str, base: str, number: int) -> None:
    assert split(title) == (base, number)


@given(base=st.text("abc é日", min_size=1, max_size=MAX_TITLE), number=st.integers(2, 999_999_999))
def test_a_numbered_title_fits_and_shows_its_number(base: str, number: int) -> None:
    cleaned = clean(base)
    if cleaned is None:
        return
    title = numbered(cleaned, number)
    assert len(title) <= MAX_TITLE
    assert title.endswith(f" #{number}")
    assert split(title)[1] == number
    assert cleaned.startswith(split(title)[0])
    assert clean(title) == title


def test_the_first_of_a_line_has_no_number() -> None:
    assert numbered("Plan", 1) == "Plan"
