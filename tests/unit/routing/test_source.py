"""A source: through JSON and back, and in words."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.errors import InvalidInput
from rekindle.routing.source import CHAT_TYPES, describe_source, from_json, to_json
from rekindle.types import Source
from tests.unit.routing.hypothesis_settings import unhurried

ANY_TEXT = st.text(st.characters(codec=None))  # halves of surrogate pairs too
SOURCES = st.builds(
    Source,
    platform=ANY_TEXT.filter(bool),
    chat_id=ANY_TEXT.filter(bool),
    chat_name=st.none() | ANY_TEXT,
    chat_type=st.sampled_from(CHAT_TYPES),
    user_id=st.none() | ANY_TEXT,
    user_name=st.none() | ANY_TEXT,
    thread_id=st.none() | ANY_TEXT,
    chat_topic=st.none() | ANY_TEXT,
)


@unhurried
@given(SOURCES)
def test_a_source_comes_back_from_json_as_it_went(source: Source) -> None:
    assert from_json(json.loads(json.dumps(to_json(source)))) == source


def test_json_holds_only_the_fields_that_say_something() -> None:
    assert to_json(Source("telegram", "5", user_name="Ada")) == {
        "platform": "telegram",
        "chat_id": "5",
        "chat_type": "dm",
        "user_name": "Ada",
    }


def test_unknown_platforms_and_fields_are_taken_and_numbers_become_ids() -> None:
    read = from_json(
        {"platform": "carrier-pigeon", "chat_id": -100, "user_id": 7, "loft": [1], "thread_id": 0}
    )
    assert read == Source("carrier-pigeon", "-100", user_id="7", thread_id="0")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (["telegram"], "source: expected an object, got list"),
        (None, "source: expected an object, got NoneType"),
        ({"chat_id": "5"}, "source.platform: missing; expected text"),
        ({"platform": "telegram"}, "source.chat_id: missing; expected text"),
        ({"platform": "telegram", "chat_id": ""}, "source.chat_id: missing; expected text"),
        ({"platform": 1.5, "chat_id": "5"}, "source.platform: expected text, got float"),
        ({"platform": "x", "chat_id": "5", "user_id": True}, "source.user_id: expected text"),
        ({"platform": "x", "chat_id": "5", "chat_name": {}}, "source.chat_name: expected text"),
        (
            {"platform": "x", "chat_id": "5", "chat_type": "forum"},
            "source.chat_type: 'forum' is not one of dm, group, channel, thread",
        ),
    ],
)
def test_what_is_no_source_is_refused_with_its_field(value: object, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        from_json(value)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (Source("local", "terminal"), "CLI terminal"),
        (Source("local", "terminal", user_name="ada"), "CLI terminal"),
        (Source("telegram", "5", user_name="Ada", user_id="7"), "DM with Ada"),
        (Source("telegram", "5", user_id="7"), "DM with 7"),
        (Source("telegram", "5", "Ada's chat"), "DM with Ada's chat"),
        (Source("telegram", "5"), "DM with 5"),
        (Source("slack", "D1", user_name="Ada", thread_id="9.1"), "DM with Ada, thread: 9.1"),
        (Source("telegram", "-1", "Ops", "group", thread_id="42"), "group: Ops, thread: 42"),
        (Source("telegram", "-1", chat_type="group"), "group: -1"),
        (Source("discord", "3", "general", "channel", user_name="Bo"), "channel: general"),
        (Source("discord", "3", "Bug 7", "thread", thread_id="3"), "thread: Bug 7"),
        (Source("discord", "3", "Bug 7", "thread", thread_id="4"), "thread: Bug 7, thread: 4"),
        (Source("x", "1", "\u200b\n", "group"), "group: 1"),
        (Source("x", "1", user_name="A\x1b[31m\nda\u202e"), "DM with A(31m da"),
    ],
)
def test_a_source_says_in_words_where_it_is(source: Source, words: str) -> None:
    assert describe_source(source) == words


@unhurried
@given(SOURCES)
def test_a_description_is_one_printable_line(source: Source) -> None:
    words = describe_source(source)
    assert len(words.splitlines()) == 1
    assert words.isprintable()
