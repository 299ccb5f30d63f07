"""Sums over what was mined: how many sessions had a candidate, how often a sort of calls failed.

They are kept up with every session that is looked through, so that putting patterns together costs
what is asked for and not what is stored. Sessions that continue each other are one family and count
once. Deleting a session leaves the sums as they were; their count tells, and they are made anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from rekindle.store.core.engine import Row, Transaction
from rekindle.store.core.filter import among
from rekindle.store.core.text_encoding import unescape

FEW = 0.25  # of the sessions that count: so many others are taken off the sums, else sum anew


class Tally(NamedTuple):
    """How many independent sessions had a candidate, and how often."""

    shape: int
    kind: str
    families: int
    support: int


def hold(tx: Transaction) -> None:
    """Let others wait with their sums until this transaction has ended."""
    tx.run("UPDATE summed SET sessions = sessions WHERE one = 1")


def families_of(tx: Transaction, nums: Sequence[int]) -> dict[int, int]:
    """The families of sessions that were looked through."""
    return dict(tx.run(f"SELECT session, family FROM mined WHERE {among(nums)}"))


def changes(tx: Transaction, families: Mapping[int, int], sign: int) -> list[str]:
    """Statements that add what these sessions have, or take it away, with a number below zero.

    They are to be run while it is there.
    """
    return [
        "INSERT INTO tallies (shape, kind, families, support)"
        f" {_shapes(tx, families, sign)} ON CONFLICT (shape) DO UPDATE"
        " SET families = tallies.families + excluded.families,"
        " support = tallies.support + excluded.support",
        f"INSERT INTO sorts (work, calls, failed) {_sorts(families, sign)}"
        " ON CONFLICT (work) DO UPDATE"
        " SET calls = sorts.calls + excluded.calls, failed = sorts.failed + excluded.failed",
        f"UPDATE summed SET sessions = sessions + {sign * len(families)} WHERE one = 1",
    ]


def _shapes(tx: Transaction, families: Mapping[int, int], sign: int = 1) -> str:
    """A query for what these sessions have that no others of their families have."""
    counted, beside = "c.family", ""
    if relatives := _relatives(tx, families):
        counted = "CASE WHEN k.shape IS NULL THEN c.family END"
        beside = (
            f" LEFT JOIN (SELECT DISTINCT family, shape FROM candidates WHERE {among(relatives)}) k"
            " ON k.family = c.family AND k.shape = c.shape"
        )
    return (
        f"SELECT c.shape, min(c.kind), {sign} * count(DISTINCT {counted}), {sign} * sum(c.support)"
        f" FROM candidates c{beside} WHERE {among(families, 'c.session')} GROUP BY c.shape"
    )


def _relatives(tx: Transaction, families: Mapping[int, int]) -> list[int]:
    """Other sessions of these families."""
    some = among(set(families.values()), "family")
    rows = tx.run(f"SELECT session FROM mined WHERE {some}")
    return [num for (num,) in rows if num not in families]


def _sorts(nums: Iterable[int], sign: int = 1) -> str:
    return (
        f"SELECT work, {sign} * sum(calls), {sign} * sum(failed) FROM attempts"
        f" WHERE {among(nums)} GROUP BY work"
    )


def forget(tx: Transaction) -> None:
    """The sums of no session."""
    tx.run("DELETE FROM tallies")
    tx.run("DELETE FROM sorts")
    tx.run("DELETE FROM summed")  # a damaged file may have lost its row
    tx.run("INSERT INTO summed (one, sessions) VALUES (1, 0)")


def are_true(tx: Transaction) -> bool:
    """Are the sums of those sessions that are there?"""
    return tx.run("SELECT (SELECT count(*) FROM mined) = (SELECT max(sessions) FROM summed)") in (
        [(1,)],
        [(True,)],
    )


def renew(tx: Transaction) -> None:
    """Sum everything anew, unless somebody has done so meanwhile."""
    hold(tx)
    if are_true(tx):
        return
    forget(tx)
    tx.run(
        "INSERT INTO tallies (shape, kind, families, support)"
        " SELECT shape, min(kind), count(DISTINCT family), sum(support) FROM candidates GROUP BY shape"
    )
    tx.run(
        "INSERT INTO sorts (work, calls, failed)"
        " SELECT work, sum(calls), sum(failed) FROM attempts GROUP BY work"
    )
    tx.run("UPDATE summed SET sessions = (SELECT count(*) FROM mined) WHERE one = 1")


def tallied(
    tx: Transaction, nums: Set[int], least: int, most: Mapping[str, int]
) -> tuple[list[Tally], dict[str, tuple[int, int]]]:
    """Candidates that enough of these sessions had, and how their calls went, by sort.

    Of each kind at `most` so many. Recoveries count also from a single session. The sums must be
    true, and the sessions among those that they are of.
    """
    others: list[int] = []
    if tx.run("SELECT count(*) FROM mined") != [(len(nums),)]:
        others = [num for (num,) in tx.run("SELECT session FROM mined") if num not in nums]
        if len(others) > FEW * len(nums):
            return _summed_anew(tx, nums, least, most)
    less = {row[0]: row for row in tx.run(_shapes(tx, families_of(tx, others)))} if others else {}
    nothing = (0, "", 0, 0)
    found: list[Tally] = []
    fewer = Counter([kind for _, kind, _, _ in less.values()])
    for shape, kind, families, support in _best(tx, least, most, fewer):
        _, _, off, times = less.get(shape, nothing)
        found.append(Tally(shape, kind, families - off, int(support - times)))
    taken = {work: (calls, failed) for work, calls, failed in tx.run(_sorts(others))}
    attempts: dict[str, tuple[int, int]] = {}
    for work, calls, failed in tx.run("SELECT work, calls, failed FROM sorts WHERE calls > 0"):
        off, times = taken.get(work, (0, 0))
        attempts[unescape(work)] = int(calls - off), int(failed - times)
    return _ranked(found, least, most), attempts


def _best(
    tx: Transaction, least: int, most: Mapping[str, int], fewer: Mapping[str, int]
) -> Iterator[Row]:
    """Those that most sessions had, with room for `fewer` of a kind that count for less than here."""
    for kind, count in most.items():
        yield from tx.run(
            "SELECT shape, kind, families, support FROM tallies WHERE kind = ? AND families >= ?"
            " ORDER BY families DESC, support DESC, shape LIMIT ?",
            (kind, 1 if kind == "retry" else least, count + fewer.get(kind, 0)),
        )


def _summed_anew(
    tx: Transaction, nums: Set[int], least: int, most: Mapping[str, int]
) -> tuple[list[Tally], dict[str, tuple[int, int]]]:
    rows = tx.run(
        "SELECT shape, min(kind), count(DISTINCT family), sum(support) FROM candidates"
        f" WHERE {among(nums)} GROUP BY shape"
    )
    found = [Tally(shape, kind, families, int(support)) for shape, kind, families, support in rows]
    attempts = {
        unescape(work): (int(calls), int(failed)) for work, calls, failed in tx.run(_sorts(nums))
    }
    return _ranked(found, least, most), attempts


def _ranked(found: list[Tally], least: int, most: Mapping[str, int]) -> list[Tally]:
    rooms = dict(most)
    kept: list[Tally] = []
    for one in sorted(found, key=lambda one: (-one.families, -one.support, one.shape)):
        is_enough = one.families >= least or (one.kind == "retry" and one.families > 0)
        if is_enough and rooms[one.kind] > 0:
            rooms[one.kind] -= 1
            kept.append(one)
    return kept
