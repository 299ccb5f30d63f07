"""Search the template index for candidate patterns that share words with a request.

Ranking every pattern that has a frequent word would take longer as the index grows. So matches per
word are limited: rare words contribute candidates, frequent ones only help to rank them. How well a
candidate fits is decided elsewhere, by template selection.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

from rekindle.knowledge.pattern_index import CandidatePattern, TemplateStats, WordCounts
from rekindle.knowledge.text_matching import WeightedWords, to_index_token
from rekindle.store.core.engine import Engine, Transaction
from rekindle.store.core.rows import decode_json
from rekindle.store.core.text_encoding import escape_text, unescape_text
from rekindle.types import JSON, Pattern, PatternStep, Seed, Template, UserStyle

from .template_index import WORDS_KEY

MAX_CANDIDATES = 32
FREQUENT_WORD_LIMIT = 1_000  # matches of a word are counted up to this limit
_FREQUENT_WEIGHT = 1.0
_MAX_FREQUENT_WORDS = 3  # frequent words searched in addition to rare ones
_MAX_QUERY_WORDS = 40  # words of a request that are searched
_RECENT_SESSIONS = 100  # newest sessions of a template whose calls are counted
_FIRST_CALLS = 10

_SELECT_PATTERNS = (
    "SELECT p.body, t.id, t.revision, t.state, t.task_type, t.head"
    " FROM patterns p JOIN templates t ON t.num = p.template"
)
# Children repeat the calls of their parent and would count them twice.
_SELECT_WARM_SESSIONS = f"""
SELECT num FROM sessions WHERE template = ? AND arm = 'warm' AND parent IS NULL AND pruned IS NULL
ORDER BY last_active DESC LIMIT {_RECENT_SESSIONS}
"""
_SELECT_STATS = f"""
SELECT count(DISTINCT s.num), count(c.failed), coalesce(sum(c.failed), 0)
FROM ({_SELECT_WARM_SESSIONS}) s
LEFT JOIN (SELECT session, failed,
                  row_number() OVER (PARTITION BY session ORDER BY position, number) AS call_index
           FROM calls
           WHERE failed IS NOT NULL AND tool_kind <> 'bookkeeping'
             AND session IN ({_SELECT_WARM_SESSIONS})) c
ON c.session = s.num AND c.call_index <= {_FIRST_CALLS}
"""


class CandidateSet(NamedTuple):
    """Candidates, the most promising first, and how common the words of the request are."""

    candidates: tuple[CandidatePattern, ...] = ()
    word_counts: WordCounts = WordCounts()


class TemplateSearch:
    """Searches the template index for candidates. Use `store.template_search`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._word_query = _SQLITE_WORD_QUERY if engine.name == "sqlite" else _POSTGRES_WORD_QUERY

    def find_candidates(self, terms: Sequence[str], limit: int = MAX_CANDIDATES) -> CandidateSet:
        """Return usable patterns that have some of these terms."""
        tokens = {
            term: escape_text(known)
            for term in dict.fromkeys(terms)
            if (known := to_index_token(term))
        }
        with self._engine.begin_read() as tx:
            total = int(tx.run("SELECT count(*) FROM patterns")[0][0])
            if not total or not tokens:
                return CandidateSet((), WordCounts({}, total))
            hits = {
                word: _WordHits(self._word_query.find_patterns(tx, [[word]], FREQUENT_WORD_LIMIT))
                for word in dict.fromkeys([*tokens.values()][:_MAX_QUERY_WORDS])
            }
            known = {
                term: len(hits[word].nums)
                for term, word in tokens.items()
                if word in hits and hits[word].nums
            }
            nums = _rank_patterns(tx, self._word_query, hits, total)
            found = (
                _add_session_origins(tx, _build_candidates(_select_usable_rows(tx, nums, limit)))
                if nums
                else []
            )
        return CandidateSet(tuple(found), WordCounts(known, total))

    def add_session_origins(self, candidates: Sequence[CandidatePattern]) -> list[CandidatePattern]:
        """Return the candidates with the folders and owners of their sessions."""
        with self._engine.begin_read() as tx:
            return _add_session_origins(tx, candidates)

    def sample_patterns(self, start: int, limit: int = 40) -> tuple[CandidatePattern, ...]:
        """Return usable patterns on any subject, starting at a position in the index."""
        with self._engine.begin_read() as tx:
            last = tx.run("SELECT coalesce(max(num), 0) FROM patterns")[0][0]
            usable = f"{_SELECT_PATTERNS} WHERE t.state = 'active' AND p.tainted = 0"
            rows = tx.run(f"{usable} AND p.num >= ? ORDER BY p.num LIMIT ?", (
                start % (last + 1), limit))  # fmt: skip
            if len(rows) < limit:
                rows += tx.run(f"{usable} ORDER BY p.num LIMIT ?", (limit - len(rows),))
            return tuple(
                _add_session_origins(tx, _build_candidates([_PatternRow(*row) for row in rows]))
            )

    def load_stats(self, templates: Sequence[str]) -> dict[str, TemplateStats]:
        """Return how the first calls went in the newest sessions started with each template."""
        with self._engine.begin_read() as tx:
            return {
                id: TemplateStats(
                    *map(int, tx.run(_SELECT_STATS, (escape_text(id), escape_text(id)))[0])
                )
                for id in templates
            }


