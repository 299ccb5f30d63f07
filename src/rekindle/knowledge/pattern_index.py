"""What the index of patterns stores and returns: weighted words, candidates and counts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from rekindle.types import Pattern, Template

from .text_matching import WeightedWords, to_index_token, weigh_words

_PATH_SEPARATORS = re.compile(r"[/.]")  # between the words of a path


class CandidatePattern(NamedTuple):
    """A pattern that shares words with the request, and its template (without patterns)."""

    template: Template
    pattern: Pattern
    folders: frozenset[str] = frozenset()  # where it was seen
    owners: frozenset[str | None] = frozenset(
        (None,)
    )  # of the sessions it was seen in; None: unknown
    words: WeightedWords | None = None  # its weighted words, if already known


class TemplateStats(NamedTuple):
    """The sessions started from a template, and the outcome of their first calls."""

    sessions: int = 0
    calls: int = 0
    errors: int = 0


class WordCounts(NamedTuple):
    """How many patterns contain each word, and how many patterns there are."""

    words: Mapping[str, int] = {}
    total: int = 0


def weigh_pattern_words(pattern: Pattern) -> WeightedWords:
    """Weigh a pattern's words: those of the request count most, then its calls and its lesson."""
    calls = " ".join(f"{step.tool} {join_values(step.arguments)}" for step in pattern.steps)
    also = [(text, 0.5) for text in pattern.also]
    found = weigh_words((pattern.asked, 1.0), (calls, 0.6), (pattern.lesson, 0.6), *also)
    # Original arguments repeat what the slots stand for, so they do not add to the length.
    examples = " ".join(join_values(step.example) for step in pattern.steps if step.example)
    made = weigh_words((_PATH_SEPARATORS.sub(" ", examples), 0.6))
    return found._replace(words={**made.words, **found.words}) if made.words else found


def build_index_tokens(words: WeightedWords) -> str:
    """Return the index tokens under which a pattern is found, separated by spaces."""
    tokens = [to_index_token(word) for word in words.words]
    return " ".join(dict.fromkeys(one for one in tokens if one))


def join_values(value: object) -> str:
    """Join the texts in some arguments, each shortened."""
    if isinstance(value, Mapping):
        return " ".join(map(join_values, value.values()))  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
    if isinstance(value, (list, tuple)):
        return " ".join(map(join_values, value))  # pyright: ignore[reportUnknownArgumentType]
    return value[:500] if isinstance(value, str) else ""
