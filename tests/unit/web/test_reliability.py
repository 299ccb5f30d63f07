"""The page of reliability: its figures are those of insights, and each leads to its calls."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from threading import Event

import pytest

from rekindle.analytics.insights import compute_insights
from rekindle.analytics.reliability.summary import CallChoice, summarize_calls
from rekindle.learning.notes.call_index import build_call_index, get_local_day
from rekindle.learning.verdicts.judged_sessions import iter_judged_sessions
from rekindle.store import Store
from rekindle.web import computed
from rekindle.web.reports import reliability
from tests.unit.web.conftest import WebClient, build_client
from tests.unit.web.judged_sessions import MONDAY, WEEK, add_history, add_session
from tests.waiting import PATIENCE

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


@pytest.fixture
def client(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WebClient]:
    """A client whose loop lives as long as the test: computing goes on between requests."""
    monkeypatch.setattr(computed, "WAIT_SECONDS", PATIENCE)
    monkeypatch.setattr(reliability, "get_local_day", get_local_day)
    found = build_client(store, tmp_path)
    with found:
        found.open_link()
        yield found


def read_page(client: WebClient, path: str) -> str:
    """Return a page when its figures are there."""
    deadline = time.monotonic() + PATIENCE
    while True:
        answer = client.get(path)
        assert answer.status_code == 200, answer.text
        if 'role="status"' not in answer.text.split("<main")[1].split("</main>")[0]:
            return answer.text
        assert time.monotonic() < deadline


def list_links(page: str, start: str) -> list[str]:
    return [unescape(one) for one in re.findall(r'href="([^"]*)"', page) if one.startswith(start)]


def test_the_index_counts_what_insights_count(store: Store) -> None:
    add_history(store)
    index = build_call_index(store, get_local_day, lambda *_: None)
    found = summarize_calls(index, CallChoice())
    expected = compute_insights(iter_judged_sessions(store))
    assert found.rate == expected.rate
    assert (found.rate.errors, found.rate.calls, found.rate.sessions) == (14, 84, 21)
    tools = {one.name: one.rate for one in found.groups["tool"]}
    assert tools == {one.name: one.rate for one in expected.tools}
    models = {one.name: one.rate for one in found.groups["model"]}
    assert models == {one.name: one.rate for one in expected.models}
    places = {one.name: one.rate for one in found.groups["position"]}
    assert places == {str(one.first): one.rate for one in expected.positions}
    assert [one.rate.calls for one in found.groups["week"]] == [28, 28, 28]


def test_a_repeated_call_counts_once(store: Store) -> None:
    add_history(store)
    messages = store.messages("w0n1")
    again = store.begin(id="again", source="claude-code", model="opus", started=MONDAY + 9 * WEEK)
    store.append(again, *[one._replace(position=None) for one in messages])
    index = build_call_index(store, get_local_day, lambda *_: None)
    found = summarize_calls(index, CallChoice())
    assert (found.rate.calls, index.repeated) == (84, 4)
    assert found.rate == compute_insights(iter_judged_sessions(store)).rate


@pytest.mark.parametrize(
    ("choice", "failed", "calls"),
    [
        (CallChoice(agent="codex"), 2, 24),
        (CallChoice(model="opus"), 12, 60),
        (CallChoice(tool="exec_command"), 2, 24),
        (CallChoice(position=1), 14, 84),
        (CallChoice(position=11), 0, 0),
        (CallChoice(position=7), 0, 0),
        (CallChoice(since=MONDAY + WEEK), 8, 56),
        (CallChoice(project="folder:/work/lib"), 2, 24),
        (CallChoice(project="folder:/elsewhere"), 0, 0),
        (CallChoice(agent="codex", tool="Bash"), 0, 0),
    ],
)
def test_a_choice_selects_calls(store: Store, choice: CallChoice, failed: int, calls: int) -> None:
    add_history(store)
    index = build_call_index(store, get_local_day, lambda *_: None)
    rate = summarize_calls(index, choice).rate
    assert (rate.errors, rate.calls) == (failed, calls)


def test_an_empty_store_says_what_to_do(client: WebClient) -> None:
    page = read_page(client, "/reliability")
    assert "No calls yet" in page
    assert "rekindle import" in page


def test_the_page_shows_rates_with_intervals_and_links(client: WebClient, store: Store) -> None:
    add_history(store)
    page = read_page(client, "/reliability")
    assert ">17%<" in page
    assert "95% interval" in page
    assert "Failed" in page
    links = list_links(page, "/reliability/calls")
    assert "/reliability/calls?tool=Bash&verdict=failed" in links
    assert "/reliability/calls?position=1&verdict=failed" in links
    assert any("week=2026-06-01" in one for one in links)
    assert "/reliability?model=gpt" in list_links(page, "/reliability?")


def test_every_link_to_calls_leads_to_as_many_as_the_page_counts(
    client: WebClient, store: Store
) -> None:
    add_history(store)
    page = read_page(client, "/reliability")
    expected = {"tool=Bash": 12, "tool=exec_command": 2, "agent=codex": 2, "position=1": 14}
    for link in {*list_links(page, "/reliability/calls")}:
        listed = read_page(client, link)
        failed = listed.count('<span class="chip bad">failed</span>')
        for part, count in expected.items():
            if part in link:
                assert failed == count, link
        for target in list_links(listed, "/sessions/w"):
            assert target in ("", *(f"/sessions/{one}" for one in _list_targets(store)))


def _list_targets(store: Store) -> set[str]:
    found: set[str] = set()
    for session in store.recent(limit=100):
        found.add(session.id)
        found |= {f"{session.id}#m{one.position}" for one in store.messages(session)}
    return found


def test_calls_come_in_pages_that_lose_none(
    client: WebClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rekindle.web.reports import call_list

    add_history(store)
    monkeypatch.setattr(call_list, "PAGE_SIZE", 3)
    path, seen = "/reliability/calls?verdict=failed", list[str]()
    for _ in range(20):
        page = read_page(client, path)
        seen += [one for one in list_links(page, "/sessions/") if "#m" in one]
        following = re.search(r'href="([^"]*)" rel="next"', page)
        if following is None:
            break
        path = unescape(following[1])
    assert len(seen) == len({*seen}) == 14
    assert seen[0].startswith("/sessions/w2n")


def test_a_command_leads_to_its_runs(client: WebClient, store: Store) -> None:
    from rekindle.learning.notes.learner import learn_from_sessions

    add_history(store)
    learn_from_sessions(store)
    page = read_page(client, "/reliability")
    assert "By command" in page
    calls = read_page(client, "/reliability/calls?command=go+test&agent=claude-code&verdict=failed")
    assert calls.count('<span class="chip bad">failed</span>') == 12
    assert "exit status 1" in calls


def test_too_few_calls_have_no_interval(client: WebClient, store: Store) -> None:
    add_session(store, "one", "x.")
    page = read_page(client, "/reliability")
    assert "too few calls for an interval" in page
    assert "point few" in page


def test_hostile_names_stay_text(client: WebClient, store: Store) -> None:
    add_session(
        store, "bad", "x." * 12, tool=HOSTILE[:60], model=HOSTILE, cwd=f"/work/{HOSTILE}",
        problem=HOSTILE, source="codex",
    )  # fmt: skip
    page = read_page(client, "/reliability")
    for address in ("/reliability", *list_links(page, "/reliability")):
        shown = read_page(client, address)
        assert "<script>alert" not in shown
        assert "<img src=x" not in shown


@pytest.mark.parametrize(
    "query", ["week=x", "position=-1", "position=9999999", "since=3y", "verdict=maybe", "week=1e9"]
)
def test_a_query_that_makes_no_sense_is_explained(client: WebClient, query: str) -> None:
    answer = client.get(f"/reliability/calls?{query}")
    assert answer.status_code == 400
    assert "expected" in answer.text


@pytest.mark.parametrize("after", ["", "x", "1.x", "99999999999999999999.1", "123456.5", "-1.0"])
def test_a_strange_place_in_a_list_is_the_beginning_or_the_end(
    client: WebClient, store: Store, after: str
) -> None:
    add_history(store)
    read_page(client, f"/reliability/calls?after={after}")


def test_a_request_does_not_wait_for_what_takes_long(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_history(store)
    may_go_on, begun = Event(), Event()
    monkeypatch.setattr(computed, "WAIT_SECONDS", 0.01)

    def build_slowly(*args):
        args[2]("Judging calls", 1, 4)
        begun.set()
        assert may_go_on.wait(PATIENCE)
        return build_call_index(*args)

    monkeypatch.setattr(reliability, "build_call_index", build_slowly)
    with build_client(store, tmp_path) as slow:
        slow.open_link()
        slow.get("/reliability")
        assert begun.wait(PATIENCE)
        page = slow.get("/reliability").text
        assert "Judging calls" in page
        assert "25%" in page
        assert "data-pending" in page
        may_go_on.set()
        assert ">17%<" in read_page(slow, "/reliability")


def test_old_figures_are_shown_with_their_age_until_new_ones_are_there(
    client: WebClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_history(store)
    assert ">17%<" in read_page(client, "/reliability")
    add_session(store, "more", "x" * 100, started=MONDAY + 3 * WEEK)
    monkeypatch.setattr(computed, "MIN_REST_SECONDS", 0.0)
    monkeypatch.setattr(computed, "REST_FACTOR", 0.0)
    assert "Counted" in read_page(client, "/reliability")
    deadline = time.monotonic() + PATIENCE
    while ">62%<" not in read_page(client, "/reliability"):  # 114 of 184
        assert time.monotonic() < deadline


def test_filters_are_in_the_address(client: WebClient, store: Store) -> None:
    add_history(store)
    page = read_page(client, "/reliability?agent=codex&tool=exec_command")
    assert "<option selected>codex</option>" in page
    assert "tool: exec_command" in page
    assert "/reliability?agent=codex" in list_links(page, "/reliability?")
    assert '<input type="hidden" name="tool" value="exec_command">' in page


def test_a_failure_to_count_is_said_and_tried_again(
    client: WebClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_history(store)

    def fail(*_: object) -> None:
        raise ValueError("no")

    with monkeypatch.context() as broken:
        broken.setattr(reliability, "build_call_index", fail)
        assert "could not be computed" in client.get("/reliability").text
    monkeypatch.setattr(computed, "MIN_REST_SECONDS", 0.0)
    monkeypatch.setattr(computed, "REST_FACTOR", 0.0)
    assert ">17%<" in read_page(client, "/reliability")
