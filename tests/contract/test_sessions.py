from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal

import pytest

from rekindle import Session, Store, Tokens
from rekindle.errors import InvalidInput, NotFound
from tests.conftest import Clock
from tests.contract.messages import answer, call, result, started, texts, turns, user

Reopened = Callable[[], Store]


def test_an_id_is_the_time_of_the_start_and_eight_hex_digits(store: Store, clock: Clock) -> None:
    clock.now = 1_767_323_045.0  # 2026-01-02 03:04:05 UTC
    assert re.fullmatch(r"20260102_030405_[0-9a-f]{8}", store.begin().id)


def test_two_sessions_begun_in_the_same_second_have_different_ids(store: Store) -> None:
    assert len({store.begin().id for _ in range(100)}) == 100


def test_an_id_that_is_given_is_kept(store: Store) -> None:
    store.append(store.begin(id="imported/7"), user("hello"))
    assert store.session("imported/7").id == "imported/7"


def test_beginning_a_session_writes_nothing(store: Store, reopened: Reopened) -> None:
    begun = store.begin(title="Plan")
    assert store.recent() == []
    assert store.stats().sessions == 0
    with pytest.raises(NotFound):
        reopened().session(begun.id)


def test_a_begun_session_can_be_asked_for_before_its_first_message(store: Store) -> None:
    begun = store.begin(source="cli", owner="ada")
    assert store.session(begun.id) == begun
    assert store.messages(begun.id) == []
    assert store.messages(begun) == []


def test_the_row_appears_with_the_first_message(store: Store, reopened: Reopened) -> None:
    begun = store.begin(source="cli")
    store.append(begun, user("hello"))
    assert [session.id for session in reopened().recent()] == [begun.id]


def test_appending_no_message_writes_no_session(store: Store) -> None:
    assert store.append(store.begin()) == []
    assert store.stats().sessions == 0


def test_a_refused_first_message_leaves_no_empty_session(store: Store) -> None:
    with pytest.raises(InvalidInput):
        store.append(store.begin(), user("fine"), user("not", platform_message_id=""))
    assert store.stats().sessions == 0


def test_everything_a_session_is_begun_with_comes_back(
    store: Store, clock: Clock, reopened: Reopened
) -> None:
    begun = store.begin(
        id="s1",
        source="telegram",
        owner="ada",
        user="Ada L.",
        model="gpt-5",
        model_config={"temperature": 0.5, "tools": ["bash"], "nested": {"é": None}},
        title="Plan",
        parent="elsewhere",
        cwd="/home/ada/ü",
        git_branch="main",
        template="review",
        arm="warm",
        started=clock.now - 60,
    )
    store.append(begun, user("hello"))
    assert reopened().session("s1") == Session(
        id="s1",
        source="telegram",
        owner="ada",
        user="Ada L.",
        model="gpt-5",
        model_config={"temperature": 0.5, "tools": ["bash"], "nested": {"é": None}},
        title="Plan",
        parent="elsewhere",
        cwd="/home/ada/ü",
        git_branch="main",
        template="review",
        arm="warm",
        started=clock.now - 60,
        last_active=clock.now,
        message_count=1,
        preview="hello",
        last_request="hello",
    )


def test_counts_follow_messages_and_tool_calls(store: Store) -> None:
    session = store.begin()
    store.append(session, user("list"), call("ls"), result("a"))
    store.append(session.id, call("cat", id="call_2"), answer("done"))
    counted = store.session(session.id)
    assert (counted.message_count, counted.tool_call_count) == (5, 2)


def test_last_activity_is_the_time_of_the_newest_message(store: Store, clock: Clock) -> None:
    session = started(store)
    clock.forward(100)
    store.append(session, user("more"))
    assert store.session(session.id).last_active == clock.now
    assert store.session(session.id).started == clock.now - 100


def test_last_activity_does_not_go_back_with_the_clock(store: Store, clock: Clock) -> None:
    session = started(store)
    before = clock.now
    clock.forward(-5000)
    store.append(session, user("more"))
    assert store.session(session.id).last_active == before


def test_the_preview_is_how_the_first_user_message_begins(store: Store) -> None:
    session = store.begin()
    store.append(session, answer("Welcome"))
    assert store.session(session.id).preview is None
    store.append(session, user("  please\n\nfix " + "x" * 500))
    store.append(session, user("another"))
    preview = store.session(session.id).preview
    assert preview is not None
    assert preview.startswith("please fix xxx")
    assert preview.endswith("…")
    assert len(preview) == 300


def test_the_first_end_reason_wins(store: Store, clock: Clock) -> None:
    session = started(store)
    assert store.session(session.id).ended is None
    clock.forward(10)
    assert store.end(session, "done").end_reason == "done"
    clock.forward(10)
    again = store.end(session, "crash")
    assert (again.end_reason, again.ended) == ("done", clock.now - 10)
    assert store.session(session.id) == again


def test_a_reopened_session_can_be_ended_with_another_reason(store: Store, clock: Clock) -> None:
    session = started(store)
    store.end(session, "done")
    reopened = store.reopen(session)
    assert (reopened.ended, reopened.end_reason) == (None, None)
    assert store.end(session, "timeout").end_reason == "timeout"


def test_an_ended_session_still_takes_messages(store: Store) -> None:
    session = started(store, "one")
    store.end(session, "done")
    store.append(session, user("late delivery"))
    assert texts(store, session) == ["one", "late delivery"]
    assert store.session(session.id).end_reason == "done"


