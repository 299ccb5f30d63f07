"""How well requests fit each other, by their words."""

from __future__ import annotations

import pytest

from rekindle.knowledge.text_matching import (
    RequestMatcher,
    extract_terms,
    select_diverse,
    stem_word,
    weigh_words,
)

KNOWN = {"count": 9, "row": 7, "fail": 30, "test": 60, "deploy": 4, ".csv": 12, "invoic": 3}


def fit(request: str, other: str) -> float:
    return RequestMatcher(request, KNOWN, 500).compute_fit(weigh_words((other, 1.0)))


@pytest.mark.parametrize(
    ("word", "other"),
    [
        ("failing", "failed"),
        ("tests", "test"),
        ("running", "runs"),
        ("entries", "entry"),
        ("services", "service"),
        ("files", "file"),
        ("parsing", "parse"),
    ],
)
def test_forms_of_a_word_have_one_stem(word: str, other: str) -> None:
    assert stem_word(word) == stem_word(other)


def test_parts_of_identifiers_are_words_and_common_words_are_not() -> None:
    assert extract_terms("please show me readFile and parse_config") == [
        "read",
        "fil",
        "pars",
        "config",
    ]


def test_of_a_path_its_ending_counts_and_a_number_not_at_all() -> None:
    assert extract_terms("count 17 rows of data/2024/march.csv") == ["count", "row", ".csv"]
    assert extract_terms("<path:csv>") == [".csv"]


def test_the_same_request_about_other_things_fits_and_another_one_does_not() -> None:
    known = "count the rows of sales.csv"
    assert fit("count the rows of march.csv", known) > 0.8
    assert fit("write a poem about the sea", known) < 0.1


def test_a_rare_word_in_common_counts_more_than_a_frequent_one() -> None:
    assert fit("deploy the tests", "deploy it") > fit("deploy the tests", "test it")


def test_a_mistyped_word_counts_in_part() -> None:
    exact, mistyped = (
        fit("deploy invoice", "deploy invoice"),
        fit("deploy invocie", "deploy invoice"),
    )
    assert fit("deploy invoice", "deploy") < mistyped
    assert 0.5 < mistyped <= exact


def test_scripts_without_spaces_are_compared_by_their_characters() -> None:
    assert fit("统计行数", "统计表格的行数") > 0.9


def test_what_says_nothing_fits_nothing() -> None:
    assert fit("please do it", "please do it") == 0.0


def test_the_second_choice_is_one_that_does_not_repeat_the_first() -> None:
    words = [{"a": 1.0, "b": 1.0}, {"a": 1.0, "b": 1.0}, {"c": 1.0, "d": 1.0}]
    assert select_diverse([1.0, 0.95, 0.8], words, 2) == [0, 2]
