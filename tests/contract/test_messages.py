from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rekindle import Message, Store, ToolCall
from rekindle.errors import InvalidInput, NotFound
from rekindle.types import make_foreign_message
from tests.conftest import Clock
from tests.contract.messages import answer, call, started, texts, user

Reopened = Callable[[], Store]

EVERY_SHAPE = [
    Message(role="system", content="Be brief."),
    user("plain"),
    user(""),
    Message(role="user"),
    user("named", name="ada"),
    Message(role="user", content=[{"type": "text", "text": "look"}, {"type": "image", "url": "x"}]),
    Message(role="user", content=[]),
    Message(
        role="assistant",
        tool_calls=(
            ToolCall("1", "read_file", '{"path": "a"}'),
            ToolCall("2", "now"),
            ToolCall("3", "given", {"path": "a", "deep": [1, 2.5, None, True, {"é": "ü"}]}),
        ),
        reasoning="I need the file",
        finish_reason="tool_calls",
    ),
    Message(role="tool", content="file text", tool_call_id="1", name="read_file"),
    Message(role="tool", content="", tool_call_id="2", meta={"is_error": True, "code": -1}),
    answer("done", finish_reason="stop", reasoning="", meta={}),
    Message(role="developer", content="an unusual role"),
    user("from a chat", platform_message_id="tg:42"),
    user("many\nlines\r\n\ttabs  and 日本語 🎉 é"),
    user("x" * 1_000_000),
    answer("numbers", meta={"big": 2**70, "float": 0.1, "tiny": 5e-324}),
]


def test_every_shape_of_message_comes_back_equal(store: Store, reopened: Reopened) -> None:
    session = store.begin()
    store.append(session, *EVERY_SHAPE)
    assert store.messages(session) == EVERY_SHAPE
    assert reopened().messages(session.id) == EVERY_SHAPE


def test_positions_are_given_in_the_order_of_appending(store: Store) -> None:
    session = store.begin()
    assert store.append(session, user("a"), user("b")) == [0, 1]
    assert store.append(session.id, user("c")) == [2]
    assert [message.position for message in store.messages(session)] == [0, 1, 2]


def test_a_session_whose_first_message_was_rolled_back_never_writes_to_another(
    store: Store,
) -> None:
    one, two = store.begin(), store.begin()

    def fail() -> None:
        store.append(one, user("never"))
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        store.transaction(lambda: store.transaction(fail))
    store.append(two, user("for two"))
    assert store.append(one.id, user("for one")) == [0]
    assert [texts(store, session) for session in (one, two)] == [["for one"], ["for two"]]


def test_positions_of_one_session_do_not_depend_on_another(store: Store) -> None:
    one, two = store.begin(), store.begin()
    assert store.append(one, user("a")) == [0]
    assert store.append(two, user("b"), user("c")) == [0, 1]
    assert store.append(one, user("d")) == [1]
    assert (texts(store, one), texts(store, two)) == (["a", "d"], ["b", "c"])


def test_order_is_the_position_even_when_timestamps_go_backwards(
    store: Store, clock: Clock
) -> None:
    session = store.begin()
    store.append(session, user("first", timestamp=3000.0), user("second", timestamp=2000.0))
    clock.forward(-100_000)
    store.append(session, user("third"))
    store.append(session, user("fourth", timestamp=1000.0))
    assert texts(store, session) == ["first", "second", "third", "fourth"]


def test_a_message_without_a_timestamp_gets_the_clocks(store: Store, clock: Clock) -> None:
    session = store.begin()
    store.append(session, user("now"), user("then", timestamp=12.5))
    assert [message.timestamp for message in store.messages(session)] == [clock.now, 12.5]


def test_the_stores_knowledge_takes_no_part_in_equality() -> None:
    assert user("a", timestamp=1.0, position=3) == user("a")
    assert user("a") != user("b")
    assert (user("a") != user("a")) is False
    assert user("a") != answer("a")
    assert user("a", platform_message_id="1") != user("a")


def test_messages_can_be_read_from_behind_a_position(store: Store) -> None:
    session = started(store, *"abcdef")
    assert texts(store, session, after=2) == ["d", "e", "f"]
    assert texts(store, session, after=0, limit=2) == ["b", "c"]
    assert texts(store, session, last=2) == ["e", "f"]
    assert texts(store, session, last=0) == []
    assert texts(store, session, last=100) == texts(store, session)
    assert texts(store, session, limit=3) == ["a", "b", "c"]
    assert texts(store, session, after=5) == []
    assert texts(store, session, after=500) == []
    assert texts(store, session, limit=0) == []


