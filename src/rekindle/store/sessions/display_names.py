"""What to call sessions in lists: their title, or else what their users asked for.

Prompts that programs write begin alike in many sessions. An index on how previews begin finds the
sessions that share a beginning, so a page of a list costs two small queries.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from rekindle.store.core.engine import Transaction
from rekindle.store.core.filter import iter_in_clauses
from rekindle.store.core.tables import OPENING_CHARS
from rekindle.types import Session

MIN_SHARING = 4  # sessions that begin alike, from which on the rest of a request says more
_MIN_REST = 3  # characters
_MIN_LAST_REQUEST = 12  # shorter ones, such as "yes", say nothing on their own
_TEMPLATE_CHARS = 60  # nobody writes the same so long
_SENTENCE_ENDS = ":.?!>"
_MAX_SAMPLES = 64
_MAIN_BRANCHES = (None, "main", "master", "HEAD")  # which say nothing about a session
_OPENING = f"substr(s.preview, 1, {OPENING_CHARS})"
_INDEXED = "s.preview IS NOT NULL AND s.pruned IS NULL"
_PUNCTUATION = " \t:;,.#*-–—>|`\"'()[]"


def build_names(tx: Transaction, sessions: Sequence[Session]) -> dict[str, str]:
    """Build the names of sessions, by id; a session without any text has none."""
    openings = {
        one.preview[:OPENING_CHARS]
        for one in sessions
        if one.title is None and one.preview and len(one.preview) >= OPENING_CHARS
    }
    groups = {opening: _load_group(tx, opening) for opening in _find_shared(tx, openings)}
    names: dict[str, str] = {}
    for one in sessions:
        group = groups.get((one.preview or "")[:OPENING_CHARS])
        if one.title or not one.preview or group is None:
            name = one.title or one.preview
        else:
            name = _build_name(one, one.preview, group)
        if name:
            names[one.id] = name
    return names


class _Group(NamedTuple):
    """Sessions that begin alike: how often each preview occurs, and what previews share."""

    texts: Counter[str]
    templates: Mapping[str, float]  # with how much they are worth cutting


def _build_name(one: Session, preview: str, group: _Group) -> str:
    """Build the name of a session among others that begin alike."""
    fitting = [shared for shared in group.templates if preview.startswith(shared)]
    if fitting:
        rest = preview[len(max(fitting, key=group.templates.__getitem__)) :].lstrip(_PUNCTUATION)
        if len(rest) >= _MIN_REST and group.texts[preview] < MIN_SHARING:
            return f"… {rest}"
    if group.texts[preview] < MIN_SHARING:
        return preview
    last = one.last_request or ""
    if last != preview and len(last) >= _MIN_LAST_REQUEST:
        return last
    begun = time.strftime("%m-%d %H:%M", time.localtime(max(0.0, one.started)))
    branch = one.git_branch if one.git_branch not in _MAIN_BRANCHES else None
    return f"{branch} {begun} {preview}" if branch else f"{begun} {preview}"


def find_templates(texts: Iterable[str]) -> dict[str, float]:
    """Find the beginnings that several different texts share, and what cutting each is worth.

    Only what no two people would write alike counts: something long, or whole sentences. Of two that
    fit a text, the one is worth more that is longer or shared by more.
    """
    ordered = sorted(set(texts))
    found: dict[str, float] = {}
    for one, other in pairwise(ordered):
        shared = _find_shared_words(one, other)
        if len(shared) < _TEMPLATE_CHARS:
            shared = shared[: max(shared.rfind(f"{end} ") for end in _SENTENCE_ENDS) + 2]
        if len(shared) >= OPENING_CHARS and shared not in found:
            count = sum(text.startswith(shared) for text in ordered)
            found[shared] = len(shared) * math.log(count) if count >= MIN_SHARING else 0.0
    return {shared: worth for shared, worth in found.items() if worth}


def _find_shared_words(one: str, other: str) -> str:
    pairs = zip(one, other, strict=False)
    length = next((at for at, (left, right) in enumerate(pairs) if left != right), len(one))
    return one[: one.rfind(" ", 0, length) + 1]


def _find_shared(tx: Transaction, openings: set[str]) -> list[str]:
    """Return those of the openings with which many sessions begin; never count them all."""
    found: list[str] = []
    for placeholders, batch in iter_in_clauses(sorted(openings)):
        values = ", ".join(f"({one})" for one in placeholders.split(", "))
        rows = tx.run(
            f"WITH v (opening) AS (VALUES {values}) SELECT DISTINCT opening FROM v"
            f" WHERE (SELECT s.num FROM sessions s WHERE {_OPENING} = v.opening AND {_INDEXED}"
            f" ORDER BY s.num LIMIT 1 OFFSET {MIN_SHARING - 1}) IS NOT NULL",
            batch,
        )
        found += [opening for (opening,) in rows]
    return found


def _load_group(tx: Transaction, opening: str) -> _Group:
    """Load the newest previews with this opening."""
    rows = tx.run(
        f"SELECT s.preview FROM sessions s WHERE {_OPENING} = ? AND {_INDEXED}"
        f" ORDER BY s.num DESC LIMIT {_MAX_SAMPLES}",
        (opening,),
    )
    texts = Counter(preview for (preview,) in rows)
    return _Group(texts, find_templates(texts))
