"""Experiments through the real command: chance draws, the report counts as drawn."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rekindle import Message, ToolCall, open_store
from rekindle.experiments.experiment import draw_arm
from tests.acceptance.test_warm_start import ASKED, Home, home, tallied

__all__ = ["home"]


def told(home: Home, *words: str, code: int = 0) -> Any:
    said = home.run("warm", "experiment", *words, "--json", code=code)
    return json.loads(said) if code == 0 else said


def test_every_new_session_is_drawn_and_gets_what_its_arm_says(home: Home) -> None:
    told(home, "start", "autumn", "--placebo", "0.5")
    for _ in range(8):
        home.run("chat", said=ASKED)
        with open_store(home.target) as store:
            (newest,) = store.recent(1)
            trial = store.experiments.get("autumn")
        assert newest.arm == draw_arm(trial, newest.id)
        assert tallied(home.sent()) == (newest.arm == "warm")
    report = told(home, "report")
    assert report["verdict"] == "unknown"
    assert report["summary"][0].startswith("No evidence yet")
    assert sum(arm["assigned"] for arm in report["arms"]) == 8
    given = {arm["arm"]: arm["given"] for arm in report["arms"]}
    assert given["cold"] == 0
    assert given["warm"] == next(a["assigned"] for a in report["arms"] if a["arm"] == "warm")


def test_one_who_chose_takes_no_part_and_nobody_does_after_the_end(home: Home) -> None:
    told(home, "start", "autumn")
    home.run("chat", "--cold", said=ASKED)
    home.run("chat", "--template", "rows", said=ASKED)
    told(home, "stop")
    # One of a hundred sessions is cold.
    assert any(tallied(_ask(home)) for _ in range(4))
    assert [arm["assigned"] for arm in told(home, "report")["arms"]] == [0, 0]


def test_a_session_that_goes_on_is_drawn_once(home: Home) -> None:
    told(home, "start", "autumn")
    home.run("chat", said=ASKED)
    home.run("chat", "-c", said="count the rows again")
    assert sum(arm["assigned"] for arm in told(home, "report")["arms"]) == 1


def test_a_report_says_what_became_of_the_sessions_of_each_arm(home: Home) -> None:
    told(home, "start", "autumn")
    replies = {"warm": "perfect, thanks", "cold": "that's wrong, use the other one"}
    with open_store(home.target) as store:
        trial = store.experiments.get("autumn")
        for arm, reply in replies.items():
            call = ToolCall(arm, "Edit", {"file_path": "/w/main.go"})
            session = store.begin(arm=arm)
            store.append(
                session,
                Message("user", "Please mend it."),
                Message("assistant", tool_calls=(call,)),
                Message("tool", "updated", tool_call_id=call.id, meta={"is_error": False}),
                Message("assistant", "Done."),
                Message("user", reply),
            )
            store.experiments.record_assignment(trial, session.id, session.owner, arm)
    outcomes = {arm["arm"]: arm["outcomes"] for arm in told(home, "report")["arms"]}
    found = {arm: (one["succeeded"], one["failed"]) for arm, one in outcomes.items()}
    assert found == {"warm": (1, 0), "cold": (0, 1)}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("start", "x", "--warm", "0"), "share of warm"),
        (("start", "x", "--cold=-1"), "share of cold"),
        (("start", "x", "--min-effect", "0"), "points"),
        (("report",), "No experiments yet"),
        (("report", "spring"), "Experiment not found: 'spring'"),
        (("plan", "--cold", "9", "--warm", "9"), "no difference"),
        (("plan", "--cold", "900"), "between 0 and 1"),
    ],
)
def test_what_cannot_be_is_refused(home: Home, words: tuple[str, ...], why: str) -> None:
    assert why in told(home, *words, code=2)


def test_a_plan_says_how_many_sessions_and_keeps_its_word_on_made_up_ones(home: Home) -> None:
    plan = told(home, "plan", "--cold", "20", "--warm", "5", "--runs", "50")
    assert plan["plan"]["sessions"] > 30
    assert plan["simulation"]["runs"] == 50
    assert plan["simulation"]["false_alarms"] <= 0.1
    assert plan["simulation"]["found"] > 0.5
    assert "sessions per arm" in home.run("warm", "experiment", "plan")


# -- what becomes of a template


def sessions(
    home: Home, arm: str, failing: int, *, template: str, trial: str | None = None
) -> None:
    """Forty sessions of an arm, with ten calls each, of which so many fail."""
    said: list[Message] = []
    for number in range(10):
        call = ToolCall(f"c{number}", "terminal", {"command": f"rowctl {number}"})
        meta = {"exit_code": int(number < failing)}
        done = Message("tool", "so", tool_call_id=call.id, meta=meta)
        said += [Message("assistant", None, (call,)), done]
    with open_store(home.target, durability="relaxed") as store:
        running = store.experiments.get(trial) if trial else None
        for _ in range(40):
            session = store.begin(arm=arm, template=template)
            store.append(session, *said)
            store.end(session, "completed")
            if running is not None:
                store.experiments.record_assignment(running, session.id, session.owner, arm)


def automatic(home: Home, state: Any) -> None:
    home.templates.update("rows", lambda old: old._replace(made="automatic", state=state))


def state(home: Home) -> str:
    return home.templates.read("rows").state


@pytest.mark.parametrize(
    ("cold", "warm", "state_after"), [(6, 1, "active"), (1, 6, "retired"), (3, 3, "quarantined")]
)
def test_an_experiment_decides_about_a_template_that_waits(
    home: Home, cold: int, warm: int, state_after: str
) -> None:
    automatic(home, "quarantined")
    told(home, "start", "about rows", "--template", "Row Counting")
    sessions(home, "cold", cold, template="rows", trial="about rows")
    sessions(home, "warm", warm, template="rows", trial="about rows")
    told(home, "review", "--dry-run")
    assert state(home) == "quarantined"
    ended = told(home, "stop")
    assert state(home) == state_after
    assert (ended["decision"]["action"] is None) == (state_after == "quarantined")


def test_a_template_that_does_harm_every_day_is_retired_and_a_persons_only_told(home: Home) -> None:
    sessions(home, "warm", 6, template="rows")
    sessions(home, "cold", 1, template="rows")
    (one,) = told(home, "review")
    assert (one["verdict"], one["action"], state(home)) == ("harms", None, "active")
    assert "rekindle warm retire rows" in home.run("warm", "experiment", "review")
    automatic(home, "active")
    (one,) = told(home, "review")
    assert (one["verdict"], one["applied"], state(home)) == ("harms", True, "retired")


def _ask(home: Home) -> list[dict[str, Any]]:
    home.run("chat", said=ASKED)
    return home.sent()


def test_only_sessions_that_the_template_fits_take_part_in_its_experiment(home: Home) -> None:
    automatic(home, "quarantined")
    told(home, "start", "about rows", "--template", "rows", "--warm", "0.99", "--cold", "0.01")
    elsewhere = "github.com/o/other"
    home.templates.update("rows", lambda one: one._replace(project=elsewhere))
    home.run("chat", said=ASKED)
    assert not tallied(home.sent())
    home.templates.update("rows", lambda one: one._replace(project=home.project))
    told_of: list[bool] = []
    while not any(told_of):  # one in a hundred is cold
        home.run("chat", said=ASKED)
        told_of.append(tallied(home.sent()))
    assert len(told_of) <= 5
    assert sum(arm["assigned"] for arm in told(home, "report")["arms"]) == len(told_of)