@pytest.mark.parametrize("after", [-1, -5, -(1 << 32), -(1 << 32) - 1, 1 << 32, (1 << 32) + 1])
def test_reading_one_session_never_shows_another(store: Store, after: int) -> None:
    for name in "abc":
        started(store, f"{name} 0", f"{name} 1", f"{name} 2", id=name)
    try:
        shown = texts(store, "b", after=after)
    except InvalidInput:
        return
    assert shown == (["b 0", "b 1", "b 2"] if after < 0 else [])


def test_a_negative_limit_is_refused(store: Store) -> None:
    session = started(store, "a")
    with pytest.raises(InvalidInput, match="limit"):
        store.messages(session, limit=-1)


# -- platform ids


def test_a_platform_id_is_stored_once_in_one_call(store: Store) -> None:
    session = store.begin()
    twice = user("hello", platform_message_id="m1")
    assert store.append(session, twice, user("between"), twice) == [0, 1, 0]
    assert texts(store, session) == ["hello", "between"]
    assert store.session(session.id).message_count == 2


def test_a_platform_id_that_comes_again_gets_its_old_position(store: Store) -> None:
    session = store.begin()
    store.append(session, user("hello", platform_message_id="m1"), user("x"))
    assert store.append(session, user("hello", platform_message_id="m1")) == [0]
    assert store.append(
        session, user("new", platform_message_id="m2"), user("hello", platform_message_id="m1")
    ) == [2, 0]
    assert texts(store, session) == ["hello", "x", "new"]
    assert store.session(session.id).message_count == 3


def test_a_platform_id_that_comes_through_another_store_gets_its_old_position(
    store: Store, reopened: Reopened
) -> None:
    session = store.begin()
    store.append(session, user("x"), user("hello", platform_message_id="m1"))
    assert reopened().append(session.id, user("hello", platform_message_id="m1")) == [1]
    assert texts(store, session) == ["x", "hello"]


def test_a_platform_id_that_was_rewound_stays_rewound(store: Store) -> None:
    session = store.begin()
    store.append(session, user("x"), user("hello", platform_message_id="m1"))
    store.undo(session)
    assert store.append(session, user("hello", platform_message_id="m1")) == [1]
    assert texts(store, session) == ["x"]


def test_the_same_platform_id_in_two_sessions_is_two_messages(store: Store) -> None:
    one, two = store.begin(), store.begin()
    assert store.append(one, user("x"), user("hello", platform_message_id="m1")) == [0, 1]
    assert store.append(two, user("hello", platform_message_id="m1")) == [0]
    assert texts(store, two) == ["hello"]


def test_a_message_without_a_platform_id_is_stored_as_often_as_it_comes(store: Store) -> None:
    session, same = store.begin(), user("ok")
    assert store.append(session, same, same) == [0, 1]
    assert store.append(session, same) == [2]
    assert texts(store, session) == ["ok"] * 3


def test_positions_are_right_when_repeats_and_twins_mix(store: Store) -> None:
    session, same, twin = store.begin(), user("ok"), user("hi", platform_message_id="m1")
    assert store.append(session, same, same, twin, twin) == [0, 1, 2, 2]


def test_a_repeated_delivery_does_not_change_counts_or_activity(store: Store, clock: Clock) -> None:
    session = store.begin()
    said = Message(role="assistant", tool_calls=(ToolCall("1", "ls"),), platform_message_id="m1")
    store.append(session, said)
    before = store.session(session.id)
    clock.forward(50)
    store.append(session, said)
    assert store.session(session.id) == before


# -- what is refused


REFUSED: list[tuple[str, Any]] = [
    ("role", ""),
    ("role", 7),
    ("role", "x" * 65),
    ("content", 7),
    ("content", b"bytes"),
    ("tool_call_id", 7),
    ("name", 7),
    ("reasoning", ["x"]),
    ("finish_reason", 7),
    ("platform_message_id", 7),
    ("platform_message_id", ""),
    ("platform_message_id", "x" * 513),
    ("tool_calls", ("ls",)),
]
NOT_TO_BE_SAID_IN_JSON: list[tuple[str, Any]] = [
    ("tool_calls", (ToolCall(id=7, name="ls"),)),  # pyright: ignore
    ("tool_calls", (ToolCall(id="1", name=None),)),  # pyright: ignore
    ("tool_calls", (ToolCall(id="1", name="ls", arguments=[1]),)),  # pyright: ignore
    ("meta", "text"),
    ("meta", {"object": object()}),
    ("timestamp", "yesterday"),
    ("timestamp", float("nan")),
    ("content", [object()]),
    ("content", ["text"]),
    ("content", [{"data": b"bytes"}]),
    ("content", [{"number": float("nan")}]),
]


