"""The keys of rows in the index of words, and the tables that have it.

Each row has the keys of the ranges of ids that it is in, and the same with the number of its project.
Where several tenants share a table, all of them have the number of the tenant, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rekindle.store.core.engine import Transaction

from .project_numbers import UNKNOWN

PROJECT_BITS = 32  # of a key, below the number of a project or tenant
_RANGES = (
    "(w.id >> 11) << 2",
    "((w.id >> 15) << 2) | 1",
    "((w.id >> 19) << 2) | 2",
    "((w.id >> 23) << 2) | 3",
)
_PROJECT = f"coalesce(w.project, {UNKNOWN})::bigint"
# 29 bits of which the first is set: larger than the number of any project.
_TENANT_NUMBER = "(hashtextextended({0}, 0) & 268435455 | 268435456)"
_TENANT = _TENANT_NUMBER.format("w.tenant")
SELECT_TENANT_NUMBER = _TENANT_NUMBER.format("current_setting('rekindle.tenant')")


def _build_keys(*owners: str) -> str:
    """Build the SQL of the keys of a row; parts of long messages have negative ones, too."""
    ranges = [f"({_RANGES[0]})", *_RANGES[1:]]
    prefixed = [f"({owner} << {PROJECT_BITS}) | {key}" for owner in owners for key in ranges]
    every = prefixed if len(owners) > 1 else [*_RANGES, *prefixed]
    keys, long_keys = ", ".join(every), ", ".join(f"-1 - ({key})" for key in every)
    return f"(CASE WHEN w.part = 0 THEN ARRAY[{keys}] ELSE ARRAY[{keys}, {long_keys}] END)"


class WordIndex(NamedTuple):
    """A table with an index of words and keys."""

    table: str
    keys: str  # of a row w, written as in the index `words_keys`
    is_shared: (
        bool  # by tenants: rows are found only if the settings ask for them, see `shared_tables`
    )

    def build_source(self, tx: Transaction, keys: Sequence[int], words: str) -> str:
        """Build FROM and WHERE for rows w with some words, as a parameter, and one of the keys."""
        listed = f"{{{', '.join(map(str, keys))}}}"
        if self.is_shared:
            tx.run(_ASK_FOR, (listed, words))
        has_keys = f"{self.keys} && '{listed}'::bigint[] AND" if keys else ""
        return f"FROM {self.table} w WHERE {has_keys} w.text @@ ?::tsquery"


_ASK_FOR = "SELECT set_config('rekindle.keys', ?, true), set_config('rekindle.words', ?, true)"
WORDS = WordIndex("words", _build_keys(_PROJECT), is_shared=False)
TENANT_WORDS = WordIndex(
    "matching_words", _build_keys(_TENANT, f"({_TENANT} # {_PROJECT})"), is_shared=True
)
