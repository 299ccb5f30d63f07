"""The list of sessions in the browser: search, filters, keys, and every action."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from playwright.sync_api import expect

from rekindle.store import Store, open_store
from rekindle.types import Message
from tests.web.conftest import VIEWPORTS, WebServer, wait_beside

pytestmark = pytest.mark.browser
CLAUDE_ID = "0708a5fa-06bd-4274-b1fe-513c7202217e"


def add_session(store: Store, id: str, title: str, *texts: str, source: str = "codex") -> None:
    begun = store.begin(id=id, title=title, source=source, cwd="/src/app")
    for text in texts or ("hello",):
        store.append(begun, Message("user", content=text), Message("assistant", content="done"))


@pytest.fixture
def store(server: WebServer):
    with open_store(server.store) as opened:
        add_session(opened, "a", "Write the parser", "a needle in the haystack")
        add_session(opened, "b", "Fix the deployment", "roll back the deployment", "and again")
        add_session(opened, CLAUDE_ID, "Review the change", source="claude-code")
        yield opened


def show_list(page: Any, server: WebServer, query: str = "") -> None:
    page.goto(f"{server.url}/sessions{query}")
    page.locator("#results").wait_for()


def list_titles(page: Any) -> list[str]:
    return [text.strip() for text in page.locator("#results a.row").all_inner_texts()]


def wait_for_titles(page: Any, *titles: str) -> None:
    page.wait_for_function(
        "(wanted) => JSON.stringify([...document.querySelectorAll('#results a.row')]"
        ".map((one) => one.textContent.trim())) === JSON.stringify(wanted)",
        arg=list(titles),
    )


def open_menu(page: Any, title: str) -> Any:
    row = page.locator("#results tbody tr", has=page.get_by_role("link", name=title))
    row.get_by_role("link", name="Actions").click()
    dialog = page.locator("dialog#session-menu[open]")
    dialog.wait_for()
    return dialog


def test_search_as_one_types_finds_titles_words_and_beginnings(
    page: Any, server: WebServer, store: Store
) -> None:
    show_list(page, server)
    wait_for_titles(page, "Review the change", "Fix the deployment", "Write the parser")
    page.keyboard.press("/")
    page.keyboard.type("need")
    wait_for_titles(page, "Write the parser")  # once the typing pauses
    page.keyboard.type("le")
    page.wait_for_function("() => location.search === '?q=needle'")
    page.locator(".hits a mark", has_text=re.compile("^needle$")).wait_for()
    wait_for_titles(page, "Write the parser")
    expect(page.locator(".hits a").first).to_have_attribute("href", "/sessions/a?at=0#m0")
    page.reload()
    wait_for_titles(page, "Write the parser")


def test_typing_on_cancels_what_is_under_way(page: Any, server: WebServer, store: Store) -> None:
    show_list(page, server)
    answered: list[str] = []
    page.on("requestfinished", lambda one: answered.append(one.url))
    page.keyboard.press("/")
    page.keyboard.type("deployment")
    wait_for_titles(page, "Fix the deployment")
    page.wait_for_function("() => location.search === '?q=deployment'")
    # Beginnings are looked up at most once, for the word at which the typing paused.
    assert len([url for url in answered if "thorough" in url and "deployment" not in url]) <= 1


def test_filters_combine_and_are_in_the_address(page: Any, server: WebServer, store: Store) -> None:
    show_list(page, server)
    page.get_by_label("Agent").select_option("codex")
    wait_for_titles(page, "Fix the deployment", "Write the parser")
    page.get_by_label("Search titles and messages").fill("haystack")
    wait_for_titles(page, "Write the parser")
    page.wait_for_url(re.compile(r"q=haystack&agent=codex$"))
    page.get_by_role("link", name="Clear").click()
    wait_for_titles(page, "Review the change", "Fix the deployment", "Write the parser")
    page.wait_for_url(re.compile(r"/sessions$"))


def test_keys_walk_open_and_pick(page: Any, server: WebServer, store: Store) -> None:
    show_list(page, server)
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.get_by_text("1 selected").wait_for()
    page.keyboard.press("x")
    page.keyboard.press(".")
    page.locator("dialog#session-menu[open]").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("k")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{server.url}/sessions/b")


def test_rename_end_and_reopen(page: Any, server: WebServer, store: Store) -> None:
    show_list(page, server)
    menu = open_menu(page, "Write the parser")
    menu.get_by_label("Title").fill("Write <b>the</b> lexer")
    menu.get_by_role("button", name="Rename").click()
    page.get_by_text("Renamed “Write <b>the</b> lexer”.").wait_for()
    open_menu(page, "lexer").get_by_role("button", name="End").click()
    page.get_by_text("Ended “").wait_for()
    assert store.session("a").end_reason == "user"
    page.get_by_role("button", name="Undo").click()
    page.get_by_text("Reopened “").wait_for()
    assert store.session("a").ended is None


def test_archive_and_delete_can_be_undone(page: Any, server: WebServer, store: Store) -> None:
    show_list(page, server, "?agent=codex")
    open_menu(page, "Write the parser").get_by_role("button", name="Archive").click()
    page.get_by_text("Archived “Write the parser”.").wait_for()
    wait_for_titles(page, "Fix the deployment")
    page.get_by_role("button", name="Undo").click()
    page.get_by_text("Brought back “Write the parser”.").wait_for()
    expect(page.get_by_label("Agent")).to_have_value("codex")
    store.end("a", "user")
    page.reload()
    open_menu(page, "Write the parser").get_by_role("button", name="Delete").click()
    page.get_by_text("Deleted “Write the parser”.").wait_for()
    page.get_by_role("button", name="Undo").click()
    page.get_by_text("Brought back “Write the parser”.").wait_for()
    wait_beside(
        page, lambda: sorted(list_titles(page)) == ["Fix the deployment", "Write the parser"]
    )


def test_several_are_archived_together(page: Any, server: WebServer, store: Store) -> None:
    show_list(page, server)
    for box in page.locator("td.pick input").all()[:2]:
        box.check()
    page.get_by_text("2 selected").wait_for()
    page.get_by_role("button", name="Archive").click()
    page.get_by_text("Archived 2 sessions.").wait_for()
    wait_for_titles(page, "Write the parser")
    page.get_by_role("button", name="Undo").click()
    page.get_by_text("Brought back 2 sessions.").wait_for()
    expect(page.locator("#results a.row")).to_have_count(3)


def test_undo_redo_and_fork(page: Any, server: WebServer, store: Store) -> None:
    show_list(page, server)
    open_menu(page, "Fix the deployment").get_by_role("button", name="Undo last turn").click()
    page.get_by_text("Undid the last turn").wait_for()
    assert store.session("b").message_count == 2
    open_menu(page, "Fix the deployment").get_by_role("button", name="Redo").click()
    page.get_by_text("Brought back the last turn").wait_for()
    assert store.session("b").message_count == 4
    open_menu(page, "Fix the deployment").get_by_role("button", name="Fork").click()
    page.wait_for_url(re.compile("did=fork"))
    (fork,) = store.children("b")
    assert f"/sessions/{fork.id}" in page.url


def test_share_downloads_a_redacted_page(page: Any, server: WebServer, store: Store) -> None:
    secret = "ghp_" + "a1B2" * 9
    store.append("a", Message("user", content=f"the token is {secret}"))
    show_list(page, server)
    menu = open_menu(page, "Write the parser")
    with page.expect_download() as download:
        menu.get_by_role("link", name="Download to share").click()
    text = download.value.path().read_text()
    assert download.value.suggested_filename.startswith("write-the-parser")
    assert "the token is" in text
    assert secret not in text


def test_the_resume_command_is_copied(page: Any, server: WebServer, store: Store) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    show_list(page, server)
    menu = open_menu(page, "Review the change")
    menu.get_by_role("button", name="Copy").nth(1).click()
    page.get_by_text("Copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == f"cd /src/app && claude --resume {CLAUDE_ID}"


def test_older_sessions_come_when_they_are_scrolled_to(
    page: Any, server: WebServer, store: Store
) -> None:
    for number in range(70):
        add_session(store, f"n{number}", f"Number {number}")
    show_list(page, server)
    page.mouse.move(600, 600)

    def scroll_to_the_end() -> bool:
        page.mouse.wheel(0, 4000)
        return page.locator("#results a.row").count() == 73

    wait_beside(page, scroll_to_the_end)
    titles = list_titles(page)
    assert len(titles) == len(set(titles)) == 73


def test_what_an_agent_writes_appears_by_itself(page: Any, server: WebServer) -> None:
    show_list(page, server)
    page.get_by_text("No sessions yet").wait_for()
    folder = server.home / ".claude" / "projects" / "-src-app"
    folder.mkdir(parents=True)
    line = {
        "type": "user",
        "uuid": "11111111-1111-4111-8111-111111111111",
        "parentUuid": None,
        "sessionId": CLAUDE_ID,
        "cwd": "/src/app",
        "timestamp": time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime()),
        "message": {"role": "user", "content": "build me a boat"},
    }
    (folder / f"{CLAUDE_ID}.jsonl").write_text(json.dumps(line) + "\n")

    def is_listed() -> bool:
        page.reload()
        return "build me a boat" in list_titles(page)

    wait_beside(page, is_listed)
    row = page.locator("#results tbody tr")
    expect(row.locator("[aria-label=Live]")).to_have_count(1)


@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_the_list_can_be_read_and_searched_without_scripts(
    chromium: Any, server: WebServer, store: Store, size: str
) -> None:
    context = chromium.new_context(java_script_enabled=False, viewport=VIEWPORTS[size])
    opened = context.new_page()
    opened.goto(server.link)
    opened.wait_for_url(f"{server.url}/")
    opened.goto(f"{server.url}/sessions")
    opened.get_by_label("Search titles and messages").fill("haysta")
    opened.get_by_role("button", name="Search").click()
    opened.wait_for_url(re.compile("q=haysta"))
    expect(opened.locator("#results a.row")).to_have_text(["Write the parser"])
    opened.get_by_role("link", name="Actions").first.click()
    opened.get_by_role("button", name="Archive").click()
    opened.get_by_text("Archived “Write the parser”.").wait_for()
    context.close()
