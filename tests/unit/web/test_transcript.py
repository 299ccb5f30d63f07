"""The page of one session: pages of messages, places, single messages, hostile content."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import pytest

from rekindle.store import Store
from rekindle.store.excerpts import HEAD_CHARS, MAX_BODY_CHARS
from rekindle.store.transfer.bulk_import import SessionImport
from rekindle.types import Message, Session, Tokens, ToolCall
from rekindle.web.transcript.entries import (
    PAGE_MESSAGES,
)
from tests.unit.web.conftest import WebClient

EVIL = "\"><script>alert(1)</script><img src=x onerror=alert(1)>'javascript:alert(1)"
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Page(HTMLParser):
    """The tags of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def list_ids(self) -> list[str]:
        return [attrs["id"] or "" for _, attrs in self.tags if attrs.get("id")]


def call(id: str, name: str = "Bash", **arguments: object) -> Message:
    return Message("assistant", "", [ToolCall(id, name, arguments)])


def result(id: str, text: str = "done", *, failed: bool = False) -> Message:
    return Message(
        "tool", text, tool_call_id=id, meta={"is_error": failed, "exit_code": int(failed)}
    )


def fill(store: Store, *messages: Message, id: str = "s-1", **fields: object) -> str:
    session = store.begin(id=id, source="claude-code", **fields)  # pyright: ignore
    store.append(session, *messages)
    return f"/sessions/{id}"


def assert_harmless(text: str) -> None:
    """Fail if a page has an element or attribute that could run anything."""
    for tag, attrs in Page(text).tags:
        assert tag not in ("iframe", "object", "embed", "base"), tag
        assert tag != "script" or (attrs.get("src") or "").startswith("/static/")
        assert not [name for name in attrs if name.startswith("on") or name == "style"], attrs
        for name in ("href", "src", "action"):
            assert not (attrs.get(name) or "").lower().startswith(("javascript:", "data:text"))


def test_a_session_is_shown_with_its_facts(client: WebClient, store: Store) -> None:
    address = fill(
        store,
        Message("user", "Fix **it**"),
        Message("assistant", "I will.", reasoning="hm"),
        call("a", command="make"),
        result("a", "no rule", failed=True),
        call("b", "Edit", file_path="/src/a.py", old_string="x = 1", new_string="x = 2"),
        result("b"),
        title="The plan",
        model="claude-opus-4",
        cwd="/src",
        git_branch="main",
    )
    store.add_usage("s-1", Tokens(1000, 200), Decimal("0.5"))
    page = client.get(address).text
    assert "<strong>it</strong>" in page
    for text in ("The plan", "claude-opus-4", "claude-code", "main", "/src", "1,200", "$0.500"):
        assert text in page
    assert '<span class="del">x = <em>1</em></span>' in page
    assert re.search(r'<details class="call failed"[^>]*>', page)
    assert f'{address}/next?kind=error">1</a></b><span>errors' in page
    assert f'{address}/next?kind=edit">1</a></b><span>edits' in page
    assert {"m0", "m1", "m2", "m4"} <= {*Page(page).list_ids()}
    assert '2 calls · <span class="bad">1 failed</span> · 1 edit' in page


def test_tokens_are_shown_for_the_turns_that_used_them(client: WebClient, store: Store) -> None:
    address = fill(store, Message("user", "one"), Message("assistant", "yes"))
    store.add_usage("s-1", Tokens(1000, 200), Decimal("0.5"), model="m")
    assert '<p class="turn-facts">1,200 tokens · $0.500</p>' in client.get(address).text
    store.append("s-1", Message("user", "two"))
    page = client.get(address).text
    assert "prompts 1–2 together: 1,200 tokens · $0.500" in page  # in the same quarter of an hour


def test_a_long_session_comes_in_parts_that_join(client: WebClient, store: Store) -> None:
    messages = [Message("user" if n % 10 == 0 else "assistant", f"word{n}.") for n in range(500)]
    address = fill(store, *messages)
    page = client.get(address).text
    seen = re.findall(r"word(\d+)\.</p>", page)
    assert seen == [str(n) for n in range(PAGE_MESSAGES)]
    while later := re.search(r'data-more="([^"]+[?]after=[^"]+)"', page):
        page = client.get(later[1].replace("&amp;", "&"), headers={"x-fragment": "part"}).text
        assert "<html" not in page
        seen += re.findall(r"word(\d+)\.</p>", page)
    assert seen == [str(n) for n in range(500)]


