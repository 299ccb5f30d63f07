"""What became of sessions, on both engines: judged once, renewed when they change, filtered by."""

from __future__ import annotations

import pytest

from rekindle import Filter, Message, Store, ToolCall
from rekindle.analytics.outcome_rates import summarize_outcomes
from rekindle.errors import InvalidInput, NotFound
from rekindle.learning.verdicts.session_outcomes import judge_outcomes, load_outcome
from rekindle.types import SessionOutcome


def tell(store: Store, name: str, resolved: bool | None, source: str = "local") -> None:
    session = store.begin(id=name, source=source)
    call = ToolCall(f"{name}-1", "Edit", {"file_path": "/w/a.go"})
    meta = None if resolved is None else {"resolved": resolved}
    store.append(
        session,
        Message("user", "fix it"),
        Message("assistant", tool_calls=(call,)),
        Message("tool", "updated", tool_call_id=call.id, meta={"is_error": False}),
        Message("assistant", "Done.", meta=meta),
    )


def list_ids(store: Store, outcome: str) -> list[str]:
    return sorted(one.id for one in store.recent(10, where=Filter.parse(f"outcome={outcome}")))


def test_outcomes_are_stored_and_filtered_by(store: Store) -> None:
    tell(store, "good", True)
    tell(store, "bad", False)
    tell(store, "open", None)
    assert judge_outcomes(store) == 3
    assert list_ids(store, "succeeded") == ["good"]
    assert list_ids(store, "failed") == ["bad"]
    assert list_ids(store, "unknown") == ["open"]
    found = store.session_outcomes.load(["good", "bad", "missing"])
    assert {id: (one.verdict, one.rule, one.where) for id, one in found.items()} == {
        "good": ("succeeded", "protocol/resolved", 3),
        "bad": ("failed", "protocol/resolved", 3),
    }


def test_a_session_that_was_not_judged_is_unknown(store: Store) -> None:
    tell(store, "good", True)
    assert list_ids(store, "unknown") == ["good"]
    with pytest.raises(InvalidInput, match="succeeded or failed or unknown"):
        Filter.parse("outcome=great")


def test_only_what_is_new_or_changed_is_judged_again(store: Store) -> None:
    tell(store, "good", None)
    tell(store, "other", True)
    assert judge_outcomes(store) == 2
    assert judge_outcomes(store) == 0
    store.append("good", Message("user", "perfect, thanks"))
    assert judge_outcomes(store) == 1
    assert load_outcome(store, "good").rule == "words/approval"


def test_a_filter_by_outcome_judges_the_sessions_it_may_match(store: Store) -> None:
    tell(store, "good", True)
    assert judge_outcomes(store, Filter.parse("outcome=succeeded")) == 1


def test_the_project_of_a_session_does_not_make_its_outcome_stale(store: Store) -> None:
    session = store.begin(id="a", cwd="/gone/app")
    store.append(session, Message("user", "hello"))
    judge_outcomes(store)
    store.observations.assign_project("/gone/app", "github.com/owner/app")
    assert judge_outcomes(store) == 0


def test_outcomes_are_counted_by_source_and_project(store: Store) -> None:
    for number in range(6):
        tell(store, f"a{number}", number < 4, source="codex")
    tell(store, "b", True, source="aider")
    judge_outcomes(store)
    everything, codex, aider = summarize_outcomes(store.session_outcomes.count(Filter()))
    assert (everything.succeeded, everything.failed) == (5, 2)
    assert (codex.name, codex.succeeded, codex.failed) == ("codex", 4, 2)
    assert codex.low is not None
    assert codex.high is not None
    assert codex.low < 4 / 6 < codex.high
    assert aider.rate is None


def test_a_session_that_was_deleted_meanwhile_leaves_no_outcome(store: Store) -> None:
    tell(store, "good", True)
    (waiting,) = store.session_outcomes.find_stale("1")
    store.end("good", "done")
    store.prune(Filter())
    assert list_ids(store, "succeeded") == []
    store.purge(older_than=-1)
    store.session_outcomes.save("1", [(waiting, SessionOutcome("succeeded"))])
    assert store.session_outcomes.load(["good"]) == {}
    assert store.verify() == []
    with pytest.raises(NotFound):
        load_outcome(store, "good")


def test_repair_derives_outcomes_again(store: Store) -> None:
    tell(store, "good", True)
    judge_outcomes(store)
    store.repair()
    assert store.session_outcomes.load(["good"]) == {}
    assert judge_outcomes(store) == 1
