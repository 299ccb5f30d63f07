"""Questions to an owner about a tool call that needs approval.

A question belongs to the turn of an inbound message. Its answer counts once: whoever runs the call
claims the answer first, in a transaction. A turn that resumes after a crash finds its open question
again; a question whose turn has ended cannot be answered any more.
"""

from __future__ import annotations

import secrets
from typing import NamedTuple

from rekindle.errors import InvalidInput, NotFound
from rekindle.store.core.engine import StorePart, Transaction
from rekindle.store.core.rows import ValueRows
from rekindle.store.core.tables import APPROVALS
from rekindle.store.core.text_encoding import escape_text

_ID_CHARS = "abcdefghjkmnpqrstuvwxyz23456789"  # without those that look alike
_ID_LENGTH = 5
_HAS_OPEN_TURN = (
    "EXISTS (SELECT 1 FROM inbox i WHERE i.num = approvals.inbox"
    " AND i.state IN ('waiting', 'running'))"
)


class ApprovalQuestion(NamedTuple):
    """A question to an owner. `summary` says who wants what, `answer` is no, once or session."""

    id: str
    inbox: int
    key: str
    digest: str
    tool: str
    summary: str
    state: str  # pending, answered, used, expired
    answer: str | None
    answered_by: str | None
    asked: float
    expires: float


_ROWS = ValueRows(APPROVALS, ApprovalQuestion)


class Approvals(StorePart):
    """The questions to owners. Use `store.approvals`."""

    def ask(
        self, inbox: int, key: str, digest: str, *, tool: str, summary: str, seconds: float
    ) -> tuple[ApprovalQuestion, bool]:
        """Return the open question of a turn about a call, and whether it is new."""
        now = self._clock()

        def find_or_insert(tx: Transaction) -> tuple[ApprovalQuestion, bool]:
            known = _ROWS.find(
                tx,
                "WHERE inbox = ? AND digest = ?"
                " AND (state = 'answered' OR state = 'pending' AND expires > ?)",
                (inbox, digest, now),
            )
            if known:
                return known[0], False
            id = "".join(secrets.choice(_ID_CHARS) for _ in range(_ID_LENGTH))
            rows = tx.run(
                "INSERT INTO approvals (id, inbox, key, digest, tool, summary, state, asked, expires)"
                f" VALUES (?, ?, ?, ?, ?, ?, 'pending', ?, ?) RETURNING {_ROWS.select}",
                (
                    id, inbox, escape_text(key), digest, escape_text(tool), escape_text(summary),
                    now, now + seconds,
                ),
            )  # fmt: skip
            return _ROWS.read(rows[0]), True

        return self._write(find_or_insert)

    def answer(self, id: str, answer: str, answered_by: str) -> ApprovalQuestion:
        """Answer an open question; raise an error that says why if that is too late."""
        now, id = self._clock(), id.strip().lower()

        def save_answer(tx: Transaction) -> ApprovalQuestion:
            rows = tx.run(
                "UPDATE approvals SET state = 'answered', answer = ?, answered_by = ?"
                f" WHERE id = ? AND state = 'pending' AND expires > ? AND {_HAS_OPEN_TURN}"
                f" RETURNING {_ROWS.select}",
                (answer, escape_text(answered_by), escape_text(id), now),
            )
            if rows:
                return _ROWS.read(rows[0])
            known = _ROWS.find(tx, "WHERE id = ?", (escape_text(id),))
            if not known:
                raise NotFound("there is no question with this id; list them with /approve")
            if known[0].answer is not None:
                was = "denied" if known[0].answer == "no" else "approved"
                raise InvalidInput(f"this was already {was}")
            raise InvalidInput("this question is no longer open; nothing was run")

        return self._write(save_answer)

    def get_state(self, id: str) -> str:
        """Return the state of a question: pending, answered, used or expired."""
        rows = self._select("SELECT state, expires FROM approvals WHERE id = ?", (id,))
        if not rows:
            return "expired"
        state, expires = rows[0]
        return "expired" if state == "pending" and expires <= self._clock() else state

    def claim_answer(self, id: str) -> str | None:
        """Return the answer to a question, once; None if it is not answered or was claimed."""
        sql = "UPDATE approvals SET state = 'used' WHERE id = ? AND state = 'answered' RETURNING answer"

        def claim(tx: Transaction) -> str | None:
            rows = tx.run(sql, (id,))
            return rows[0][0] if rows else None

        return self._write(claim)

    def close(self, id: str) -> bool:
        """Close an unanswered question; return False if it has been answered."""
        sql = (
            "UPDATE approvals SET state = 'expired' WHERE id = ? AND state IN ('pending', 'expired')"
            " RETURNING id"
        )
        return self._write(lambda tx: bool(tx.run(sql, (id,))))

    def list_open(self) -> list[ApprovalQuestion]:
        """Return the questions that can be answered now, oldest first."""
        with self._engine.begin_read() as tx:
            return _ROWS.find(
                tx,
                f"WHERE state = 'pending' AND expires > ? AND {_HAS_OPEN_TURN} ORDER BY asked",
                (self._clock(),),
            )

    def delete_old(self, older_than: float) -> None:
        """Delete questions asked more than `older_than` seconds ago."""
        before = self._clock() - older_than
        self._write(lambda tx: tx.run("DELETE FROM approvals WHERE asked < ?", (before,)))
