"""Routes and mail go with a copy of a store, and name only sessions that are there."""

from __future__ import annotations

from decimal import Decimal

import pytest

from rekindle import Store
from rekindle.experiments.experiment import ArmShare, Experiment
from rekindle.routing.schedule_rule import ScheduleRule
from rekindle.store import Filter
from rekindle.store.conversations.jobs import JobPlan
from rekindle.store.graphs.checkpoints import (
    CheckpointQuery,
    GraphCheckpoint,
    GraphValue,
    GraphWrite,
    ThreadKey,
)
from rekindle.store.graphs.documents import DocumentChange, DocumentPlace
from rekindle.store.learning.observations import NoteDecision
from rekindle.types import Source, Tokens, Usage
from tests.conftest import ENGINES, Clock
from tests.contract.conftest import Opened
from tests.contract.messages import answer, user

ADA = Source("telegram", "7", user_id="7", user_name="Ada \0\ud800")
PHONE = Source("pager", "p", user_id="77", user_name="Ada M.")
ADA_KEY, BOB_KEY = "agent:main:telegram:dm:7", "agent:main:telegram:dm:8"


def accept(store: Store, text: str, id: str | None, key: str = ADA_KEY):  # type: ignore[no-untyped-def]
    said = user(text, platform_message_id=id)
    return store.inbox.accept(key, ADA, said, instance="a", lease_seconds=30.0)


def lived(store: Store, clock: Clock) -> None:
    """One message answered, one being answered, one waiting; one answer half sent."""
    for key in (ADA_KEY, BOB_KEY):
        store.routes.open(key, ADA, name="DM with Ada")
    store.routes.set_home(ADA)
    clock.forward(1)
    first = accept(store, "one", "m1").inbound
    session = store.begin(id=store.routes.get(ADA_KEY).session, owner=ADA_KEY)
    store.inbox.start_turn(first, session)
    parts = store.inbox.finish_turn(
        [first], session, [answer("yes")], [(ADA, "half"), (ADA, "rest")]
    )
    store.inbox.mark_sent(parts[0], "p1")
    second = accept(store, "two", None).inbound
    store.inbox.count_attempt(second)
    store.inbox.start_turn(second, session)
    accept(store, "three", "m3")
    store.routes.save_listed_sessions(ADA_KEY, [session.id])


def mail(store: Store, key: str = ADA_KEY) -> list[tuple[object, ...]]:
    return [*store.inbox.list_waiting(key), *store.inbox.list_outbound(key)]


@pytest.mark.parametrize("engine", ENGINES)
def test_routes_and_mail_move_with_a_copy(
    store: Store, another: Opened, clock: Clock, engine: str
) -> None:
    lived(store, clock)
    there = another(engine)
    report = store.copy_to(there)
    assert (report.routes, report.queued_messages) == (2, 5)
    assert there.routes.list() == store.routes.list()
    assert (
        there.routes.load_listed_sessions(ADA_KEY)
        == store.routes.load_listed_sessions(ADA_KEY)
        != []
    )
    assert there.routes.list_homes() == store.routes.list_homes() != []
    assert mail(there) == mail(store), "with their numbers, by which platforms know them"
    assert not accept(there, "one", "m1").is_new, "what was answered is not answered again"
    assert there.verify() == []
    rest = there.inbox.list_outbound(ADA_KEY)[1]
    assert there.inbox.find_answered(rest) is None, "it is still the second part"
    assert accept(there, "four", "m4").inbound.num > there.inbox.list_waiting(ADA_KEY)[-2].num


def test_a_copy_made_again_follows_what_happened_since(
    store: Store, another: Opened, clock: Clock
) -> None:
    lived(store, clock)
    there = another()
    store.copy_to(there)
    again = store.copy_to(there)
    assert (again.routes, again.queued_messages) == (0, 0), "nothing twice"
    clock.forward(5)
    second, _ = store.inbox.list_waiting(ADA_KEY)
    session = store.session(second.session or "")
    store.inbox.finish_turn([second], session, [answer("done")], [(ADA, "done")])
    store.inbox.mark_sent(store.inbox.list_outbound(ADA_KEY)[1], "p2")
    store.routes.touch(ADA_KEY)
    report = store.copy_to(there)
    assert (report.routes, report.queued_messages) == (1, 3)
    assert mail(there) == mail(store)
    assert there.routes.get(ADA_KEY) == store.routes.get(ADA_KEY)
    assert there.verify() == []


