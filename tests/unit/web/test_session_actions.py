"""What can be done with a session, each with its way back, and the page to share."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from rekindle.errors import NotFound
from rekindle.store import Store
from rekindle.types import Message
from rekindle.web.sessions.menu import add_notice, remove_notice
from tests.unit.web.conftest import WebClient, build_client

SECRET = "ghp_" + "a1B2" * 9


@pytest.fixture
def session(store: Store) -> str:
    begun = store.begin(id="plan", source="claude-code", title="Plan", cwd="/src/my app")
    for text in ("first", "second"):
        store.append(begun, Message("user", content=text), Message("assistant", content="done"))
    return begun.id


def act(client: WebClient, id: str, action: str, **fields: str):
    """Send the form of an action without following where it leads."""
    data = {"form_token": client.read_form_token(), **fields}
    return client.post(f"/sessions/{id}/{action}", data=data, follow_redirects=False)


def test_rename_sets_and_removes_the_title(client: WebClient, store: Store, session: str) -> None:
    assert act(client, session, "rename", title=" New <b>title</b> ").status_code == 303
    assert store.session(session).title == "New <b>title</b>"
    act(client, session, "rename", title="")
    assert store.session(session).title is None


def test_a_title_that_is_taken_is_refused_in_words(
    client: WebClient, store: Store, session: str
) -> None:
    other = store.begin(id="other", title="Other")
    store.append(other, Message("user", content="x"))
    answer = act(client, session, "rename", title="Other")
    assert answer.status_code == 400
    assert "Other" in answer.text
    assert store.session(session).title == "Plan"


def test_archive_leads_back_and_offers_to_take_it_back(
    client: WebClient, store: Store, session: str
) -> None:
    answer = client.submit(f"/sessions/{session}/archive", back="/sessions?agent=claude-code")
    assert store.session(session).archived is not None
    assert str(answer.url).endswith("/sessions?agent=claude-code&did=archive&to=plan")
    assert "Archived “Plan”." in answer.text
    assert 'action="/sessions/plan/restore"' in answer.text
    answer = client.submit(f"/sessions/{session}/restore", back="/sessions?agent=claude-code")
    assert store.session(session).archived is None
    assert "Brought back “Plan”." in answer.text


def test_delete_is_for_sessions_that_rest_and_can_be_undone(
    client: WebClient, store: Store, session: str
) -> None:
    assert "End it first" in act(client, session, "delete").text
    assert "end it first" in client.get(f"/sessions/{session}/actions").text
    client.submit(f"/sessions/{session}/end")
    answer = client.submit(f"/sessions/{session}/delete", back="/sessions")
    with pytest.raises(NotFound):
        store.session(session)
    assert "Deleted “Plan”." in answer.text
    client.submit(f"/sessions/{session}/restore", back="/sessions")
    assert store.session(session).pruned is None
    assert store.session(session).message_count == 4


def test_end_and_reopen(client: WebClient, store: Store, session: str) -> None:
    act(client, session, "end")
    assert store.session(session).end_reason == "user"
    assert "/plan/reopen" in client.get(f"/sessions/{session}/actions").text
    act(client, session, "reopen")
    assert store.session(session).ended is None


def test_undo_and_redo(client: WebClient, store: Store, session: str) -> None:
    act(client, session, "undo")
    assert [one.content for one in store.messages(session)] == ["first", "done"]
    act(client, session, "redo")
    assert store.session(session).message_count == 4
    assert act(client, session, "redo").status_code == 404


def test_a_fork_is_shown(client: WebClient, store: Store, session: str) -> None:
    answer = act(client, session, "fork", at="1")
    (fork,) = store.children(session)
    assert urlsplit(answer.headers["location"]).path == f"/sessions/{fork.id}"
    assert fork.message_count == 2
    act(client, session, "fork")
    assert [one.message_count for one in store.children(session)] == [2, 4]
    for at in ("99", "-1", "x", "9" * 30):
        assert act(client, session, "fork", at=at).status_code == 400


def test_several_are_archived_and_brought_back_together(
    client: WebClient, store: Store, session: str
) -> None:
    other = store.begin(id="o/t")
    store.append(other, Message("user", content="x"))
    answer = client.submit("/sessions/archive", **{"pick.plan": "plan", "pick.o/t": "o/t"})
    assert store.count_sessions() == 0
    assert "Archived 2 sessions." in answer.text
    assert 'name="pick.2"' in answer.text
    client.submit("/sessions/restore", **{"pick.1": "plan", "pick.2": "o/t"})
    assert store.count_sessions() == 2
    assert client.submit("/sessions/archive").status_code == 400


@pytest.mark.parametrize(
    "action",
    ["rename", "archive", "restore", "delete", "fork", "undo", "redo", "end", "reopen"],
)
def test_an_action_needs_a_session_a_form_and_permission(
    client: WebClient, store: Store, session: str, tmp_path: Path, action: str
) -> None:
    assert act(client, "missing", action, title="x").status_code == 404
    assert client.get(f"/sessions/{session}/{action}").status_code in (404, 405)
    assert client.post(f"/sessions/{session}/{action}").status_code == 403
    reader = build_client(store, tmp_path, readonly=True)
    reader.open_link()
    before = store.session(session)
    assert act(reader, session, action, title="x").status_code == 403
    assert store.session(session) == before


def test_an_action_leads_nowhere_else(client: WebClient, session: str) -> None:
    for back in ("https://evil.example", "//evil.example", "/x\r\nset-cookie: a=b", "/\\evil"):
        location = act(client, session, "archive", back=back).headers["location"]
        assert urlsplit(location).netloc == ""
        assert not location.startswith("//")
        assert "\\" not in location
        assert "\r" not in location


def test_the_menu_copies_commands(client: WebClient, store: Store, session: str) -> None:
    assert 'data-copy="rekindle resume plan"' in client.get(f"/sessions/{session}/actions").text
    id = "0708a5fa-06bd-4274-b1fe-513c7202217e"
    own = store.begin(id=id, source="claude-code", cwd="/src/my app")
    store.append(own, Message("user", content="x"))
    text = client.get(f"/sessions/{id}/actions").text
    assert f'data-copy="rekindle resume {id}"' in text
    assert f"cd &#39;/src/my app&#39; &amp;&amp; claude --resume {id}" in text


def test_a_shared_page_has_no_secrets(client: WebClient, store: Store, session: str) -> None:
    store.append(session, Message("user", content=f"my token is {SECRET} <script>x()</script>"))
    store.rename(session, f"Token {SECRET}")
    answer = client.get(f"/sessions/{session}/share")
    assert answer.status_code == 200
    assert answer.headers["content-disposition"].startswith("attachment;")
    assert ".html" in answer.headers["content-disposition"]
    assert SECRET not in answer.headers["content-disposition"]
    assert "my token is" in answer.text
    assert SECRET not in answer.text
    assert "<script>" not in answer.text
    assert client.get("/sessions/missing/share").status_code == 404


def test_a_notice_replaces_the_one_before() -> None:
    address = add_notice("/sessions?q=a+b&did=end&to=x#m3", "archive", ["1", "a&b"])
    assert parse_qs(urlsplit(address).query) == {
        "q": ["a b"],
        "did": ["archive"],
        "to": ["1", "a&b"],
    }
    assert remove_notice(address) == "/sessions?q=a+b"
