"""What all readers rely on: a session opens once, and keeps what belongs to later messages."""

from __future__ import annotations

from decimal import Decimal

import pytest

from rekindle.transcripts import SessionStarted, SessionUpdated
from rekindle.transcripts.readers.session_builder import (
    SessionBuilder,
    SessionSwitch,
    parse_cost,
    parse_exit_code,
    parse_tokens,
)
from rekindle.types import Message, Session, Tokens, UsageEntry


def build(id: str = "s") -> SessionBuilder:
    return SessionBuilder(Session(id, source="test"))


def say(text: str) -> Message:
    return Message("user", text, platform_message_id=text)


def finish(builder: SessionBuilder) -> tuple[UsageEntry, ...]:
    builder.append_message(say("a"))
    (end,) = builder.finish()
    assert isinstance(end, SessionUpdated)
    return end.usage


def test_usage_without_a_time_counts_with_the_last_that_has_one() -> None:
    builder = build()
    builder.set_fields(model="own")
    builder.add_usage(Tokens(1), time=900.0, model="other")
    builder.add_usage(Tokens(2), time=1800.0)
    builder.add_usage(Tokens(4))
    assert finish(builder) == (UsageEntry(1, "other", Tokens(1)), UsageEntry(2, "own", Tokens(6)))


def test_usage_without_any_time_has_no_entries_until_the_start_is_known() -> None:
    builder = build()
    builder.add_usage(Tokens(1))
    assert finish(builder) == ()
    builder.set_fields(started=9000.0)
    assert finish(builder) == (UsageEntry(10, "", Tokens(1)),)


@pytest.mark.parametrize("time", [-1.0, 1e300, float("inf")])
def test_a_time_that_no_calendar_has_is_none(time: float) -> None:
    builder = build()
    builder.add_usage(Tokens(1), time=time)
    assert finish(builder) == ()


def test_a_total_beyond_the_known_calls_is_not_lost() -> None:
    builder = build()
    builder.add_usage(Tokens(output=3), time=900.0)
    builder.set_fields(tokens=Tokens(input=50, output=3))
    assert finish(builder) == (UsageEntry(1, "", Tokens(50, 3)),)


def test_a_cost_of_the_whole_session_is_not_added_to_that_of_prices() -> None:
    builder = build()
    builder.add_usage(Tokens(1), time=900.0, model="a")
    builder.add_usage(Tokens(2), time=9000.0, model="b")
    builder.set_fields(cost=Decimal("0.5"))
    assert finish(builder) == (UsageEntry(10, "", Tokens(3), Decimal("0.5")),)


def test_a_session_opens_once_and_ends_with_what_was_learned() -> None:
    builder = build()
    assert [*builder.finish()] == []
    first = builder.append_message(say("a"))
    builder.set_fields(id="other", title="t")
    builder.add_usage(Tokens(1, 2), Decimal(3))
    assert first == (SessionStarted(Session("s", source="test")), say("a"))
    assert builder.append_messages([say("b")]) == [say("b")]
    (end,) = builder.finish()
    assert isinstance(end, SessionUpdated)
    assert (end.session.id, end.session.title) == ("s", "t")
    assert (end.session.tokens, end.session.cost) == (Tokens(1, 2), Decimal(3))


def test_a_known_field_is_not_filled_again() -> None:
    builder = build()
    builder.fill_fields(model="m", cwd=None)
    builder.fill_fields(model="n", cwd="/w")
    assert (builder.session.model, builder.session.cwd) == ("m", "/w")


def test_the_last_message_is_held_back_for_the_end() -> None:
    builder = build()
    assert builder.hold_message(say("a")) == ()
    assert builder.hold_message(say("b"))[1:] == (say("a"),)
    (last,) = builder.release_message({"reward": 1.0, "trial": None})
    assert isinstance(last, Message)
    assert (last.text, last.meta) == ("b", {"reward": 1.0})
    assert builder.release_message({}) == ()


def test_details_wait_for_the_next_answer_alone() -> None:
    builder = build()
    builder.pending_meta["aborted"] = True
    assert builder.open_answer("x", None).meta == {"aborted": True}
    assert builder.open_answer("y", None).meta == {}


def test_a_switch_repeats_the_start_of_a_session() -> None:
    switch, one, two = SessionSwitch(), build("1"), build("2")
    stream = [
        *switch.append_messages(one, [say("a")]),
        *switch.append_messages(two, []),
        *switch.append_messages(one, [say("b")]),
        *switch.append_messages(two, [say("c")]),
        *switch.append_messages(one, [say("d")]),
    ]
    names = [event.session.id if isinstance(event, SessionStarted) else event for event in stream]
    assert names == ["1", say("a"), say("b"), "2", say("c"), "1", say("d")]


def test_tokens_leave_the_cache_out_of_the_input() -> None:
    usage = {"in": 10, "out": 2, "read": 7, "written": 1}
    names = ("in", "out", "read", "written")
    assert parse_tokens(usage, *names) == Tokens(10, 2, 7, 1)
    assert parse_tokens(usage, *names, is_cache_in_input=True) == Tokens(2, 2, 7, 1)


@pytest.mark.parametrize("value", [None, True, "1", -1, float("nan"), 1e300])
def test_an_implausible_cost_is_none(value: object) -> None:
    assert parse_cost(value) == 0


@pytest.mark.parametrize("value", [None, True, "1", 1.0, 2**60])
def test_only_an_integer_is_an_exit_code(value: object) -> None:
    assert parse_exit_code(value) is None
    assert parse_exit_code(-1073741819) == -1073741819
