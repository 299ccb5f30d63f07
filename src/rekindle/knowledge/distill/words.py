"""The words that a model may use besides those that it was given.

A proposal is told to agents, and a model may have been talked into anything. So nothing is searched for
that might be harmful: a word stays only if it is here, in the note, or in what users said.
"""

from __future__ import annotations

import re

from rekindle.judging.rules.text_patterns import split_words
from rekindle.knowledge.notes.note import CODE

PLAIN_WORDS = split_words(
    """
    a after again all also always an and any are as at be before both but by can change changes code
    command commands commit commits each either every fail failed fails file files first folder for from
    has have here if in instead into is it last must need needed needs of often on once one only
    option options or other read run runs same should sometimes test tests than that the them then these
    this to try use used uses usually when where which with work worked works
    """
)
_PROSE = re.compile(r"[A-Za-z' ,.;:()-]*")
_WORD = re.compile(r"[a-z']+")


def read_prose(text: str) -> str | None:
    """Return a text without its code, or None if that has more than words and marks."""
    prose = CODE.sub(" ", text)
    return prose if _PROSE.fullmatch(prose) else None


def list_words(prose: str) -> list[str]:
    """Return the words of a text in lower case, in order."""
    return _WORD.findall(prose.lower())
