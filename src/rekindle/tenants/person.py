"""Export and erase the data of a person, and search for what is left of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from rekindle.store import Filter, Store

MAX_SAMPLES = 200
_MIN_WORDS, _MAX_WORDS = 4, 8
_EVERY_SESSION = Filter(archived=None)


class EraseReport(NamedTuple):
    """What was erased, and where passages of it are left."""

    rows: dict[str, int]
    sessions: tuple[str, ...]
    templates: tuple[str, ...]  # files that were built from these sessions
    passages: int  # searched for afterwards
    left: tuple[str, ...]  # sessions of others that have one of these passages


def export_person(store: Store, name: str) -> Iterator[bytes]:
    """Yield everything about a person as lines of JSON.

    A line is a row of a table, or a line that `Store.load` reads.
    """
    for table, row in store.personal_data.export_rows(name):
        yield json.dumps({"table": table, "row": row}, ensure_ascii=False).encode() + b"\n"
    for _, id in store.personal_data.find(name).sessions:
        for line in store.dump([id]):
            yield line if line.endswith(b"\n") else line + b"\n"


def erase_person(store: Store, name: str) -> EraseReport:
    """Erase everything about a person, then search for passages of what they wrote."""
    samples = _choose_passages(store.personal_data.list_texts(name))
    erased = store.personal_data.erase(name)
    left: set[str] = set()
    for sample in samples:
        hits = store.search(f'"{sample}"', where=_EVERY_SESSION, rewound=True, context=0, limit=5)
        left |= {hit.session.id for hit in hits}
    return EraseReport(
        rows=erased.rows,
        sessions=erased.sessions,
        templates=erased.templates,
        passages=len(samples),
        left=tuple(sorted(left)),
    )


def _choose_passages(texts: Iterator[str]) -> list[str]:
    """Choose passages to search for: the first words of each text, evenly over all texts."""
    passages: dict[str, None] = {}
    for text in texts:
        words = re.findall(r"\w+", text[:2000])[:_MAX_WORDS]
        if len(words) >= _MIN_WORDS:
            passages[" ".join(words)] = None
    step = max(1, -(-len(passages) // MAX_SAMPLES))
    return [*passages][::step]
