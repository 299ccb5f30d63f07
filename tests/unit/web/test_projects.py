"""Projects: their list, and everything that a project's pages show and change."""

from __future__ import annotations

import html
import re
import time
from pathlib import Path

import pytest

from rekindle.learning.notes.decisions import load_project_notes
from rekindle.learning.notes.learner import learn_from_sessions
from rekindle.learning.notes.playbooks import find_project, load_decisions, propose_note
from rekindle.learning.notes.recall import recall_at_start
from rekindle.learning.notes.replay import replay_projects
from rekindle.learning.notes.replay_figures import load_replay, save_replay
from rekindle.projects import KnownProjects
from rekindle.store import Store
from rekindle.types import Tokens
from rekindle.web.addresses import build_project_url
from rekindle.web.addresses import find_project as find_by_address
from rekindle.web.projects.note_text import mark_code
from tests.unit.web.conftest import WebClient, build_client
from tests.unit.web.histories import FOLDER, HOSTILE, PROJECT, tell, tell_history

ADDRESS = f"/projects/{PROJECT}"
ODD_FOLDERS = (
    "/gone/a b/c",
    "/gone/../up",
    "/gone/./here",
    "/gone//twice",
    "/gone/100%25",
    "/gone/what?x=1#y",
    "/gone/back\\slash",
    "/gone/ünï\u202ecode",
    f"/gone/{HOSTILE}",
    "/gone/\"quotes\" & 'more'",
    "/gone/new\nline",
    "/gone/lone\ud800surrogate",
    "~tilde",
)


def read(client: WebClient, path: str, block: str = "") -> str:
    answer = client.get(path, headers={"x-fragment": block} if block else {})
    assert answer.status_code == 200, answer.text
    return answer.text


# -- the list


def test_the_list_has_sessions_cost_failures_with_interval_and_notes(
    client: WebClient, store: Store
) -> None:
    tell_history(store, 20)
    tell(store, "other", folder="/gone/work/bakery")
    shown = read(client, "/projects", "list")
    row = shown[shown.index(f'href="{ADDRESS}"') :].partition("</tr>")[0]
    assert re.findall(r'class="num shrink(?: wide)?">\s*(\d+)', row) == ["20", "1"]  # and notes
    assert re.search(r"33% <small>\d+%–\d+%</small>", row)
    assert "10 of 30 calls in 20 sessions" in row
    assert "<polyline" in row
    assert shown.index("bakery") < shown.index(f'href="{ADDRESS}"')  # the latest first


def test_projects_are_found_by_name_and_ordered(client: WebClient, store: Store) -> None:
    tell_history(store, 3)
    tell(store, "other", folder="/gone/work/bakery")
    assert "bakery" not in read(client, "/projects?q=WORK+shop", "list")
    assert "shop" not in read(client, "/projects?q=bak", "list")
    shown = read(client, "/projects?order=sessions", "list")
    assert shown.index("shop") < shown.index("bakery")
    assert "No project is called so" in read(client, "/projects?q=nothing", "list")


def test_without_projects_a_command_helps(client: WebClient) -> None:
    assert "rekindle start" in read(client, "/projects", "list")


# -- names and addresses


@pytest.mark.parametrize("folder", ODD_FOLDERS)
def test_a_project_with_any_name_has_a_page(client: WebClient, store: Store, folder: str) -> None:
    tell(store, "a", folder=folder, asked="do it")
    (key,) = store.load_projects().projects
    address = build_project_url(key)
    assert f'href="{html.escape(address)}"' in read(client, "/projects", "list")
    for tab in ("", "?tab=sessions", "?tab=playbook", "?tab=start", "?tab=time", "?tab=replay"):
        shown = read(client, address + tab)
        assert HOSTILE not in shown
    assert "do it" in read(client, f"{address}?tab=sessions")


def test_a_browser_does_not_resolve_the_dots_of_a_name() -> None:
    address = build_project_url("folder:/gone/../up")
    assert "/../" not in address
    assert find_by_address(KnownProjects(["folder:/gone/../up"], {}), address[10:])


def test_a_short_name_leads_to_the_project(client: WebClient, store: Store) -> None:
    tell_history(store, 2)
    answer = client.get("/projects/shop?tab=start", follow_redirects=False)
    assert answer.status_code == 307
    assert answer.headers["location"] == f"{ADDRESS}?tab=start"
    assert client.get("/projects/none").status_code == 404
    assert str(client.get("/projects/").url).endswith("/projects")


# -- tabs


