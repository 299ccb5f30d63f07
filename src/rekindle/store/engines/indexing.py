"""Indexing shared by both search indexes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rekindle.store.core.engine import Progress, Row, Transaction

INDEX_BATCH_SIZE = 500


def index_all_messages(
    tx: Transaction,
    index: Callable[[Transaction, Sequence[Row]], None],
    progress: Progress | None,
) -> int:
    """Pass rows of (id, content, body) of all messages to `index`; return the number of messages."""
    total = tx.run("SELECT count(*) FROM messages")[0][0]
    done, last = 0, 0
    while rows := tx.run(
        "SELECT id, content, body FROM messages WHERE id > ? ORDER BY id LIMIT ?",
        (last, INDEX_BATCH_SIZE),
    ):
        index(tx, rows)
        done, last = done + len(rows), rows[-1][0]
        if progress:
            progress(done, total)
    return done
