from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.errors import InvalidInput
from rekindle.store import Filter
from rekindle.store.core.filter import is_term, parse_local_time

FIELDS = ["source", "owner", "model", "title", "idle", "messages", "calls", "ended", "titled", "parent",
          "archived", "arm", "template", "project", "branch", "since", "until", "colour"]  # fmt: skip
VALUES = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        [
            "yes",
            "no",
            "any",
            "3",
            "30d",
            "1.5h",
            "2026-01-31",
            "7d",
            "today",
            "9999-12-31",
            "0001-01-01",
        ]
    ),
    st.dates().map(str),
    st.datetimes().map(str),
)
TERMS = st.tuples(
    st.sampled_from(FIELDS), st.sampled_from(["=", "<", ">", "<=", ">=", "~", ""]), VALUES
)


def test_every_term_is_read() -> None:
    assert Filter.parse("") == Filter()
    assert Filter.parse(
        'source=telegram owner=ada model=gpt-5 title~"big plan" idle>30d idle<=2w messages<5'
        " calls>=100 ended=no titled=yes parent=no archived=any arm=warm template=review"
        " since=2026-01-31 until=2026-02-28T12:00"
    ) == Filter(
        source="telegram",
        owner="ada",
        model="gpt-5",
        title="big plan",
        idle=((">", 30 * 86_400.0), ("<=", 14 * 86_400.0)),
        messages=(("<", 5),),
        calls=((">=", 100),),
        ended="no",
        titled=True,
        parent=False,
        archived=None,
        arm="warm",
        template="review",
        since=datetime(2026, 1, 31).timestamp(),
        until=datetime(2026, 2, 28, 12).timestamp(),
    )


@pytest.mark.parametrize(
    ("term", "said"),
    [
        ("colour=red", "expected one of source"),
        ("source", "'source'"),
        ("source=", "'source='"),
        ("source~x", "source accepts ="),
        ("title=x", "title accepts ~"),
        ("idle=3d", "idle accepts < > <= >="),
        ("idle>3", "idle>3: expected a duration like 30m, 2h, 7d or 4w"),
        ("idle>-3d", "idle>-3d"),
        ("messages<few", "messages<few: expected a whole number"),
        ("calls>=1.5", "calls>=1.5"),
        ("calls>=9999999999999999999", "whole number"),
        ("titled=maybe", "titled=maybe: expected yes or no"),
        ("parent=any", "parent=any"),
        ("archived=perhaps", "expected yes or no or any"),
        ("since=lately", "'lately' is not a date"),
        ("until=2026-02-30", "'2026-02-30' is not a date"),
        ("until=9999-12-31", "'9999-12-31' is not a date"),
        ("since=0001-01-01", "'0001-01-01' is not a date"),
        ("SOURCE=x", "'SOURCE=x'"),
        ('title~"open', "quotation"),
    ],
)
def test_a_term_that_is_none_is_refused_by_name(term: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Filter.parse(f"model=x {term}")
    assert said in str(caught.value)


@given(terms=st.lists(TERMS, max_size=4))
def test_terms_are_read_or_refused_and_nothing_else(terms: list[tuple[str, str, str]]) -> None:
    text = " ".join(f"{field}{operator}{value}" for field, operator, value in terms)
    try:
        found = Filter.parse(text)
    except InvalidInput:
        return
    condition, params = found.to_sql(0.0)
    assert condition.count("?") == len(params)


@given(text=st.text(max_size=40).filter(lambda text: "=" not in text and "~" not in text))
def test_text_without_any_term_is_refused(text: str) -> None:
    if text.split() and not set(text) & set("<>\"'\\#"):
        with pytest.raises(InvalidInput, match="filter term"):
            Filter.parse(text)


def test_a_value_is_bound_and_never_part_of_the_sql() -> None:
    evil = "'; DROP TABLE sessions; --"
    condition, params = Filter(
        source=evil, owner=evil, model=evil, title=evil, ended=evil, arm=evil, template=evil
    ).to_sql(0.0)
    assert "DROP" not in condition
    assert sum(evil.casefold() in str(param).casefold() for param in params) == 7


def test_a_bare_day_at_the_end_includes_all_of_it() -> None:
    assert parse_local_time("2026-01-31", is_end=True) == datetime(2026, 2, 1).timestamp()
    assert parse_local_time("2026-01-31") == datetime(2026, 1, 31).timestamp()
    assert (
        parse_local_time("2026-01-31T10:00", is_end=True) == datetime(2026, 1, 31, 10).timestamp()
    )
    assert parse_local_time("2026-01-31T10:00+00:00") == 1_769_853_600.0


def test_fields_that_are_none_change_nothing() -> None:
    where = Filter(owner="ada", source="cli")
    assert where.with_(owner=None, source=None) == where
    assert where.with_(owner="eve") == Filter(owner="eve", source="cli")


def test_times_are_also_seen_from_now() -> None:
    now = datetime(2026, 3, 10, 18, 30).timestamp()
    for text, since, until in (
        ("today", datetime(2026, 3, 10), datetime(2026, 3, 11)),
        ("yesterday", datetime(2026, 3, 9), datetime(2026, 3, 10)),
        ("7d", datetime(2026, 3, 3, 18, 30), datetime(2026, 3, 3, 18, 30)),
        ("90min", datetime(2026, 3, 10, 17), datetime(2026, 3, 10, 17)),
        ("1.5h", datetime(2026, 3, 10, 17), datetime(2026, 3, 10, 17)),
        ("2w", datetime(2026, 2, 24, 18, 30), datetime(2026, 2, 24, 18, 30)),
    ):
        assert parse_local_time(text, now=now) == since.timestamp()
        assert parse_local_time(text, is_end=True, now=now) == until.timestamp()
    for text in ("3m", "7", "d", "-7d", "7 d", "tomorrow", "9" * 400 + "d"):
        with pytest.raises(InvalidInput, match="is not a date"):
            parse_local_time(text, now=now)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("project=api", True),
        ("model~opus", True),
        ("since=whenever", True),
        ("messages<5", True),
        ("project~api", False),
        ("x=1", False),
        ("project=", False),
        ("a project=api", False),
    ],
)
def test_a_term_is_told_from_a_word(text: str, expected: bool) -> None:
    assert is_term(text) is expected
