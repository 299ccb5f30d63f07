"""What both search indexes do alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .engine import Progress, Row, Transaction

TOGETHER = 500


def index_all(
    tx: Transaction,
    index: Callable[[Transaction, Sequence[Row]], None],
    progress: Progress | None,
) -> int:
    """Give `index` rows of (id, content, body) of all messages; return how many these were."""
    total = tx.run("SELECT count(*) FROM messages")[0][0]
    done, last = 0, 0
    while rows := tx.run(
        "SELECT id, content, body FROM messages WHERE id > ? ORDER BY id LIMIT ?", (last, TOGETHER)
    ):
        index(tx, rows)
        done, last = done + len(rows), rows[-1][0]
        if progress:
            progress(done, total)
    return done
