"""Sums over what was mined: how many sessions had a candidate, how often a sort of calls failed.

They are kept up with every session that is looked through, so that putting patterns together costs
what is asked for and not what is stored. Sessions that continue each other are one family and count
once. Deleting a session leaves the sums as they were; their count tells, and they are made anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from .engine import Row, Transaction
from .text import unescape

FEW = 0.25  # of the sessions that count: so many others are taken off the sums, else sum anew

_OUTDATED = -(2**40)  # sessions: so many that it is never right, whatever is added


class Tally(NamedTuple):
    """How many independent sessions had a candidate, and how often."""

    shape: int
    kind: str
    families: int
    support: int


class Sums(NamedTuple):
    """What some sessions add."""

    kinds: dict[int, str]
    families: Counter[int]  # by shape
    support: Counter[int]
    calls: Counter[str]  # by sort
    failed: Counter[str]


def among(nums: Iterable[int] | None, column: str = "session") -> str:
    """A condition; whole numbers of our own may stand in the statement, however many there are."""
    if nums is None:
        return "true"
    listed = ", ".join([str(int(num)) for num in nums])
    return f"{column} IN ({listed})" if listed else "false"


def hold(tx: Transaction) -> None:
    """Let others wait with their sums until this transaction has ended."""
    tx.run("UPDATE summed SET sessions = sessions WHERE one = 1")


def counted(tx: Transaction, families: Mapping[int, int]) -> set[tuple[int, int]]:
    """What is counted already of the families of these sessions: family and shape."""
    some = among(set(families.values()), "family")
    relatives = [
        num for (num,) in tx.run(f"SELECT session FROM mined WHERE {some}") if num not in families
    ]
    if not relatives:
        return set()
    rows = tx.run(f"SELECT family, shape FROM candidates WHERE {among(relatives)}")
    return {(family, shape) for family, shape in rows}


def summed(
    candidates: Iterable[Row], attempts: Iterable[Row], counted: set[tuple[int, int]]
) -> Sums:
    """Candidates (shape, kind, family, support) and attempts (sort, calls, failed) as sums."""
    sums = Sums({}, Counter(), Counter(), Counter(), Counter())
    kinds, families, supports, _, _ = sums
    for shape, kind, family, support in candidates:
        if shape in kinds:
            supports[shape] += support
        else:
            kinds[shape], supports[shape], families[shape] = kind, support, 0
        if (family, shape) not in counted:
            counted.add((family, shape))
            families[shape] += 1
    for work, calls, failed in attempts:
        sums.calls[work] += calls
        sums.failed[work] += failed
    return sums


def of(tx: Transaction, nums: Sequence[int]) -> Sums:
    """What these sessions, which were looked through, have in the sums that no others have."""
    some = among(nums)
    families = dict(tx.run(f"SELECT session, family FROM mined WHERE {some}"))
    return summed(
        tx.run(f"SELECT shape, kind, family, support FROM candidates WHERE {some}"),
        tx.run(f"SELECT work, calls, failed FROM attempts WHERE {some}"),
        counted(tx, families),
    )


def add(tx: Transaction, sums: Sums, sessions: int) -> None:
    """Add the sums of so many sessions; both may be taken away, with a number below zero."""
    sign = 1 if sessions >= 0 else -1
    tx.many(
        "INSERT INTO tallies (shape, kind, families, support) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (shape) DO UPDATE SET families = tallies.families + excluded.families,"
        " support = tallies.support + excluded.support",
        [
            (shape, kind, sign * sums.families[shape], sign * sums.support[shape])
            for shape, kind in sorted(sums.kinds.items())
        ],
    )
    tx.many(
        "INSERT INTO sorts (work, calls, failed) VALUES (?, ?, ?) ON CONFLICT (work) DO UPDATE"
        " SET calls = sorts.calls + excluded.calls, failed = sorts.failed + excluded.failed",
        [
            (work, sign * calls, sign * sums.failed[work])
            for work, calls in sorted(sums.calls.items())
        ],
    )
    tx.run("UPDATE summed SET sessions = sessions + ? WHERE one = 1", (sessions,))


def outdate(tx: Transaction) -> None:
    """Let the sums be made anew before they are used: they are not kept up with what comes now."""
    tx.run("UPDATE summed SET sessions = ? WHERE one = 1", (_OUTDATED,))


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
    tx: Transaction, nums: Sequence[int], least: int, most: Mapping[str, int]
) -> tuple[list[Tally], dict[str, tuple[int, int]]]:
    """Candidates that enough of these sessions had, and how their calls went, by sort.

    Of each kind at `most` so many. Recoveries count also from a single session. The sums must be
    true, and the sessions among those that they are of.
    """
    others: list[int] = []
    if tx.run("SELECT count(*) FROM mined") != [(len(nums),)]:
        wanted = set(nums)
        others = [num for (num,) in tx.run("SELECT session FROM mined") if num not in wanted]
        if len(others) > FEW * len(wanted):
            return _summed_anew(tx, nums, least, most)
    less = of(tx, others)
    found = [
        Tally(shape, kind, families - less.families[shape], int(support) - less.support[shape])
        for shape, kind, families, support in _best(tx, least, most, Counter(less.kinds.values()))
    ]
    attempts = {
        unescape(work): (int(calls) - less.calls[work], int(failed) - less.failed[work])
        for work, calls, failed in tx.run("SELECT work, calls, failed FROM sorts WHERE calls > 0")
    }
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
    tx: Transaction, nums: Sequence[int], least: int, most: Mapping[str, int]
) -> tuple[list[Tally], dict[str, tuple[int, int]]]:
    some = among(nums)
    found = [
        Tally(shape, kind, families, int(support))
        for shape, kind, families, support in tx.run(
            "SELECT shape, min(kind), count(DISTINCT family), sum(support) FROM candidates"
            f" WHERE {some} GROUP BY shape"
        )
    ]
    rows = tx.run(f"SELECT work, sum(calls), sum(failed) FROM attempts WHERE {some} GROUP BY work")
    attempts = {unescape(work): (int(calls), int(failed)) for work, calls, failed in rows}
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
