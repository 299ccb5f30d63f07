"""How sessions start: who is told what is known from whom, and that what was drawn is kept."""

from __future__ import annotations

from typing import Any

import pytest

from rekindle import Message, Store
from rekindle.agent.tools.schema_check import build_tool_checks
from rekindle.experiments.experiment import Experiment, normalize_shares
from rekindle.knowledge.selection import Selection
from rekindle.learning.build import measure_usage
from rekindle.learning.warm_start import (
    ArmAssignment,
    NewSession,
    WarmStartConfig,
    WarmStarter,
    begin_session,
)
from rekindle.store import Filter
from rekindle.types import JSON, Pattern, PatternStep, Seed, Session, Source, Template
from tests.conftest import Clock
from tests.contract.messages import user

ASKED = "export the payroll of acme"
TOOLS = (
    {
        "name": "terminal",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
    },
)
TRIAL = Experiment(
    "payroll",
    normalize_shares({"warm": 1, "cold": 1, "placebo": 1}),
    "seed",
    1000.0,
    min_effect=0.02,
)


def session_of(store: Store, owner: str | None) -> str:
    session = store.begin(owner=owner, cwd="/srv/payroll/data")
    store.append(session, user(ASKED))
    return session.id


def known(*sessions: str, seen_in: int | None = None, **more: Any) -> Template:
    step = PatternStep("terminal", {"command": "payctl export --employer acme"}, "fine")
    count = len(sessions) if seen_in is None else seen_in
    one = Pattern("p", "example", (step,), ASKED, sessions=sessions, seen_in=count)
    return Template("pay", "Pay", patterns=(one,), **more)


def told(store: Store, owner: str | None, *, shared: bool = True) -> str:
    starter = WarmStarter(store, WarmStartConfig(control_share=0.0), shared=shared)
    begun = store.begin(owner=owner)
    newcomer = NewSession(begun, ASKED, build_tool_checks(TOOLS), "/srv/payroll/data", owner)
    return repr(starter.build_prelude(newcomer).messages)


# -- whose it is


def test_nobody_is_told_what_is_known_from_the_sessions_of_others(store: Store) -> None:
    ada = session_of(store, "ada")
    store.template_index.put(known(ada), "1")
    assert "payctl" in told(store, "ada")
    assert "payctl" not in told(store, "eve")
    assert "payctl" not in told(store, "eve", shared=False)
    assert "payctl" in told(store, None)


def test_what_nobody_owns_is_for_the_terminal_and_not_for_strangers(store: Store) -> None:
    store.template_index.put(known(session_of(store, None)), "1")
    assert "payctl" in told(store, "ada", shared=False)
    assert "payctl" not in told(store, "ada")


def test_it_does_not_become_anybodys_when_the_sessions_are_gone(store: Store, clock: Clock) -> None:
    ada = session_of(store, "ada")
    store.template_index.put(known(ada), "1")
    clock.forward(90 * 86_400)
    store.prune(Filter(owner="ada"))
    store.purge(older_than=0)
    assert store.recent() == []
    assert "payctl" not in told(store, "eve")


def test_the_sessions_that_a_pattern_does_not_name_may_be_of_others(store: Store) -> None:
    ada = session_of(store, "ada")
    store.template_index.put(known(ada, seen_in=40), "1")
    assert "payctl" not in told(store, "ada")
    store.template_index.put(known(ada, seen_in=40, scan={"owner": "ada"}), "2")
    assert "payctl" in told(store, "ada")
    assert "payctl" not in told(store, "eve")


def test_what_is_tagged_to_be_shared_is_for_everybody(store: Store) -> None:
    store.template_index.put(known(session_of(store, "ada"), tags=("shared",)), "1")
    assert "payctl" in told(store, "eve")


def test_wishes_of_sessions_that_may_be_of_others_are_not_told(store: Store) -> None:
    ada, eve = session_of(store, "ada"), session_of(store, "eve")
    wishes = Seed(instructions=("Never mention the merger.",))
    store.template_index.put(known(ada, seed=wishes, sources=(ada,)), "1")
    assert "merger" in told(store, "ada")
    store.template_index.put(known(ada, seed=wishes, sources=(ada, eve)), "2")
    assert "payctl" in told(store, "ada")
    assert "merger" not in told(store, "ada")


# -- what was drawn


class Broken(WarmStarter):
    def select(self, newcomer: NewSession, tools: Any) -> Selection:
        raise OSError("the folder cannot be read")


def started(store: Store, kind: type[WarmStarter], arm: str) -> Session:
    def drawn(*_: object) -> ArmAssignment:
        return ArmAssignment(arm, TRIAL)

    starter = kind(store, WarmStartConfig(), arm_policy=drawn)
    newcomer = NewSession(store.begin(), ASKED, build_tool_checks(TOOLS))
    came = store.inbox.accept(
        arm, Source("telegram", arm), user(ASKED), instance="a", lease_seconds=30.0
    )
    begun, _ = begin_session(
        store, starter, newcomer, lambda one: store.inbox.start_turn(came.inbound, one)
    )
    return store.session(begun.id)


@pytest.mark.parametrize("arm", ["warm", "placebo"])
def test_a_session_whose_examples_cannot_be_chosen_counts_in_its_arm(
    store: Store, arm: str
) -> None:
    store.experiments.start(TRIAL)
    session = started(store, Broken, arm)
    (one,) = store.experiments.list_assignments(TRIAL.name)
    assert (one.session, one.arm, session.arm) == (session.id, arm, arm)


def test_a_placebo_is_no_use_of_the_template_that_would_have_fitted(store: Store) -> None:
    other: dict[str, JSON] = {"command": "zorkctl run"}
    strange = Pattern("q", "example", (PatternStep("terminal", other, "fine"),), "wash the windows")
    store.template_index.put(known(), "1")
    store.template_index.put(Template("zork", "Zork", patterns=(strange,)), "1")
    store.experiments.start(TRIAL)
    session = started(store, WarmStarter, "placebo")
    given = store.preludes.load(session.id)
    assert given is not None
    assert "zorkctl" in repr(given.messages)
    assert (session.arm, session.template) == ("placebo", None)
    warm = started(store, WarmStarter, "warm")
    assert (warm.arm, warm.template) == ("warm", "pay")


def test_what_goes_on_from_a_warm_session_is_not_another_one(store: Store) -> None:
    session = store.begin(template="pay", arm="warm")
    store.append(session, user("go"))
    store.fork(session)
    store.compress(session, Message("user", "so far"))
    cold = store.begin(template="pay", arm="cold")
    store.append(cold, user("go"))
    assert store.template_search.load_stats(["pay"])["pay"].sessions == 1
    assert measure_usage(store, "pay").sessions == 1
