"""Texts that are too long are split; nothing of them is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.platforms.splitting import split_text

TEXTS = st.text(st.sampled_from("ab  \n\n`é🙂\u0301\u200d"), max_size=400)


@given(TEXTS, st.integers(1, 90))
def test_no_part_is_too_long_and_no_sign_is_lost(text: str, limit: int) -> None:
    parts = split_text(text, limit)
    assert parts
    assert all(len(part) <= limit for part in parts)

    def seen(what: str) -> str:
        return "".join(what.replace("`", "").split())

    assert seen("".join(parts)) == seen(text)


def test_a_text_that_fits_stays_as_it_is() -> None:
    for text in ("hello", "", "  spaced\n", "x" * 100):
        assert split_text(text, 100) == [text]


def test_paragraphs_go_before_lines_and_lines_before_words() -> None:
    assert split_text("one two\n\nthree four", 12) == ["one two", "three four"]
    assert split_text("one two\nthree four", 12) == ["one two", "three four"]
    assert split_text("one two three four", 9) == ["one two", "three", "four"]
    assert split_text("x" * 25, 10) == ["x" * 10, "x" * 10, "x" * 5]


def test_a_sign_that_is_made_of_several_is_not_cut() -> None:
    family = "👩\u200d👩\u200d👧"
    assert split_text("x" * 7 + family, 10) == ["x" * 7, family]
    assert split_text("x" * 9 + "e\u0301", 10) == ["x" * 9, "e\u0301"]


def test_code_that_is_cut_is_fenced_in_both_parts() -> None:
    code = "\n".join(f"line {number}" for number in range(20))
    parts = split_text(f"Look:\n```python\n{code}\n```\nDone.", 100)
    assert len(parts) > 1
    for part in parts:
        assert part.count("```") % 2 == 0, part
    assert parts[1].startswith("```python\n")


def test_a_limit_must_leave_room() -> None:
    with pytest.raises(ValueError, match="limit"):
        split_text("x", 0)