def test_the_overview_has_figures_failures_notes_and_sessions(
    client: WebClient, store: Store
) -> None:
    tell_history(store, 6)
    shown = read(client, ADDRESS)
    figures = read(client, ADDRESS, "figures")
    assert '<b class="">6</b><span>sessions</span>' in figures
    assert "<b>3</b> of 9 failed" in figures
    assert "make check" in figures
    assert 'href="/sessions/s0"' in shown


def test_sessions_come_in_pages(client: WebClient, store: Store) -> None:
    for number in range(53):
        tell(store, f"s{number:02}", asked=f"job {number:02}")
    first = read(client, f"{ADDRESS}?tab=sessions")
    assert first.count('class="row"') == 50
    assert "tab=sessions&amp;page=2" in first
    second = read(client, f"{ADDRESS}?tab=sessions&page=2")
    assert "job 00" in second
    assert second.count('class="row"') == 3
    assert read(client, f"{ADDRESS}?tab=sessions&page=999999999").count('class="row"') == 0
    read(client, f"{ADDRESS}?tab=sessions&page=²")


def test_the_next_start_is_shown_byte_for_byte(client: WebClient, store: Store) -> None:
    tell_history(store, 6)
    client.submit(ADDRESS, action="add", text=f"Mind the {HOSTILE} & 'quotes'")
    for message in ("", "run the checks"):
        recall = recall_at_start(store, FOLDER, message)
        shown = read(client, f"{ADDRESS}?tab=start&message={message}", "told")
        found = re.search(r'<pre class="told">(.*?)</pre>', shown, re.DOTALL)
        assert found
        assert html.unescape(found[1]) == recall.text
        assert f'<b class="num">{recall.tokens}</b> tokens' in shown


def test_weeks_are_plotted_with_links_to_their_sessions(client: WebClient, store: Store) -> None:
    now = time.time()
    for number in range(30):
        week = now - (number % 3) * 7 * 86_400
        bad = ("make check", "no", number % 5 > 0)
        tell(store, f"s{number}", bad, ("ls", "a", True), started=week)
        store.add_usage(f"s{number}", Tokens(input=10))  # without usage, no time at work is known
    learn_from_sessions(store)
    shown = read(client, f"{ADDRESS}?tab=time", "weeks")
    assert shown.count('class="graph"') == 3
    assert "calls failed" in shown
    assert "since=" in shown
    assert "style=" not in shown


def test_replay_figures_are_shown_if_there_are_any(
    client: WebClient, store: Store, tmp_path: Path
) -> None:
    tell_history(store, 8)
    shown = read(client, f"{ADDRESS}?tab=replay")
    assert "was not replayed yet" in shown
    assert f"rekindle warm replay --project {PROJECT}" in shown
    save_replay(tmp_path, PROJECT, replay_projects(store, PROJECT), 1_000.0)
    shown = read(client, f"{ADDRESS}?tab=replay", "replay")
    assert "3 sessions, replayed" in shown
    assert "<b>100%</b>" in shown
    assert load_replay(tmp_path, "folder:/another") is None


def test_the_command_for_a_replay_is_quoted(client: WebClient, store: Store) -> None:
    tell(store, "a", folder="/gone/$(reboot)'; x")
    (key,) = store.load_projects().projects
    shown = html.unescape(read(client, build_project_url(key, "replay")))
    assert "--project 'folder:/gone/$(reboot)'\"'\"'; x'" in shown


# -- the playbook


def find_note(store: Store, text: str) -> str:
    (found,) = [one for one in load_project_notes(store, PROJECT).notes if text in one.text]
    return found.id


def test_a_note_has_the_sessions_that_support_and_contradict_it(
    client: WebClient, store: Store
) -> None:
    tell_history(store, 4)
    tell(store, "against", ("make check", "error: broken", False), asked="it fails here")
    learn_from_sessions(store)
    note = find_note(store, "make check")
    shown = read(client, f"{ADDRESS}?tab=playbook&note={note}")
    supporting, contradicting = shown.split("contradicts it")
    assert "4 sessions support it" in supporting
    assert 'href="/sessions/s0"' in supporting
    assert "1 session" in supporting
    assert 'href="/sessions/against"' in contradicting
    assert client.get(f"{ADDRESS}?tab=playbook&note=nothing").status_code == 404


