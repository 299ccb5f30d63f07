"""Counts over mining results: how many sessions had a candidate, how often a kind of call failed.

They are updated with every session that is mined, so that building patterns costs in proportion to
the request and not to the store. Sessions that continue each other form one family and count once.
Deleting a session leaves the counts outdated; their session count reveals that, and they are rebuilt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from rekindle.store.core.engine import Row, Transaction
from rekindle.store.core.filter import build_in_condition
from rekindle.store.core.text_encoding import unescape_text

MAX_EXCLUDED_SHARE = 0.25  # share of excluded sessions up to which counts are adjusted, not rebuilt


class CandidateCount(NamedTuple):
    """The number of independent sessions that had a candidate, and its total support."""

    shape: int
    kind: str
    families: int
    support: int


def lock_counts(tx: Transaction) -> None:
    """Lock the counts until this transaction ends."""
    tx.run("UPDATE counts_state SET sessions = sessions WHERE id = 1")


def load_families(tx: Transaction, nums: Sequence[int]) -> dict[int, int]:
    """Return the families of mined sessions."""
    return dict(
        tx.run(f"SELECT session, family FROM mining_results WHERE {build_in_condition(nums)}")
    )


def build_count_updates(tx: Transaction, families: Mapping[int, int], sign: int) -> list[str]:
    """Build statements that add the counts of these sessions, or subtract them with a sign of -1.

    Run them while the sessions' rows exist.
    """
    return [
        "INSERT INTO candidate_counts (shape, kind, families, support)"
        f" {_build_shape_query(tx, families, sign)} ON CONFLICT (shape) DO UPDATE"
        " SET families = candidate_counts.families + excluded.families,"
        " support = candidate_counts.support + excluded.support",
        "INSERT INTO call_type_totals (call_type, calls, failed)"
        f" {_build_call_type_query(families, sign)}"
        " ON CONFLICT (call_type) DO UPDATE"
        " SET calls = call_type_totals.calls + excluded.calls,"
        " failed = call_type_totals.failed + excluded.failed",
        f"UPDATE counts_state SET sessions = sessions + {sign * len(families)} WHERE id = 1",
    ]


def _build_shape_query(tx: Transaction, families: Mapping[int, int], sign: int = 1) -> str:
    """Build a query for what these sessions have that no other sessions of their families have."""
    counted, join = "c.family", ""
    if relatives := _find_relatives(tx, families):
        counted = "CASE WHEN k.shape IS NULL THEN c.family END"
        join = (
            f" LEFT JOIN (SELECT DISTINCT family, shape FROM candidates"
            f" WHERE {build_in_condition(relatives)}) k"
            " ON k.family = c.family AND k.shape = c.shape"
        )
    return (
        f"SELECT c.shape, min(c.kind), {sign} * count(DISTINCT {counted}), {sign} * sum(c.support)"
        f" FROM candidates c{join} WHERE {build_in_condition(families, 'c.session')} GROUP BY c.shape"
    )


def _find_relatives(tx: Transaction, families: Mapping[int, int]) -> list[int]:
    """Return the other sessions of these families."""
    condition = build_in_condition(set(families.values()), "family")
    rows = tx.run(f"SELECT session FROM mining_results WHERE {condition}")
    return [num for (num,) in rows if num not in families]


def _build_call_type_query(nums: Iterable[int], sign: int = 1) -> str:
    return (
        f"SELECT call_type, {sign} * sum(calls), {sign} * sum(failed) FROM call_type_counts"
        f" WHERE {build_in_condition(nums)} GROUP BY call_type"
    )


def reset_counts(tx: Transaction) -> None:
    """Reset all counts to zero."""
    tx.run("DELETE FROM candidate_counts")
    tx.run("DELETE FROM call_type_totals")
    tx.run("DELETE FROM counts_state")  # a damaged file may have lost its row
    tx.run("INSERT INTO counts_state (id, sessions) VALUES (1, 0)")


def are_counts_current(tx: Transaction) -> bool:
    """Return whether the counts cover exactly the existing sessions."""
    return tx.run(
        "SELECT (SELECT count(*) FROM mining_results) = (SELECT max(sessions) FROM counts_state)"
    ) in (
        [(1,)],
        [(True,)],
    )


def rebuild_counts(tx: Transaction) -> None:
    """Rebuild all counts unless another process has done so."""
    lock_counts(tx)
    if are_counts_current(tx):
        return
    reset_counts(tx)
    tx.run(
        "INSERT INTO candidate_counts (shape, kind, families, support)"
        " SELECT shape, min(kind), count(DISTINCT family), sum(support) FROM candidates GROUP BY shape"
    )
    tx.run(
        "INSERT INTO call_type_totals (call_type, calls, failed)"
        " SELECT call_type, sum(calls), sum(failed) FROM call_type_counts GROUP BY call_type"
    )
    tx.run("UPDATE counts_state SET sessions = (SELECT count(*) FROM mining_results) WHERE id = 1")


def count_candidates(
    tx: Transaction, nums: Set[int], min_families: int, limits: Mapping[str, int]
) -> tuple[list[CandidateCount], dict[str, tuple[int, int]]]:
    """Return candidates that enough of these sessions had, and the calls and failures by tool kind.

    `limits` is the maximum number per kind. Recoveries count even from a single session. The counts must
    be current, and cover all these sessions.
    """
    others: list[int] = []
    if tx.run("SELECT count(*) FROM mining_results") != [(len(nums),)]:
        others = [num for (num,) in tx.run("SELECT session FROM mining_results") if num not in nums]
        if len(others) > MAX_EXCLUDED_SHARE * len(nums):
            return _count_from_scratch(tx, nums, min_families, limits)
    excluded_by_shape = (
        {row[0]: row for row in tx.run(_build_shape_query(tx, load_families(tx, others)))}
        if others
        else {}
    )
    no_count = (0, "", 0, 0)
    found: list[CandidateCount] = []
    excluded_by_kind = Counter([kind for _, kind, _, _ in excluded_by_shape.values()])
    for shape, kind, families, support in _iter_top_candidates(
        tx, min_families, limits, excluded_by_kind
    ):
        _, _, excluded, excluded_support = excluded_by_shape.get(shape, no_count)
        found.append(
            CandidateCount(shape, kind, families - excluded, int(support - excluded_support))
        )
    excluded_calls = {
        call_type: (calls, failed)
        for call_type, calls, failed in tx.run(_build_call_type_query(others))
    }
    calls_by_type: dict[str, tuple[int, int]] = {}
    for call_type, calls, failed in tx.run(
        "SELECT call_type, calls, failed FROM call_type_totals WHERE calls > 0"
    ):
        excluded, excluded_support = excluded_calls.get(call_type, (0, 0))
        calls_by_type[unescape_text(call_type)] = (
            int(calls - excluded),
            int(failed - excluded_support),
        )
    return _rank_candidates(found, min_families, limits), calls_by_type


def _iter_top_candidates(
    tx: Transaction,
    min_families: int,
    limits: Mapping[str, int],
    excluded_by_kind: Mapping[str, int],
) -> Iterator[Row]:
    """Yield the candidates of most sessions, with spare ones for those that exclusions demote."""
    for kind, count in limits.items():
        yield from tx.run(
            "SELECT shape, kind, families, support FROM candidate_counts"
            " WHERE kind = ? AND families >= ?"
            " ORDER BY families DESC, support DESC, shape LIMIT ?",
            (kind, 1 if kind == "retry" else min_families, count + excluded_by_kind.get(kind, 0)),
        )


def _count_from_scratch(
    tx: Transaction, nums: Set[int], min_families: int, limits: Mapping[str, int]
) -> tuple[list[CandidateCount], dict[str, tuple[int, int]]]:
    rows = tx.run(
        "SELECT shape, min(kind), count(DISTINCT family), sum(support) FROM candidates"
        f" WHERE {build_in_condition(nums)} GROUP BY shape"
    )
    found = [
        CandidateCount(shape, kind, families, int(support))
        for shape, kind, families, support in rows
    ]
    calls_by_type = {
        unescape_text(call_type): (int(calls), int(failed))
        for call_type, calls, failed in tx.run(_build_call_type_query(nums))
    }
    return _rank_candidates(found, min_families, limits), calls_by_type


def _rank_candidates(
    found: list[CandidateCount], min_families: int, limits: Mapping[str, int]
) -> list[CandidateCount]:
    remaining = dict(limits)
    kept: list[CandidateCount] = []
    for one in sorted(found, key=lambda one: (-one.families, -one.support, one.shape)):
        is_enough = one.families >= min_families or (one.kind == "retry" and one.families > 0)
        if is_enough and remaining[one.kind] > 0:
            remaining[one.kind] -= 1
            kept.append(one)
    return kept
