"""The list of sessions: filters, pages, search, and text that is hostile."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from rekindle.store import Store
from rekindle.store.engines.sqlite_transaction import SqliteTransaction
from rekindle.store.learning.outcomes import JudgedCalls
from rekindle.store.transfer.bulk_import import SessionImport
from rekindle.types import JudgedCall, Message, Session, SessionOutcome, ToolCall
from rekindle.web.sessions import rows, search
from rekindle.web.sessions.filters import ListCursor, parse_cursor, read_filters
from tests.unit.web.conftest import WebClient, build_client

HOSTILE = (
    "<script>alert(1)</script>\"'><img src=x onerror=alert(2)> «<b>» \ud800 \x00 \x1b[31m {{ 7*7 }}"
)


def add_session(store: Store, id: str, *texts: str, age: float = 0.0, **fields: object) -> Session:
    at = time.time() - age
    known = {"source": "claude-code", "started": at, "last_active": at, **fields}
    session = Session(id=id, **known)  # pyright: ignore[reportArgumentType]
    messages = [Message("user", content=text, timestamp=at) for text in texts or ("hello",)]
    store.import_batch([SessionImport(session=session, messages=messages, is_complete=True)])
    return store.session(id)


def list_ids(text: str) -> list[str]:
    """Return the ids of the sessions that a page lists, in order."""
    return [unescape(id) for id in re.findall(r'<a class="row" href="/sessions/([^"]*)"', text)]


def fetch_ids(client: WebClient, query: str = "") -> list[str]:
    answer = client.get(f"/sessions{query}")
    assert answer.status_code == 200
    return list_ids(answer.text)


def test_a_row_says_what_a_session_is(client: WebClient, store: Store) -> None:
    add_session(
        store, "one", title="Fix the login", cwd="/src/app", owner="ada", age=7200,
        repository="example.com/team/app",
    )  # fmt: skip
    call = ToolCall("c1", "Bash", '{"command": "make"}')
    store.append("one", Message("assistant", content="", tool_calls=(call,)))
    (stale,) = store.find_stale_sessions("1")
    judged = JudgedCall(
        session="one", position=1, number=0, id="c1", tool="Bash", kind="terminal", digest=1,
        outcome="error", failed=True, error_kind=None, fault=None, rule="r", confidence=1.0,
    )  # fmt: skip
    store.save_verdicts("1", [JudgedCalls(stale, [judged], 2, ())])
    undecided = store.session_outcomes.find_stale("1")
    store.session_outcomes.save("1", [(undecided[0], SessionOutcome("failed", "r", 1.0, 1))])
    store.end("one", "user")
    text = client.get("/sessions").text
    for shown in (
        "Fix the login",
        "Claude Code",
        ">app<",
        "/src/app",
        "ada",
        'aria-label="Failed"',
    ):
        assert shown in text
    assert re.search(r'<td class="num shrink wide bad">1</td>', text)
    assert f"/sessions?project={quote('example.com/team/app', safe='')}" in text


def test_filters_combine_and_stand_in_the_address(client: WebClient, store: Store) -> None:
    add_session(store, "a", age=10, source="codex", model="m1", cwd="/src/app", owner="ada")
    add_session(store, "b", age=3 * 86400, source="codex", model="m2", cwd="/src/lib")
    add_session(store, "c", age=20 * 86400, source="claude-code", model="m1", cwd="/src/app")
    store.end("b", "user")
    expected = {
        "": ["a", "b", "c"],
        "?agent=codex": ["a", "b"],
        "?agent=codex&model=m2": ["b"],
        "?since=7d": ["a", "b"],
        "?since=7d&project=app": ["a"],
        "?project=app": ["a", "c"],
        "?project=nothing": [],
        "?status=live": ["a"],
        "?status=ended": ["b"],
        "?status=open": ["a", "c"],
        "?owner=ada": ["a"],
        "?outcome=failed": [],
        "?errors=yes": [],
        "?errors=no&model=m1&agent=claude-code": ["c"],
        "?until=7d": ["c"],
        "?since=never&status=odd": ["a", "b", "c"],
    }
    for query, ids in expected.items():
        assert fetch_ids(client, query) == ids, query
    text = client.get("/sessions?agent=codex&since=7d").text
    assert '<option value="codex" selected>' in text
    assert '<option value="7d" selected>' in text


def test_archived_and_deleted_sessions_have_lists_of_their_own(
    client: WebClient, store: Store
) -> None:
    for id in ("kept", "hidden", "gone"):
        add_session(store, id, age=5 * 86400)
    store.archive_session("hidden")
    store.prune_session("gone")
    assert fetch_ids(client) == ["kept"]
    assert fetch_ids(client, "?status=archived") == ["hidden"]
    assert fetch_ids(client, "?status=deleted") == ["gone"]
    assert 'action="/sessions/gone/restore"' in client.get("/sessions?status=deleted").text


def test_sub_agents_stand_with_the_session_that_started_them(
    client: WebClient, store: Store
) -> None:
    add_session(store, "top", "build it", age=50)
    add_session(store, "inner", "look for the needle", age=10, parent="top", sub_agent="explorer")
    assert fetch_ids(client) == ["top"]
    assert "+1 sub-agent" in client.get("/sessions").text
    text = client.get("/sessions?q=needle").text
    assert list_ids(text) == ["top"]
    assert 'href="/sessions/inner?at=0#m0"' in text


def test_every_session_is_on_one_page_even_if_all_were_active_at_once(
    client: WebClient, store: Store
) -> None:
    items = [
        SessionImport(
            session=Session(id=f"s{number:03}", started=100.0, last_active=100.0 + number // 90),
            messages=[Message("user", content="hi", timestamp=100.0 + number // 90)],
        )
        for number in range(200)
    ]
    store.import_batch(items)
    seen: list[str] = []
    address: str | None = "/sessions"
    while address:
        text = client.get(unescape(address), headers={"X-Fragment": "more_rows"}).text
        seen += list_ids(text)
        found = re.search(r'data-more="([^"]*)"', text)
        address = found[1] if found else None
    assert len(seen) == 200
    assert len(set(seen)) == 200
    assert seen == [one.id for one in store.recent(200)]


def test_a_page_costs_the_same_however_many_sessions_there_are(
    client: WebClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(rows.PAGE_SIZE + 5):
        add_session(store, f"s{number}", age=number)
    statements: list[str] = []
    run = SqliteTransaction.run

    def count(tx: SqliteTransaction, sql: str, params: Sequence[Any] = ()) -> list[Any]:
        statements.append(sql)
        return run(tx, sql, params)

    client.get("/sessions")  # the choices of the filters
    monkeypatch.setattr(SqliteTransaction, "run", count)
    text = client.get("/sessions", headers={"X-Fragment": "results"}).text
    assert len(list_ids(text)) == rows.PAGE_SIZE
    assert 0 < len(statements) < 20


def test_a_search_finds_titles_and_messages_and_links_to_the_message(
    client: WebClient, store: Store
) -> None:
    add_session(store, "named", "something else", title="Deploy the needle")
    add_session(store, "told", "first", "a needle in a <b>haystack</b>", "another needle", age=60)
    add_session(store, "other", "nothing of the kind", age=120)
    text = client.get("/sessions?q=needle").text
    assert list_ids(text) == ["named", "told"]
    assert "Deploy the <mark>needle</mark>" in text
    assert 'href="/sessions/told?at=1#m1"' in text
    assert "a <mark>needle</mark> in a &lt;b&gt;haystack" in text
    assert text.count('class="hits"') == 1
    assert fetch_ids(client, "?q=needle&agent=codex") == []
    assert "No title and no message" in client.get("/sessions?q=zzzz").text


def test_a_keystroke_looks_up_words_and_a_pause_their_beginnings(
    client: WebClient, store: Store
) -> None:
    add_session(store, "one", "the deployment failed")
    quick = client.get("/sessions?q=depl", headers={"X-Fragment": "results"}).text
    assert list_ids(quick) == []
    assert "data-thorough" in quick
    asked = client.get("/sessions?q=depl&thorough=yes", headers={"X-Fragment": "results"}).text
    assert list_ids(asked) == ["one"]
    assert "data-thorough" not in asked
    assert fetch_ids(client, "?q=depl") == ["one"]  # without scripts, all at once
    long = client.get("/sessions?q=deploym", headers={"X-Fragment": "results"}).text
    assert list_ids(long) == ["one"]


@pytest.mark.parametrize(
    ("text", "shortest", "query", "is_complete"),
    [
        ("a", 3, "a", True),
        ("abc", 3, "abc*", True),
        ("abc", 6, "abc", False),
        ("abc ", 6, "abc ", True),
        ('"abc', 3, '"abc', True),
        ("two wordsx", 6, "two wordsx*", True),
    ],
)
def test_the_last_word_may_go_on(text: str, shortest: int, query: str, is_complete: bool) -> None:
    assert search.build_query(text, shortest) == (query, is_complete)


def test_hostile_text_is_shown_and_never_runs(client: WebClient, store: Store) -> None:
    add_session(
        store, "evil'\"<x>", f"{HOSTILE} needle", title=f"{HOSTILE} needle", cwd=f"/{HOSTILE}",
        owner=HOSTILE, model=HOSTILE, source="<i>agent", repository=f"example.com/{HOSTILE}",
        sub_agent=HOSTILE,
    )  # fmt: skip
    add_session(store, "a/b c?d#e", "needle", age=9)
    for query in (
        "",
        "?q=needle",
        f"?q={quote(HOSTILE, errors='replace')}",
        "?agent=<svg onload=x>",
    ):
        answer = client.get(f"/sessions{query}")
        assert answer.status_code == 200
        assert "<script>alert" not in answer.text
        assert "<img" not in answer.text
        assert "<i>" not in answer.text
        assert "<svg onload" not in answer.text
        assert "onerror=alert(2)&gt;" in answer.text or "onerror" not in answer.text
    assert "/sessions/a%2Fb%20c%3Fd%23e" in client.get("/sessions").text
    assert client.get("/sessions/a%2Fb%20c%3Fd%23e/actions").status_code == 200


@pytest.mark.parametrize(
    "query",
    [
        "?before=nan~0", "?before=inf~0", "?before=1~-1", "?before=1~9999999999999999999",
        "?before=~", "?before=1e999~1", "?q=%00", "?q=%ff", '?q="', "?q=-x", "?q=a*b*",
        "?q=" + "x" * 20_000, "?since=99999999999999d", "?until=0001-01-01", "?did=archive",
        "?did=nothing&to=x", "?did=archive&to=missing", "?project=%00", "?owner=%ed%a0%80",
    ],
)  # fmt: skip
def test_odd_addresses_are_answered(client: WebClient, store: Store, query: str) -> None:
    add_session(store, "one", "hello")
    for headers in ({}, {"X-Fragment": "results"}, {"X-Fragment": "more_rows"}):
        assert client.get(f"/sessions{query}", headers=headers).status_code == 200


def test_an_empty_store_says_what_to_do(client: WebClient) -> None:
    assert "rekindle start" in client.get("/sessions").text


def test_read_only_offers_no_changes(store: Store, tmp_path: Path) -> None:
    add_session(store, "one", "hello")
    client = build_client(store, tmp_path, readonly=True)
    client.open_link()
    text = client.get("/sessions").text
    assert list_ids(text) == ["one"]
    assert 'method="post"' not in text
    assert "checkbox" not in text
    menu = client.get("/sessions/one/actions").text
    assert 'method="post"' not in menu
    assert "rekindle resume one" in menu


def test_a_cursor_survives_the_address() -> None:
    for cursor in (ListCursor(1763434123.1234567, 3), ListCursor(-5.0, 0)):
        assert parse_cursor(cursor.format()) == cursor
    assert parse_cursor(f"{math.inf}~0") is None
    assert (
        read_filters({"q": "  x  ", "status": "live"}).build_query() == "/sessions?q=x&status=live"
    )
