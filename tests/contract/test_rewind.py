from __future__ import annotations

import pytest

from rekindle import Message, Store
from rekindle.errors import InvalidInput, NotFound
from tests.conftest import Clock
from tests.contract.messages import answer, call, found, result, started, texts, turns, user


def talked(store: Store, *questions: str) -> str:
    session = store.begin()
    store.append(session, *turns(*questions))
    return session.id


def test_undo_takes_out_the_last_user_message_and_all_that_followed(store: Store) -> None:
    session = store.begin()
    store.append(session, *turns("a"), user("b"), call("ls"), result("x"), answer("b!"))
    undone = store.undo(session)
    assert (undone.kind, undone.since, undone.messages, undone.restored) == ("undo", 2, 4, None)
    assert undone.session == session.id
    assert texts(store, session) == ["a", "a!"]
    counted = store.session(session.id)
    assert (counted.message_count, counted.tool_call_count) == (2, 0)


def test_undo_takes_out_several_turns(store: Store) -> None:
    session = talked(store, "a", "b", "c")
    store.undo(session, turns=2)
    assert texts(store, session) == ["a", "a!"]


def test_undoing_more_turns_than_there_are_undoes_all_of_them(store: Store) -> None:
    session = store.begin()
    store.append(session, answer("welcome"), *turns("a", "b"))
    assert store.undo(session, turns=50).messages == 4
    assert texts(store, session) == ["welcome"]


def test_undoing_without_a_turn_is_refused(store: Store) -> None:
    session = store.begin()
    store.append(session, answer("welcome"))
    with pytest.raises(InvalidInput, match="no turn to undo"):
        store.undo(session)
    with pytest.raises(InvalidInput, match="turns: expected 1 or more, got 0"):
        store.undo(session, turns=0)
    assert texts(store, session) == ["welcome"]
    assert store.rewinds(session) == []


def test_what_was_undone_can_be_read_on_request(store: Store) -> None:
    session = talked(store, "a", "b")
    store.undo(session)
    shown = store.messages(session, rewound=True)
    assert [message.content for message in shown] == ["a", "a!", "b", "b!"]
    assert [message.rewound for message in shown] == [False, False, True, True]


def test_a_position_is_never_given_twice(store: Store) -> None:
    session = talked(store, "a", "b")
    store.undo(session)
    assert store.append(session, user("c")) == [4]
    assert texts(store, session) == ["a", "a!", "c"]


def test_redo_brings_back_what_undo_took_out(store: Store, clock: Clock) -> None:
    session = talked(store, "a", "b")
    before = store.session(session)
    undone = store.undo(session)
    clock.forward(3)
    redone = store.redo(session)
    assert (redone.id, redone.restored) == (undone.id, clock.now)
    assert texts(store, session) == ["a", "a!", "b", "b!"]
    assert store.session(session) == before


def test_undone_turns_come_back_one_by_one(store: Store) -> None:
    session = talked(store, "a", "b", "c")
    store.undo(session)
    store.undo(session)
    assert texts(store, session) == ["a", "a!"]
    store.redo(session)
    assert texts(store, session) == ["a", "a!", "b", "b!"]
    store.redo(session)
    assert texts(store, session) == ["a", "a!", "b", "b!", "c", "c!"]
    with pytest.raises(NotFound, match="nothing to redo"):
        store.redo(session)


def test_redo_takes_the_place_of_what_was_said_since_and_toggles(store: Store) -> None:
    session = talked(store, "a", "b")
    store.undo(session)
    store.append(session, *turns("c"))
    for _ in range(2):
        store.redo(session)
        assert texts(store, session) == ["a", "a!", "b", "b!"]
        store.redo(session)
        assert texts(store, session) == ["a", "a!", "c", "c!"]
    assert store.session(session).message_count == 4
    assert store.verify() == []


def test_a_certain_rewind_can_be_brought_back(store: Store) -> None:
    session = talked(store, "a")
    first = store.undo(session)
    store.append(session, *turns("b"))
    second = store.undo(session)
    store.append(session, *turns("c"))
    store.redo(session, first.id)
    assert texts(store, session) == ["a", "a!"]
    store.redo(session, second.id)
    assert texts(store, session) == ["a", "a!", "b", "b!"]
    with pytest.raises(NotFound):
        store.redo(session, second.id)
    with pytest.raises(NotFound):
        store.redo(session, 10**9)


def test_a_rewind_of_another_session_is_not_brought_back(store: Store) -> None:
    one, two = talked(store, "a"), talked(store, "b")
    undone = store.undo(one)
    with pytest.raises(NotFound):
        store.redo(two, undone.id)
    assert (texts(store, one), texts(store, two)) == ([], ["b", "b!"])


