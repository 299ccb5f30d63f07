"""Experiments in the browser: started, looked at, stopped."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from rekindle import open_store
from tests.unit.web.test_experiments import add_experiment
from tests.web.conftest import WebServer

pytestmark = pytest.mark.browser


def test_an_experiment_is_started_and_stopped(page: Any, server: WebServer) -> None:
    page.goto(f"{server.url}/experiments")
    page.get_by_text("No experiments yet").wait_for()
    page.get_by_label("Name").fill("autumn")
    page.get_by_role("button", name="Start").click()
    page.get_by_role("button", name="Stop the experiment").wait_for()
    with open_store(server.store) as store:
        running = store.experiments.get_running()
        assert running is not None
        assert running.name == "autumn"
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Stop the experiment").click()
    page.wait_for_url("**/experiments/report?name=autumn")
    page.locator(".facts").get_by_text("ended").wait_for()
    with open_store(server.store) as store:
        assert store.experiments.get_running() is None


def test_arms_lead_to_their_sessions(page: Any, server: WebServer) -> None:
    with open_store(server.store) as store:
        add_experiment(store)
    page.goto(f"{server.url}/experiments")
    page.get_by_role("link", name="warm", exact=True).click()
    page.wait_for_url("**/experiments/sessions?name=autumn&arm=warm")
    expect(page.locator("table.rows tbody tr")).to_have_count(6)