def test_parts_can_be_followed_without_a_script(client: WebClient, store: Store) -> None:
    address = fill(store, *[Message("assistant", f"word{n}.") for n in range(300)])
    page = client.get(address).text
    link = re.search(r'<a class="button" href="([^"]+)">Next messages', page)
    assert link is not None
    page = client.get(link[1]).text
    assert f"word{PAGE_MESSAGES}." in page
    link = re.search(
        r'<a class="button" href="([^"]+)" data-earlier="[^"]+">Earlier messages', page
    )
    assert link is not None
    assert "word0." in client.get(link[1]).text


def test_a_link_to_any_message_shows_it(client: WebClient, store: Store) -> None:
    address = fill(store, *[Message("assistant", f"word{n}.") for n in range(1000)])
    page = client.get(f"{address}?at=777").text
    assert 'id="m777"' in page
    assert "word0." not in page
    earlier = re.search(r'data-earlier="([^"]+)"', page)
    assert earlier is not None
    part = client.get(earlier[1], headers={"x-fragment": "part"}).text
    shown = [int(one) for one in re.findall(r'id="m(\d+)"', page)]
    before = [int(one) for one in re.findall(r'id="m(\d+)"', part)]
    assert before[-1] == shown[0] - 1


def test_calls_find_their_results_across_the_ends_of_a_part(
    client: WebClient, store: Store
) -> None:
    head = [Message("assistant", "x")] * (PAGE_MESSAGES - 1)
    address = fill(store, *head, call("z", command="ls"), result("z", "the-result"))
    first = client.get(address).text
    assert "the-result" in first
    later = re.search(r'data-more="([^"]+[?]after=[^"]+)"', first)
    assert later is not None
    part = client.get(later[1].replace("&amp;", "&"), headers={"x-fragment": "part"}).text
    assert "the-result" not in part


def test_places_are_found_on_every_part(client: WebClient, store: Store) -> None:
    messages = [Message("user", "start")]
    for n in range(200):
        messages += [call(str(n), command="ls"), result(str(n), failed=n == 150)]
    messages += [Message("user", "end"), Message("assistant", "bye")]
    address = fill(store, *messages)

    def find(query: str) -> int | None:
        answer = client.get(f"{address}/next?{query}", headers={"accept": "application/json"})
        return answer.json()["position"]

    assert find("kind=error") == 301
    assert find("kind=error&after=301") is None
    assert find("kind=prompt&after=0") == 401
    assert find("kind=prompt&before=401") == 0
    assert find("kind=edit") is None
    answer = client.get(f"{address}/next?kind=error", follow_redirects=False)
    assert answer.headers["location"] == f"{address}?at=301#m301"
    assert client.get(f"{address}/next?kind=other").status_code == 400


def test_a_very_long_session_shows_its_first_part_before_it_is_judged(
    client: WebClient, store: Store
) -> None:
    messages = [Message("user", "start")]
    for n in range(1500):
        messages += [call(str(n), command="ls"), result(str(n), failed=n == 5)]
    address = fill(store, *messages)
    page = client.get(address).text
    assert 'data-block="outline"' in page
    assert "errors</span>" not in page
    places = client.get(f"{address}?prompts_after=-1", headers={"x-fragment": "outline"}).text
    assert "1 prompt" in places
    assert f'{address}/next?kind=error"' in places
    assert "errors</span>" in client.get(address).text  # known from now on


def test_lineage_is_linked_both_ways(client: WebClient, store: Store) -> None:
    address = fill(store, Message("user", "one"), Message("assistant", "two"), title="Plan")
    fork = store.fork("s-1", at=0)
    child = store.compress("s-1", Message("user", "the summary"))
    page = client.get(address).text
    assert f"/sessions/{fork.id}" in page
    assert "Forked here" in page
    assert "continued in" in page
    assert f"/sessions/{child.id}" in page
    assert "ended: compression" in page
    assert "Fork of" in client.get(f"/sessions/{fork.id}").text
    assert f"{address}?at=0#m0" in client.get(f"/sessions/{fork.id}").text
    assert "Continues" in client.get(f"/sessions/{child.id}").text


def test_a_sub_agent_is_filled_in_when_it_is_opened(client: WebClient, store: Store) -> None:
    address = fill(
        store,
        Message("user", "look"),
        call("t", "Task", prompt="Look for bugs", description="bugs"),
        result("t", "found none"),
    )
    store_child(store, "s-1", "Look for bugs")
    page = client.get(address).text
    load = re.search(r'<details class="agent" data-load="([^"]+)"', page)
    assert load is not None
    part = client.get(load[1], headers={"x-fragment": "part"}).text
    assert "Look for bugs" in part
    assert not {*Page(page).list_ids()} & {*Page(part).list_ids()}


