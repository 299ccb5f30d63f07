"""Experiments through the real command: chance draws, the report counts as drawn."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rekindle import open_store
from rekindle.warm.trial import assign

from .test_warm_start import ASKED, Home, home, tallied

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
            trial = store.trials.get("autumn")
        assert newest.arm == assign(trial, newest.id)
        assert tallied(home.sent()) == (newest.arm == "warm")
    report = told(home, "report")
    assert report["verdict"] == "unknown"
    assert report["words"][0].startswith("No evidence yet")
    assert sum(arm["assigned"] for arm in report["arms"]) == 8
    given = {arm["arm"]: arm["given"] for arm in report["arms"]}
    assert given["cold"] == 0
    assert given["warm"] == next(a["assigned"] for a in report["arms"] if a["arm"] == "warm")


def test_one_who_chose_takes_no_part_and_nobody_does_after_the_end(home: Home) -> None:
    told(home, "start", "autumn")
    home.run("chat", "--cold", said=ASKED)
    home.run("chat", "--template", "rows", said=ASKED)
    told(home, "stop")
    home.run("chat", said=ASKED)
    assert tallied(home.sent())
    assert [arm["assigned"] for arm in told(home, "report")["arms"]] == [0, 0]


def test_a_session_that_goes_on_is_drawn_once(home: Home) -> None:
    told(home, "start", "autumn")
    home.run("chat", said=ASKED)
    home.run("chat", "-c", said="count the rows again")
    assert sum(arm["assigned"] for arm in told(home, "report")["arms"]) == 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("start", "x", "--warm", "0"), "share of warm"),
        (("start", "x", "--cold=-1"), "share of cold"),
        (("start", "x", "--smallest", "0"), "points"),
        (("report",), "no experiments yet"),
        (("report", "spring"), "no experiment 'spring'"),
        (("plan", "--cold", "9", "--warm", "9"), "no difference"),
        (("plan", "--cold", "900"), "between 0 and 1"),
    ],
)
def test_what_cannot_be_is_refused(home: Home, words: tuple[str, ...], why: str) -> None:
    assert why in told(home, *words, code=2)


def test_a_plan_says_how_many_sessions_and_keeps_its_word_on_made_up_ones(home: Home) -> None:
    plan = told(home, "plan", "--cold", "20", "--warm", "5", "--runs", "50")
    assert plan["plan"]["sessions"] > 30
    assert plan["tried"]["runs"] == 50
    assert plan["tried"]["false_alarms"] <= 0.1
    assert plan["tried"]["found"] > 0.5
    assert "sessions in each arm" in home.run("warm", "experiment", "plan")