class _PatternRow(NamedTuple):
    body: str
    id: str
    revision: int
    state: str
    task_type: str
    head: str


class _WordHits(NamedTuple):
    """The patterns that have a word, up to a limit."""

    nums: list[int]

    @property
    def is_frequent(self) -> bool:
        return len(self.nums) >= FREQUENT_WORD_LIMIT


def _rank_patterns(
    tx: Transaction, word_query: _WordQuery, hits: Mapping[str, _WordHits], total: int
) -> list[int]:
    """Return the numbers of the patterns that match the most words, weighting rare words higher."""
    rare = {word: one.nums for word, one in hits.items() if one.nums and not one.is_frequent}
    frequent = [word for word, one in hits.items() if one.is_frequent][:_MAX_FREQUENT_WORDS]
    if not rare:
        return (
            word_query.find_patterns(tx, [[word] for word in frequent], MAX_CANDIDATES)
            if frequent
            else []
        )
    scores: dict[int, float] = {}
    for nums in rare.values():
        weight = math.log(1 + (total - len(nums) + 0.5) / (len(nums) + 0.5))
        for num in nums:
            scores[num] = scores.get(num, 0.0) + weight
    if frequent:  # frequent words rank the candidates of rare words
        for num in word_query.find_patterns(tx, [[*rare], frequent], FREQUENT_WORD_LIMIT):
            if num in scores:
                scores[num] += _FREQUENT_WEIGHT
    lowest = sorted(scores.values(), reverse=True)[: 2 * MAX_CANDIDATES][-1]
    best = [num for num, score in scores.items() if score >= lowest]
    return sorted(best, key=lambda num: (-scores[num], num))[: 2 * MAX_CANDIDATES]


def _select_usable_rows(tx: Transaction, nums: Sequence[int], limit: int) -> list[_PatternRow]:
    """Return the rows of those patterns that may be used, in the given order."""
    marks = ", ".join("?" * len(nums))
    rows = tx.run(
        f"SELECT p.num, {_SELECT_PATTERNS.removeprefix('SELECT ')} WHERE p.num IN ({marks})"
        " AND t.state = 'active'",
        nums,
    )
    order = {num: place for place, num in enumerate(nums)}
    return [_PatternRow(*row) for _, *row in sorted(rows, key=lambda row: order[row[0]])][:limit]


class _WordQuery(NamedTuple):
    """How to query an engine for patterns that have one word of each group."""

    sql: str
    group_separator: str  # joins groups
    word_separator: str  # joins the words of a group
    quote: Callable[[str], str]

    def find_patterns(
        self, tx: Transaction, groups: Sequence[Sequence[str]], limit: int
    ) -> list[int]:
        words = [f"({self.word_separator.join(map(self.quote, group))})" for group in groups]
        return [num for (num,) in tx.run(self.sql, (self.group_separator.join(words), limit))]


