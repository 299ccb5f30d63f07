from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.store.core.search_query import (
    MATCH_MARKS,
    SNIPPET_LENGTH,
    Query,
    Term,
    make_snippet,
    parse_query,
)
from rekindle.store.core.text_encoding import split_words

TYPED = st.one_of(
    st.text(max_size=60),
    st.lists(
        st.sampled_from(
            ["a", "B", '"', "OR", "*", "x_y", "日本", " ", "é", "(", "a*", "\\", "-", "."]
        )
    ).map("".join),
)


@pytest.mark.parametrize(
    ("typed", "groups"),
    [
        ("parse timeout", (("parse",), ("timeout",))),
        ("", ()),
        ("!?", ()),
        ("OR", (("or",),)),
        ("a OR", (("a",),)),
        ("a OR OR b", (("a", "b"),)),
        ("a OR b c", (("a", "b"), ("c",))),
        ("or a", (("or",), ("a",))),
    ],
)
def test_words_are_grouped(typed: str, groups: tuple[tuple[str, ...], ...]) -> None:
    found = tuple(
        tuple(" ".join(term.words) for term in group) for group in parse_query(typed).groups
    )
    assert found == groups


def test_the_kinds_of_term_are_told_apart() -> None:
    assert parse_query('"No such file"').groups == ((Term(("no", "such", "file")),),)
    assert parse_query('"unclosed phrase').groups == ((Term(("unclosed", "phrase")),),)
    assert parse_query("time*").groups == ((Term(("time",), prefix=True),),)
    assert parse_query('"time*"').groups == ((Term(("time",)),),)
    assert parse_query("Read_File").groups == ((Term(("read", "file"), literal="read_file"),),)
    assert parse_query("(src/app.py),").groups == (
        (Term(("src", "app", "py"), literal="src/app.py"),),
    )
    assert parse_query("read_fi*").groups == ((Term(("read", "fi"), True, "read_fi"),),)
    assert parse_query("数据库").groups == ((Term(("数", "据", "库")),),)
    assert parse_query("_private").groups == ((Term(("private",)),),)


@pytest.mark.parametrize(
    ("typed", "groups", "excluded"),
    [
        ("a -b", 1, [Term(("b",))]),
        ('a -"b c" d', 2, [Term(("b", "c"))]),
        ('a -"b c', 1, [Term(("b", "c"))]),
        ("a OR -b c", 2, [Term(("b",))]),
        ("a -b_c", 1, [Term(("b", "c"), literal="b_c")]),
        ("a -b*", 1, [Term(("b",), prefix=True)]),
        ("a --b-c d-e", 3, []),
        ('a "-b"', 2, []),
        ("a - b", 2, []),
        ("-a", 0, [Term(("a",))]),
    ],
)
def test_what_begins_with_a_dash_is_excluded(typed: str, groups: int, excluded: list[Term]) -> None:
    query = parse_query(typed)
    assert (len(query.groups), list(query.excluded)) == (groups, excluded)


def test_only_what_is_written_so_is_accepted() -> None:
    assert parse_query("foo_bar").matches_literals("a FOO_BAR b")
    assert not parse_query("foo_bar").matches_literals("foo bar")
    assert not parse_query("foo_bar x").matches_literals("foo bar x")
    assert parse_query("foo_bar OR zebra").matches_literals("foo bar and a zebra")
    assert not parse_query("foo_bar OR zebra").matches_literals("foo bar")
    assert not parse_query("foo_bar OR zebra").matches_literals("foo bar, zebras")
    assert parse_query("foo_bar OR zeb*").matches_literals("foo bar, zebras")
    assert parse_query('foo_bar OR "two words"').matches_literals("foo bar, two words")
    assert parse_query("foo bar").matches_literals("anything: the words are known to be there")


@given(typed=TYPED)
def test_every_query_can_be_read(typed: str) -> None:
    query = parse_query(typed)
    said = set(split_words(typed))
    assert all(group for group in query.groups)
    for group in (*query.groups, query.excluded):
        for term in group:
            assert term.words
            assert set(term.words) <= said
    assert bool(query.groups or query.excluded) == bool(said)


@given(typed=TYPED, text=st.text(max_size=400))
def test_a_snippet_is_part_of_its_text(typed: str, text: str) -> None:
    shown = make_snippet(parse_query(typed), text)
    kept = _bare(shown)
    assert kept in _bare(text)
    assert bool(kept) or not _bare(text[:SNIPPET_LENGTH])
    assert shown.count(MATCH_MARKS[0]) - text.count(MATCH_MARKS[0]) <= shown.count(MATCH_MARKS[1])


def _bare(text: str) -> str:
    for char in (*MATCH_MARKS, "…"):
        text = text.replace(char, "")
    return "".join(text.split())


@given(before=st.text("ab \n", max_size=300), after=st.text("ab \n", max_size=300))
def test_a_snippet_shows_the_match_and_marks_it(before: str, after: str) -> None:
    shown = make_snippet(parse_query("needle"), f"{before} Needle {after}")
    assert "«Needle»" in shown
    assert len(shown) <= SNIPPET_LENGTH + 8


def test_a_snippet_marks_what_was_asked_for() -> None:
    for typed, text, shown in (
        ("file", "a file, profile", "a «file», profile"),
        ('"no such file"', "no such\n file", "«no such file»"),
        ("fil*", "filed profile", "«filed» profile"),
        ("a_b", "x a_b y", "x «a_b» y"),
        ("naive cafe", "naïve café", "«naïve» «café»"),
        ("库", "数据库连接", "数据«库»连接"),
        ("x OR y", "y x", "«y» «x»"),
        ("missing", "nothing to mark", "nothing to mark"),
        ("word", "", ""),
    ):
        assert make_snippet(parse_query(typed), text) == shown


def test_a_long_text_is_cut_on_both_sides() -> None:
    shown = make_snippet(parse_query("needle"), "left " * 100 + "needle" + " right" * 100)
    assert shown.startswith("…")
    assert shown.endswith("…")
    assert "left «needle» right" in shown
    assert make_snippet(Query(()), "x" * 500) == "x" * SNIPPET_LENGTH + "…"


def test_a_hostile_text_is_cut_in_passable_time() -> None:
    text = "a" * 50_000 + "_" * 50_000
    assert make_snippet(parse_query("a_b_c_d a* b OR c"), text).startswith(("a", "«a"))
