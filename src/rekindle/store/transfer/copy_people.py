"""Copy what belongs to people into another store: who may talk, links, jobs and memory.

What is newer in the target is kept, and a second copy adds only what is new.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from rekindle.store.core.bulk import build_insert
from rekindle.store.core.engine import Row, Transaction
from rekindle.store.core.tables import (
    ACCESS_LOG,
    APPROVALS,
    JOB_RUNS,
    JOBS,
    LINKS,
    MEMORY_CHANGES,
    MEMORY_FACTS,
    MEMORY_FLUSHES,
    MEMORY_OWNERS,
    PEOPLE,
    PERSON_USAGE,
)

Write: TypeAlias = Callable[[Callable[[Transaction], Any]], Any]

_UPSERT_PERSON, _UPSERT_LINK = (
    f"{table.build_upsert('platform, user_id')}"
    f" WHERE excluded.changed > {table.name}.changed RETURNING platform"
    for table in (PEOPLE, LINKS)
)
_UPSERT_USAGE = (
    f"{PERSON_USAGE.build_upsert('person, day')} WHERE excluded.turns > person_usage.turns"
)
_UPSERT_JOB = (
    f"{JOBS.build_upsert('id', 'num')} WHERE excluded.runs > jobs.runs RETURNING num"
)  # fmt: skip
_UPSERT_RUN = (
    f"{JOB_RUNS.build_upsert('job, due', 'num')}"
    " WHERE job_runs.state = 'running' AND excluded.state <> 'running'"
)
_RUN_INBOX = JOB_RUNS.names[1:].index("inbox")
_APPROVAL_INBOX = APPROVALS.names.index("inbox")


class CopiedPeople(NamedTuple):
    """The numbers of people and links, jobs, and owners of facts that were new or had changed."""

    people: int = 0
    jobs: int = 0
    memories: int = 0


def copy_people(tx: Transaction, write: Write, inbound_nums: Mapping[int, int]) -> CopiedPeople:
    """Copy it all; `inbound_nums` maps the numbers of inbox messages to those in the target."""
    people = 0
    for table, sql in ((PEOPLE, _UPSERT_PERSON), (LINKS, _UPSERT_LINK)):
        rows = tx.run(f"SELECT {table.list_names()} FROM {table.name}")
        people += write(lambda tx, sql=sql, rows=rows: sum(len(tx.run(sql, r)) for r in rows))
    usage = tx.run(f"SELECT {PERSON_USAGE.list_names()} FROM person_usage")
    write(lambda tx: tx.run_many(_UPSERT_USAGE, usage))
    events = tx.run(f"SELECT {ACCESS_LOG.list_names('num')} FROM access_log ORDER BY num")
    write(lambda tx: _insert_missing(tx, "access_log", ACCESS_LOG.list_names("num"), events))
    jobs = _copy_jobs(tx, write, inbound_nums)
    approvals = tx.run(f"SELECT {APPROVALS.list_names()} FROM approvals")
    moved = [_replace_number(row, _APPROVAL_INBOX, inbound_nums) for row in approvals]
    sql = f"{APPROVALS.build_insert()} ON CONFLICT (id) DO NOTHING"
    write(lambda tx: tx.run_many(sql, [row for row in moved if row[_APPROVAL_INBOX] is not None]))
    return CopiedPeople(people, jobs, _copy_memory(tx, write))


def _copy_jobs(tx: Transaction, write: Write, inbound_nums: Mapping[int, int]) -> int:
    jobs = tx.run(f"SELECT {JOBS.list_names()} FROM jobs ORDER BY num")
    runs: dict[int, list[Row]] = {}
    for row in tx.run(f"SELECT {JOB_RUNS.list_names('num')} FROM job_runs ORDER BY num"):
        runs.setdefault(row[0], []).append(_replace_number(row, _RUN_INBOX, inbound_nums))

    def copy_job(target: Transaction, row: Row) -> int:
        is_new = bool(target.run(_UPSERT_JOB, row[1:]))
        num = target.run("SELECT num FROM jobs WHERE id = ?", (row[1],))[0][0]
        target.run_many(_UPSERT_RUN, [(num, *run[1:]) for run in runs.get(row[0], ())])
        return is_new

    return write(lambda target: sum(copy_job(target, row) for row in jobs))


def _copy_memory(tx: Transaction, write: Write) -> int:
    owners = tx.run(f"SELECT {MEMORY_OWNERS.list_names()} FROM memory_owners")
    count = 0
    for owner, last_number in owners:
        facts = _select_owned(tx, "memory_facts", MEMORY_FACTS.list_names("num"), owner)
        changes = _select_owned(tx, "memory_changes", MEMORY_CHANGES.list_names("num"), owner)
        row = (owner, last_number)
        count += write(
            lambda target, row=row, facts=facts, changes=changes: _replace_memory(
                target, row, facts, changes
            )
        )
    flushes = tx.run(f"SELECT {MEMORY_FLUSHES.list_names()} FROM memory_flushes")
    sql = f"{MEMORY_FLUSHES.build_insert()} ON CONFLICT (session) DO NOTHING"
    write(lambda target: target.run_many(sql, flushes))
    return count


def _select_owned(tx: Transaction, table: str, columns: str, owner: str) -> list[Row]:
    return [*tx.run(f"SELECT {columns} FROM {table} WHERE owner = ? ORDER BY num", (owner,))]


def _replace_memory(tx: Transaction, owner_row: Row, facts: list[Row], changes: list[Row]) -> bool:
    """Copy an owner's facts with their history, unless the target has changes of its own."""
    owner, columns = owner_row[0], MEMORY_CHANGES.list_names("num")
    known = _select_owned(tx, "memory_changes", columns, owner)
    # An undo marks an older change, so compare what cannot change.
    undone = len(MEMORY_CHANGES.names) - 2
    histories = [[row[:undone] for row in rows] for rows in (known, changes)]
    if known == changes or histories[0] != histories[1][: len(known)]:
        return False
    for table in ("memory_facts", "memory_changes", "memory_owners"):
        tx.run(f"DELETE FROM {table} WHERE owner = ?", (owner,))
    tx.run(MEMORY_OWNERS.build_insert(), owner_row)
    tx.run_many(MEMORY_FACTS.build_insert("num"), facts)
    tx.run_many(MEMORY_CHANGES.build_insert("num"), changes)
    return True


def _insert_missing(tx: Transaction, table: str, columns: str, rows: list[Row]) -> None:
    """Insert the rows that are not there yet."""
    condition = " AND ".join(f"{name} = ?" for name in columns.split(", "))
    for row in rows:
        if not tx.run(f"SELECT 1 FROM {table} WHERE {condition}", row):
            tx.run(build_insert(table, columns), row)


def _replace_number(row: Row, index: int, numbers: Mapping[int, int]) -> Row:
    number = row[index]
    return (*row[:index], None if number is None else numbers.get(number), *row[index + 1 :])