def store_child(store: Store, parent: str, asked: str) -> None:
    """Store a sub-agent of a session, as an import does."""
    session = Session(id="child-1", source="claude-code", parent=parent, sub_agent="explorer")
    store.import_batch([SessionImport(session, [Message("user", asked)])])


def test_one_message_is_shown_as_it_is_stored(client: WebClient, store: Store) -> None:
    address = fill(store, Message("user", "hello <b>"), call("a", command="ls"))
    page = client.get(f"{address}/messages/0").text
    assert "hello &lt;b&gt;" in page
    text = client.get(f"{address}/messages/0/text")
    assert text.text == "hello <b>"
    assert text.headers["content-disposition"] == 'attachment; filename="message-0.txt"'
    assert text.headers["content-type"].startswith("text/plain")
    fields = json.loads(client.get(f"{address}/messages/1/json").text)
    assert fields["tool_calls"] == [{"id": "a", "name": "Bash", "arguments": {"command": "ls"}}]
    for path in ("messages/9", "messages/9/text", "messages/99999999999999999999", "messages/x"):
        assert client.get(f"{address}/{path}").status_code == 404


def test_images_are_served_from_their_own_address(client: WebClient, store: Store) -> None:
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    svg = {"type": "image_url", "image_url": {"url": "data:image/svg+xml;base64,PHN2Zz4="}}
    address = fill(store, Message("user", [{"type": "text", "text": "see"}, image, svg]))
    page = client.get(address).text
    assert f'src="{address}/messages/0/images/1"' in page
    assert "base64" not in page
    answer = client.get(f"{address}/messages/0/images/1")
    assert answer.headers["content-type"] == "image/png"
    assert answer.content.startswith(b"\x89PNG")
    for number in (0, 2, 3, 99):
        assert client.get(f"{address}/messages/0/images/{number}").status_code == 404


def test_ids_with_any_character_have_a_page(client: WebClient, store: Store) -> None:
    for id in ("a/b", "a b", "ä?x#y", EVIL[:100]):
        fill(store, Message("user", "here it is"), call("a", command="ls"), id=id)
        page = client.get(f"/sessions/{quote(id, safe='')}")
        assert page.status_code == 200
        assert "here it is" in page.text
        assert_harmless(page.text)
        assert client.get(f"/sessions/{quote(id, safe='')}/messages/0/text").text == "here it is"


@pytest.mark.parametrize("query", ["at=x", "after=1e9", "before=--1", "at=٣", "until="])
def test_a_strange_query_is_an_error_in_words(client: WebClient, store: Store, query: str) -> None:
    address = fill(store, Message("user", "one"))
    answer = client.get(f"{address}?{query}")
    assert answer.status_code == 400
    assert "expected the position" in answer.text
    assert client.get(f"{address}?at=99999999999999999999999").status_code == 200
    assert client.get(f"{address}?before=0").status_code == 200


# -- hostile content


def test_script_in_every_field_stays_text(client: WebClient, store: Store) -> None:
    arguments = {EVIL: EVIL, "command": EVIL, "prompt": EVIL, "file_path": EVIL}
    messages = [
        Message("user", EVIL, name=EVIL, meta={"speaker": {"id": EVIL, "name": EVIL}}),
        Message("assistant", f"```{EVIL}\n{EVIL}\n```\n[a]({EVIL}) ![b](https://e.example/x.png)",
                reasoning=EVIL),
        Message("assistant", EVIL, [ToolCall(EVIL, EVIL, arguments)]),
        Message("tool", EVIL, tool_call_id=EVIL, name=EVIL, meta={"exit_code": 3, "error": EVIL}),
        call("e", "Edit", file_path=EVIL, old_string=EVIL, new_string=EVIL + "x"),
        Message("tool", f"The user doesn't want to proceed. the user said:\n{EVIL}",
                tool_call_id="e", meta={"is_error": True}),
        call("t", "Task", prompt=EVIL, description=EVIL),
        Message("user", [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{EVIL}"}},
                         {"type": EVIL, "text": EVIL}]),
        Message("system", EVIL),
        Message("tool", EVIL, tool_call_id="nobody"),
        Message("user", f"<command-name>/{EVIL}</command-name>"),
    ]  # fmt: skip
    address = fill(
        store, *messages, title="T" + EVIL, model=EVIL, cwd=EVIL, git_branch=EVIL, owner=EVIL
    )
    store_child(store, "s-1", EVIL)
    for path in ("", "?at=3", "/messages/0", "/messages/2", "?inline=1", "/nothing"):
        answer = client.get(f"{address}{path}")
        assert answer.status_code in (200, 404)
        assert_harmless(answer.text)
    for block in ("part", "outline"):
        assert_harmless(client.get(address, headers={"x-fragment": block}).text)


