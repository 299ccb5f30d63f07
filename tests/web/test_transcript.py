"""The page of one session in the browser: reading, jumping, sub-agents, and live messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from rekindle.store import Store, open_store
from rekindle.store.transfer.bulk_import import SessionImport
from rekindle.types import Message, Session, ToolCall
from tests.web.conftest import WebServer, wait_beside

pytestmark = pytest.mark.browser

IN_VIEW = """selector => {
  const one = document.querySelector(selector);
  if (!one) return false;
  const box = one.getBoundingClientRect();
  return box.height > 0 && box.top > -5 && box.top < innerHeight - 10;
}"""

IS_HERE = "id => document.querySelector('.here')?.closest('.entry')?.id === id"


@pytest.fixture
def store(server: WebServer) -> Iterator[Store]:
    with open_store(server.store) as opened:
        yield opened


def call(id: str, name: str = "Bash", **arguments: object) -> Message:
    return Message("assistant", "", [ToolCall(id, name, arguments)])


def result(id: str, text: str = "done", *, failed: bool = False) -> Message:
    return Message("tool", text, tool_call_id=id, meta={"exit_code": int(failed)})


def fill_long(store: Store, prompts: int = 60) -> None:
    """Store a session of 10 messages per prompt; every 20th fails, every 20th edits."""
    messages: list[Message] = []
    for n in range(prompts):
        messages.append(Message("user", f"Question {n}"))
        for k in range(4):
            tool = {"command": f"ls {n}-{k}"}
            edit = {"file_path": f"f{n}.py", "old_string": "x = 1", "new_string": f"x = {n}"}
            is_edit = n % 20 == 13 and k == 2
            one = call(f"c{n}-{k}", "Edit", **edit) if is_edit else call(f"c{n}-{k}", **tool)
            messages += [one, result(f"c{n}-{k}", failed=n % 20 == 7 and k == 3)]
        messages.append(Message("assistant", f"Answer {n}. " + "More words. " * 40))
    store.append(store.begin(id="long", source="claude-code", title="A long one"), *messages)


def test_scrolling_loads_the_next_messages(page: Any, server: WebServer, store: Store) -> None:
    fill_long(store)
    page.goto(f"{server.url}/sessions/long")
    assert page.locator("#m599").count() == 0

    def scroll_to_the_end() -> bool:
        page.mouse.wheel(0, 20_000)
        return page.locator("#m599").count() > 0

    wait_beside(page, scroll_to_the_end)
    ids = page.eval_on_selector_all(
        ".messages .entry[id]", "all => all.map(one => +one.id.slice(1))"
    )
    assert ids == sorted(set(ids))


def test_a_link_to_a_later_message_leads_there(page: Any, server: WebServer, store: Store) -> None:
    fill_long(store)
    page.goto(f"{server.url}/sessions/long#m450")
    page.wait_for_function(IN_VIEW, arg="#m450")
    page.wait_for_selector("nav.prompts a[aria-current]:has-text('Question 45')")
    page.evaluate("document.querySelector('[data-earlier]').click()")
    page.wait_for_selector("#m400", state="attached")
    page.wait_for_function(IN_VIEW, arg="#m450")  # the reader stays where they were


def test_keys_jump_to_prompts_errors_and_edits(page: Any, server: WebServer, store: Store) -> None:
    fill_long(store)
    page.goto(f"{server.url}/sessions/long")
    for prompt in (0, 10, 20):
        page.keyboard.press("n")
        page.wait_for_selector(f"#m{prompt}.here")
    page.keyboard.press("p")
    page.wait_for_selector("#m10.here")
    page.keyboard.press("e")
    page.wait_for_selector("details.call.failed.here")
    page.wait_for_function(IN_VIEW, arg="details.here")
    for edit in (135, 335, 535):  # the last ones on parts that were not loaded
        page.keyboard.press("d")
        page.wait_for_function(IS_HERE, arg=f"m{edit}")
        page.wait_for_function(IN_VIEW, arg=f"#m{edit}")
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keys").get_by_text("Next error").wait_for()


def test_prompts_are_a_list_of_links(page: Any, server: WebServer, store: Store) -> None:
    fill_long(store)
    page.goto(f"{server.url}/sessions/long")
    page.get_by_role("navigation", name="Prompts").get_by_text("Question 50").click()
    page.wait_for_url("**?at=500#m500")
    page.wait_for_function(IN_VIEW, arg="#m500")


def test_errors_are_a_click_away(page: Any, server: WebServer, store: Store) -> None:
    fill_long(store)
    page.goto(f"{server.url}/sessions/long")
    page.wait_for_selector("nav.prompts")
    page.locator(".jumps [data-jump=error]").click()
    page.wait_for_function(IN_VIEW, arg="details.call.failed")


def test_calls_unfold_and_show_their_result(page: Any, server: WebServer, store: Store) -> None:
    messages = [call("a", command="ls"), result("a", "a-result")]
    store.append(store.begin(id="s-1"), Message("user", "go"), *messages)
    page.goto(f"{server.url}/sessions/s-1")
    expect(page.get_by_text("a-result")).to_be_hidden()
    page.locator("details.call summary").click()
    expect(page.get_by_text("a-result")).to_be_visible()
    page.keyboard.press("o")
    page.keyboard.press("o")
    expect(page.get_by_text("a-result")).to_be_hidden()


def test_a_sub_agent_opens_in_place(page: Any, server: WebServer, store: Store) -> None:
    task = call("t", "Task", prompt="Look for bugs", description="bugs")
    store.append(store.begin(id="s-1"), Message("user", "go"), task, result("t"))
    child = Session(id="child", source="claude-code", parent="s-1", sub_agent="explorer")
    inner = [Message("user", "Look for bugs"), Message("assistant", "There are none at all.")]
    store.import_batch([SessionImport(child, inner)])
    page.goto(f"{server.url}/sessions/s-1")
    page.locator("details.agent summary").click()
    page.get_by_text("There are none at all.").wait_for()
    page.get_by_role("link", name="Open as a page").click()
    page.wait_for_url("**/sessions/child")


def test_a_raw_message_is_one_click_away(page: Any, server: WebServer, store: Store) -> None:
    store.append(store.begin(id="s-1"), Message("user", "go"), Message("assistant", "I go"))
    page.goto(f"{server.url}/sessions/s-1")
    page.locator("#m1").hover()
    page.locator("#m1 > .raw").click()
    page.wait_for_url("**/sessions/s-1/messages/1")
    expect(page.locator("pre.args")).to_contain_text('"role": "assistant"')
    with page.expect_download() as download:
        page.get_by_role("link", name="Save the text").click()
    assert download.value.suggested_filename == "message-1.txt"
    page.get_by_role("link", name="In the transcript").click()
    page.wait_for_function(IN_VIEW, arg="#m1")


def test_new_messages_appear_and_can_be_followed(
    page: Any, server: WebServer, store: Store
) -> None:
    store.append(store.begin(id="s-1"), Message("user", "start"))
    page.goto(f"{server.url}/sessions/s-1")
    page.wait_for_selector("#transcript[data-connected]")
    store.append("s-1", call("a", command="make"))
    page.wait_for_selector("#m1 >> text=no result")
    store.append("s-1", result("a", "it broke", failed=True), Message("assistant", "It broke."))
    page.wait_for_selector("#m1 details.failed")
    page.wait_for_selector("#m3 >> text=It broke.")
    page.locator("#fact-messages").get_by_text("4", exact=True).wait_for()
    page.get_by_label("Follow").check()
    for n in range(40):
        store.append("s-1", Message("assistant", f"Line {n}. " + "More words. " * 30))
    page.wait_for_selector("#m43", state="attached")
    page.wait_for_function("() => scrollY + innerHeight > document.body.scrollHeight - 200")


def test_messages_that_came_while_nobody_looked_are_shown_later(
    page: Any, server: WebServer, store: Store
) -> None:
    store.append(store.begin(id="s-1"), Message("user", "start"))
    page.goto(f"{server.url}/sessions/s-1")
    page.wait_for_selector("#transcript[data-connected]")
    page.evaluate("dispatchEvent(new Event('pagehide'))")
    store.append("s-1", Message("assistant", "Said meanwhile."))
    page.evaluate("dispatchEvent(new Event('pageshow'))")
    page.wait_for_selector("#m1 >> text=Said meanwhile.")
    assert page.locator("#m1").count() == 1


def test_an_undo_elsewhere_asks_to_load_again(page: Any, server: WebServer, store: Store) -> None:
    store.append(store.begin(id="s-1"), Message("user", "one"), Message("user", "two"))
    page.goto(f"{server.url}/sessions/s-1")
    page.wait_for_selector("#transcript[data-connected]")
    store.undo("s-1")
    page.get_by_role("link", name="Load it again").click()
    page.wait_for_selector("#m0")
    page.wait_for_selector("#m1", state="detached")


def test_nothing_of_a_hostile_session_runs(page: Any, server: WebServer, store: Store) -> None:
    evil = "<img src=x onerror='window.ran=1'><script>window.ran=1</script>\"'><svg onload=window.ran=1>"
    messages = [
        Message("user", evil),
        Message("assistant", f"[x](javascript:window.ran=1) {evil}", reasoning=evil),
        call("a", evil, command=evil, file_path=evil),
        result("a", evil, failed=True),
        call("b", "Edit", file_path=evil, old_string=evil, new_string=evil * 2),
    ]
    session = store.begin(id="s-1", title=evil, model=evil, cwd=evil, git_branch=evil)
    store.append(session, *messages)
    page.goto(f"{server.url}/sessions/s-1")
    page.wait_for_selector("#transcript[data-connected]")
    page.keyboard.press("o")
    store.append("s-1", Message("assistant", evil), call("c", evil, a=evil))
    page.wait_for_selector("#m6", state="attached")
    assert page.evaluate("window.ran") is None
    assert page.locator("main script, main svg, main img").count() == 0


def test_a_session_can_be_read_without_scripts(
    chromium: Any, server: WebServer, store: Store
) -> None:
    fill_long(store)
    context = chromium.new_context(java_script_enabled=False)
    opened = context.new_page()
    opened.goto(server.link)
    opened.wait_for_url(f"{server.url}/")
    opened.goto(f"{server.url}/sessions/long")
    # By key: messages that come into view get their height and move the link away from the pointer.
    opened.get_by_role("link", name="Next messages").press("Enter")
    opened.wait_for_selector("#m120", state="attached")
    opened.get_by_role("link", name="Earlier messages").press("Enter")
    opened.wait_for_selector("#m0", state="attached")
    context.close()
