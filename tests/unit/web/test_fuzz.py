"""Requests that nobody would send: no traceback, no answer 500, and nothing without the cookie."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest
from starlette.routing import Route

from rekindle.store import Store
from rekindle.types import Message, ToolCall
from rekindle.web import views
from tests.conftest import is_looking
from tests.unit.web.conftest import BASE_URL, build_client

pytestmark = pytest.mark.slow

REQUESTS = 1000
WORDS = (
    "", "0", "-1", "1e999", "99999999999999999999", "NaN", "null", "..", "../../etc/passwd", "%00",
    "\x00", "\ud800", "é", "日本", "a" * 5000, "' OR 1=1 --", '"', "*", "a*", "(", "[", "{{ 7 * 7 }}",
    "<script>alert(1)</script>", "2026-13-45", "today", "claude-code", "failed", "1", "10", "rename",
)  # fmt: skip
NAMES = (
    "q", "page", "before", "after", "limit", "offset", "project", "source", "agent", "model", "since",
    "until", "sort", "status", "tab", "week", "tool", "verdict", "request", "title", "back", "theme",
    "id", "name", "text", "signal", "rows", "columns", "sequence", "role", "code", "form_token",
)  # fmt: skip
HEADERS = ("x-fragment", "last-event-id", "range", "accept", "if-none-match", "origin")


def make_request(rng: random.Random, ids: list[str]) -> dict[str, object]:
    """Return the arguments of one request."""
    route = rng.choice([one for one in views.ROUTES if isinstance(one, Route)])
    path = route.path
    while "{" in path:
        start, end = path.index("{"), path.index("}")
        value = rng.choice([*ids, *WORDS[:8], "%2e%2e", "a b", "%ff", "x" * 300])
        path = path[:start] + (value.replace("\x00", "") or "x") + path[end + 1 :]
    if rng.random() < 0.1:
        path += rng.choice(["/", "//", "/x", ";a=b", "%2f..", ".json"])
    fields = {
        rng.choice(NAMES): rng.choice([*ids, *WORDS]).encode("utf-8", "replace").decode()
        for _ in range(rng.randrange(4))
    }
    headers = {"origin": BASE_URL}
    if rng.random() < 0.3:
        name = rng.choice(
            ["x-fragment", "last-event-id", "range", "accept", "if-none-match", "origin"]
        )
        headers[name] = rng.choice(
            ["", "main", "results", "0", "-1", "99999999999999999999", "a,b", "*"]
        )
    method = rng.choice(["GET", "GET", "GET", "POST", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
    return {"method": method, "url": path, "fields": fields, "headers": headers}


@pytest.mark.parametrize("is_known", [True, False])
def test_no_request_fails(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture, is_known: bool
) -> None:
    session = store.begin(title="<b>", source="claude-code", cwd="/gone")
    call = ToolCall("c", "Bash", {"command": "make"})
    store.append(
        session,
        Message("user", "hi"),
        Message("assistant", "", [call]),
        Message("tool", "no", tool_call_id="c"),
    )
    client = build_client(store, tmp_path)
    if is_known:
        client.open_link()
    rng = random.Random(None if is_looking() else 20)
    count = REQUESTS if is_looking() else REQUESTS // 2
    with caplog.at_level(logging.ERROR):
        for _ in range(count if is_known else count // 5):
            sent = make_request(rng, [session.id])
            fields = sent["fields"]
            assert isinstance(fields, dict)
            if sent["url"].endswith("/events"):  # type: ignore[union-attr]
                continue  # it does not end; its own tests are in the tests of its page
            is_form = sent["method"] in ("POST", "PUT", "DELETE")
            if is_known and is_form and rng.random() < 0.8:
                fields = {**fields, "form_token": client.read_form_token()}
            answer = client.request(
                str(sent["method"]),
                str(sent["url"]),
                headers=sent["headers"],  # type: ignore[arg-type]
                params=None if is_form else fields,
                data=fields if is_form else None,
                follow_redirects=False,
            )
            assert answer.status_code < 500, (sent, answer.text[-300:])
            assert is_known or answer.status_code in (401, 404, 405, 421), sent
    assert [one.message for one in caplog.records] == []
