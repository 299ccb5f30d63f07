"""Text that PostgreSQL or SQLite cannot hold as it is comes back as it was, from either."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rekindle import Message, Store, ToolCall
from rekindle.store import Filter
from rekindle.types import make_foreign_message
from tests.contract.messages import found, started, texts, user

Reopened = Callable[[], Store]
ODD = {
    "NUL": "a\0b\0",
    "a lone high surrogate": "x\ud800y",
    "a lone low surrogate": "\udfff",
    "two lone surrogates that look like a pair": "\ud83d\ude00",
    "the escape character": "\U0010fffe",
    "the escape character before digits": "\U0010fffe0000 \U0010fffeffff \U0010fffed800",
    "bytes that are no UTF-8": b"caf\xe9 \xff\xfe".decode("utf-8", "surrogateescape"),
    "noncharacters": "\uffff\ufffe\U0001fffe\U0010ffff",
    "a byte order mark and other invisible ones": "\ufeffx\u200b\u202e\u2028",
    "line ends": "a\r\nb\rc\x0b\x0c\x85",
    "JSON in text": '{"a": "\\u0000\\ud800"}',
    "LIKE and SQL": "100%_!' OR 1=1; -- ? %s",
    "only spaces": "  \t ",
}
ODDITIES = pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())


@ODDITIES
def test_odd_text_in_a_message_comes_back_equal(store: Store, reopened: Reopened, odd: str) -> None:
    said = [
        make_foreign_message(odd, content=odd, name=odd, platform_message_id=odd),
        Message(
            role="assistant",
            content=[{"type": "text", "text": odd, odd: {odd: [odd]}}],
            tool_calls=(ToolCall(odd, odd, odd), ToolCall("2", "n", {odd: [odd, {"k": odd}]})),
            reasoning=odd,
            finish_reason=odd,
            meta={odd: odd, "deep": [{"x": odd}]},
        ),
        Message(role="tool", content=odd, tool_call_id=odd),
        user(f"needle {odd} needle"),
    ]
    session = store.begin()
    assert store.append(session, *said) == [0, 1, 2, 3]
    assert store.messages(session) == said
    assert reopened().messages(session.id) == said
    assert store.append(session, said[0]) == [0]
    assert [hit.message for hit in store.search("needle")] == [said[3]]
    assert store.verify() == []


@ODDITIES
def test_odd_text_in_a_session_comes_back_equal(store: Store, reopened: Reopened, odd: str) -> None:
    begun = store.begin(
        id=odd, source=odd, owner=odd, user=odd, model=odd, model_config={odd: [odd]}, cwd=odd,
        git_branch=odd, template=odd, arm=odd, parent=odd + "'s parent",
    )  # fmt: skip
    store.append(begun, user("needle"))
    store.end(odd, odd)
    for opened in (store, reopened()):
        session = opened.session(odd, owner=odd)
        assert (session.id, session.source, session.owner, session.user) == (odd,) * 4
        assert (session.model, session.cwd, session.git_branch) == (odd,) * 3
        assert (session.template, session.arm, session.end_reason) == (odd,) * 3
        assert (session.model_config, session.parent) == ({odd: [odd]}, odd + "'s parent")
        assert opened.resolve(odd, owner=odd) == session
        where = Filter(source=odd, owner=odd, model=odd, ended=odd, arm=odd, template=odd)
        assert opened.recent(where=where) == [session]
        assert [hit.session for hit in opened.search("needle", owner=odd)] == [session]
        assert opened.stats().by_source == {odd: 1}
    assert store.update(odd, cwd=f"{odd}2", model=odd).cwd == f"{odd}2"
    assert store.fork(odd).parent == odd
    assert store.lineage(odd)[0].id == odd


@ODDITIES
def test_an_odd_title_is_cleaned_alike_and_found_again(store: Store, odd: str) -> None:
    session = started(store, title=f"My {odd} plan")
    assert session.title is not None
    assert not set("\0\ud800\udfff\U0010fffe\u200b\n\r") & set(session.title)
    assert store.resolve(f"My {odd} plan").id == session.id
    assert store.resolve(session.title).id == session.id


def test_the_longest_names_are_held(store: Store) -> None:
    for worst in ("\U0001f389", "\ud8ab", "\0", "\U0010fffe", "z"):
        name = "".join(chr(ord(worst) ^ (n % 7 if worst == "\ud8ab" else 0)) for n in range(512))
        session = store.begin(id=name, source=name, owner=name, title="ß" * 100)
        store.append(session, user("x", platform_message_id=name))
        assert store.session(name).owner == name
        assert store.append(name, user("x", platform_message_id=name)) == [0]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(st.characters(codec=None, categories=None), max_size=40),  # surrogates too
    other=st.text(st.characters(categories=["Cs", "Cn", "Cc", "Co"]), max_size=6),
)
def test_any_text_comes_back_equal(store: Store, text: str, other: str) -> None:
    session = store.begin(user=other)
    said = [
        Message(role="user", content=text + other, reasoning=other + text, meta={text: other}),
        Message(role="user", content=[{"text": other + text}]),
    ]
    store.append(session, *said)
    assert store.messages(session) == said
    assert store.session(session.id).user == other


def test_text_around_odd_characters_is_found(store: Store) -> None:
    started(store, "before\0after", "left\ud800right", "one\U0010fffetwo")
    for word in ("before", "after", "left", "right", "one", "two"):
        assert len(found(store, word)) == 1, word


def test_a_preview_of_odd_text_can_be_shown(store: Store) -> None:
    session = started(store, "odd \0 \ud800 \U0010fffe text")
    assert session.preview is not None
    session.preview.encode()
    assert session.preview.startswith("odd")
    assert session.preview.endswith("text")
    assert texts(store, session) == ["odd \0 \ud800 \U0010fffe text"]
