"""The frame of all pages: links, keys, themes, and reading without scripts."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.web.conftest import WebServer

pytestmark = pytest.mark.browser
PAGES = ("Sessions", "Projects", "Reliability", "Experiments", "Processes", "Gateway", "Home")
CURRENT = "nav.side a[aria-current=page]"


def test_every_page_is_a_click_away(page: Any) -> None:
    for name in PAGES:
        page.get_by_role("navigation", name="Main").get_by_role("link", name=name).click()
        expect(page.locator(CURRENT)).to_have_text(name)
        expect(page).to_have_title(re.compile("Rekindle$"))


def test_keys_lead_everywhere(page: Any, server: WebServer) -> None:
    page.keyboard.press("g")
    page.keyboard.press("p")
    page.wait_for_url(f"{server.url}/projects")
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.wait_for_function("document.activeElement.name === 'q'")


def test_a_theme_is_remembered(page: Any) -> None:
    page.get_by_role("button", name="Dark").click()
    page.wait_for_selector("html[data-theme=dark]")
    page.reload()
    page.wait_for_function("getComputedStyle(document.body).backgroundColor === 'rgb(22, 21, 19)'")


def test_pages_can_be_read_without_scripts(chromium: Any, server: WebServer) -> None:
    context = chromium.new_context(java_script_enabled=False)
    opened = context.new_page()
    opened.goto(server.link)
    opened.wait_for_url(f"{server.url}/")
    for name in PAGES:
        opened.get_by_role("link", name=name, exact=True).first.click()
        expect(opened.locator(CURRENT)).to_have_text(name)
        expect(opened.locator("h1")).to_have_count(1)
    context.close()


def test_another_link_opens_a_second_browser(chromium: Any, page: Any, server: WebServer) -> None:
    context = chromium.new_context()
    opened = context.new_page()
    opened.goto(server.link)
    opened.get_by_text("rekindle web link").first.wait_for()  # the first browser has used it
    opened.goto(server.create_link())
    opened.wait_for_url(f"{server.url}/")
    context.close()
