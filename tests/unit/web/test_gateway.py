"""The tabs of the gateway's page, and what its operator can change there."""

from __future__ import annotations

from pathlib import Path

import pytest

from rekindle import Message, Store
from rekindle.types import Source
from rekindle.web.gateway.lists import PAGE_SIZE
from tests.unit.web.conftest import WebClient, build_client
from tests.web.gateway_data import CODE, KEY, fill_gateway

TABS = (
    "/gateway", "/gateway/deliveries", "/gateway/schedules", "/gateway/people", "/gateway/approvals",
    "/gateway/memory", "/gateway/errors",
)  # fmt: skip


@pytest.mark.parametrize("path", TABS)
def test_an_empty_tab_says_what_belongs_there(client: WebClient, path: str) -> None:
    page = client.get(path)
    assert page.status_code == 200
    assert "not running" in page.text


def test_conversations_show_who_waits_and_who_works_on_it(client: WebClient, store: Store) -> None:
    fill_gateway(store)
    page = client.get("/gateway").text
    assert "DM with Ada" in page
    assert "1 waiting" in page
    assert "held by gateway-here" in page
    assert "Is the build green? &lt;script&gt;" in page
    assert f'href="/sessions/{store.routes.get(KEY).session}"' in page
    fragment = client.get("/gateway", headers={"x-fragment": "conversations"}).text
    assert "held by" in fragment
    assert "<html" not in fragment


def test_many_conversations_come_in_pages_at_the_same_cost(client: WebClient, store: Store) -> None:
    for number in range(PAGE_SIZE + 5):
        source = Source("matrix", f"!{number}", chat_name=f"Chat {number}")
        store.routes.open(f"agent:main:matrix:group:!{number}", source)
    first, second = client.get("/gateway").text, client.get(f"/gateway?offset={PAGE_SIZE}").text
    assert first.count('class="who"') == PAGE_SIZE
    assert second.count('class="who"') == 5
    assert f"/gateway?offset={PAGE_SIZE}" in first


def test_a_failed_message_is_sent_again(client: WebClient, store: Store) -> None:
    fill_gateway(store)
    page = client.get("/gateway/deliveries").text
    assert "Sorry &lt;b&gt;" in page
    assert "the room is gone" in page
    (failed,) = store.inbox.list_by_state(["failed"])
    assert client.submit("/gateway/deliveries/retry", number=str(failed.num)).status_code == 200
    assert store.inbox.list_by_state(["failed"]) == []
    assert client.submit("/gateway/deliveries/retry", number=str(failed.num)).status_code == 404
    assert "None are failed" in client.get("/gateway/deliveries?state=failed").text
    store.inbox.mark_failed(failed, "again", retry_after=None)
    client.submit("/gateway/deliveries/retry", all="1")
    assert store.inbox.list_by_state(["failed"]) == []


def test_a_job_is_run_paused_resumed_and_deleted(client: WebClient, store: Store) -> None:
    job = fill_gateway(store)
    assert "weekdays" in client.get("/gateway/schedules").text or "8" in job.rule.to_text()
    client.submit(f"/gateway/schedules/{job.id}/run")
    assert store.jobs.find(job.id).requested is not None
    assert "asked to run" in client.get("/gateway/schedules").text
    client.submit(f"/gateway/schedules/{job.id}/pause")
    assert store.jobs.find(job.id).state == "paused"
    client.submit(f"/gateway/schedules/{job.id}/resume")
    assert store.jobs.find(job.id).state == "active"
    shown = client.get(f"/gateway/schedules/{job.id}").text
    assert "Plan my &lt;i&gt;day" in shown
    assert "It has not run yet" in shown
    inbound = store.inbox.accept(
        KEY, job.target, Message("user", content="run"), instance="a", lease_seconds=60
    )
    store.jobs.add_run(job, 1.0, inbound.inbound.num)
    assert "running" in client.get(f"/gateway/schedules/{job.id}").text
    client.submit(f"/gateway/schedules/{job.id}/remove")
    assert store.jobs.list() == []
    assert client.get(f"/gateway/schedules/{job.id}").status_code == 404


