from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle import Message, ToolCall
from rekindle.errors import StoreDamaged
from rekindle.store.core.rows import (
    decode_json,
    encode_json,
    get_row_search_text,
    get_search_text,
    load_fast_encoder,
    message_to_row,
    row_to_message,
    to_nano,
)
from rekindle.store.core.text_encoding import ESCAPE, is_storable
from rekindle.types import make_foreign_message

TEXT = st.text(st.characters(categories=None, codec=None), max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
OBJECT = st.dictionaries(TEXT, JSON, max_size=3)
MAYBE = st.none() | TEXT
MESSAGES = st.builds(
    make_foreign_message,
    role=TEXT.filter(bool),
    content=st.none() | TEXT | st.lists(OBJECT, max_size=2),
    tool_calls=st.lists(st.builds(ToolCall, TEXT, TEXT, TEXT | OBJECT), max_size=2).map(tuple),
    tool_call_id=MAYBE,
    name=MAYBE,
    reasoning=MAYBE,
    finish_reason=MAYBE,
    platform_message_id=MAYBE,
    meta=st.none() | OBJECT,
)


def read_back(message: Message) -> Message:
    """Through a row and out again; the columns are those a database would give."""
    row = message_to_row(message, 7, 3, 12.5, None)
    _, position, role, time, _, _, answers, platform_id, _, body, content = row
    return row_to_message((position, role, time, None, answers, platform_id, body, content))


@given(message=MESSAGES)
def test_a_message_comes_back_from_its_row(message: Message) -> None:
    back = read_back(message)
    assert back == message
    assert (back.position, back.timestamp, back.rewound) == (3, 12.5, False)


@given(message=MESSAGES)
def test_a_row_can_be_held_by_every_engine(message: Message) -> None:
    for value in message_to_row(message, 7, 3, 12.5, None):
        assert not isinstance(value, str) or is_storable(value) or "\U0010fffe" in value
        if isinstance(value, str):
            assert "\0" not in value
            assert value.encode().decode() == value


@given(message=MESSAGES)
def test_every_message_can_be_indexed(message: Message) -> None:
    row = message_to_row(message, 7, 3, 12.5, None)
    text = get_row_search_text(row[-1], row[-2])
    assert isinstance(message.content, list) or (message.content or "") in text
    assert all(call.name in text for call in message.tool_calls)
    assert (message.reasoning or "") in text


@given(value=JSON)
def test_json_comes_back(value: object) -> None:
    held = encode_json(value)
    assert decode_json(held) == value
    assert held.encode().decode() == held


def test_a_body_that_is_damaged_is_named_and_does_not_stop_the_index() -> None:
    for body in ("{broken", "[]", "7", ""):
        with pytest.raises(StoreDamaged, match="position 4"):
            row_to_message((4, "user", 1.0, None, None, None, body, "text"))
        assert get_row_search_text("text", body) == "text"


@given(cost=st.decimals(0, 1_000_000, places=9))
def test_cost_is_kept_to_the_billionth(cost: Decimal) -> None:
    assert Decimal(to_nano(cost)) / 1_000_000_000 == cost


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('{"path": "a.py", "text": ""}', "a.py\n"),
        (' {"path": "a.py"}\n', "a.py"),
        ('{"path": "a.py", "lines": [1, {"to": "b"}]}', "a.py\n1\nb"),
        ('{"path": "a.py"} and more', '{"path": "a.py"} and more'),
        ('["x", null, true]', "x\nTrue"),
        ({"path": "a.py", "depth": 2}, "a.py\n2"),
    ],
)
def test_the_values_of_a_call_are_found_and_not_the_json_around_them(
    arguments: str | dict[str, object], words: str
) -> None:
    call = ToolCall("c1", "edit", arguments)
    assert get_search_text(Message("assistant", None, (call,))) == f"edit\n{words}"


@given(OBJECT)
def test_the_fast_encoder_stores_what_the_ordinary_one_stores(value: object):
    stored = load_fast_encoder()(value)
    assert is_storable(stored.replace(ESCAPE, ""))
    assert decode_json(stored) == value == decode_json(encode_json(value))


@pytest.mark.parametrize(
    "value", [{"infinite": float("inf")}, {"escape": ESCAPE}, {"cut": "\ud83d"}]
)
def test_the_fast_encoder_leaves_rare_values_to_the_ordinary_one(value: object):
    assert load_fast_encoder()(value) == encode_json(value)
