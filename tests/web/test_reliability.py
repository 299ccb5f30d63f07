"""Reliability in the browser: figures appear, filters narrow them, and points lead to calls."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import expect

from rekindle import open_store
from tests.unit.web.judged_sessions import add_history
from tests.web.conftest import WebServer

pytestmark = pytest.mark.browser


@pytest.fixture
def history(server: WebServer) -> None:
    with open_store(server.store) as store:
        add_history(store)


def test_figures_appear_and_lead_to_calls(history: None, page: Any, server: WebServer) -> None:
    page.goto(f"{server.url}/reliability")
    page.locator(".facts").get_by_text("17%").wait_for()
    page.get_by_role("link", name="week of 2026-06-01").click()
    page.wait_for_url("**/reliability/calls?*week=2026-06-01*")
    expect(page.locator(".calls li")).to_have_count(6)
    first = page.locator(".calls a.row").first
    expect(first).to_have_attribute("href", re.compile("#m"))
    page.get_by_role("link", name="Worked").click()
    page.wait_for_url("**verdict=worked**")
    page.locator(".calls li").first.wait_for()
    expect(page.locator(".chip.bad")).to_have_count(0)


def test_filters_narrow_at_once_and_stay_in_the_address(
    history: None, page: Any, server: WebServer
) -> None:
    page.goto(f"{server.url}/reliability")
    page.locator(".facts").get_by_text("17%").wait_for()
    page.get_by_label("Agent", exact=True).select_option("codex")
    page.locator(".facts").get_by_text("8.3%").wait_for()
    page.wait_for_url(f"{server.url}/reliability?agent=codex")
    page.reload()
    page.locator(".facts").get_by_text("8.3%").wait_for()
    page.get_by_role("link", name="exec_command").first.click()
    page.get_by_text("tool: exec_command").wait_for()
    page.get_by_role("link", name="Remove tool").click()
    page.wait_for_url("**/reliability?agent=codex")


def test_the_page_fits_a_phone(history: None, page: Any, server: WebServer) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{server.url}/reliability")
    page.locator(".facts").get_by_text("17%").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