def test_people_are_let_in_and_kept_out(client: WebClient, store: Store) -> None:
    fill_gateway(store)
    page = client.get("/gateway/people").text
    assert "&lt;b&gt;Eve&lt;/b&gt;" in page
    assert "$0.500" in page  # Ada, today
    assert "$0.750" in page  # in all
    assert "telegram:7" in page
    client.submit("/gateway/people/deny", user="matrix:@ada:example.org")
    client.submit("/gateway/people/pair", code=CODE.lower(), role="guest")
    client.submit("/gateway/people/allow", user="matrix:@mallory:example.org", role="user")
    roles = {one.user_id: one.role for one in store.people.list()}
    assert roles == {
        "@ada:example.org": "denied",
        "@eve:example.org": "guest",
        "@mallory:example.org": "user",
    }


def test_a_request_is_approved_with_a_role(client: WebClient, store: Store) -> None:
    fill_gateway(store)
    client.submit("/gateway/people/allow", user="matrix:@eve:example.org", role="user", name="Eve")
    found = store.people.find("matrix", "@eve:example.org")
    assert found is not None
    assert (found.role, found.name) == ("user", "Eve")
    assert store.people.list_requests() == []


def test_codes_cannot_be_guessed_here_either(client: WebClient) -> None:
    answers = [client.submit("/gateway/people/pair", code="X", role="owner") for _ in range(12)]
    assert answers[0].status_code == 404
    assert answers[-1].status_code == 400
    assert "try again later" in answers[-1].text


def test_approvals_are_shown_but_answered_in_the_chat(client: WebClient, store: Store) -> None:
    fill_gateway(store)
    page = client.get("/gateway/approvals").text
    assert "&gt; rm -rf build" in page
    assert f"/approve {store.approvals.list_open()[0].id}" in page
    assert client.submit("/gateway/approvals/approve").status_code in (404, 405)


def test_memory_is_changed_and_changes_are_undone(client: WebClient, store: Store) -> None:
    fill_gateway(store)
    page = client.get("/gateway/memory", params={"owner": KEY}).text
    assert "Ada prefers short answers" in page
    assert "&lt;b&gt;tabs" in page
    (proposal,) = store.memory.list(KEY, proposed=True)
    client.submit("/gateway/memory/accept", owner=KEY, number=str(proposal.number))
    client.submit("/gateway/memory/add", owner=KEY, text="Ada works from Oslo")
    assert len(store.memory.list(KEY)) == 3
    client.submit("/gateway/memory/forget", owner=KEY, number="1")
    assert len(store.memory.list(KEY)) == 2
    client.submit("/gateway/memory/undo", owner=KEY)
    assert len(store.memory.list(KEY)) == 3


def test_errors_have_their_cause(client: WebClient, store: Store) -> None:
    fill_gateway(store)
    assert "429: &lt;slow down&gt;" in client.get("/gateway/errors").text


@pytest.mark.parametrize(
    ("path", "fields", "status"),
    [
        ("/gateway/people/allow", {"user": "nobody", "role": "user"}, 400),
        ("/gateway/people/allow", {"user": "matrix:@a:x", "role": "king"}, 400),
        ("/gateway/people/crown", {"user": "matrix:@a:x"}, 404),
        ("/gateway/schedules/none/run", {}, 404),
        ("/gateway/deliveries/retry", {"number": "x"}, 400),
        ("/gateway/memory/add", {"text": "x"}, 400),
        ("/gateway/memory/forget", {"owner": "a", "number": "1"}, 404),
    ],
)
def test_mistakes_are_explained(
    client: WebClient, path: str, fields: dict[str, str], status: int
) -> None:
    answer = client.submit(path, **fields)
    assert answer.status_code == status
    assert "went wrong" not in answer.text


@pytest.mark.parametrize(
    "path", ["/gateway?offset=x", "/gateway/deliveries?state=x", "/gateway/people?after=x"]
)
def test_wrong_addresses_are_explained(client: WebClient, path: str) -> None:
    assert client.get(path).status_code == 400


def test_read_only_pages_have_no_forms_and_change_nothing(store: Store, tmp_path: Path) -> None:
    job = fill_gateway(store)
    client = build_client(store, tmp_path, readonly=True)
    client.open_link()
    for path in (*TABS, f"/gateway/schedules/{job.id}"):
        page = client.get(path)
        assert page.status_code == 200
        assert 'method="post"' not in page.text
    assert client.submit(f"/gateway/schedules/{job.id}/remove").status_code == 403
    assert len(store.jobs.list()) == 1
