"""What a session remembers: its list, and what was said before."""

from __future__ import annotations

from pathlib import Path

import pytest

from rekindle import Message, Store
from rekindle.agent.tools.builtin.session_search import SESSION_SEARCH
from rekindle.agent.tools.builtin.todo import TODO
from rekindle.agent.tools.tool import ToolContext
from tests.new_store import open_new_store
from tests.unit.agent.tools.calling import error, text

# -- todo


def test_the_list_is_kept_for_the_session_and_shown(context: ToolContext) -> None:
    assert text(TODO, context) == "the list is empty"
    entries = [
        {"content": "read", "status": "done"},
        {"content": "write", "status": "in_progress"},
        {"content": "test"},
    ]
    shown = "1. [x] read\n2. [>] write\n3. [ ] test\n1 of 3 done"
    assert text(TODO, context, entries=entries) == shown
    assert text(TODO, context) == shown
    assert text(TODO, context._replace(notes={})) == "the list is empty"
    assert text(TODO, context, entries=[]) == "the list is empty"


def test_a_wrong_list_changes_nothing(context: ToolContext) -> None:
    text(TODO, context, entries=[{"content": "a"}])
    said = error(TODO, context, entries=[{"content": "b", "status": "finished"}])
    assert (
        'entries[0].status: "finished" is not allowed; allowed: "pending", "in_progress", "done"'
        in said
    )
    assert "entries: too many entries: 51" in error(TODO, context, entries=[{"content": "b"}] * 51)
    assert text(TODO, context) == "1. [ ] a\n0 of 1 done"


def test_without_a_place_for_notes_there_is_no_list(context: ToolContext) -> None:
    assert "has no notes" in error(TODO, context._replace(notes=None))


# -- session_search


@pytest.fixture
def store(tmp_path: Path) -> Store:
    opened = open_new_store(str(tmp_path / "s.db"), clock=lambda: 1_790_000_000.0)
    for owner, word in (("ada", "zebra"), ("bob", "giraffe")):
        session = opened.begin(id=f"of-{owner}", owner=owner, title=f"{owner}'s plan")
        opened.append(session, Message(role="user", content=f"the {word} needs a home"))
        opened.append(session, Message(role="assistant", content="noted"))
    return opened


def test_earlier_words_of_the_owner_are_found_with_what_stood_around(
    context: ToolContext, store: Store
) -> None:
    found = text(SESSION_SEARCH, context._replace(store=store), query="zebra home")
    assert found.startswith(
        "1. ada's plan (of-ada), 2026-09-21 14:13 UTC, message 0\n > user: the "
    )
    assert "zebra" in found
    assert "   assistant: noted" in found


@pytest.mark.parametrize("query", ["giraffe", "needs", "giraffe OR zebra", "plan"])
def test_words_of_others_are_never_shown(context: ToolContext, store: Store, query: str) -> None:
    found = text(SESSION_SEARCH, context._replace(store=store), query=query)
    assert "of-bob" not in found
    assert "bob's plan" not in found
    mine = context._replace(store=store)
    for name in ("of-bob", "bob's plan", "of-b"):
        assert "giraffe" not in error(SESSION_SEARCH, mine, query="needs", session=name)


def test_without_an_owner_nothing_is_searched(context: ToolContext, store: Store) -> None:
    assert "has no known owner" in error(
        SESSION_SEARCH, context._replace(store=store, owner=None), query="zebra"
    )
    assert "no session store" in error(SESSION_SEARCH, context, query="zebra")


def test_a_search_can_be_limited_to_one_session_and_a_role(
    context: ToolContext, store: Store
) -> None:
    mine = context._replace(store=store, session="of-ada")
    assert "this conversation" in text(SESSION_SEARCH, mine, query="zebra", session="ada's plan")
    assert text(SESSION_SEARCH, mine, query="zebra", role="assistant").startswith(
        "No matches found for 'zebra'"
    )
    assert "limit: 21 is not allowed" in error(SESSION_SEARCH, mine, query="zebra", limit=21)