def test_ending_a_session_without_a_message_leaves_no_row(store: Store) -> None:
    begun = store.begin()
    assert store.end(begun, "done").id == begun.id
    assert store.stats().sessions == 0


def test_tokens_and_cost_are_counted_exactly(store: Store, reopened: Reopened) -> None:
    session = started(store)
    for _ in range(10):
        store.add_usage(session, Tokens(1000, 200, 30, 4, 5), Decimal("0.1"))
    counted = store.add_usage(session, Tokens(output=1), Decimal("0.000000001"))
    assert counted.tokens == Tokens(10_000, 2001, 300, 40, 50)
    assert counted.cost == Decimal("1.000000001")
    assert counted.tokens.total == 12_001
    assert reopened().session(session.id) == counted


def test_token_counts_beyond_four_bytes_are_kept(store: Store) -> None:
    session = started(store)
    store.add_usage(session, Tokens(input=3_000_000_000), Decimal("123456.789"))
    counted = store.add_usage(session, Tokens(input=3_000_000_000))
    assert counted.tokens.input == 6_000_000_000
    assert counted.cost == Decimal("123456.789")


def test_what_may_change_can_be_changed_and_taken_away(store: Store) -> None:
    session = started(store, model="a", cwd="/x")
    changed = store.update(
        session, model="b", model_config={"n": 1}, user="Ada", git_branch="dev", cwd=None
    )
    assert (changed.model, changed.model_config, changed.user) == ("b", {"n": 1}, "Ada")
    assert (changed.git_branch, changed.cwd) == ("dev", None)
    assert store.session(session.id) == changed


def test_what_may_not_change_is_refused_by_name(store: Store) -> None:
    session = started(store)
    with pytest.raises(InvalidInput, match="owner cannot be changed; allowed: user, model"):
        store.update(session, owner="eve")
    assert store.session(session.id) == session


def test_an_unknown_session_is_not_found_by_any_call(store: Store) -> None:
    attempts: list[Callable[[], object]] = [
        lambda: store.session("nobody"),
        lambda: store.messages("nobody"),
        lambda: store.append("nobody", user("hello")),
        lambda: store.end("nobody", "done"),
        lambda: store.reopen("nobody"),
        lambda: store.rename("nobody", "x"),
        lambda: store.update("nobody", model="x"),
        lambda: store.add_usage("nobody", Tokens(1)),
        lambda: store.fork("nobody"),
        lambda: store.compress("nobody", user("x")),
        lambda: store.lineage("nobody"),
        lambda: store.find_tip("nobody"),
        lambda: store.undo("nobody"),
        lambda: store.retry("nobody"),
        lambda: store.rewrite("nobody", user("x")),
        lambda: store.redo("nobody"),
        lambda: store.rewinds("nobody"),
        lambda: store.restore("nobody"),
        lambda: store.search("x", session="nobody"),
    ]
    for attempt in attempts:
        with pytest.raises(NotFound, match="nobody"):
            attempt()
    assert store.stats().sessions == 0


def test_beginning_a_session_that_exists_goes_on_with_it(store: Store, reopened: Reopened) -> None:
    started(store, "one", id="chat", title="Plan")
    other = reopened()
    begun = other.begin(id="chat")
    assert texts(other, "chat") == ["one"]
    assert other.session("chat").title == "Plan"
    other.append(begun, user("two"))
    assert texts(store, "chat") == ["one", "two"]
    assert store.session("chat").title == "Plan"


def test_a_session_that_was_begun_again_can_be_ended(store: Store, reopened: Reopened) -> None:
    started(store, "one", id="chat")
    other = reopened()
    other.begin(id="chat")
    assert other.end("chat", "done").end_reason == "done"
    assert store.session("chat").end_reason == "done"


def test_a_name_that_no_index_holds_is_refused_with_its_field(store: Store) -> None:
    for field in ("id", "source", "owner", "parent"):
        for value in ("", "x" * 513, 7, b"bytes"):
            with pytest.raises(InvalidInput, match=rf"session\.{field}: expected 1 to 512"):
                store.begin(**{field: value})  # pyright: ignore


def test_a_session_field_of_the_wrong_type_is_refused_with_its_name(store: Store) -> None:
    for field in ("user", "model", "title", "cwd", "git_branch", "template", "arm"):
        with pytest.raises(InvalidInput, match=rf"session\.{field}: expected text, got int"):
            store.append(store.begin(**{field: 7}), user("hello"))  # pyright: ignore
    assert store.stats().sessions == 0


def test_an_update_of_the_wrong_type_is_refused_with_its_name(store: Store) -> None:
    session = started(store)
    for field in ("user", "model", "cwd", "git_branch", "template", "arm"):
        with pytest.raises(InvalidInput, match=rf"session\.{field}: expected text, got int"):
            store.update(session, **{field: 7})
    assert store.session(session.id) == session


def test_a_title_of_the_wrong_type_is_refused(store: Store) -> None:
    session = started(store)
    with pytest.raises(InvalidInput, match="title"):
        store.rename(session, 7)  # pyright: ignore
    assert store.session(session.id).title is None


def test_ten_thousand_begun_sessions_can_still_all_be_written(store: Store) -> None:
    begun = [store.begin(id=f"b{number}") for number in range(10_050)]
    store.append(begun[0], *turns("the first"))
    store.append(begun[-1], *turns("the last"))
    assert {session.id for session in store.recent()} == {"b0", "b10049"}
