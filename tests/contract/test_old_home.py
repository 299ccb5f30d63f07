"""A home written by the version before the names of tables and settings changed still works."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from rekindle import Message, Store, open_store
from rekindle.agent.tools.schema_check import build_tool_checks
from rekindle.config import load_config
from rekindle.experiments.experiment import build_report
from rekindle.learning.library import TemplateLibrary
from rekindle.learning.notes.learner import learn_from_sessions
from rekindle.learning.warm_start import NewSession, build_warm_start_config, create_warm_starter
from rekindle.store.core.migrations import LATEST_VERSION, load_migrations
from rekindle.store.engines.sqlite import APPLICATION_ID
from rekindle.types import Source, Tokens
from tests.conftest import ENGINES, Clock
from tests.contract.messages import found, user

HOME = Path(__file__).parent / "homes" / "0009"
EXPECTED: dict[str, Any] = json.loads((HOME / "sessions.json").read_text(encoding="utf-8"))[
    "sessions"
]
NOW = 1_793_460_000.0
DM, GROUP = "agent:main:telegram:dm", "agent:main:matrix:group:!room%3Asea"
TERMINAL = {
    "name": "terminal",
    "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
}


def read_rows(engine: str) -> str:
    """The rows of the old home: those that both engines have, and those of one alone."""
    text = (HOME / "rows.sql").read_text(encoding="utf-8")
    both, *parts = re.split(r"\n-- (sqlite|postgres): .*\n", text)
    return both + dict(zip(parts[::2], parts[1::2], strict=True))[engine]


def write_sqlite(target: str, rows: str) -> None:
    connection = apsw.Connection(target)
    for sql in (
        *(sql for number, sql in load_migrations("sqlite").items() if number <= 9),
        rows,
        f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 9",
    ):
        for _ in connection.execute(sql):
            pass
    connection.close()


def write_postgres(target: str, rows: str) -> None:
    rows = re.sub(r"\bx'([0-9a-f]*)'", r"'\\x\1'", rows)
    numbers = "".join(
        f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), max({column})) FROM {table};"
        for table, column in (
            ("sessions", "num"), ("messages", "id"), ("rewinds", "num"), ("inbox", "num"),
            ("outbox", "num"), ("trials", "num"),
        )
    )  # fmt: skip
    with psycopg.connect(target, autocommit=True) as connection:
        for number, sql in load_migrations("postgres").items():
            if number <= 9:
                connection.execute(sql)  # pyright: ignore
        version = "CREATE TABLE rekindle_version (version INTEGER NOT NULL);"
        version += "INSERT INTO rekindle_version VALUES (9);"
        connection.execute(rows + numbers + version)  # pyright: ignore


@pytest.fixture(scope="module", params=ENGINES)
def upgraded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where the store of the old home is, upgraded by today's code: to be copied."""
    if request.param == "sqlite":
        target = str(tmp_path_factory.mktemp("old") / "sessions.db")
        write_sqlite(target, read_rows("sqlite"))
    else:
        target = request.getfixturevalue("postgres").database()
        write_postgres(target, read_rows("postgres"))
    open_store(target, clock=Clock(NOW)).close()
    return target


@pytest.fixture
def store(
    request: pytest.FixtureRequest, upgraded: str, tmp_path: Path, clock: Clock
) -> Iterator[Store]:
    """The old home at `tmp_path`, opened with today's code."""
    clock.now = NOW
    shutil.copytree(HOME / "templates", tmp_path / "templates")
    shutil.copy(HOME / "config.toml", tmp_path)
    if "://" in upgraded:
        target = request.getfixturevalue("postgres").copy_database(upgraded)
    else:
        target = shutil.copy(upgraded, tmp_path / "sessions.db")
    with open_store(target, clock=clock) as opened:
        yield opened


def test_every_session_and_message_is_there(store: Store) -> None:
    for id, expected in EXPECTED.items():
        session = store.session(id)
        assert {name: getattr(session, name) for name in expected["fields"]} == expected["fields"]
        assert session.tokens == Tokens(*expected["tokens"])
        assert session.cost == Decimal(expected["cost"])
        messages = [[one.role, one.text, one.tool_call_id] for one in store.messages(id)]
        assert messages == expected["messages"]
    stats = store.stats()
    assert (stats.version, stats.sessions, stats.messages) == (LATEST_VERSION, len(EXPECTED), 121)
    assert (stats.archived, stats.pruned, stats.rewound) == (1, 1, 2)
    assert stats.by_model["small-1"].tokens == Tokens(2700, 240, 1200, 60, 15)
    assert store.verify() == []


def test_the_requests_of_old_sessions_are_known(store: Store) -> None:
    for session in store.recent(1000):
        asked = [one.text for one in store.messages(session) if one.role == "user"]
        if asked:
            assert (session.preview, session.last_request) == (asked[0], asked[-1])
    assert store.session("plain").last_request is not None


