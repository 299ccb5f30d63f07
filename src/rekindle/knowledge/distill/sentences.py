"""Pick the sentences in which users correct, forbid, prefer, approve or reject.

Only what a person wrote is read, and only words that are known to be harmless are kept of it; a sentence
in which redaction finds anything is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rekindle.judging.outcomes.reactions import classify_reaction
from rekindle.judging.outcomes.user_text import MAX_CHARS, extract_user_text
from rekindle.knowledge.plain_words import GAP, MIN_KNOWN_SHARE, MIN_WORDS
from rekindle.knowledge.wishes.wishes import (
    UserTurn,
    Vocabulary,
    hide_unknown_words,
    is_negative,
    is_preference,
    is_standing,
    iter_sentences,
    list_stems,
)

if TYPE_CHECKING:
    from rekindle.redaction.redactor import Redactor

MAX_PER_SESSION = 12
MIN_COMMON_STEMS = 2  # of sentences that say the same
_REACTIONS = ("approval", "correction", "rejection")


class UserSentence(NamedTuple):
    """A sentence of a user with gaps; `request` is equal for sessions that begin alike."""

    session: str
    started: float
    request: tuple[int, ...]
    text: str
    is_standing: bool = False

    @property
    def origin(self) -> object:
        """What is equal for sentences of sessions that are not independent."""
        return self.request or self.session


class PickedSentence(NamedTuple):
    """A sentence that may hold a wish, with gaps, and whether it is about every session."""

    text: str
    is_standing: bool


def pick_sentences(
    turns: Iterable[UserTurn], vocabulary: Vocabulary, redactor: Redactor
) -> list[PickedSentence]:
    """Return the sentences of a session that may hold wishes, each once."""
    found: dict[str, PickedSentence] = {}
    for number, turn in enumerate(turns):
        is_first = number == 0
        if next(_iter_candidates(turn.text, is_first=is_first), None) is None:
            continue  # redaction takes longer
        # As a whole: the name of a secret may stand in another sentence.
        text = redactor.redact_text(turn.text[:MAX_CHARS])
        for sentence in _iter_candidates(text, is_first=is_first):
            kept = _keep_harmless(sentence, vocabulary, redactor)
            if kept is not None:
                found.setdefault(kept, PickedSentence(kept, is_standing(sentence)))
    return list(found.values())[:MAX_PER_SESSION]


def _iter_candidates(text: str, *, is_first: bool) -> Iterator[str]:
    """Yield sentences that ask for something, and all of a message that reacts to the work."""
    reacts = not is_first and classify_reaction(extract_user_text(text)) in _REACTIONS
    for sentence in iter_sentences(text, may_point=reacts):
        if reacts or is_standing(sentence) or is_preference(sentence):
            yield sentence


def _keep_harmless(sentence: str, vocabulary: Vocabulary, redactor: Redactor) -> str | None:
    kept = None if "<" in sentence else hide_unknown_words(sentence, vocabulary, redactor)
    words = kept.split() if kept else []
    known = sum(word != GAP for word in words)
    return kept if known >= max(MIN_WORDS, MIN_KNOWN_SHARE * len(words)) else None


def choose_sentences(sentences: Sequence[UserSentence], limit: int) -> list[UserSentence]:
    """Return the sentences that most likely hold a wish: standing or shared ones, the newest first."""
    users: dict[str, set[object]] = {}
    for one in sentences:
        for stem in list_stems(one.text):
            users.setdefault(stem, set()).add(one.origin)
    shared = Counter({stem: len(origins) for stem, origins in users.items()})

    def rank(one: UserSentence) -> tuple[bool, int, float]:
        counts = sorted((shared[stem] for stem in list_stems(one.text)), reverse=True)
        common = counts[MIN_COMMON_STEMS - 1] if len(counts) >= MIN_COMMON_STEMS else 0
        return one.is_standing, common, one.started

    return sorted(sentences, key=rank, reverse=True)[:limit]


def matches_sentence(text: str, other: str) -> bool:
    """Return whether a sentence asks for the same: it has half of the words, and the same sense."""
    stems, others = {*list_stems(text)}, {*list_stems(other)}
    least = max(MIN_COMMON_STEMS, (len(stems) + 1) // 2)
    return len(stems & others) >= least and is_negative(text) == is_negative(other)
