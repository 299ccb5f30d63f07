"""The template index: built from the template files, queried by `template_search`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rekindle.knowledge.pattern_index import build_index_tokens, weigh_pattern_words
from rekindle.knowledge.text_matching import WeightedWords
from rekindle.store.core.engine import StorePart, Transaction
from rekindle.store.core.rows import encode_json
from rekindle.store.core.tables import PATTERNS, TEMPLATES
from rekindle.store.core.text_encoding import escape_text, unescape_text
from rekindle.types import Pattern, Template, to_json_value

STAMP_PREFIX = "words 3: "  # increase it when the words of a pattern are computed differently
WORDS_KEY = "said"  # key of the words in the stored fields of a pattern
_OPTIMIZE_SHARE = 0.1  # share of new templates from which on the index is optimized


class TemplateIndex(StorePart):
    """Updates the index. Use `store.template_index`."""

    def load_stamps(self) -> dict[str, str]:
        """Return the indexed templates and the stamps of the files they were read from.

        Templates indexed with an older word format have an empty stamp.
        """
        rows = self._select("SELECT id, stamp FROM templates")
        parts = {
            unescape_text(id): unescape_text(stamp).partition(STAMP_PREFIX) for id, stamp in rows
        }
        return {id: "" if before else stamp for id, (before, _, stamp) in parts.items()}

    def put(self, template: Template, stamp: str) -> None:
        """Add a template to the index, replacing its previous version."""
        self._write(lambda tx: self._insert_template(tx, template, stamp))

    def drop(self, ids: Iterable[str]) -> None:
        """Remove templates from the index."""
        names = list(ids)
        self._write(lambda tx: [self._delete_template(tx, name) for name in names])

    def optimize(self, new: int) -> None:
        """Optimize the word index if the `new` templates are a large share, to speed up searches."""
        if self._engine.name == "sqlite" and new:
            self._write(lambda tx: self._optimize_words(tx, new))

    @staticmethod
    def _optimize_words(tx: Transaction, new: int) -> None:
        if new > _OPTIMIZE_SHARE * tx.run("SELECT count(*) FROM templates")[0][0]:
            tx.run("INSERT INTO pattern_words (pattern_words) VALUES ('optimize')")

    def _insert_template(self, tx: Transaction, template: Template, stamp: str) -> None:
        self._delete_template(tx, template.id)
        head = {
            **to_json_value(template._replace(patterns=())),
            "seed": to_json_value(template.seed),
        }
        rows = tx.run(
            f"{TEMPLATES.build_insert('num')} RETURNING num",
            (
                escape_text(template.id),
                template.revision,
                f"{STAMP_PREFIX}{stamp}",
                template.state,
                escape_text(template.task_type),
                encode_json(head),
            ),
        )
        num = rows[0][0]
        if self._engine.name == "sqlite":
            for pattern in template.patterns:
                self._insert_pattern_sqlite(tx, num, pattern)
        else:
            tx.run_many(
                "INSERT INTO patterns (template, id, kind, tools, tainted, score, body, words)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?::tsvector)",
                [
                    (*_pattern_to_row(num, one, words), _build_tsvector(build_index_tokens(words)))
                    for one in template.patterns
                    for words in (weigh_pattern_words(one),)
                ],
            )

    @staticmethod
    def _insert_pattern_sqlite(tx: Transaction, num: int, pattern: Pattern) -> None:
        words = weigh_pattern_words(pattern)
        rows = tx.run(
            f"{PATTERNS.build_insert('num')} RETURNING num",
            _pattern_to_row(num, pattern, words),
        )
        tx.run(
            "INSERT INTO pattern_words (rowid, text) VALUES (?, ?)",
            (rows[0][0], escape_text(build_index_tokens(words))),
        )

    def _delete_template(self, tx: Transaction, id: str) -> None:
        found = tx.run("SELECT num FROM templates WHERE id = ?", (escape_text(id),))
        for (num,) in found:
            if self._engine.name == "sqlite":
                tx.run(
                    "DELETE FROM pattern_words WHERE rowid IN"
                    " (SELECT num FROM patterns WHERE template = ?)",
                    (num,),
                )
            tx.run("DELETE FROM patterns WHERE template = ?", (num,))
            tx.run("DELETE FROM templates WHERE num = ?", (num,))


def _pattern_to_row(num: int, pattern: Pattern, words: WeightedWords) -> tuple[Any, ...]:
    tools = " ".join(dict.fromkeys(step.tool for step in pattern.steps))
    return (
        num,
        pattern.id,
        pattern.kind,
        escape_text(f" {tools} "),
        int(pattern.tainted),
        pattern.score,
        encode_json({**to_json_value(pattern), WORDS_KEY: [words.length, words.words]}),
    )


def _build_tsvector(tokens: str) -> str:
    """Build a tsvector; tokens are letters and digits, so as lexemes they only need quotes."""
    words = [word[:500].replace("\\", "\\\\").replace("'", "''") for word in tokens.split()]
    return " ".join(
        f"'{escape_text(word)}':{place}" for place, word in enumerate(words[:16_000], 1)
    )