def test_notes_can_be_added_edited_pinned_and_retired(client: WebClient, store: Store) -> None:
    tell_history(store, 6)
    note = find_note(store, "make check")
    assert client.submit(ADDRESS, action="add", text="Ask  first.").status_code == 200
    assert "Ask first." in recall_at_start(store, FOLDER, "go").text
    client.submit(ADDRESS, action="pin", note=note)
    assert note in load_decisions(store, PROJECT).pinned
    client.submit(ADDRESS, action="reset", note=note)
    assert note not in load_decisions(store, PROJECT).pinned
    client.submit(ADDRESS, action="retire", note=note)
    assert "make check" not in recall_at_start(store, FOLDER, "go").text
    assert "Restore" in read(client, f"{ADDRESS}?tab=playbook&state=retired")
    client.submit(ADDRESS, action="reset", note=note)
    client.submit(ADDRESS, action="edit", note=note, text="Run `make check` first.")
    text = recall_at_start(store, FOLDER, "go").text
    assert "- Run `make check` first." in text
    assert "(6 sessions" not in text
    own = find_note(store, "Ask first.")
    client.submit(ADDRESS, action="retire", note=own)
    assert "Ask first." not in read(client, f"{ADDRESS}?tab=playbook")


def test_a_note_that_is_typed_into_the_page_has_no_secrets(client: WebClient, store: Store) -> None:
    tell_history(store, 6)
    client.submit(ADDRESS, action="add", text=f"Push with ghp_{'aB3dE5gH7j' * 4}.")
    own = find_note(store, "Push with <secret:github>")
    client.submit(ADDRESS, action="edit", note=own, text=f"Pull with ghp_{'aB3dE5gH7j' * 4}.")
    assert "Pull with <secret:github>" in recall_at_start(store, FOLDER, "go").text


def test_a_proposed_note_is_accepted_or_rejected(client: WebClient, store: Store) -> None:
    tell_history(store, 6)
    good = propose_note(store, PROJECT, "Use tabs.", 1.0)
    bad = propose_note(store, PROJECT, "Delete everything.", 2.0)
    assert good
    assert bad
    assert "Proposed by agents" in read(client, f"{ADDRESS}?tab=playbook")
    client.submit(ADDRESS, action="accept", note=good.id)
    client.submit(ADDRESS, action="retire", note=bad.id)
    assert "Use tabs." in recall_at_start(store, FOLDER, "go").text
    assert load_decisions(store, PROJECT).waiting == ()
    assert client.submit(ADDRESS, action="accept", note=good.id).status_code == 400


def test_a_note_is_shared_with_all_projects(client: WebClient, store: Store) -> None:
    tell_history(store, 6)
    tell_history(store, 6, folder="/gone/work/bakery", prefix="b")
    client.submit(ADDRESS, action="add", text="Ask first.")
    client.submit(ADDRESS, action="share", note=find_note(store, "Ask first."))
    assert find_project(store, "/gone/work/bakery")
    assert "Ask first. (shared from shop)" in recall_at_start(store, "/gone/work/bakery", "").text
    assert "Stop sharing" in read(client, f"{ADDRESS}?tab=playbook")
    client.submit(ADDRESS, action="unshare", note=find_note(store, "Ask first."))
    assert "Ask first." not in recall_at_start(store, "/gone/work/bakery", "").text


def test_what_is_wrong_with_a_change_is_said(client: WebClient, store: Store) -> None:
    tell_history(store, 6)
    for fields in ({"action": "add", "text": " "}, {"action": "add", "text": "x" * 401}, {}):
        answer = client.submit(ADDRESS, **fields)
        assert answer.status_code == 400
        assert "expected" in answer.text
    assert client.submit(ADDRESS, action="pin", note="nothing").status_code == 404
    assert client.submit("/projects/none", action="add", text="x").status_code == 404


def test_a_read_only_page_has_no_buttons_and_takes_no_changes(store: Store, tmp_path: Path) -> None:
    tell_history(store, 6)
    client = build_client(store, tmp_path, readonly=True)
    client.open_link()
    for tab in ("playbook", "replay"):
        assert 'name="action"' not in read(client, f"{ADDRESS}?tab={tab}")
    assert client.submit(ADDRESS, action="add", text="Ask first.").status_code == 403
    assert load_decisions(store, PROJECT).added == ()


def test_code_in_notes_is_marked_and_everything_escaped() -> None:
    assert mark_code("`a <b>` and <i>") == "<code>a &lt;b&gt;</code> and &lt;i&gt;"
    assert mark_code("no `end") == "no `end"
    assert mark_code("`a` no `end") == "<code>a</code> no `end"
    assert mark_code("x" * 20, 10) == "x" * 9 + "…"
