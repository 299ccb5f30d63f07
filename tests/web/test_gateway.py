"""The gateway's page in the browser: a request approved, a job run, a message sent again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from rekindle.store import Store, open_store
from rekindle.store.conversations.jobs import ScheduledJob
from tests.web.conftest import WebServer
from tests.web.gateway_data import KEY, fill_gateway

pytestmark = pytest.mark.browser


@pytest.fixture
def store(server: WebServer) -> Iterator[Store]:
    with open_store(server.store) as opened:
        yield opened


@pytest.fixture
def job(store: Store) -> ScheduledJob:
    return fill_gateway(store)


def test_a_request_is_approved_and_somebody_is_blocked(
    page: Any, server: WebServer, store: Store, job: ScheduledJob
) -> None:
    page.goto(f"{server.url}/gateway")
    page.get_by_role("link", name="People").click()
    row = page.get_by_role("row").filter(has_text="@eve:example.org")
    row.get_by_label("Role").select_option("guest")
    row.get_by_role("button", name="Approve").click()
    expect(row.locator(".chip")).to_have_text("guest")
    expect(page.get_by_text("They ask to be let in")).to_have_count(0)
    page.on("dialog", lambda dialog: dialog.accept())
    row.get_by_role("button", name="Block").click()
    expect(row.locator(".chip")).to_have_text("denied")
    found = store.people.find("matrix", "@eve:example.org")
    assert found is not None
    assert found.role == "denied"


def test_a_job_is_run_paused_and_deleted(
    page: Any, server: WebServer, store: Store, job: ScheduledJob
) -> None:
    page.goto(f"{server.url}/gateway/schedules")
    page.get_by_role("button", name="Run now").click()
    expect(page.get_by_text("asked to run")).to_be_visible()
    assert store.jobs.find(job.id).requested is not None
    page.get_by_role("link", name="plan").click()
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete").click()
    page.wait_for_url(f"{server.url}/gateway/schedules")
    expect(page.get_by_text("No scheduled jobs")).to_be_visible()
    assert store.jobs.list() == []


def test_a_failed_message_is_sent_again(
    page: Any, server: WebServer, store: Store, job: ScheduledJob
) -> None:
    page.goto(f"{server.url}/gateway/deliveries?state=failed")
    page.get_by_role("button", name="Send again").click()
    expect(page.get_by_text("None are failed")).to_be_visible()
    assert store.inbox.list_by_state(["failed"]) == []


def test_conversations_come_up_to_date_by_themselves(
    page: Any, server: WebServer, store: Store, job: ScheduledJob
) -> None:
    page.goto(f"{server.url}/gateway")
    expect(page.get_by_text("1 waiting")).to_be_visible()
    for waiting in store.inbox.list_waiting(KEY):
        store.inbox.close(waiting)
    expect(page.get_by_text("1 waiting")).to_have_count(0)


def test_a_fact_is_accepted_and_undone(
    page: Any, server: WebServer, store: Store, job: ScheduledJob
) -> None:
    page.goto(f"{server.url}/gateway/memory?owner={KEY}")
    page.get_by_role("button", name="Accept").click()
    expect(page.get_by_text("Proposed by the agent")).to_have_count(0)
    assert len(store.memory.list(KEY)) == 2
    page.get_by_role("button", name="Undo the last").click()
    expect(page.get_by_text("(undone)")).to_be_visible()
    assert len(store.memory.list(KEY)) == 1
