"""Projects in the browser: every action of the playbook, the next start as one types, replays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from rekindle.learning.notes.playbooks import load_decisions, propose_note
from rekindle.learning.notes.recall import recall_at_start
from rekindle.store import Store, open_store
from tests.unit.web.histories import FOLDER, HOSTILE, PROJECT, tell, tell_history
from tests.web.conftest import WebServer, wait_beside

pytestmark = pytest.mark.browser


@pytest.fixture
def history(server: WebServer) -> Iterator[Store]:
    with open_store(server.store) as store:
        tell_history(store, 8)
        yield store


@pytest.fixture
def address(server: WebServer) -> str:
    return f"{server.url}/projects/{PROJECT}"


def find_row(page: Any, text: str) -> Any:
    return page.locator(".note-list li").filter(has_text=text)


def wait_for_content(page: Any, selector: str, text: str) -> None:
    """Wait until an element has exactly this text, spaces and lines included."""
    page.wait_for_function(
        "([selector, text]) => document.querySelector(selector)?.textContent === text",
        arg=[selector, text],
    )


def test_projects_are_found_while_typing(page: Any, server: WebServer, history: Store) -> None:
    tell(history, "other", folder="/gone/work/bakery")
    page.goto(f"{server.url}/projects")
    page.get_by_role("link", name="bakery", exact=True).wait_for()
    page.get_by_role("searchbox", name="Find a project").fill("sho")
    page.get_by_role("link", name="bakery", exact=True).wait_for(state="detached")
    page.get_by_role("link", name="shop", exact=True).click()
    page.wait_for_url(f"{server.url}/projects/{PROJECT}")


def test_tabs_lead_through_a_project(page: Any, address: str, history: Store) -> None:
    page.goto(address)
    page.locator("#figures .facts").wait_for()
    for name, wanted in (
        ("Sessions", "Filter and search them"),
        ("Playbook", "Add a note in your own words"),
        ("Next start", "What the next session is told, exactly"),
        ("Over time", "No weeks to show"),
        ("Replay", "This project was not replayed yet."),
    ):
        page.get_by_role("navigation", name="Views").get_by_role("link", name=name).click()
        page.get_by_text(wanted).first.wait_for()


def test_a_note_is_added_pinned_edited_retired_and_restored(
    page: Any, address: str, history: Store
) -> None:
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto(f"{address}?tab=playbook")
    page.get_by_label("Add a note in your own words").fill(f"Mind the {HOSTILE}")
    page.get_by_role("button", name="Add", exact=True).click()
    find_row(page, "Mind the <script>").get_by_text("added").wait_for()

    find_row(page, "make check").get_by_role("button", name="Pin").click()
    find_row(page, "make check").get_by_text("pinned").wait_for()
    assert len(load_decisions(history, PROJECT).pinned) == 1
    find_row(page, "make check").get_by_role("button", name="Unpin").click()
    find_row(page, "make check").get_by_role("button", name="Pin").wait_for()

    find_row(page, "make check").get_by_role("button", name="Retire").click()
    find_row(page, "make check").get_by_role("button", name="Restore").click()
    row = find_row(page, "make check")
    row.get_by_role("button", name="Pin").wait_for()
    row.locator("summary").click()
    row.get_by_role("textbox").fill("Run make check twice.")
    row.get_by_role("button", name="Save").click()
    find_row(page, "Run make check twice.").get_by_text("added").wait_for()
    assert "- Run make check twice." in recall_at_start(history, FOLDER, "").text

    find_row(page, "Mind the").get_by_role("button", name="Delete").click()
    find_row(page, "Mind the").wait_for(state="detached")


def test_a_proposed_note_is_accepted_and_shared(page: Any, address: str, history: Store) -> None:
    propose_note(history, PROJECT, "Use tabs.", 1.0)
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto(f"{address}?tab=playbook")
    find_row(page, "Use tabs.").get_by_role("button", name="Accept").click()
    find_row(page, "Use tabs.").get_by_text("added").wait_for()
    find_row(page, "Use tabs.").get_by_role("button", name="Share").click()
    # The button stays as it was: only the store shows when the note has been shared.
    wait_beside(page, lambda: load_decisions(history, "folder:/gone/other").shared)
    shared = load_decisions(history, "folder:/gone/other").shared
    assert [one.text for one in shared] == ["Use tabs. (shared from shop)"]


def test_a_question_comes_before_a_note_is_shared(page: Any, address: str, history: Store) -> None:
    questions: list[str] = []

    def refuse(dialog: Any) -> None:
        questions.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", refuse)
    page.goto(f"{address}?tab=playbook")
    with page.expect_event("dialog"):
        find_row(page, "make check").get_by_role("button", name="Share").click()
    assert questions == ["Tell this note in all your projects?"]
    assert load_decisions(history, "folder:/gone/other").shared == ()


def test_evidence_leads_to_sessions(
    page: Any, server: WebServer, address: str, history: Store
) -> None:
    page.goto(f"{address}?tab=playbook")
    find_row(page, "make check").get_by_role("link", name="Evidence").click()
    page.get_by_role("heading", name="8 sessions support it").wait_for()
    page.locator(".lines a").first.click()
    page.wait_for_url(f"{server.url}/sessions/s*")


def test_the_next_start_changes_as_one_types(page: Any, address: str, history: Store) -> None:
    page.goto(f"{address}?tab=start")
    wait_for_content(page, "pre.told", recall_at_start(history, FOLDER, "").text)
    message = "please run make check on it"
    page.get_by_label("First message of the session").fill(message)
    page.get_by_text("for this message").wait_for()
    wanted = recall_at_start(history, FOLDER, message)
    wait_for_content(page, "pre.told", wanted.text)
    wait_for_content(page, "#told b.num", f"{wanted.tokens}")


def test_a_replay_runs_beside_the_page_and_its_figures_appear(
    page: Any, address: str, history: Store
) -> None:
    page.goto(f"{address}?tab=replay")
    page.get_by_role("button", name="Replay").click()
    page.get_by_text("3 sessions, replayed").wait_for()
    page.get_by_role("button", name="Replay again").wait_for()


def test_a_replay_that_fails_says_why(page: Any, server: WebServer) -> None:
    with open_store(server.store) as store:
        tell(store, "only", folder="/gone/work/bakery")
    page.goto(f"{server.url}/projects/folder:/gone/work/bakery?tab=replay")
    page.get_by_role("button", name="Replay").click()
    page.get_by_text("The last replay failed").wait_for()
    expect(page.locator("#replay")).to_contain_text("no sessions to replay")