def test_a_copy_leaves_what_is_newer_there(store: Store, another: Opened, clock: Clock) -> None:
    lived(store, clock)
    there = another()
    own = there.routes.open(BOB_KEY, ADA)
    accept(there, "theirs", "n1", BOB_KEY)  # under a number that comes over too
    there.inbox.post(BOB_KEY, ADA, "news")
    clock.forward(1)
    there.routes.touch(BOB_KEY)
    store.copy_to(there)
    assert there.routes.get(BOB_KEY).session == own.session
    assert [one.message.text for one in there.inbox.list_waiting(BOB_KEY)] == ["theirs"]
    assert [one.message.text for one in there.inbox.list_waiting(ADA_KEY)] == ["two", "three"]
    half, rest = there.inbox.list_outbound(ADA_KEY)
    opened = there.inbox.find_answered(half)
    assert opened is not None
    assert (opened.message.text, half.reply_to) == ("one", rest.reply_to)
    store.copy_to(there)
    assert len(mail(there)) == 4, "nothing twice, under other numbers either"


def live_together(store: Store) -> None:
    """People, a link, a job with a run, and facts."""
    store.people.set_role("telegram", "7", "owner", name="Ada \0")
    store.people.set_role("pager", "77", "guest")
    store.people.add_usage(
        "telegram:7", "2026-01-01", Usage(Tokens(10, 5), Decimal("0.5")), turns=1
    )
    store.links.save_code(ADA, "ABCDEFGH", 600)
    store.links.link(PHONE, "telegram:7", ADA_KEY, "phone")
    rule = ScheduleRule("interval", 3600.0, "UTC")
    job = store.jobs.add(JobPlan("tick", ADA_KEY, ADA, "prompt", "look", rule, ADA, "origin"), 1e12)
    run = accept(store, "look", "run1", "agent:main:telegram:job:x").inbound
    store.jobs.add_run(job, 5.0, run.num)
    store.memory.add(ADA_KEY, "likes tea", actor="person")
    store.memory.add(ADA_KEY, "likes milk", actor="person")
    store.memory.remove(ADA_KEY, 2, actor="person")
    store.approvals.ask(run.num, run.key, "d", tool="terminal", summary="rm", seconds=60)


def describe_people(store: Store) -> list[object]:
    jobs = store.jobs.list(owner=ADA_KEY)
    return [
        store.people.list(),
        store.people.list_events(),
        store.people.get_usage("telegram:7", "2026-01-01"),
        store.links.find("pager", "77"),
        [job._replace(num=0) for job in jobs],
        [run._replace(num=0, job=0) for job in jobs for run in store.jobs.list_runs(job)],
        [fact._replace(num=0) for fact in store.memory.list(ADA_KEY)],
        [change._replace(num=0) for change in store.memory.list_changes(ADA_KEY)],
        store.approvals.list_open(),
    ]


@pytest.mark.parametrize("engine", ENGINES)
def test_people_jobs_and_memory_move_with_a_copy(
    store: Store, another: Opened, clock: Clock, engine: str
) -> None:
    live_together(store)
    there = another(engine)
    report = store.copy_to(there)
    assert (report.people, report.jobs, report.memories) == (4, 1, 1)
    assert describe_people(there) == describe_people(store)
    again = store.copy_to(there)
    assert (again.people, again.jobs, again.memories) == (0, 0, 0), "nothing twice"
    clock.forward(5)
    there.people.set_role("pager", "77", "denied")
    store.memory.add(ADA_KEY, "rides a bike", actor="person")
    store.memory.undo(ADA_KEY, actor="person")
    store.memory.add(ADA_KEY, "walks", actor="person")
    assert store.copy_to(there).memories == 1
    assert [fact.text for fact in there.memory.list(ADA_KEY)] == ["likes tea", "walks"]
    assert there.memory.add(ADA_KEY, "swims", actor="person").number == 5
    denied = there.people.find("pager", "77")
    assert denied is not None
    assert denied.role == "denied", "what is newer there is kept"
    store.memory.add(ADA_KEY, "sings", actor="person")
    assert store.copy_to(there).memories == 0, "so is memory that was changed there"
    assert there.jobs.list(owner=ADA_KEY)[0].id == store.jobs.list(owner=ADA_KEY)[0].id


def test_a_route_and_letters_without_their_session_are_found_and_mended(
    store: Store, clock: Clock
) -> None:
    lived(store, clock)
    assert store.verify() == []
    name = store.routes.get(ADA_KEY).session
    store.routes.reset(ADA_KEY)
    plant(store, "DELETE FROM messages")
    plant(store, "DELETE FROM sessions")
    store.repair()  # the rest of what is wrong now
    store.verify()
    plant(store, "UPDATE routes SET previous = ? WHERE key = ?", name, ADA_KEY)
    plant(store, "UPDATE routes SET session = ? WHERE key = ?", name, BOB_KEY)
    plant(store, "UPDATE inbox SET session = ?, position = 0 WHERE platform_id = 'm1'", name)
    plant(store, "UPDATE inbox SET key = ? WHERE platform_id = 'm1'", BOB_KEY)
    told = {(one.check, one.where): one.detail for one in store.verify()}
    assert told == {
        ("route", ADA_KEY): f"its previous session {name} is missing",
        ("route", BOB_KEY): f"its session {name} is missing",
        ("queue", BOB_KEY): f"inbox message 1 (done) is in missing session {name}",
    }
    assert len(store.repair()) == 2
    assert store.verify() == []
    assert store.routes.get(ADA_KEY).previous is None


