from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.store.sessions.titles import clean_title, format_numbered_title, split_title
from rekindle.types import MAX_TITLE_CHARS


@given(title=st.text(max_size=300))
def test_a_cleaned_title_is_short_visible_and_stays_as_it_is(title: str) -> None:
    cleaned = clean_title(title)
    if cleaned is None:
        return
    assert 0 < len(cleaned) <= MAX_TITLE_CHARS
    assert clean_title(cleaned) == cleaned
    assert cleaned == " ".join(cleaned.split())
    assert not any(unicodedata.category(char) in ("Cc", "Cf", "Cs") for char in cleaned)


def test_cleaning_is_quick_to_give_up_on_a_huge_text() -> None:
    assert clean_title("\u200b" * 1_000_000) is None
    assert clean_title("x" * 1_000_000) == "x" * 100


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
    assert split_title(title) == (base, number)


@given(
    base=st.text("abc é日", min_size=1, max_size=MAX_TITLE_CHARS),
    number=st.integers(2, 999_999_999),
)
def test_a_numbered_title_fits_and_shows_its_number(base: str, number: int) -> None:
    cleaned = clean_title(base)
    if cleaned is None:
        return
    title = format_numbered_title(cleaned, number)
    assert len(title) <= MAX_TITLE_CHARS
    assert title.endswith(f" #{number}")
    assert split_title(title)[1] == number
    assert cleaned.startswith(split_title(title)[0])
    assert clean_title(title) == title


def test_the_first_of_a_line_has_no_number() -> None:
    assert format_numbered_title("Plan", 1) == "Plan"
