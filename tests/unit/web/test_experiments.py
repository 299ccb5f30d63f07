"""The page of experiments: the figures of the report, and starting and stopping."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from rekindle.experiments.experiment import (
    AssignedSession,
    Experiment,
    build_report,
    list_effects,
    normalize_shares,
)
from rekindle.store import Store
from rekindle.web import computed
from rekindle.web.reports.experiments import ExperimentView, compute_decision
from tests.unit.web.conftest import WebClient, build_client
from tests.unit.web.judged_sessions import MONDAY, add_session
from tests.unit.web.test_reliability import list_links, read_page
from tests.waiting import PATIENCE

HOSTILE = "<script>alert(1)</script>\"'&/../x"
DAY = 86_400.0


@pytest.fixture
def client(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WebClient]:
    monkeypatch.setattr(computed, "WAIT_SECONDS", PATIENCE)
    with build_client(store, tmp_path) as found:
        found.open_link()
        yield found


def add_experiment(store: Store, name: str = "autumn", sessions: int = 12) -> Experiment:
    """Start an experiment in which every second session is warm, and no warm call fails."""
    shares = normalize_shares({"warm": 0.5, "cold": 0.5})
    experiment = store.experiments.start(Experiment(name, shares, "seed", MONDAY))
    for number in range(sessions):
        arm = ("warm", "cold")[number % 2]
        id = f"{re.sub('[^a-z]', '', name)}{number}"
        outcomes = "x." * 5 if arm == "cold" else "." * 10
        add_session(store, id, outcomes, started=MONDAY + number * 3600)
        store.experiments.record_assignment(experiment, id, None, arm)
    return experiment


def build_view(warm: int, cold: int, days: float = 10.0) -> ExperimentView:
    shares = normalize_shares({"warm": 0.5, "cold": 0.5})
    experiment = Experiment("x", shares, "seed", 0.0)
    sessions = [
        AssignedSession(f"s{number}", None, ("warm", "cold")[number % 2], number * days * DAY / 200,
                        10, (warm, cold)[number % 2] + number % 3)
        for number in range(200)
    ]  # fmt: skip
    steps = list_effects(experiment, sessions)
    return ExperimentView(build_report(experiment, sessions), tuple(steps), tuple(sessions))


def test_without_experiments_the_page_explains_and_offers_to_start(client: WebClient) -> None:
    page = read_page(client, "/experiments")
    assert "No experiments yet" in page
    assert "rekindle warm experiment start NAME" in page
    assert 'action="/experiments/start"' in page


def test_the_running_experiment_is_shown_with_its_arms(client: WebClient, store: Store) -> None:
    add_experiment(store)
    page = read_page(client, "/experiments")
    assert "autumn" in page
    assert "not known yet" in page
    assert "The running interval" not in page  # no interval before 30 sessions per arm
    assert "too few" in page
    assert "Stop the experiment" in page
    assert "/experiments/sessions?name=autumn&arm=warm" in list_links(page, "/experiments/")
    report = build_report(
        store.experiments.get("autumn"), store.experiments.list_assignments("autumn")
    )
    for line in report.summary:
        assert line in unescape(page)


def test_a_decided_experiment_says_what_helps(client: WebClient, store: Store) -> None:
    add_experiment(store, sessions=64)
    page = read_page(client, "/experiments/report?name=autumn")
    assert ">helps<" in page
    assert "The running interval" in page
    assert "Warm helps" in page
    assert any(link.startswith("/sessions/autumn") for link in list_links(page, "/sessions/"))


def test_the_sessions_of_an_arm_are_listed_in_pages(
    client: WebClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rekindle.web.reports import experiments as reports
    from rekindle.web.views import experiments as views

    monkeypatch.setattr(reports, "PAGE_SIZE", 4)
    monkeypatch.setattr(views, "PAGE_SIZE", 4)
    add_experiment(store)
    path, seen = "/experiments/sessions?name=autumn&arm=cold", list[str]()
    for _ in range(5):
        page = read_page(client, path)
        seen += list_links(page, "/sessions/")
        assert "5 of 10" in page
        following = re.search(r'href="([^"]*)" rel="next"', page)
        if following is None:
            break
        path = unescape(following[1])
    assert sorted(seen) == sorted(f"/sessions/autumn{number}" for number in range(1, 12, 2))


def test_a_deleted_session_is_listed_as_such(client: WebClient, store: Store) -> None:
    experiment = add_experiment(store)
    store.experiments.record_assignment(experiment, "gone", None, "warm")
    page = read_page(client, "/experiments/sessions?name=autumn")
    assert "deleted" in page


def test_starting_and_stopping(client: WebClient, store: Store) -> None:
    read_page(client, "/experiments")
    answer = client.submit(
        "/experiments/start", name="spring", warm="45", cold="45", placebo="10", min_effect="5"
    )
    assert "spring" in answer.text
    running = store.experiments.get_running()
    assert running is not None
    assert dict(running.shares) == pytest.approx({"warm": 0.45, "cold": 0.45, "placebo": 0.1})
    assert running.min_effect == 0.05
    answer = client.submit("/experiments/stop", name="spring")
    assert "ended" in answer.text
    assert store.experiments.get_running() is None
    assert "Stop the experiment" not in read_page(client, "/experiments")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"name": ""}, "name"),
        ({"warm": "many"}, "expected a number"),
        ({"warm": "nan"}, "expected a number"),
        ({"warm": "0"}, "warm and a cold arm"),
        ({"min_effect": "0"}, "between 0 and 100"),
        ({"min_effect": "1e999"}, "from 0 to 100"),
    ],
)
def test_a_form_that_makes_no_sense_starts_nothing(
    client: WebClient, store: Store, fields: dict[str, str], problem: str
) -> None:
    given = {"name": "x", "warm": "50", "cold": "50", "min_effect": "3", **fields}
    answer = client.submit("/experiments/start", **given)
    assert answer.status_code == 400
    assert problem in answer.text
    assert store.experiments.get_running() is None


def test_a_second_experiment_is_refused(client: WebClient, store: Store) -> None:
    add_experiment(store, sessions=0)
    answer = client.submit("/experiments/start", name="x", warm="50", cold="50", min_effect="3")
    assert answer.status_code == 400
    assert "stop it first" in answer.text


def test_read_only_pages_offer_nothing_to_change(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(computed, "WAIT_SECONDS", PATIENCE)
    with build_client(store, tmp_path, readonly=True) as reader:
        reader.open_link()
        assert "/experiments/start" not in read_page(reader, "/experiments")
        add_experiment(store)
        assert reader.submit("/experiments/stop", name="autumn").status_code == 403


def test_hostile_names_stay_text(client: WebClient, store: Store) -> None:
    add_experiment(store, HOSTILE)
    page = read_page(client, "/experiments")
    links = {link for link in list_links(page, "/experiments/") if "start" not in link}
    assert links
    for link in links:
        shown = read_page(client, link)
        assert "<script>alert" not in shown


def test_an_unknown_experiment_is_not_found(client: WebClient) -> None:
    assert client.get("/experiments/report?name=nothing").status_code == 404
    assert client.get("/experiments/sessions?name=nothing").status_code == 404


def test_the_effect_over_time_ends_with_that_of_the_report() -> None:
    view = build_view(1, 2)
    assert view.steps[-1].effect == view.report.contrasts[0].effect
    assert len(view.steps) == 200
    assert [step.time for step in view.steps] == sorted(step.time for step in view.steps)


def test_what_is_left_follows_from_the_pace() -> None:
    view = build_view(2, 2)
    decision = compute_decision(view, 10 * DAY)
    assert not decision.is_decided
    assert decision.needed is not None
    assert decision.per_day == pytest.approx(20.0)
    assert decision.days == pytest.approx(max(0, decision.needed - 200) / 20)
    assert compute_decision(build_view(0, 5), 10 * DAY).is_decided