def test_rewinds_restores_and_searches_go_on(store: Store) -> None:
    assert [(one.messages, one.restored is not None) for one in store.rewinds("plain")] == [
        (2, True), (2, False),
    ]  # fmt: skip
    store.redo("plain")
    assert store.messages("plain")[-1].text == "Thirty feet."
    assert [one.id for one in store.restore("gone-1")] == ["gone-1"]
    assert found(store, "forgotten gone") == ["Forgotten words of gone-1."]
    assert found(store, "twelve metres tide", session="plain") == ["Twelve metres at low tide."]
    assert store.get_import_stamps(["/srv/logs/one.jsonl"]) == {"/srv/logs/one.jsonl": "stamp-1"}
    assert store.verify() == []


def test_conversations_and_queues_go_on(store: Store) -> None:
    dm, group = store.routes.get(DM), store.routes.get(GROUP)
    assert (dm.display_name, dm.previous, dm.tokens) == (
        "DM with Ada", "20261031_141327_c4ae3e07", Tokens(10, 5, 3, 2, 1),
    )  # fmt: skip
    assert (group.origin.chat_name, dm.usage["small-1"].cost) == ("Harbour", Decimal("0.001"))
    assert store.routes.load_listed_sessions(DM) == ["work-1", "work-2"]
    assert [home.chat_id for home in store.routes.list_homes()] == ["7"]
    assert store.inbox.get_counts() == (2, 0, 2, 1)
    assert store.inbox.get_lease_holder(DM) == "gateway-old"
    assert set(store.inbox.adopt_conversations("gateway-new", 30.0)) == {DM, GROUP}
    (waiting,) = store.inbox.list_waiting(DM)
    assert waiting.message.text == "and the horn?"
    session = store.session(dm.session)
    store.inbox.start_turn(waiting, session)
    store.inbox.finish_turn([waiting], session, [Message("assistant", "Loud.")], [])
    assert [one.text for one in store.inbox.list_outbound(GROUP)] == [
        "high water at six", "low water at noon",
    ]  # fmt: skip
    accepted = store.inbox.accept(
        DM, Source("telegram", "7"), user("thanks", platform_message_id="m3"),
        instance="gateway-new", lease_seconds=30.0,
    )  # fmt: skip
    assert not accepted.is_new, "what came before the upgrade is known"


def test_judged_calls_and_experiments_are_there(store: Store) -> None:
    calls = [call for one in store.iter_judged_sessions() for call in one.calls]
    assert [(call.kind, call.outcome, call.result_position) for call in calls[:3]] == [
        ("terminal", "error", 2), ("terminal", "ok", 4), ("terminal", "ok", 6),
    ]  # fmt: skip
    running = store.experiments.get_running()
    assert running is not None
    assert (running.name, running.min_effect) == ("autumn", 0.02)
    assert [one.name for one in store.experiments.list_all()] == ["autumn", "spring"]
    assigned = store.experiments.list_assignments("autumn")
    assert [(one.session, one.arm, one.calls, one.given) for one in assigned] == [
        ("warm-1", "warm", 1, True), ("cold-1", "cold", 1, False),
    ]  # fmt: skip
    assert [arm.counted for arm in build_report(running, assigned).arms] == [1, 1]
    assert "beacon docs --out site" in repr(store.preludes.load("warm-1").messages)


def test_what_earlier_versions_mined_is_gone_and_learned_anew(store: Store) -> None:
    report = learn_from_sessions(store)
    assert (report.sessions, report.projects) == (12, ("folder:/srv/lighthouse",))
    assert learn_from_sessions(store).sessions == 0
    store.repair()
    assert learn_from_sessions(store).sessions == 12
    assert store.verify() == []


def test_settings_and_templates_of_the_old_home_are_read(store: Store, tmp_path: Path) -> None:
    config = load_config({"REKINDLE_HOME": str(tmp_path)})
    assert (config.agent.max_steps, config.gateway.max_turns) == (40, 12)
    assert (config.reset.time_zone, config.gateway.busy_mode) == ("Europe/Berlin", "steer")
    assert config.policies.overrides == {("telegram", None): {"time_zone": "Asia/Tokyo"}}
    warm = build_warm_start_config(config)
    assert (warm.control_share, warm.max_notes) == (0, 2)
    assert len(config.notes) == 12
    assert "warm.floor is no longer used" in config.notes[-2]
    found = TemplateLibrary.from_home(tmp_path).find("Lighthouse work")
    assert (found.revision, found.state, found.notes) == (1, "active", ())
    assert found.scan["converted"] == {"patterns": 1, "kept": 0}, "nobody vouches for `beacon`"


def test_a_template_of_the_old_home_is_told_in_its_project(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "templates" / "lighthouse-work.json"
    path.write_text(path.read_text().replace("beacon docs --out site", "make docs"))
    learn_from_sessions(store)
    store.experiments.stop("autumn")
    starter = create_warm_starter(load_config({"REKINDLE_HOME": str(tmp_path)}), store)
    session = store.begin(source="local", owner="ada")
    for folder, told in (("/srv/lighthouse", True), ("/srv/other", False)):
        new = NewSession(session, "build its docs", build_tool_checks((TERMINAL,)), folder)
        prelude = starter.build_prelude(new)
        assert (prelude.template == "lighthouse-work") == told
        assert ("make docs" in repr(prelude.messages)) == told
