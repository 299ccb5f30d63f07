"""What choosing asks of the index of patterns: candidates that have words of a request, and results.

To rank everything that has a frequent word would take longer the more is known. So what has a word is
taken up to a bound: rare words bring candidates, frequent ones only tell them apart. How well those
fit is not decided here but in `warm/choose.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

from rekindle.knowledge.selection import Candidate, Known, Record
from rekindle.knowledge.text_matching import Said, token
from rekindle.store.core.engine import Engine, Transaction
from rekindle.store.core.rows import decode_json
from rekindle.store.core.text_encoding import escape, unescape
from rekindle.types import JSON, Pattern, Seed, Step, Style, Template

from .template_index import SAID

MOST = 32  # candidates
FREQUENT = 1_000  # a word that so many patterns have is not counted further
_FREQUENT_WEIGHT = 1.0
_BESIDE = 3  # frequent words that are looked for beside rare ones
_ASKED = 40  # words of a request that are looked for
_SESSIONS = 100  # the newest of a template, whose calls are counted
_FIRST_CALLS = 10

_ROWS = (
    "SELECT p.body, t.id, t.revision, t.state, t.task_type, t.head"
    " FROM patterns p JOIN templates t ON t.num = p.template"
)
# What goes on or branches off from one has its calls too, and would count them twice.
_STARTED = f"""
SELECT num FROM sessions WHERE template = ? AND arm = 'warm' AND parent IS NULL AND pruned IS NULL
ORDER BY last_active DESC LIMIT {_SESSIONS}
"""
_RECORD = f"""
SELECT count(DISTINCT s.num), count(c.failed), coalesce(sum(c.failed), 0)
FROM ({_STARTED}) s
LEFT JOIN (SELECT session, failed,
                  row_number() OVER (PARTITION BY session ORDER BY position, number) AS place
           FROM calls
           WHERE failed IS NOT NULL AND work <> 'bookkeeping' AND session IN ({_STARTED})) c
