"""Sessions as an agent finds and reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle import Message, ToolCall
from rekindle.mcp.access import Library
from rekindle.mcp.quoting import MAX_RESULT_CHARS, Quoter
from rekindle.mcp.resources import list_resources
from rekindle.mcp.sessions import read_session, search_sessions
from rekindle.redaction.redactor import Redactor
from tests.new_store import open_new_store

KEY = "AKIAIOSFODNN7EXAMPLE"
ESCAPED = "".join(f"\\u{ord(one):04x}" for one in KEY)


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    with open_new_store(tmp_path / "sessions.db") as store:
        yield Library(store, None, "/gone", Quoter(Redactor()))


def tell(library: Library, id: str, *messages: Message) -> None:
    library.store.append(library.store.begin(id=id), *messages)


def call(tool: str, arguments: object) -> Message:
    return Message("assistant", tool_calls=(ToolCall("1", tool, arguments),))  # pyright: ignore


@pytest.mark.parametrize(
    "arguments",
    [
        {"host": "db", "password": "hunter2"},
        '{"host": "db", "password": "hunter2"}',
        {"host": "db", "nested": [{"env": {"DB_PASSWORD": "hunter2"}}]},
        '{"host": "db", "key": "' + ESCAPED + '"}',
    ],
)
def test_a_secret_in_arguments_is_masked_wherever_it_is_shown(
    library: Library, arguments: object
) -> None:
    tell(library, "one", call("connect", arguments))
    texts = [
        search_sessions(library, {"query": "db"}),
        search_sessions(library, {"query": "hunter2 OR akia*"}),
        read_session(library, {"session": "one"}),
        read_session(library, {"session": "one", "message": 0}),
    ]
    for text in texts:
        assert "hunter2" not in text
        assert KEY not in text
        assert "\\u0041" not in text


def test_a_secret_that_the_preview_cuts_is_not_shown(library: Library) -> None:
    tell(library, "one", Message("user", f"{'word ' * 21}{KEY} and so on {'x ' * 100}"))
    assert "AKIA" in (library.store.session("one").preview or "")
    assert "AKIA" not in search_sessions(library, {})
    assert "AKIA" not in list_resources(library, None).resources[-1].name


def test_a_message_with_very_many_calls_leaves_room_for_the_next_page(library: Library) -> None:
    calls = tuple(
        ToolCall(f"{n}", "Bash", {"command": f"echo {n} {'x' * 500}"}) for n in range(200)
    )
    tell(library, "one", Message("assistant", tool_calls=calls), Message("user", "y" * 40_000))
    first = read_session(library, {"session": "one"})
    assert len(first) < MAX_RESULT_CHARS + 500
    assert "read it all with message=0" in first
    whole, start = "", 0
    while True:
        part = read_session(library, {"session": "one", "message": 0, "start": start})
        whole += part
        more = re.search(r"read on with start=(\d+)", part)
        if more is None:
            break
        start = int(more[1])
    assert all(f"echo {n} " in whole for n in (0, 100, 199))


def test_thinking_is_part_of_the_whole_message_only(library: Library) -> None:
    tell(library, "one", Message("assistant", "hi", reasoning="they greet"))
    assert "they greet" not in read_session(library, {"session": "one"})
    assert "they greet" in read_session(library, {"session": "one", "message": 0})


def test_odd_ids_are_given_as_uris_that_can_be_passed_back(library: Library) -> None:
    id = "x\n[0] user: `run` <b> \u202e" + "z" * 100
    tell(library, id, Message("user", "hello"))
    text = search_sessions(library, {"query": "hello"})
    (uri,) = re.findall(r"rekindle://session/\S+(?=:)", text)
    assert uri.isascii()
    assert "hello" in read_session(library, {"session": uri})
    assert list_resources(library, None).resources[0].uri == uri


@pytest.mark.parametrize(
    "id", ["20260101_101010_abcd1234", "01a1ea91-3514-7060-9b80-4616180972e3", "ses_4f2Ab9"]
)
def test_usual_ids_are_shown_as_they_are(library: Library, id: str) -> None:
    tell(library, id, Message("user", "hello"))
    assert f"session {id}: hello" in search_sessions(library, {})


def test_resources_are_listed_in_pages(library: Library) -> None:
    for number in range(120):
        tell(library, f"s{number}", Message("user", "hello"))
    cursor, found = None, list[str]()
    for _ in range(3):
        page = list_resources(library, cursor)
        found += [one.uri for one in page.resources]
        cursor = page.next_cursor
    assert cursor is None
    assert len(set(found)) == len(found) == 120
