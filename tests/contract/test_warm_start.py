"""How sessions start: who is told what is known from whom, and that what was drawn is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rekindle import Message, Store
from rekindle.agent.tools.schema_check import build_tool_checks
from rekindle.experiments.experiment import Experiment, normalize_shares
from rekindle.learning.build import measure_usage
from rekindle.learning.library import TemplateLibrary
from rekindle.learning.notes.learner import learn_from_sessions
from rekindle.learning.selection import Selection
from rekindle.learning.warm_start import (
    ArmAssignment,
    NewSession,
    WarmStartConfig,
    WarmStarter,
    begin_session,
)
from rekindle.projects import hash_folder
from rekindle.store import Filter
from rekindle.types import Seed, Session, Source, Template, TemplateNote
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


FOLDER = "/srv/payroll/data"
PROJECT = hash_folder(f"folder:{FOLDER}")


@pytest.fixture
def folder(tmp_path: Path) -> TemplateLibrary:
    return TemplateLibrary(tmp_path / "templates")


def session_of(store: Store, owner: str | None) -> str:
    session = store.begin(owner=owner, cwd=FOLDER)
    store.append(session, user(ASKED))
    learn_from_sessions(store)
    return session.id


def put(folder: TemplateLibrary, *sessions: str, **more: Any) -> None:
    """Write a template that was learned from these sessions."""
    note = TemplateNote("p", "command", "`payctl export`", command="payctl export", sessions=2)
    made = {"project": PROJECT, "sources": sessions, "notes": (note,), **more}
    template = Template("pay", "Pay", **made)
    folder.create(template, on_existing=lambda _: template)


def told(
    store: Store,
    folder: TemplateLibrary,
    owner: str | None,
    *,
    shared: bool = True,
    where: str = FOLDER,
) -> str:
    config = WarmStartConfig(control_share=0.0)
    starter = WarmStarter(store, config, templates=folder, shared=shared)
    begun = store.begin(owner=owner)
    newcomer = NewSession(begun, ASKED, build_tool_checks(TOOLS), where, owner)
    return repr(starter.build_prelude(newcomer).messages)


# -- whose it is


def test_nobody_is_told_what_is_known_from_the_sessions_of_others(
    store: Store, folder: TemplateLibrary
) -> None:
    put(folder, session_of(store, "ada"))
    assert "payctl" in told(store, folder, "ada")
    assert "payctl" not in told(store, folder, "eve")
    assert "payctl" not in told(store, folder, "eve", shared=False)
    assert "payctl" in told(store, folder, None)


def test_what_nobody_owns_is_for_the_terminal_and_not_for_strangers(
    store: Store, folder: TemplateLibrary
) -> None:
    put(folder, session_of(store, None))
    assert "payctl" in told(store, folder, "ada", shared=False)
    assert "payctl" not in told(store, folder, "ada")


def test_it_does_not_become_anybodys_when_the_sessions_are_gone(
    store: Store, folder: TemplateLibrary, clock: Clock
) -> None:
    put(folder, session_of(store, "ada"))
    clock.forward(90 * 86_400)
    store.prune(Filter(owner="ada"))
    store.purge(older_than=0)
    assert store.recent() == []
    assert "payctl" not in told(store, folder, "eve")


def test_a_template_of_several_peoples_sessions_is_for_none_of_them(
    store: Store, folder: TemplateLibrary
) -> None:
    ada, eve = session_of(store, "ada"), session_of(store, "eve")
    put(folder, ada, eve)
    assert "payctl" not in told(store, folder, "ada")
    put(folder, ada, eve, scan={"owner": "ada"})
    assert "payctl" in told(store, folder, "ada")
    assert "payctl" not in told(store, folder, "eve")


def test_what_is_tagged_to_be_shared_is_for_everybody_but_not_its_wishes(
    store: Store, folder: TemplateLibrary
) -> None:
    wishes = Seed(instructions=("Never mention the merger.",))
    put(folder, session_of(store, "ada"), tags=("shared",), seed=wishes)
    assert "payctl" in told(store, folder, "eve")
    assert "payctl" in told(store, folder, "eve", where="/srv/elsewhere")
    assert "merger" not in told(store, folder, "eve")
    assert "merger" in told(store, folder, "ada")


def test_a_template_is_told_in_its_own_project_alone(store: Store, folder: TemplateLibrary) -> None:
    put(folder, session_of(store, "ada"))
    assert "payctl" in told(store, folder, "ada", shared=False)
    assert "payctl" not in told(store, folder, "ada", shared=False, where="/srv/elsewhere")


def test_notes_of_another_project_in_the_same_template_are_not_told(
    store: Store, folder: TemplateLibrary
) -> None:
    here, there = (
        TemplateNote(name, "command", f"`{name} go`", command=f"{name} go", project=project)
        for name, project in (("payctl", PROJECT), ("washctl", "folder:/srv/laundry"))
    )
    put(folder, session_of(store, "ada"), project=None, notes=(here, there))
    said = told(store, folder, "ada", shared=False)
    assert "payctl" in said
    assert "washctl" not in said


def test_what_a_person_learned_in_a_chat_is_told_in_their_next_one(
    store: Store, folder: TemplateLibrary
) -> None:
    session = store.begin(owner="ada")  # chats of a gateway have no folder
    store.append(session, user(ASKED))
    put(folder, session.id, project=None)
    assert "payctl" in told(store, folder, "ada")
    assert "payctl" not in told(store, folder, "eve")
    assert "payctl" not in told(store, folder, "ada", shared=False)


def test_of_several_templates_the_one_about_the_request_is_told_then_the_least_used(
    store: Store, folder: TemplateLibrary
) -> None:
    put(folder, session_of(store, None))
    wash = TemplateNote("w", "command", "`make wash`", command="make wash", sessions=9)
    folder.create(Template("wash", "Wash", project=PROJECT, notes=(wash,)))
    said = told(store, folder, None)
    assert "payctl export" in said
    assert "wash" not in said
    folder.create(Template("zash", "Zash", project=PROJECT, notes=(wash._replace(id="z"),)))
    folder.delete("pay")
    store.append(store.begin(template="wash", arm="warm"), user("go"))
    starter = WarmStarter(store, WarmStartConfig(), templates=folder)
    newcomer = NewSession(store.begin(), ASKED, build_tool_checks(TOOLS), FOLDER)
    found = starter.select(newcomer)
    assert found.template is not None
    assert found.template.id == "zash"
    assert [one.used for one in found.considered] == [0, 1]


def test_a_template_whose_notes_the_tools_cannot_act_on_is_not_selected(
    store: Store, folder: TemplateLibrary
) -> None:
    put(folder, session_of(store, None))

    def select(tools: tuple[dict[str, Any], ...]) -> Selection:
        newcomer = NewSession(store.begin(), ASKED, build_tool_checks(tools), FOLDER)
        return WarmStarter(store, WarmStartConfig(), templates=folder).select(newcomer)

    assert [one.command for one in select(TOOLS).notes] == ["payctl export"]
    found = select(({"name": "write_letter", "parameters": {"type": "object"}},))
    assert (found.template, found.notes) == (None, ())
    assert found.reason == "its notes need tools that are not available"


# -- what was drawn


class Broken(WarmStarter):
    def select(self, new_session: NewSession) -> Selection:
        raise OSError("the folder cannot be read")


def started(
    store: Store, kind: type[WarmStarter], arm: str, folder: TemplateLibrary | None = None
) -> Session:
    def drawn(*_: object) -> ArmAssignment:
        return ArmAssignment(arm, TRIAL)

    starter = kind(store, WarmStartConfig(), arm_policy=drawn, templates=folder)
    newcomer = NewSession(store.begin(), ASKED, build_tool_checks(TOOLS), FOLDER)
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


def test_a_placebo_is_as_long_as_the_notes_and_about_no_project(
    store: Store, folder: TemplateLibrary
) -> None:
    put(folder, session_of(store, None))
    laundry = TemplateNote("w", "command", "`washctl go`", command="washctl go", project="x")
    folder.create(Template("wash", "Wash", project="x", notes=(laundry,)))
    store.experiments.start(TRIAL)
    session = started(store, WarmStarter, "placebo", folder)
    given = repr(store.preludes.load(session.id).messages)
    assert "General notes:" in given
    assert "payctl" not in given
    assert "washctl" not in given
    assert (session.arm, session.template) == ("placebo", None)
    warm = started(store, WarmStarter, "warm", folder)
    assert (warm.arm, warm.template) == ("warm", "pay")
    real = repr(store.preludes.load(warm.id).messages)
    assert 0.5 < len(given) / len(real) < 2


def test_what_goes_on_from_a_warm_session_is_not_another_one(store: Store) -> None:
    session = store.begin(template="pay", arm="warm")
    store.append(session, user("go"))
    store.fork(session)
    store.compress(session, Message("user", "so far"))
    cold = store.begin(template="pay", arm="cold")
    store.append(cold, user("go"))
    assert store.template_index.count_uses("pay") == 1
    assert measure_usage(store, "pay").sessions == 1
