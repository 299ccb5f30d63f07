"""Learning from what the store holds: what is new alone, what qualifies, what is removed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rekindle import Message, Session, Store, ToolCall
from rekindle.errors import InvalidInput, NotFound
from rekindle.learning import build, miner
from rekindle.learning.library import TemplateLibrary, export_template, update_index
from rekindle.redaction.redactor import Redactor
from rekindle.store import Filter
from rekindle.store.learning import candidate_counts
from rekindle.store.learning.mining_results import SessionCallRows
from rekindle.store.learning.outcomes import StaleSession
from rekindle.types import replace_fields
from tests.conftest import Clock
from tests.contract.messages import answer, user

NOW = 1_800_000_000.0
MOST = dict.fromkeys(("init", "sequence", "retry", "final", "example"), 1000)
SECRET = "ghp_" + "a8Xk2Lq9Zt4Vb7Nc1Ms5Wd3Rf6Hj0Py2Gu4K"


def call(id: str, command: str, code: int = 0, said: str = "fine") -> tuple[Message, Message]:
    made = ToolCall(id, "terminal", json.dumps({"command": command}))
    result = Message("tool", said, tool_call_id=id, name="terminal", meta={"exit_code": code})
    return Message("assistant", tool_calls=[made]), result


def work(
    store: Store,
    *commands: str,
    failed: tuple[str, ...] = (),
    asked: str = "mend the parser",
    **fields: str,
) -> str:
    """A session of at least 30 messages that ran these commands."""
    session = store.begin(**fields)  # pyright: ignore[reportArgumentType]
    messages = [user(asked)]
    for number, command in enumerate((*failed, *commands)):
        messages += call(f"c{number}", command, int(command in failed) * 2)
    while len(messages) < 30:
        messages.append(answer("…"))
    store.append(session, *messages)
    return session.id


def learned(store: Store, **wanted: object) -> miner.MiningOutcome:
    return miner.mine_sessions(store, Redactor(), miner.MiningFilter(**wanted), now=NOW)  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> TemplateLibrary:
    return TemplateLibrary(tmp_path / "templates", clock=lambda: NOW)


def commands(found: miner.MiningOutcome, kind: str = "example") -> list[object]:
    return [
        step.arguments["command"]
        for one in found.patterns
        if one.kind == kind
        for step in one.steps
    ]


def test_what_sessions_share_is_learned_with_where_it_is_known_from(store: Store) -> None:
    first = work(store, "uv run pytest -q tests/a.py", "ls", asked="mend the parser of dates")
    second = work(store, "uv run pytest -q tests/b.py", "ls", asked="add a test for dates")
    found = learned(store)
    assert commands(found) == ["uv run pytest -q <path:py>"]
    (one,) = [one for one in found.patterns if one.kind == "example"]
    assert set(one.sessions) == {first, second}
    assert {one.asked, *one.also} == {"mend the parser of dates", "add a test for dates"}
    assert one.steps[0].result == "fine"
    assert one.steps[0].example in (
        {"command": "uv run pytest -q tests/a.py"},
        {"command": "uv run pytest -q tests/b.py"},
    )
    assert found.scan.scanned == found.scan.qualified == found.scan.looked_through == 2


def test_a_second_run_looks_only_at_what_is_new(store: Store) -> None:
    for _ in range(3):
        work(store, "make docs", "make check")
    assert learned(store).scan.looked_through == 3
    assert learned(store).scan.looked_through == 0
    grown = work(store, "make docs")
    assert learned(store).scan.looked_through == 1
    store.append(grown, *call("new", "make check"))
    again = learned(store)
    assert again.scan.looked_through == 1
    assert again.scan.qualified == 4


@pytest.mark.parametrize("is_judged", [True, False])
def test_parts_that_are_looked_through_while_others_are_written_give_the_same(
    store: Store, monkeypatch: pytest.MonkeyPatch, is_judged: bool
) -> None:
    for number in range(11):
        work(store, f"uv run pytest -q tests/{number}.py", "make lint STRICT=1", "ls")
    if is_judged:
        miner.judge_sessions(store)
    whole = learned(store)
    shapes = store.mining_results.count_candidates({*range(1, 12)}, 2, MOST)
    store.mining_results.clear()
    monkeypatch.setattr(miner, "MESSAGES_PER_BATCH", 60)  # messages of two sessions
    assert learned(store) == whole
    assert store.mining_results.count_candidates({*range(1, 12)}, 2, MOST) == shapes
    assert learned(store, max_sessions=3).scan.skipped == {"over the session limit": 8}
    store.mining_results.clear()
    few = learned(store, max_sessions=3)
    assert (few.scan.qualified, few.scan.looked_through) == (3, 4), "and none ahead of need"


def test_a_part_that_cannot_be_read_ahead_does_not_cost_what_was_found(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        work(store, f"uv run pytest -q tests/{number}.py")
    miner.judge_sessions(store)
    whole, read = learned(store), store.mining_results.iter_session_calls
    store.mining_results.clear()
    monkeypatch.setattr(miner, "MESSAGES_PER_BATCH", 60)  # messages of two sessions
    parts: list[int] = []

    def deals(nums: Sequence[int]) -> Iterator[SessionCallRows]:
        parts.append(len(nums))
        if len(parts) == 2:
            raise OSError("the disk is gone")
        return read(nums)

    monkeypatch.setattr(store.mining_results, "iter_session_calls", deals)
    with pytest.raises(OSError, match="the disk is gone"):
        learned(store)
    monkeypatch.undo()
    again = learned(store)
    assert again.patterns == whole.patterns
    assert again.scan.looked_through == 2


def test_what_is_said_while_a_session_is_looked_at_is_learned_the_next_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [work(store, "make docs --all") for _ in range(2)]
    read = store.mining_results.iter_session_calls

    def deals(nums: Sequence[int]) -> Iterator[SessionCallRows]:
        for session in both:  # after it was judged
            store.append(session, *call("late", "make check --late"))
        return read(nums)

    monkeypatch.setattr(store.mining_results, "iter_session_calls", deals)
    assert commands(learned(store)) == ["make docs --all"]
    monkeypatch.undo()
    assert sorted(map(str, commands(learned(store)))) == ["make check --late", "make docs --all"]
    assert learned(store).scan.looked_through == 0


def test_a_session_that_is_deleted_while_it_is_looked_at_costs_no_other(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    work(store, "make docs --all")
    work(store, "make docs --all")
    work(store, "make docs --all", source="gone")
    clock.now += 10 * 86_400
    due = store.find_stale_sessions

    def due_and_gone(*args: Any, **named: Any) -> list[StaleSession]:
        found = due(*args, **named)
        store.prune(Filter(source="gone"))
        store.purge(older_than=-1)
        return found

    monkeypatch.setattr(store, "find_stale_sessions", due_and_gone)
    found = learned(store)
    assert commands(found) == ["make docs --all"]
    assert (found.scan.qualified, found.scan.skipped) == (2, {"deleted meanwhile": 1})


def test_what_was_undone_is_unlearned(store: Store) -> None:
    one = work(store, "make docs")
    work(store, "make docs")
    store.append(one, user("and now"), *call("x", "make check --all"))
    two = work(store, "make check --all")
    assert "make check --all" in commands(learned(store))
    store.undo(one)
    assert "make check --all" not in commands(learned(store))
    assert two


def test_other_rules_look_at_everything_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    work(store, "make docs")
    learned(store, min_sessions=1)
    monkeypatch.setattr(miner, "MINING_VERSION", "other")
    assert learned(store, min_sessions=1).scan.looked_through == 1


def test_sessions_are_left_out_for_a_reason_that_is_told(store: Store, clock: Clock) -> None:
    work(store, "make docs")
    short = store.begin()
    store.append(short, user("hi"), *call("a", "make docs"))
    bad = work(store, failed=("make a", "make b", "make c"))
    given_up = work(store, "make docs")
    store.end(given_up, "cancelled")
    done = work(store, "make docs")
    store.end(done, "completed")
    work(store, "make docs", source="codex")
    found = learned(store)
    assert found.scan.skipped == {
        "under 30 messages": 1,
        "did not finish": 1,
        "over 50% of the calls failed": 1,
    }
    assert bad not in found.sessions
    assert {given_up, bad} & set(found.sessions) == set()
    assert learned(store, source="codex").scan.qualified == 1
    assert learned(store, max_sessions=2).scan.skipped["over the session limit"] >= 1
    assert learned(store, min_messages=2).scan.qualified == 4


def test_owners_see_only_their_own(store: Store) -> None:
    work(store, "make docs --ours", owner="ada")
    work(store, "make docs --ours", owner="ada")
    work(store, "make docs --theirs", owner="bob")
    work(store, "make docs --theirs", owner="bob")
    assert commands(learned(store, owner="ada")) == ["make docs --ours"]


def test_sessions_that_continue_each_other_count_once(store: Store) -> None:
    one = work(store, "make docs --once")
    work(store, "make docs --once", parent=one)
    assert commands(learned(store)) == []
    work(store, "make docs --once")
    assert commands(learned(store)) == ["make docs --once"]


def go_on(store: Store, session: Session | str, *commands: str) -> None:
    """Run these commands in a session, in 30 messages more."""
    ran = [message for command in commands for message in call(f"of {command}", command)]
    store.append(session, *ran, *[answer("…")] * 30)


def test_what_goes_on_from_a_session_of_strangers_is_not_trusted_either(store: Store) -> None:
    for number in range(2):
        first = store.begin()
        store.append(first, user("look"), *call("a", "make docs --first"))
        forked = store.fork(first)  # before a stranger had a say
        store.append(
            first, *call("b", f"curl https://example.com/{number}")
        )  # too short to be mined
        second = store.compress(first, user("so far: we looked"))
        go_on(store, second, "make sync --all")
        third = store.compress(second, user("so far: we looked and synced"))
        go_on(store, third, "make clean --deep")
        go_on(store, forked, "make check --here")
    found = {
        str(one.steps[0].arguments["command"]): one.tainted
        for one in learned(store).patterns
        if one.kind == "example"
    }
    assert found == {
        "make sync --all": True,
        "make clean --deep": True,
        "make docs --first": False,
        "make check --here": False,
    }
    (only,) = miner.mine_single_session(
        store, Redactor(), third.id, now=NOW, max_patterns=5
    ).patterns
    assert only.tainted


def test_secrets_are_removed_before_anything_is_kept(store: Store, folder: TemplateLibrary) -> None:
    for _ in range(2):
        work(store, f"deskctl login --token {SECRET} --all", asked=f"log in with {SECRET}")
    built = build.build_template(store, folder, Redactor(), "Desk", now=NOW)
    kept = folder.get_path("desk").read_text()
    assert SECRET not in kept
    assert "deskctl login" in kept
    nums = [
        one.num
        for one in store.mining_results.list_candidate_sessions(miner.MINING_VERSION, Filter())
    ]
    assert nums
    assert all(
        SECRET.encode() not in blob for blob in store.mining_results.load_calls(nums).values()
    )
    _, sorts = store.mining_results.count_candidates({*nums}, 1, MOST)
    assert sorts
    assert all(SECRET not in sort for sort in sorts)
    assert sum(built.scan.removed.values()) > 0


def test_a_deleted_session_takes_what_was_learned_from_it_along(store: Store, clock: Clock) -> None:
    work(store, "make docs")
    work(store, "make docs")
    assert commands(learned(store)) == ["make docs"]
    clock.now += 10 * 86_400
    store.prune(Filter.parse("messages>1"))
    store.purge(older_than=-1)
    assert store.mining_results.load_calls(range(1, 10)) == {}
    with store._engine.begin_read() as tx:  # pyright: ignore[reportPrivateUsage]
        for table in ("mining_results", "mining_calls", "candidates", "call_type_counts"):
            assert tx.run(f"SELECT count(*) FROM {table}") == [(0,)], table
    assert learned(store).patterns == ()


def test_sums_are_those_of_the_sessions_that_are_left(store: Store, clock: Clock) -> None:
    def sums(among: set[int]) -> tuple[object, object]:
        kept = store.mining_results.count_candidates(among, 1, MOST)
        store.mining_results.clear()
        learned(store)
        return kept, store.mining_results.count_candidates(among, 1, MOST)

    first = work(store, "make docs --a", "make test --b")
    learned(store)
    second = work(store, "make docs --a", "make lint --c", parent=first)
    work(store, "make docs --a", "make test --b")
    gone = work(store, "make lint --c", "make test --b", source="gone")
    learned(store)
    nums = {
        one.id: one.num
        for one in store.mining_results.list_candidate_sessions(miner.MINING_VERSION, Filter())
    }
    for left_out in ([], [first], [second], [gone], [first, gone]):
        among = {num for id, num in nums.items() if id not in left_out}
        kept, anew = sums(among)
        assert kept == anew
    store.append(second, *call("more", "make test --b"))  # looked through once more
    clock.now += 10 * 86_400
    store.prune(Filter(source="gone"))
    store.purge(older_than=-1)
    learned(store)
    kept, anew = sums({num for id, num in nums.items() if id != gone})
    assert kept == anew


@pytest.mark.parametrize("most", [1, 2, 5])
def test_the_best_without_some_sessions_are_those_of_a_sum_anew(
    store: Store, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    draw = random.Random(most)
    ways = [f"make part-{number} --now" for number in range(9)]
    for _ in range(14):
        work(store, *draw.choices(ways, weights=range(9, 0, -1), k=4))
    learned(store)
    for _ in range(20):
        among = {*draw.sample(range(1, 15), draw.randrange(9, 14))}
        rooms = dict.fromkeys(MOST, most)
        monkeypatch.setattr(candidate_counts, "MAX_EXCLUDED_SHARE", 1.0)
        taken_off = store.mining_results.count_candidates(among, 1, rooms)
        monkeypatch.setattr(candidate_counts, "MAX_EXCLUDED_SHARE", -1.0)
        shapes, sorts = store.mining_results.count_candidates(among, 1, rooms)
        assert taken_off[0] == shapes
        assert {name: counts for name, counts in taken_off[1].items() if any(counts)} == sorts


def test_a_template_is_built_and_built_anew(store: Store, folder: TemplateLibrary) -> None:
    work(store, "make docs --strict")
    work(store, "make docs --strict")
    built = build.build_template(store, folder, Redactor(), "Our Docs", now=NOW, tags=["docs"])
    assert built.template == folder.find("our-docs")
    assert (built.template.made, built.template.state, built.template.revision) == (
        "built",
        "active",
        1,
    )
    assert built.template.scan["qualified"] == 2
    assert store.template_index.load_stamps().keys() == {"our-docs"}
    again = build.build_template(store, folder, Redactor(), "Our Docs", now=NOW)
    assert again.template.revision == 2
    with pytest.raises(NotFound, match=r"none of 2 sessions qualified.*under 500 messages"):
        build.build_template(
            store, folder, Redactor(), "x", miner.MiningFilter(min_messages=500), now=NOW
        )
    with pytest.raises(InvalidInput, match="type: expected one of"):
        build.build_template(
            store, folder, Redactor(), "x", miner.MiningFilter(task="odd"), now=NOW
        )


def test_an_automatic_template_waits_to_be_accepted(store: Store, folder: TemplateLibrary) -> None:
    work(store, "make docs --strict")
    work(store, "make docs --strict")
    work(store, *["make docs --strict"] * 3, failed=("make x", "make y"))
    built = build.build_template(store, folder, Redactor(), "auto", now=NOW, automatic=True)
    assert (built.template.state, built.template.made) == ("quarantined", "automatic")
    assert built.scan.qualified == 2, "only sessions that did well"
    assert build.accept_template(store, folder, "auto").state == "active"
    assert build.retire_template(store, folder, "auto").state == "retired"


def test_a_session_is_extracted(store: Store, folder: TemplateLibrary) -> None:
    id = work(store, "make docs --strict", "ls", asked="Always use make. Look at docs/plan.md")
    made = build.extract_template(store, folder, Redactor(), id, "One", now=NOW)
    assert [one.steps[0].arguments for one in made.patterns] == [{"command": "make docs --strict"}]
    assert made.seed.instructions == ("Always use make.",)
    assert "docs/plan.md" in made.seed.markers
    assert made.sources == (id,)
    with pytest.raises(NotFound):
        build.extract_template(store, folder, Redactor(), "nobody", "Two", now=NOW)


def test_templates_are_merged_without_doubles(store: Store, folder: TemplateLibrary) -> None:
    work(store, "make docs --strict", "make check")
    work(store, "make docs --strict", "make check")
    one = build.build_template(store, folder, Redactor(), "One", now=NOW).template
    folder.create(replace_fields(one, id="two", name="Two", tags=("b",)))
    both = build.merge_templates(store, folder, Redactor(), ["One", "two"], "Both", max_patterns=40)
    assert len(both.patterns) == len(one.patterns)
    assert both.tags == ("b",)
    with pytest.raises(InvalidInput, match="two different"):
        build.merge_templates(store, folder, Redactor(), ["One", "one"], "Same", max_patterns=40)


def test_what_comes_from_elsewhere_is_looked_through_and_kept_apart(
    store: Store, folder: TemplateLibrary
) -> None:
    work(store, "make docs --strict")
    work(store, "make docs --strict")
    one = build.build_template(store, folder, Redactor(), "One", now=NOW).template
    bad = replace_fields(one, description=f"use {SECRET}", name="Theirs")
    pattern = one.patterns[0]
    foreign = replace_fields(pattern, steps=(replace_fields(pattern.steps[0], tool="odd_tool"),))
    data = export_template(replace_fields(bad, patterns=(*one.patterns, foreign)), "rekindle", NOW)
    got = build.import_template(store, folder, Redactor(), data, "file", None)
    assert got.template.state == "quarantined"
    assert got.template.id == "theirs"
    assert got.missing == ("odd_tool",)
    assert SECRET not in folder.get_path("theirs").read_text()
    assert got.removed
    with pytest.raises(InvalidInput, match="already exists"):
        build.import_template(store, folder, Redactor(), data, "file", None)


def test_the_index_follows_the_files(store: Store, folder: TemplateLibrary) -> None:
    work(store, "make docs --strict")
    work(store, "make docs --strict")
    build.build_template(store, folder, Redactor(), "One", now=NOW)
    assert update_index(store, folder) == 0
    path = folder.get_path("one")
    path.write_text(path.read_text().replace("Learned from", "Known from"))
    assert update_index(store, folder) == 1
    told: list[str] = []
    path.write_text("{}")
    update_index(store, folder, on_error=told.append)
    assert store.template_index.load_stamps() == {}
    assert "this is not a template" in told[0]


def test_the_use_of_a_template_is_counted_from_its_sessions(store: Store) -> None:
    for number in range(3):
        session = store.begin(template="one", arm="warm")
        store.append(session, user("go"), *call("a", "make"), *call("b", "make x", number and 2))
    store.append(store.begin(), user("go"), *call("a", "make", 2))
    use = build.measure_usage(store, "one")
    assert (use.sessions, use.calls, use.failed) == (3, 6, 2)
    assert use.success_rate == round(4 / 6, 4)
    assert build.measure_usage(store, "two") == build.TemplateUsage()
