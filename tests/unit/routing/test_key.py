"""Keys: one form for each case, never one key for two conversations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.errors import InvalidInput
from rekindle.routing.key import (
    KeyParts,
    build_key,
    build_key_parts,
    describe_key,
    get_key_rule,
    join_key,
    parse_key,
)
from rekindle.types import MAX_NAME_CHARS, KeyRule, Overridable, Source
from tests.unit.routing.hypothesis_settings import unhurried
from tests.unit.routing.test_source import SOURCES

# Few letters, those that could confuse, so that different sources come close to each other.
TRICKY = st.text(st.sampled_from("ab:=%~tu2\ud800é"), max_size=4)
PARTS = st.none() | TRICKY
SLOTS = st.builds(
    KeyParts,
    platform=TRICKY,
    chat_type=st.sampled_from(["dm", "group", "thread"]),
    chat=PARTS,
    thread=PARTS,
    user=PARTS,
)
RULES = st.builds(
    KeyRule,
    direct=st.sampled_from(["single", "shared"]),
    per_thread=st.booleans(),
    per_user=st.booleans(),
)
ALIKE = st.builds(
    Source,
    platform=st.sampled_from(["a", "b", "a:dm"]),
    chat_id=TRICKY.filter(bool),
    chat_type=st.sampled_from(["dm", "group"]),
    user_id=PARTS,
    thread_id=PARTS,
)
WITH_BOTH = KeyRule(per_thread=True, per_user=True)
GROUP = Source("telegram", "-100", "Ops", "group", "7", "Ada", "42")


@pytest.mark.parametrize(
    ("source", "rule", "key"),
    [
        (Source("telegram", "5", user_id="7"), KeyRule(), "agent:main:telegram:dm"),
        (Source("local", "terminal"), KeyRule(), "agent:main:local:dm"),
        (Source("telegram", "5"), KeyRule("shared"), "agent:main:telegram:dm:5"),
        (GROUP, KeyRule(), "agent:main:telegram:group:-100"),
        (GROUP, KeyRule("shared"), "agent:main:telegram:group:-100"),
        (GROUP, KeyRule(per_thread=True), "agent:main:telegram:group:-100:t=42"),
        (GROUP, KeyRule(per_user=True), "agent:main:telegram:group:-100:u=7"),
        (GROUP, WITH_BOTH, "agent:main:telegram:group:-100:t=42:u=7"),
        (GROUP._replace(thread_id=None, user_id=""), WITH_BOTH, "agent:main:telegram:group:-100"),
        (Source("slack", "D1", thread_id="9.1"), WITH_BOTH, "agent:main:slack:dm:t=9.1"),
        (Source("discord", "3", chat_type="channel"), KeyRule(), "agent:main:discord:channel:3"),
        (Source("discord", "3", chat_type="thread"), KeyRule(), "agent:main:discord:thread:3"),
        (
            Source("matrix", "!r:example.org", chat_type="group", user_id="@ada:example.org"),
            KeyRule(per_user=True),
            "agent:main:matrix:group:!r%3Aexample.org:u=@ada%3Aexample.org",
        ),
        (Source("x", "t=42"), KeyRule("shared"), "agent:main:x:dm:t%3D42"),
        (Source("x", "100%"), KeyRule("shared"), "agent:main:x:dm:100%25"),
    ],
)
def test_a_key_has_the_form_of_its_case(source: Source, rule: KeyRule, key: str) -> None:
    assert build_key(source, rule) == key


def test_neither_thread_nor_user_nor_any_name_is_part_of_a_key_by_default() -> None:
    others = (
        GROUP._replace(thread_id="43"),
        GROUP._replace(user_id="8", user_name="Bo"),
        GROUP._replace(chat_name="Ops 2", chat_topic="new"),
    )
    assert {build_key(other) for other in others} == {build_key(GROUP)}


@unhurried
@given(SLOTS, SLOTS)
def test_two_slots_have_one_key_only_if_they_are_the_same(a: KeyParts, b: KeyParts) -> None:
    assert (join_key(a) == join_key(b)) == (a == b)


@unhurried
@given(SLOTS)
def test_a_key_can_be_taken_apart_again(slot: KeyParts) -> None:
    assert parse_key(join_key(slot)) == slot


@unhurried
@given(ALIKE | SOURCES, ALIKE | SOURCES, RULES, RULES)
def test_two_sources_share_a_key_only_if_nothing_that_counts_tells_them_apart(
    a: Source, b: Source, rule_a: KeyRule, rule_b: KeyRule
) -> None:
    same = build_key_parts(a, rule_a) == build_key_parts(b, rule_b)
    assert (build_key(a, rule_a) == build_key(b, rule_b)) == same


@unhurried
@given(st.text(min_size=100, max_size=2000), st.text(min_size=100, max_size=2000))
def test_ids_of_any_length_make_keys_that_an_index_holds_and_that_differ(a: str, b: str) -> None:
    keys = [build_key(Source(x, x, None, "channel", x, None, x), WITH_BOTH) for x in (a, b)]
    assert max(map(len, keys)) <= MAX_NAME_CHARS
    assert all(key.isascii() and key.isprintable() for key in keys)
    assert (keys[0] == keys[1]) == (a == b)
    assert parse_key(keys[0]).chat in (a, keys[0].split(":")[4])


def test_a_long_id_and_the_digest_that_stands_for_it_are_not_the_same_slot() -> None:
    long_key = build_key(Source("x", "a" * 1000, chat_type="group"))
    digest = parse_key(long_key).chat
    assert digest is not None
    assert build_key(Source("x", digest, chat_type="group")) != long_key


def test_a_chat_without_an_id_gets_no_key_where_strangers_would_share_it() -> None:
    for source in (Source("x", ""), Source("telegram", "", chat_type="group")):
        with pytest.raises(InvalidInput, match=r"source\.chat_id"):
            build_key(source, KeyRule("shared"))
    assert build_key(Source("local", "")) == "agent:main:local:dm"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "agent:main",
        "agent:main:telegram",
        "agent:other:telegram:dm",
        "agent:main:x:group:a:b",
        "agent:main:x:group:a:u=1:t=2",
        "agent:main:x:group:a b",
        "agent:main:x:group:%FF",
        "agent:main:x:group:%3a",
        "agent:main:x:dm\n",
    ],
)
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="key:"):
        parse_key(text)


def test_a_key_is_said_in_words() -> None:
    assert describe_key("agent:main:telegram:dm") == "telegram dm"
    key = "agent:main:matrix:group:!r%3Aexample.org:t=42:u=@ada%3Aexample.org"
    assert describe_key(key) == "matrix group !r:example.org, thread 42, user @ada:example.org"
    assert describe_key(build_key(Source("x", "a\n\u202eb", chat_type="group"))) == "x group a b"


def test_the_rule_of_a_source_is_that_of_the_nearest_place() -> None:
    rules = Overridable(
        KeyRule(),
        {
            (None, "group"): {"per_user": True},
            ("slack", None): {"per_thread": True, "direct": "shared"},
            ("slack", "channel"): {"per_thread": False},
        },
    )
    assert get_key_rule(rules, GROUP) == KeyRule(per_user=True)
    assert get_key_rule(rules, Source("slack", "D1")) == KeyRule("shared", per_thread=True)
    assert get_key_rule(rules, Source("Slack", "C1", chat_type="channel")) == KeyRule("shared")
    assert get_key_rule(rules, Source("slack", "C1", chat_type="group")) == KeyRule(
        "shared", True, True
    )
    assert get_key_rule(rules, Source("discord", "1")) == KeyRule()
