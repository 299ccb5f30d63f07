"""axe finds nothing serious on any page, light and dark, and no page is wider than a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import command, servers
from tests.agents.programs import install_packages
from tests.web.conftest import VIEWPORTS, WebServer

pytestmark = pytest.mark.browser
AXE = ("axe-core@4.10.2",)
PAGES = ["/", "/sessions", "/projects", "/reliability", "/experiments", "/processes", "/gateway"]
SERIOUS = ("serious", "critical")


@pytest.fixture(scope="module")
def axe() -> str:
    try:
        return install_packages(AXE, "axe-core/axe.min.js").read_text()
    except servers.Missing as problem:
        pytest.skip(str(problem))


@pytest.fixture(scope="module")
def full_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    """A server with the sample sessions, judged and learned from."""
    home: Path = tmp_path_factory.mktemp("full") / "home"
    server = WebServer(home)
    command.run(["start"], env=server.env, cwd=home, capture_output=True)
    yield server
    server.stop()
    assert "Traceback" not in server.read_log()


def list_pages(page: Any, server: WebServer) -> list[str]:
    """Return the pages of the navigation, and one of each kind that they link to."""
    found = {"/"}
    for address in (
        "/",
        "/sessions",
        "/projects",
        "/reliability",
        "/experiments",
        "/processes",
        "/gateway",
    ):
        page.goto(server.url + address)
        links = page.eval_on_selector_all(
            "a[href^='/']",
            "all => all.map((one) => one.getAttribute('href').split(/[?#]/)[0])",
        )
        kinds: set[str] = set()
        for link in links:
            kind = "/".join(link.split("/")[:2]) + ("/…" if link.count("/") > 1 else "")
            if kind not in kinds and not link.startswith(("/open", "/static")):
                kinds.add(kind)
                found.add(link)
    return sorted(found)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(
    chromium: Any, full_server: WebServer, axe: str, theme: str
) -> None:
    context = chromium.new_context(viewport=VIEWPORTS["desktop"], color_scheme=theme)
    page = context.new_page()
    page.goto(full_server.create_link())
    page.wait_for_url(f"{full_server.url}/")
    problems: list[str] = []
    for address in list_pages(page, full_server):
        page.goto(full_server.url + address)
        page.evaluate(axe)
        result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        problems += [
            f"{address}: {one['id']}: {node['html'][:200]} {node.get('failureSummary', '')[:200]}"
            for one in result["violations"]
            if one["impact"] in SERIOUS
            for node in one["nodes"][:3]
        ]
    context.close()
    assert problems == []


def test_pages_fit_on_a_phone(chromium: Any, full_server: WebServer) -> None:
    context = chromium.new_context(viewport=VIEWPORTS["phone"], is_mobile=True, has_touch=True)
    page = context.new_page()
    page.goto(full_server.create_link())
    page.wait_for_url(f"{full_server.url}/")
    wide: list[str] = []
    for address in list_pages(page, full_server):
        page.goto(full_server.url + address)
        if (width := page.evaluate("document.documentElement.scrollWidth")) > 390:
            wide.append(f"{address}: {width} px")
    context.close()
    assert wide == []
