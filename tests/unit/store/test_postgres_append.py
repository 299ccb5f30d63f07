"""Which appends one statement writes on PostgreSQL, and what the others wait for."""

from __future__ import annotations

from typing import Any, cast

from rekindle.store.core.engine import Engine, Transaction
from rekindle.store.engines.postgres_append import (
    MAX_MESSAGES,
    AppendPlan,
    CommitRecord,
    plan_appends,
)
from rekindle.store.sessions.sessions import AppendOperation
from rekindle.types import Message

NO_ENGINE = cast(Engine, None)
RECORD = CommitRecord("writer", 1, 0.0, 1)


def append(num: int | None, *ids: str | None, session: str = "") -> AppendOperation:
    messages = [Message("user", "hello", platform_message_id=id) for id in ids]
    name = session or f"session {num}"
    return AppendOperation(NO_ENGINE, name, messages, 0.0, num, {})


def other(tx: Transaction) -> str:
    return "other"


def count_joined(plan: AppendPlan, operations: list[Any]) -> int:
    return len(operations) - len(plan.first)


def test_messages_with_ids_are_written_by_one_statement() -> None:
    operations = [append(1, "a"), append(2, "a"), append(3, "a", "b"), append(1, "b", None)]
    plan = plan_appends(operations)
    assert plan.batch is not None
    assert [*plan.first] == []
    shape, _ = plan.batch.build_params(RECORD)
    assert shape == (3, 6, True)


def test_messages_without_ids_need_no_look_at_stored_ones() -> None:
    plan = plan_appends([append(1, None), append(2, None)])
    assert plan.batch is not None
    shape, _ = plan.batch.build_params(RECORD)
    assert shape == (2, 2, False)


def test_an_append_to_a_new_session_does_not_keep_the_others_from_sharing_a_statement() -> None:
    operations = [append(1, "a"), append(None, "b", session="new"), append(2, "c")]
    plan = plan_appends(operations)
    assert [*plan.first] == [operations[1]]
    assert plan.sort_results(["b", "a", "c"]) == ["a", "b", "c"]


def test_appends_to_one_session_keep_their_order() -> None:
    operations = [
        append(1, "a", session="x"),
        append(2, "b"),
        append(None, "c", session="x"),
        append(1, "d", session="x"),
    ]
    plan = plan_appends(operations)
    assert [*plan.first] == [operations[0], operations[2]]
    assert plan.sort_results(["a", "c", "b", "d"]) == ["a", "b", "c", "d"]


def test_the_same_message_twice_is_not_written_by_one_statement() -> None:
    twice = [append(1, "a"), append(1, "a")]
    assert count_joined(plan_appends(twice), twice) == 1
    within = [append(1, "a", "a")]
    assert plan_appends(within).batch is None


def test_what_came_before_another_operation_stays_before_it() -> None:
    operations = [append(1, "a"), other, append(2, "b")]
    plan = plan_appends(operations)
    assert [*plan.first] == operations[:2]
    assert plan.sort_results([1, 2, 3]) == [1, 2, 3]


def test_a_statement_has_an_upper_size() -> None:
    operations = [append(n, "a") for n in range(1, MAX_MESSAGES + 10)]
    plan = plan_appends(operations)
    assert count_joined(plan, operations) == MAX_MESSAGES
    assert [*plan.first] == operations[:9]