def test_an_open_letter_whose_place_is_lost_begins_anew(store: Store, clock: Clock) -> None:
    lived(store, clock)
    plant(store, "UPDATE inbox SET position = 99 WHERE state = 'running'")
    (finding,) = store.verify()
    assert "but is not at position 99" in finding.detail
    store.repair()
    assert store.verify() == []
    assert [one.state for one in store.inbox.list_waiting(ADA_KEY)] == ["waiting", "waiting"]


def test_a_row_that_cannot_be_read_is_named(store: Store, clock: Clock) -> None:
    lived(store, clock)
    plant(store, "UPDATE inbox SET body = '[' WHERE platform_id = 'm3'")
    plant(store, "UPDATE routes SET origin = '{}' WHERE key = ?", BOB_KEY)
    findings = store.verify()
    assert [(one.check, one.repairable) for one in findings] == [("route", False), ("queue", False)]
    assert all("cannot be read" in one.detail for one in findings)


def test_what_is_purged_is_no_way_back_any_more(store: Store, clock: Clock) -> None:
    lived(store, clock)
    second, third = store.inbox.list_waiting(ADA_KEY)
    old = store.session(second.session or "")
    store.inbox.finish_turn([second], old, [answer("done")], [])
    store.inbox.close(third)
    new = store.routes.reset(ADA_KEY)
    assert new.previous == old.id
    clock.forward(100_000_000)
    store.prune(Filter())
    assert store.purge(older_than=-1) == 1
    assert store.verify() == []
    assert store.routes.get(ADA_KEY).previous is None


def plant(store: Store, sql: str, *params: object) -> None:
    """Damage from inside, through the engine of the store."""
    store._engine.transact([lambda tx: tx.run(sql, params)])


KEY = ThreadKey("thread \ud800", "inner")
PLACE = DocumentPlace(("people", "ada"), "likes")


def keep(store: Store, clock: Clock, *, likes: str) -> None:
    """A decision about a note, an experiment with a session, a checkpoint and a document."""
    decision = NoteDecision("note-1", "added", "Use the \0 script", clock(), "\0 from a model")
    store.observations.save_decision("project", decision)
    value = GraphValue("msgpack", b"\x00\xff")
    checkpoint = GraphCheckpoint(KEY, "c1", None, "run", value, {"messages": "1"}, {"step": 1})
    store.graph_checkpoints.save(checkpoint, {("messages", "1"): value})
    store.graph_checkpoints.save_writes(KEY, "c1", [GraphWrite("task", "", 0, "messages", value)])
    store.documents.put("memory", [DocumentChange(PLACE, {"likes": likes})])


def kept(store: Store) -> tuple[object, ...]:
    (checkpoint,) = store.graph_checkpoints.iterate(CheckpointQuery())
    return (
        store.observations.load_decisions("project"),
        store.experiments.list_all(),
        [[(a.session, a.arm) for a in store.experiments.list_assignments("e")]],
        checkpoint,
        store.graph_checkpoints.load_values(KEY, checkpoint.versions),
        store.documents.get("memory", [PLACE])[PLACE].value,
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_kept_beside_sessions_moves_with_a_copy(
    store: Store, another: Opened, clock: Clock, engine: str
) -> None:
    experiment = Experiment("e", (ArmShare("warm", 0.5), ArmShare("cold", 0.5)), "seed", clock())
    store.experiments.start(experiment)
    store.experiments.record_assignment(experiment, "s1", None, "warm")
    keep(store, clock, likes="tea")
    there, back = another(engine), another(store.stats().engine)
    report = store.copy_to(there)
    assert (report.decisions, report.experiments, report.framework_rows) == (1, 1, 4)
    assert kept(there) == kept(store)
    there.copy_to(back)
    assert kept(back) == kept(store)
    assert store.copy_to(there)[-3:] == (0, 0, 0)
    clock.forward(1)
    keep(store, clock, likes="coffee")
    store.experiments.stop("e")
    assert store.copy_to(there)[-3:] == (1, 1, 1)
    assert kept(there) == kept(store)
    clock.forward(1)
    keep(there, clock, likes="water")  # newer than what is copied
    assert store.copy_to(there)[-3:] == (0, 0, 0)
    assert there.documents.get("memory", [PLACE])[PLACE].value == {"likes": "water"}


def test_only_one_experiment_runs_after_a_copy(store: Store, another: Opened, clock: Clock) -> None:
    shares = (ArmShare("warm", 0.5), ArmShare("cold", 0.5))
    there = another()
    for name, one in (("here", store), ("there", there)):
        one.experiments.start(Experiment(name, shares, "seed", clock()))
    store.copy_to(there)
    running = there.experiments.get_running()
    assert running is not None
    assert running.name == "there"
    assert there.experiments.get("here").ended is not None