def _not_refused(store: Store, cases: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The cases that are taken, or refused without the name of their field."""
    taken: list[tuple[str, Any]] = []
    for field, value in cases:
        fields = {"role": "user", "content": "x"} | {field: value}
        try:
            store.append(store.begin(), user("fine"), make_foreign_message(**fields))
        except InvalidInput as error:
            if f"message.{field}" in str(error):
                continue
        except Exception:  # noqa: BLE001  any other error is what this looks for
            pass
        taken.append((field, value))
    return taken


def test_a_field_of_the_wrong_type_is_refused_with_its_name(store: Store) -> None:
    assert _not_refused(store, REFUSED) == []
    assert store.stats().sessions == 0


def test_a_message_that_could_not_come_back_equal_is_refused_with_its_field(store: Store) -> None:
    assert _not_refused(store, NOT_TO_BE_SAID_IN_JSON) == []
    assert store.stats().sessions == 0


def test_something_that_is_no_message_is_refused(store: Store) -> None:
    session = store.begin()
    for wrong in ("text", 7, None, ("user", "x"), [user("x")]):
        with pytest.raises(InvalidInput, match=f"expected a Message .*{type(wrong).__name__}"):
            store.append(session, wrong)  # pyright: ignore
    with pytest.raises(InvalidInput, match=r"message\.role"):
        store.append(session, {"content": "x"})
    with pytest.raises(NotFound):
        store.append(session.id + "?", user("x"))


def test_a_message_in_openais_format_is_stored_like_any_other(store: Store) -> None:
    session, call = store.begin(), {"name": "ls", "arguments": "{}"}
    asked = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": call}]}
    given = [user("look"), asked, {"role": "tool", "content": "a.py", "tool_call_id": "1"}]
    expected = [
        user("look"),
        Message("assistant", tool_calls=[ToolCall("1", "ls", "{}")]),
        Message("tool", "a.py", tool_call_id="1"),
    ]
    assert store.append(session, *given) == [0, 1, 2]
    assert store.submit_append(session, given[0]).result(30) == [3]
    assert store.submit_append(session).result(30) == []
    assert store.messages(session) == [*expected, user("look")]
    store.rewrite(session, *given)
    assert store.messages(session) == expected
    assert store.messages(store.compress(session, *given)) == expected


def test_parts_given_as_a_tuple_come_back_equal(store: Store) -> None:
    session = store.begin()
    said = Message(role="user", content=({"type": "text", "text": "a"},))
    store.append(session, said)
    assert store.messages(session) == [said]


def test_calls_given_as_a_list_come_back_equal(store: Store) -> None:
    session = store.begin()
    said = Message(role="assistant", tool_calls=[ToolCall("1", "ls")])  # pyright: ignore
    store.append(session, said)
    assert store.messages(session) == [said]
    assert store.messages(session) == [call("ls", "", id="1")]


def test_one_append_is_all_or_nothing(store: Store) -> None:
    session = started(store, "a")
    with pytest.raises(InvalidInput):
        store.append(session, user("b"), Message(role="user", content=7))  # pyright: ignore
    assert texts(store, session) == ["a"]
    assert store.session(session.id).message_count == 1


def test_a_session_of_any_length_is_read_whole_by_its_writer(store: Store) -> None:
    session = store.begin()
    store.append(session, *(Message("user", f"m{n}") for n in range(255)))
    for count in (255, 256, 257, 300):
        missing = count - len(store.messages(session))
        store.append(session, *(Message("user", "more") for _ in range(missing)))
        assert [one.position for one in store.messages(session)] == [*range(count)]
        for most in (1, 255, 256, 257, 400):
            wanted = [*range(count)]
            first, last = store.messages(session, limit=most), store.messages(session, last=most)
            assert [one.position for one in first] == wanted[:most]
            assert [one.position for one in last] == wanted[-most:]
    assert [one.position for one in store.messages(session, after=40, limit=2)] == [41, 42]
