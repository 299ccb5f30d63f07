"""Home: what runs, what fails, what was learned, and a first visit."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rekindle.learning.notes.learner import learn_from_sessions
from rekindle.learning.notes.playbooks import propose_note
from rekindle.processes.state.journal import Journal
from rekindle.routing.schedule_rule import ScheduleRule
from rekindle.store import Store
from rekindle.store.conversations.jobs import JobPlan
from rekindle.types import Source
from tests.unit.web.conftest import WebClient
from tests.unit.web.histories import HOSTILE, PROJECT, tell, tell_history

HOUR = 3_600.0


@pytest.fixture(autouse=True)
def _empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))


def read(client: WebClient, block: str = "") -> str:
    answer = client.get("/", headers={"x-fragment": block} if block else {})
    assert answer.status_code == 200, answer.text
    return answer.text


def test_a_first_visitor_sees_what_is_on_the_machine(client: WebClient, tmp_path: Path) -> None:
    assert "No sessions of a coding agent were found" in read(client)
    folder = tmp_path / "user" / ".claude" / "projects" / "shop"
    folder.mkdir(parents=True)
    (folder / "a.jsonl").write_text("{}\n")
    shown = read(client)
    assert "Claude Code" in shown
    assert "~/.claude/projects" in shown
    assert "rekindle install claude-code" in shown
    assert "rekindle start" in shown


def test_live_sessions_are_those_with_a_new_message_that_have_not_ended(
    client: WebClient, store: Store
) -> None:
    now = time.time()
    tell(store, "live", asked="mend the gate", started=now - 30)
    tell(store, "old", asked="paint the door", started=now - HOUR)
    tell(store, "over", asked="sweep the floor", started=now - 30)
    store.end("over", "done")
    shown = read(client, "now")
    assert "mend the gate" in shown
    assert "paint the door" not in shown
    assert "sweep the floor" not in shown
    assert read(client, "latest").count('class="row"') == 3


def test_background_processes_and_the_next_jobs_are_listed(
    client: WebClient, store: Store, tmp_path: Path
) -> None:
    tell(store, "a")
    owner = Source(platform="local", chat_id="me", user_id="me")
    plan = JobPlan(
        name="Water the plants",
        owner="me",
        maker=owner,
        kind="prompt",
        text="water",
        rule=ScheduleRule("interval", "3600", "UTC"),
        target=owner,
        deliver="local",
    )
    store.jobs.add(plan, time.time() + HOUR)
    shown = read(client, "now")
    assert "Water the plants" in shown
    assert "in 59 min" in shown
    assert "Processes" not in shown
    Journal(tmp_path / "processes")  # an empty folder is no error
    assert "Processes" not in read(client, "now")


def test_projects_failures_and_their_calls_are_shown(client: WebClient, store: Store) -> None:
    tell_history(store, 6)
    shown = read(client, "known")
    assert f'href="/projects/{PROJECT}"' in shown
    assert "<code>make check</code>" in shown.replace(' class="cut"', "")
    assert "<b>3</b> of 9 failed" in shown
    assert "in 3 sessions" in shown
    assert 'href="/sessions/s5?at=1#m1"' in shown  # the call that failed last
    assert "counted" in shown
    assert "<polyline" in shown


def test_what_was_learned_this_week_is_shown_with_its_note(client: WebClient, store: Store) -> None:
    long_ago = time.time() - 60 * 86_400
    for number in range(3):
        tell(store, f"old{number}", ("npm test", "ok", True), started=long_ago)
    for number in range(2):
        tell(store, f"new{number}", ("make check", "ok", True))
    learn_from_sessions(store)
    propose_note(store, PROJECT, f"Never {HOSTILE}", time.time())
    learned = read(client, "known").partition("Learned this week")[2]
    assert "<code>make check</code> (2 sessions)" in learned
    assert "npm test" not in learned
    assert "proposed" in learned
    assert "?tab=playbook&amp;note=" in learned
    assert HOSTILE not in learned
    assert "Never &lt;script&gt;" in learned


def test_hostile_text_is_text(client: WebClient, store: Store) -> None:
    for number in range(4):
        bad = (f"make {HOSTILE}", HOSTILE, False)
        tell(store, f"{HOSTILE}{number}", bad, folder=f"/gone/{HOSTILE}", asked=HOSTILE)
    learn_from_sessions(store)
    shown = read(client)
    assert HOSTILE not in shown
    assert "&lt;script&gt;" in shown
    assert "style=" not in shown


def test_every_part_can_be_fetched_alone(client: WebClient, store: Store) -> None:
    tell_history(store, 2)
    for block in ("now", "known", "latest"):
        shown = read(client, block)
        assert "<html" not in shown
        assert shown.strip()


def test_a_part_costs_few_questions_to_the_store(
    client: WebClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number does not grow with what is stored, and no statement reads whole tables."""
    tell_history(store, 12)
    read(client)
    statements = _watch_statements(store, monkeypatch)
    read(client, "now")
    read(client, "latest")
    assert 0 < len(statements) < 30
    for sql, params in statements:
        with store._engine.begin_read() as tx:  # pyright: ignore[reportPrivateUsage]
            plan = " ".join(str(row[-1]) for row in tx.run(f"EXPLAIN QUERY PLAN {sql}", params))
        assert "SCAN s" not in plan.replace("SCAN s USING", ""), (sql, plan)
        assert "SCAN messages" not in plan, sql


def _watch_statements(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[str, list[object]]]:
    statements: list[tuple[str, list[object]]] = []
    with store._engine.begin_read() as tx:  # pyright: ignore[reportPrivateUsage]
        kind = type(tx)
    run = kind.run

    def watch(self: object, sql: str, params: object = ()) -> object:
        if sql.startswith(("SELECT", "WITH")):
            statements.append((sql, list(params)))  # type: ignore[call-overload]
        return run(self, sql, params)  # type: ignore[arg-type]

    monkeypatch.setattr(kind, "run", watch)
    return statements