ON c.session = s.num AND c.place <= {_FIRST_CALLS}
"""


class Found(NamedTuple):
    """Candidates, the most promising first, and how common the words of the request are."""

    candidates: tuple[Candidate, ...] = ()
    known: Known = Known()


class Choosing:
    """The index of patterns, as choosing asks it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._words = _SQLITE if engine.name == "sqlite" else _POSTGRES

    def candidates(self, terms: Sequence[str], most: int = MOST) -> Found:
        """Patterns that may be used and have some of these terms (see `warm.match.terms`)."""
        tokens = {term: escape(known) for term in dict.fromkeys(terms) if (known := token(term))}
        with self._engine.reading() as tx:
            total = int(tx.run("SELECT count(*) FROM patterns")[0][0])
            if not total or not tokens:
                return Found((), Known({}, total))
            hits = {
                word: _Hits(self._words.having(tx, [[word]], FREQUENT))
                for word in dict.fromkeys([*tokens.values()][:_ASKED])
            }
            known = {
                term: len(hits[word].nums)
                for term, word in tokens.items()
                if word in hits and hits[word].nums
            }
            nums = _best(tx, self._words, hits, total)
            found = _placed(tx, _candidates(_rows(tx, nums, most))) if nums else []
        return Found(tuple(found), Known(known, total))

    def placed(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The candidates, with the folders and owners of their sessions."""
        with self._engine.reading() as tx:
            return _placed(tx, candidates)

    def others(self, start: int, most: int = 40) -> tuple[Candidate, ...]:
        """Patterns that may be used, whatever they are about: some, from a place in the index on."""
        with self._engine.reading() as tx:
            last = tx.run("SELECT coalesce(max(num), 0) FROM patterns")[0][0]
            usable = f"{_ROWS} WHERE t.state = 'active' AND p.tainted = 0"
            rows = tx.run(f"{usable} AND p.num >= ? ORDER BY p.num LIMIT ?", (
                start % (last + 1), most))  # fmt: skip
            if len(rows) < most:
                rows += tx.run(f"{usable} ORDER BY p.num LIMIT ?", (most - len(rows),))
            return tuple(_placed(tx, _candidates([_Row(*row) for row in rows])))

    def records(self, templates: Sequence[str]) -> dict[str, Record]:
        """What became of the first calls of the newest sessions that had these templates."""
        with self._engine.reading() as tx:
            return {
                id: Record(*map(int, tx.run(_RECORD, (escape(id), escape(id)))[0]))
                for id in templates
            }


class _Row(NamedTuple):
    body: str
    id: str
    revision: int
    state: str
    task_type: str
    head: str


class _Hits(NamedTuple):
    """The patterns that have a word, up to a bound."""

    nums: list[int]

    @property
    def is_frequent(self) -> bool:
        return len(self.nums) >= FREQUENT


def _best(tx: Transaction, words: _Words, hits: Mapping[str, _Hits], total: int) -> list[int]:
    """The numbers of the patterns that have the most of the words, the rare ones counting most."""
    rare = {word: one.nums for word, one in hits.items() if one.nums and not one.is_frequent}
    frequent = [word for word, one in hits.items() if one.is_frequent][:_BESIDE]
    if not rare:
        return words.having(tx, [[word] for word in frequent], MOST) if frequent else []
    scores: dict[int, float] = {}
    for nums in rare.values():
        weight = math.log(1 + (total - len(nums) + 0.5) / (len(nums) + 0.5))
        for num in nums:
            scores[num] = scores.get(num, 0.0) + weight
    if frequent:  # they tell apart what a rare word has brought
        for num in words.having(tx, [[*rare], frequent], FREQUENT):
            if num in scores:
                scores[num] += _FREQUENT_WEIGHT
    last = sorted(scores.values(), reverse=True)[: 2 * MOST][-1]
    best = [num for num, score in scores.items() if score >= last]
    return sorted(best, key=lambda num: (-scores[num], num))[: 2 * MOST]


def _rows(tx: Transaction, nums: Sequence[int], most: int) -> list[_Row]:
    """What may be used of these patterns, in their order."""
    marks = ", ".join("?" * len(nums))
    rows = tx.run(
        f"SELECT p.num, {_ROWS.removeprefix('SELECT ')} WHERE p.num IN ({marks})"
        " AND t.state = 'active'",
        nums,
    )
    order = {num: place for place, num in enumerate(nums)}
    return [_Row(*row) for _, *row in sorted(rows, key=lambda row: order[row[0]])][:most]


class _Words(NamedTuple):
    """How an engine is asked for patterns that have one word of each group."""

    sql: str
    both: str  # what joins groups
    either: str  # what joins the words of a group
    quote: Callable[[str], str]

    def having(self, tx: Transaction, groups: Sequence[Sequence[str]], most: int) -> list[int]:
        words = [f"({self.either.join(map(self.quote, group))})" for group in groups]
        return [num for (num,) in tx.run(self.sql, (self.both.join(words), most))]


def _lexeme(word: str) -> str:
    return "'" + word.replace("\\", "\\\\").replace("'", "''") + "'"


def _quoted(word: str) -> str:
    return f'"{word}"'


_SQLITE = _Words(
    "SELECT rowid FROM pattern_words WHERE pattern_words MATCH ? LIMIT ?",
    " AND ",
    " OR ",
    _quoted,
)
_POSTGRES = _Words(
    "SELECT num FROM patterns WHERE words @@ ?::tsquery LIMIT ?", " & ", " | ", _lexeme
)


def _placed(tx: Transaction, candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates with the folders and the owners of the sessions that they come from.

    A pattern names a few of its sessions. Whose the others are is not known, nor whose those were
    that are gone: that is told as None.
    """
    asked = {name: None for one in candidates for name in one.pattern.sessions}
    if not asked:
        return list(candidates)
    marks = ", ".join("?" * len(asked))
    rows = tx.run(
        f"SELECT id, cwd, owner FROM sessions WHERE id IN ({marks})",
        [*map(escape, asked)],
    )
    folders = {unescape(id): unescape(cwd) for id, cwd, _ in rows if cwd}
    owners = {unescape(id): unescape(owner) for id, _, owner in rows if owner}

    def owners_of(pattern: Pattern) -> frozenset[str | None]:
        found = {owners.get(name) for name in pattern.sessions}
        return frozenset(found if pattern.seen_in <= len(pattern.sessions) else {*found, None})

    return [
        one._replace(
            folders=frozenset(folders[name] for name in one.pattern.sessions if name in folders),
            owners=owners_of(one.pattern),
        )
        for one in candidates
    ]


def _candidates(rows: Sequence[_Row]) -> list[Candidate]:
    return [_candidate(_template(*row[1:]), decode_json(row.body)) for row in rows]


def _candidate(template: Template, fields: dict[str, JSON]) -> Candidate:
    length, words = fields.pop(SAID, None) or (0, None)  # an older program may have put it there
    return Candidate(template, pattern_of(fields), said=Said(words, length) if words else None)


# The best candidates come from few templates, request after request.
@lru_cache(maxsize=1_000)
def _template(id: str, revision: int, state: str, task_type: str, head: str) -> Template:
    fields: Mapping[str, JSON] = decode_json(head)
    seed = cast("Mapping[str, JSON]", fields.get("seed") or {})
    known: dict[str, Any] = {**fields, "id": unescape(id), "revision": revision}
    known |= {"state": state, "task_type": unescape(task_type), "patterns": ()}
    known["tags"] = tuple(fields.get("tags", ()))
    known["sources"] = tuple(fields.get("sources", ()))
    known["seed"] = Seed(
        seed.get("system", ""),
        tuple(seed.get("instructions", ())),
        tuple(seed.get("markers", ())),
        Style(**(seed.get("style") or {})),
    )
    return Template(**{name: known[name] for name in Template._fields if name in known})


def pattern_of(fields: Mapping[str, JSON]) -> Pattern:
    known: dict[str, Any] = dict(fields)
    known["steps"] = tuple(Step(**step) for step in fields["steps"])
    known["also"] = tuple(fields.get("also", ()))
    known["before"] = Step(**fields["before"]) if fields.get("before") else None
    known["sessions"] = tuple(fields.get("sessions", ()))
    return Pattern(**known)