def test_retry_takes_out_the_answer_and_returns_the_question(store: Store) -> None:
    session = store.begin()
    store.append(session, *turns("a"), user("b"), call("ls"), result("x"))
    asked = store.retry(session)
    assert (asked, asked.position) == (user("b"), 2)
    assert texts(store, session) == ["a", "a!", "b"]
    store.append(session, answer("better"))
    store.redo(session)
    assert texts(store, session) == ["a", "a!", "b", None, "x"]


def test_retry_before_any_answer_only_returns_the_question(store: Store) -> None:
    session = started(store, "a")
    assert store.retry(session) == user("a")
    assert texts(store, session) == ["a"]
    assert store.rewinds(session) == []
    silent = store.begin()
    store.append(silent, answer("welcome"))
    with pytest.raises(InvalidInput, match="no user message to retry"):
        store.retry(silent)


def test_the_last_message_is_removed_and_comes_back(store: Store) -> None:
    session = store.begin()
    store.append(session, Message("user", "one"), Message("assistant", "two"))
    removed = store.remove_last(session)
    assert removed == Message("assistant", "two")
    assert [each.text for each in store.messages(session)] == ["one"]
    assert store.session(session.id).message_count == 1
    store.redo(session)
    assert [each.text for each in store.messages(session)] == ["one", "two"]
    store.remove_last(session)
    store.remove_last(session)
    assert store.remove_last(session) is None


def test_rewrite_puts_messages_in_place_of_the_conversation(store: Store) -> None:
    session = talked(store, "a", "b")
    rewritten = store.rewrite(session, user("summary"), answer("ok"))
    assert rewritten is not None
    assert (rewritten.kind, rewritten.since, rewritten.messages) == ("rewrite", 0, 4)
    assert texts(store, session) == ["summary", "ok"]
    assert store.session(session).message_count == 2
    store.redo(session)
    assert texts(store, session) == ["a", "a!", "b", "b!"]
    store.redo(session)
    assert texts(store, session) == ["summary", "ok"]


def test_rewriting_to_nothing_empties_the_conversation(store: Store) -> None:
    session = talked(store, "a")
    store.rewrite(session)
    assert texts(store, session) == []
    assert store.rewrite(session, user("fresh")) is None
    assert texts(store, session) == ["fresh"]


def test_a_refused_rewrite_changes_nothing(store: Store) -> None:
    session = talked(store, "a")
    with pytest.raises(InvalidInput):
        store.rewrite(session, user("fine"), user("not", platform_message_id=""))
    assert texts(store, session) == ["a", "a!"]
    assert store.rewinds(session) == []


def test_a_rewrite_keeps_the_messages_of_a_platform_that_it_names_again(store: Store) -> None:
    session = store.begin()
    old, kept = user("old", platform_message_id="1"), user("kept", platform_message_id="2")
    store.append(session, old, answer("x"), kept)
    store.rewrite(session, user("summary"), kept)
    assert store.messages(session) == [user("summary"), kept]
    assert store.append(session, old) == [0]
    assert store.append(session, kept) == [store.messages(session)[-1].position]
    assert store.messages(session) == [user("summary"), kept]
    store.redo(session)
    assert store.messages(session) == [old, answer("x"), kept]
    assert store.append(session, kept) == [2]
    assert store.verify() == []


def test_rewinds_are_remembered_in_order(store: Store, clock: Clock) -> None:
    session = talked(store, "a", "b")
    times = []
    for act in (store.undo, store.retry, store.rewrite, store.redo):
        clock.forward(1)
        times.append(clock.now)
        act(session)
    kinds = [(rewind.kind, rewind.since, rewind.messages) for rewind in store.rewinds(session)]
    assert kinds == [("undo", 2, 2), ("retry", 1, 1), ("rewrite", 0, 1)]
    assert [rewind.time for rewind in store.rewinds(session)] == times[:3]
    assert [rewind.restored for rewind in store.rewinds(session)] == [None, None, times[3]]
    assert store.rewinds(talked(store, "c")) == []


def test_what_was_rewound_is_found_on_request_only(store: Store) -> None:
    session = talked(store, "apples", "pears")
    store.undo(session)
    assert found(store, "pears") == []
    assert found(store, "pears", rewound=True) == ["pears", "pears!"]
    assert all(hit.message.rewound for hit in store.search("pears", rewound=True))
    assert found(store, "apples") == ["apples", "apples!"]
    store.redo(session)
    assert found(store, "pears") == ["pears", "pears!"]


def test_a_rewind_is_seen_by_other_sessions_of_the_store_only_as_their_own(store: Store) -> None:
    one, two = talked(store, "a", "b"), talked(store, "a", "b")
    store.undo(one)
    assert texts(store, two) == ["a", "a!", "b", "b!"]
    assert store.session(two).message_count == 4