@pytest.mark.slow
def test_a_message_of_fifty_megabytes_is_cut_and_can_be_saved(
    client: WebClient, store: Store
) -> None:
    size = 50_000_000
    address = fill(store, Message("user", "start"), Message("assistant", "y" * size + "END"))
    store.append("s-1", call("a", command="ls"), result("a", "z" * size))
    page = client.get(address).text
    assert len(page) < 200_000
    assert f'{address}/messages/1/text">whole text</a>' in page
    assert f'{address}/messages/3/text">whole text</a>' in page
    assert len(client.get(f"{address}/messages/1").text) < 500_000
    assert len(client.get(f"{address}/messages/1/text").content) == size + 3


def test_calls_that_are_too_large_for_a_page_are_named(client: WebClient, store: Store) -> None:
    address = fill(store, call("a", "Write", file_path="a", content="w" * (MAX_BODY_CHARS + 1)))
    page = client.get(address).text
    assert len(page) < 100_000
    assert "too many for a page" in page
    assert len(client.get(f"{address}/messages/0/json").text) > MAX_BODY_CHARS


def test_long_texts_below_the_limit_of_the_store_are_cut_too(
    client: WebClient, store: Store
) -> None:
    text = "word " * (HEAD_CHARS // 5)
    address = fill(
        store, Message("user", text), call("a", command="x" * 500_000), result("a", text)
    )
    page = client.get(address).text
    assert page.count("characters left out") == 3
    assert len(page) < 150_000


@pytest.mark.parametrize("depth", [90, 400, 900, 5_000, 200_000])
def test_deeply_nested_json_is_shown_somehow(client: WebClient, store: Store, depth: int) -> None:
    deep = '{"a":' * depth + "1" + "}" * depth
    messages = [
        Message("assistant", "", [ToolCall("a", "Bash", deep), ToolCall("b", "Edit", deep)]),
        Message("tool", deep, tool_call_id="a"),
        Message("user", "[" * depth),
    ]
    address = fill(store, *messages)
    for path in ("", "/messages/0", "/messages/0/json"):
        answer = client.get(f"{address}{path}")
        assert answer.status_code == 200
        assert_harmless(answer.text)


def test_broken_unicode_is_shown_somehow(client: WebClient, store: Store) -> None:
    broken = "a\ud800b\x00c\ufffe\U0010fffe\u202egnp.exe\x1b[31mred\x1b[0m\udfff"
    address = fill(
        store,
        Message("user", broken),
        Message("assistant", broken, [ToolCall("a" + broken, "Bash", {"command": broken})]),
        Message("tool", broken, tool_call_id="a" + broken),
        title="T" + broken.replace("\x00", ""),
    )
    for path in ("", "/messages/0", "/messages/1/json", "/messages/0/text"):
        answer = client.get(f"{address}{path}")
        assert answer.status_code == 200
        answer.content.decode()
    assert "\u202e" not in client.get(address, headers={"x-fragment": "part"}).text


@pytest.mark.slow
def test_reading_costs_what_is_shown(client: WebClient, store: Store, tmp_path: Path) -> None:
    """A session of 40,000 messages sends no more than one of 1,000, and loads no more of them."""
    pages: list[int] = []
    for id, count in (("short", 1_000), ("long", 40_000)):
        store.append(store.begin(id=id), *[Message("assistant", f"word {n}") for n in range(count)])
        loaded: list[int] = []
        excerpts = store.excerpts
        original = excerpts.load

        def count_loaded(*args: object, **kwargs: object) -> object:
            found = original(*args, **kwargs)  # pyright: ignore  # noqa: B023
            loaded.append(len(found))  # noqa: B023
            return found

        excerpts.load = count_loaded  # pyright: ignore
        assert client.get(f"/sessions/{id}?at=500").status_code == 200
        excerpts.load = original
        pages.append(sum(loaded))
    assert pages[0] == pages[1] < 300
