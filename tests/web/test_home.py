"""Home in the browser: it fills and refreshes by itself, and every number leads somewhere."""

from __future__ import annotations

import subprocess
import time
from typing import Any

import pytest
from playwright.sync_api import expect

from rekindle.store import open_store
from tests import command
from tests.unit.web.histories import PROJECT, tell, tell_history
from tests.web.conftest import VIEWPORTS, WebServer

pytestmark = pytest.mark.browser


def test_a_first_visit_explains_how_to_begin(page: Any) -> None:
    page.get_by_role("heading", name="Welcome to Rekindle").wait_for()
    page.get_by_text("rekindle start", exact=True).wait_for()
    page.get_by_role("button", name="Copy").nth(2).wait_for()


def test_what_begins_to_run_appears_by_itself(page: Any, server: WebServer) -> None:
    with open_store(server.store) as store:
        tell(store, "old", asked="paint the door", started=time.time() - 7200)
        page.reload()
        page.get_by_text("No session had a message in the last five minutes.").wait_for()
        tell(store, "live", asked="mend the gate")
        page.locator("#now").get_by_role("link", name="mend the gate").wait_for()
        page.locator("#latest").get_by_role("link", name="mend the gate").wait_for()
        page.locator("#now").get_by_role("link", name="mend the gate").click()
        page.wait_for_url(f"{server.url}/sessions/live")


def test_a_background_process_is_listed_while_it_runs(page: Any, server: WebServer) -> None:
    with open_store(server.store) as store:
        tell(store, "a")
    words = ["run", "--name", "watering", "--", "sleep", "600"]
    command.run(words, env=server.env, cwd=server.home, stdout=subprocess.PIPE)
    try:
        page.reload()
        page.locator("#now").get_by_role("link", name="watering").wait_for()
    finally:
        words = ["kill", "watering"]
        command.run(words, env=server.env, cwd=server.home, stdout=subprocess.PIPE)
    page.locator("#now").get_by_role("link", name="watering").wait_for(state="detached")


def test_failures_lead_to_their_calls_and_projects_to_their_pages(
    page: Any, server: WebServer
) -> None:
    with open_store(server.store) as store:
        tell_history(store, 6)
    page.reload()
    known = page.locator("#known")
    known.get_by_text("of 9 failed").wait_for()
    call = known.locator("a[href*='#m']").first
    expect(call).to_have_attribute("href", "/sessions/s5?at=1#m1")
    known.get_by_role("link", name="shop", exact=True).first.click()
    page.wait_for_url(f"{server.url}/projects/{PROJECT}")


def test_keys_walk_through_the_rows(page: Any, server: WebServer) -> None:
    with open_store(server.store) as store:
        tell(store, "a", asked="mend the gate", started=time.time() - 7200)
    page.reload()
    page.locator("#known table").wait_for()
    page.keyboard.press("j")
    page.wait_for_function("document.activeElement.className === 'row'")


def test_home_fits_a_phone_and_is_complete_without_scripts(
    chromium: Any, server: WebServer
) -> None:
    with open_store(server.store) as store:
        tell_history(store, 6)
    context = chromium.new_context(viewport=VIEWPORTS["phone"], java_script_enabled=False)
    opened = context.new_page()
    opened.goto(server.link)
    opened.wait_for_url(f"{server.url}/")
    while opened.get_by_text("Counting …").count():
        opened.reload()
    assert opened.get_by_text("of 9 failed").count()
    assert opened.locator("html").evaluate("e => e.scrollWidth") <= 390
    context.close()
