"""The index of templates and their patterns: made from the template files, asked by `choosing`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rekindle.knowledge.selection import tokens_of, words_of
from rekindle.knowledge.text_matching import Said
from rekindle.store.core.engine import Engine, Transaction
from rekindle.store.core.rows import encode_json
from rekindle.store.core.text_encoding import escape, unescape
from rekindle.types import Pattern, Template, plain

WORDS = "words 3: "  # raise it when `words_of` or `tokens_of` give other words
SAID = "said"  # where the words stand beside the fields of a pattern
_MANY = 0.1  # of the templates: when so many are new, what they brought is put in order


class Patterns:
    """The index, to be brought up to date. Use `store.patterns`."""

    def __init__(
        self, engine: Engine, write: Callable[[Callable[[Transaction], Any]], Any]
    ) -> None:
        self._engine = engine
        self._write = write

    def stamps(self) -> dict[str, str]:
        """The templates that are in the index, and the stamps of the files they were read from.

        What was put there for other words than we look for has none.
        """
        with self._engine.reading() as tx:
            rows = tx.run("SELECT id, stamp FROM templates")
        told = {unescape(id): unescape(stamp).partition(WORDS) for id, stamp in rows}
        return {id: "" if before else stamp for id, (before, _, stamp) in told.items()}

    def put(self, template: Template, stamp: str) -> None:
        """Put a template into the index, in place of what it was."""
        self._write(lambda tx: self._put(tx, template, stamp))

    def drop(self, ids: Iterable[str]) -> None:
        """Take templates out of the index."""
        names = list(ids)
        self._write(lambda tx: [self._drop(tx, name) for name in names])

    def tidy(self, new: int) -> None:
        """Put the words in order when so many new templates have brought much: they are found faster."""
        if self._engine.name == "sqlite" and new:
            self._write(lambda tx: self._tidy(tx, new))

    @staticmethod
    def _tidy(tx: Transaction, new: int) -> None:
        if new > _MANY * tx.run("SELECT count(*) FROM templates")[0][0]:
            tx.run("INSERT INTO pattern_words (pattern_words) VALUES ('optimize')")

    def _put(self, tx: Transaction, template: Template, stamp: str) -> None:
        self._drop(tx, template.id)
        head = {**plain(template._replace(patterns=())), "seed": plain(template.seed)}
        rows = tx.run(
            "INSERT INTO templates (id, revision, stamp, state, task_type, head)"
            " VALUES (?, ?, ?, ?, ?, ?) RETURNING num",
            (
                escape(template.id),
                template.revision,
                f"{WORDS}{stamp}",
                template.state,
                escape(template.task_type),
                encode_json(head),
            ),
        )
        num = rows[0][0]
        if self._engine.name == "sqlite":
            for pattern in template.patterns:
                self._put_sqlite(tx, num, pattern)
        else:
            tx.many(
                "INSERT INTO patterns (template, id, kind, tools, tainted, score, body, words)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?::tsvector)",
                [
                    (*_row(num, one, words), _vector(tokens_of(words)))
                    for one in template.patterns
                    for words in (words_of(one),)
                ],
            )

    @staticmethod
    def _put_sqlite(tx: Transaction, num: int, pattern: Pattern) -> None:
        words = words_of(pattern)
        rows = tx.run(
            "INSERT INTO patterns (template, id, kind, tools, tainted, score, body)"
            " VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING num",
            _row(num, pattern, words),
        )
        tx.run(
            "INSERT INTO pattern_words (rowid, text) VALUES (?, ?)",
            (rows[0][0], escape(tokens_of(words))),
        )

    def _drop(self, tx: Transaction, id: str) -> None:
        found = tx.run("SELECT num FROM templates WHERE id = ?", (escape(id),))
        for (num,) in found:
            if self._engine.name == "sqlite":
                tx.run(
                    "DELETE FROM pattern_words WHERE rowid IN"
                    " (SELECT num FROM patterns WHERE template = ?)",
                    (num,),
                )
            tx.run("DELETE FROM patterns WHERE template = ?", (num,))
            tx.run("DELETE FROM templates WHERE num = ?", (num,))


def _row(num: int, pattern: Pattern, words: Said) -> tuple[Any, ...]:
    tools = " ".join(dict.fromkeys(step.tool for step in pattern.steps))
    return (
        num,
        pattern.id,
        pattern.kind,
        escape(f" {tools} "),
        int(pattern.tainted),
        pattern.score,
        encode_json({**plain(pattern), SAID: [words.length, words.words]}),
    )


def _vector(tokens: str) -> str:
    """Tokens are letters and digits: as lexemes they need no more than quotes."""
    words = [word[:500].replace("\\", "\\\\").replace("'", "''") for word in tokens.split()]
    return " ".join(f"'{escape(word)}':{place}" for place, word in enumerate(words[:16_000], 1))
