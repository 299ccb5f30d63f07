"""Find the words with which users vouch for what they name.

Only their own words do: not what a harness wrote in their name, what they pasted or quoted, what they
forbid, and what they ask about (`why did you run that?`).
"""

from __future__ import annotations

import re

from rekindle.judging.outcomes.user_text import extract_user_text, list_announced_lines

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
_REFUSING = re.compile(
    r"(?i)\b(?:not|never|no longer|nothing|nobody|without|instead of|rather than|stop|avoid|forbid\w*"
    r"|refuse|ignore|untrusted|suspicious|dangerous|malicious|malware|virus|phishing|scam"
    r"|\w{2,9}n['’]t|dont|cannot|nicht|nie|niemals|kein\w*|jamais|nunca|pas)\b"
)
# A question that asks to do something, not about what was done.
_REQUEST = re.compile(
    r"(?i)(?:please|and|so|ok(?:ay)?|then|now|hey|hi)?,? ?(?:can|could|would|will) (?:you|we)\b"
)


def extract_vouching_text(text: str) -> str:
    """Return the sentences of a user's message that vouch for what they name.

    A command in a fence of its own vouches, too, if the sentence above announces it.
    """
    announced = (
        line
        for words, line in list_announced_lines(text)
        if all(map(_is_vouching, _list_sentences(words)))
    )
    own = filter(_is_vouching, _list_sentences(extract_user_text(text)))
    return "\n".join([*own, *announced])


def _list_sentences(text: str) -> list[str]:
    return [one for one in map(str.strip, _SENTENCE_END.split(text)) if one]


def _is_vouching(sentence: str) -> bool:
    asks = sentence.endswith("?") and _REQUEST.match(sentence) is None
    return not asks and _REFUSING.search(sentence) is None
