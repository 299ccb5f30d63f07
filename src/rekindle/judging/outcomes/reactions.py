"""Read how a user reacted to what an agent did: approval, correction, rejection, or an order to keep it.

Only whole clauses at the beginning of short messages are compared with phrases; a word somewhere in a
text says nothing.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from rekindle.judging.rules.text_patterns import split_words

from .reaction_phrases import APPROVALS, CORRECTION, KEEP, REJECTION

Reaction: TypeAlias = Literal["approval", "correction", "rejection", "keep", ""]

MAX_REACTION_CHARS = 400
MAX_LINES = 4
MAX_CLAUSES = 3

_CLAUSE_END = re.compile(r"(?<![.!?;:])(?:[.!?;:]++(?=\s|$)|\.{2,}+)|[,…。！？；，、]+|\s[–—-]+\s")
_NOT_WORD = re.compile(r"[^\w'’ ]+")
_FILLERS = split_words("ok okay oki wow oh ah aha hm hmm alright right yay hey hi vale")
_NO_WORDS = split_words("no nein non нет nee não")
_NO_REPLIES = split_words("need worries problem problems thanks thank rush hurry biggie")
_CONTRASTS = split_words("but however except though aber mais pero mas ma maar но")


def classify_reaction(text: str, *, answers_question: bool = False) -> Reaction:
    """Return how a user's message reacts to the work before it; empty if it does not.

    `answers_question`: the agent had asked something, so that a plain "no" only answers it.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines or len(text) > MAX_REACTION_CHARS or len(lines) > MAX_LINES:
        return ""
    clauses = [
        clause for part in _CLAUSE_END.split(lines[0]) if (clause := _normalize_clause(part))
    ]
    if not clauses:
        return ""
    has_no = _is_no(clauses) and not answers_question
    while len(clauses) > 1 and clauses[0] in _FILLERS:
        del clauses[0]
    found = [_classify_clause(clause) for clause in clauses[:MAX_CLAUSES]]
    if has_no and "rejection" not in found:
        return "correction"
    for reaction in ("rejection", "correction", "keep"):
        if reaction in found:
            return reaction
    has_contrast = any(clause.split()[0] in _CONTRASTS for clause in clauses)
    return "approval" if clauses[0] in APPROVALS and not has_contrast else ""


def _classify_clause(clause: str) -> Reaction:
    if REJECTION.match(clause):
        return "rejection"
    if CORRECTION.match(clause):
        return "correction"
    return "keep" if KEEP.match(clause) else ""


def _is_no(clauses: list[str]) -> bool:
    """Return whether the message begins with a no that contradicts: "no, use the other file"."""
    first, *rest = clauses[0].split()
    if first not in _NO_WORDS:
        return False
    if not rest:
        return len(clauses) > 1 and len(clauses[1].split()) > 1 and clauses[1] not in APPROVALS
    return rest[0] not in _NO_REPLIES and len(rest) > 2


def _normalize_clause(clause: str) -> str:
    plain = _NOT_WORD.sub(" ", clause.casefold().replace("’", "'"))
    return " ".join(plain.split())
