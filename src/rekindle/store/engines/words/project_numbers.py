"""The numbers that stand for projects in the index of words.

A message has the number of the project that its session belonged to when the message was written. A
session without a project has a number of its own. If a session moves to another project, a trigger adds
its earlier number to those of the new project, so that none of its messages has to be written again.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from rekindle.store.core.engine import Transaction
from rekindle.store.core.tables import build_project_key
from rekindle.store.core.text_encoding import escape_text

UNKNOWN = 1  # of messages without a number, which an older version wrote
FIRST_NUMBER = UNKNOWN + 1
MAX_NUMBERS = 64  # of the projects of a search: more are searched without them
_HEX_DIGITS = 7


def build_project_number(table: str = "") -> str:
    """Build the SQL of the number of a session's project, as in `migrations/postgres_words.sql`."""
    key = f"coalesce({build_project_key(table)}, 'session ' || {table}num)"
    digits = f"left(encode(sha256(convert_to({key}, 'UTF8')), 'hex'), {_HEX_DIGITS})"
    return f"('x' || {digits})::bit({4 * _HEX_DIGITS})::integer + {FIRST_NUMBER}"


def compute_project_number(key: str) -> int:
    """Compute the number of a project. Two projects may share one."""
    return int(sha256(escape_text(key).encode()).hexdigest()[:_HEX_DIGITS], 16) + FIRST_NUMBER


def find_project_numbers(tx: Transaction, keys: Sequence[str]) -> list[int] | None:
    """Find the numbers of all messages in some projects, or None if they are many."""
    numbers = {compute_project_number(key) for key in keys}
    sql = "SELECT DISTINCT earlier FROM project_numbers WHERE project = ANY(?) LIMIT ?"
    numbers.update(number for (number,) in tx.run(sql, ([*numbers], MAX_NUMBERS + 1)))
    return sorted(numbers) if len(numbers) <= MAX_NUMBERS else None