def _quote_lexeme(word: str) -> str:
    return "'" + word.replace("\\", "\\\\").replace("'", "''") + "'"


def _quote_fts5(word: str) -> str:
    return f'"{word}"'


_SQLITE_WORD_QUERY = _WordQuery(
    "SELECT rowid FROM pattern_words WHERE pattern_words MATCH ? LIMIT ?",
    " AND ",
    " OR ",
    _quote_fts5,
)
_POSTGRES_WORD_QUERY = _WordQuery(
    "SELECT num FROM patterns WHERE words @@ ?::tsquery LIMIT ?", " & ", " | ", _quote_lexeme
)


def _add_session_origins(
    tx: Transaction, candidates: Sequence[CandidatePattern]
) -> list[CandidatePattern]:
    """Return the candidates with the folders and owners of the sessions they come from.

    A pattern names only a few of its sessions. An unknown owner, of an unnamed or deleted session, is
    given as None.
    """
    session_ids = {name: None for one in candidates for name in one.pattern.sessions}
    if not session_ids:
        return list(candidates)
    marks = ", ".join("?" * len(session_ids))
    rows = tx.run(
        f"SELECT id, cwd, owner FROM sessions WHERE id IN ({marks})",
        [*map(escape_text, session_ids)],
    )
    folders = {unescape_text(id): unescape_text(cwd) for id, cwd, _ in rows if cwd}
    owners = {unescape_text(id): unescape_text(owner) for id, _, owner in rows if owner}

    def collect_owners(pattern: Pattern) -> frozenset[str | None]:
        found = {owners.get(name) for name in pattern.sessions}
        return frozenset(found if pattern.seen_in <= len(pattern.sessions) else {*found, None})

    return [
        one._replace(
            folders=frozenset(folders[name] for name in one.pattern.sessions if name in folders),
            owners=collect_owners(one.pattern),
        )
        for one in candidates
    ]


def _build_candidates(rows: Sequence[_PatternRow]) -> list[CandidatePattern]:
    return [_build_candidate(_build_template(*row[1:]), decode_json(row.body)) for row in rows]


def _build_candidate(template: Template, fields: dict[str, JSON]) -> CandidatePattern:
    length, words = fields.pop(WORDS_KEY, None) or (0, None)  # rows of older versions lack it
    return CandidatePattern(
        template, build_pattern(fields), words=WeightedWords(words, length) if words else None
    )


# The best candidates of many requests come from few templates.
@lru_cache(maxsize=1_000)
def _build_template(id: str, revision: int, state: str, task_type: str, head: str) -> Template:
    fields: Mapping[str, JSON] = decode_json(head)
    seed = cast("Mapping[str, JSON]", fields.get("seed") or {})
    known: dict[str, Any] = {**fields, "id": unescape_text(id), "revision": revision}
    known |= {"state": state, "task_type": unescape_text(task_type), "patterns": ()}
    known["tags"] = tuple(fields.get("tags", ()))
    known["sources"] = tuple(fields.get("sources", ()))
    known["seed"] = Seed(
        seed.get("system", ""),
        tuple(seed.get("instructions", ())),
        tuple(seed.get("markers", ())),
        UserStyle(**(seed.get("style") or {})),
    )
    return Template(**{name: known[name] for name in Template._fields if name in known})


def build_pattern(fields: Mapping[str, JSON]) -> Pattern:
    """Build a pattern from its stored fields."""
    known: dict[str, Any] = dict(fields)
    known["steps"] = tuple(PatternStep(**step) for step in fields["steps"])
    known["also"] = tuple(fields.get("also", ()))
    known["before"] = PatternStep(**fields["before"]) if fields.get("before") else None
    known["sessions"] = tuple(fields.get("sessions", ()))
    return Pattern(**known)
