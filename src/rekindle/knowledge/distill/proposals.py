"""Read the answer of a model as hostile data: keep what proves itself, count the rest by reason.

A rewording names exactly what its note names, in the same order and in plain words. A wish consists of
words that the users said in the sentences it rests on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from rekindle.knowledge.common_words import get_stem, is_common_word
from rekindle.knowledge.notes.note import RecalledNote, list_code, split_evidence
from rekindle.knowledge.notes.playbook import Playbook
from rekindle.knowledge.notes.programs import get_program, is_known_program
from rekindle.knowledge.plain_words import GAP
from rekindle.knowledge.wishes.wishes import (
    MAX_WISH_CHARS,
    MIN_SESSIONS,
    Vocabulary,
    is_harmless_wish,
    list_stems,
)

from .sentences import MIN_COMMON_STEMS, UserSentence, matches_sentence
from .words import PLAIN_WORDS, list_words, read_prose

if TYPE_CHECKING:
    from rekindle.redaction.redactor import Redactor

T = TypeVar("T")

MAX_ANSWER_CHARS = 60_000
MAX_ITEMS = 60  # of each kind, in one answer
MAX_ADDED_CHARS = 40  # of a rewording
NO_FORMAT = "not in the format that was asked for"
UNKNOWN_ID = "about a note or sentence that was not sent"
BAD_LENGTH = "empty or too long"
BAD_CHARACTERS = "with characters that nobody sees, or of other scripts"
OTHER_NAMES = "names something else than its note"
OTHER_WORDS = "says more than it was given"
OTHER_SENSE = "may turn around what it was given"
FEW_SESSIONS = "asked for in too few sessions"
NOT_HARMLESS = "has words that are not known to be harmless"
OTHER_PROGRAMS = "names a program that no clean session ran"
KNOWN = "known already"

_FAILING = frozenset(("fail", "fails", "failed"))
_HOW_OFTEN = frozenset(("always", "here", "often", "sometimes", "usually"))
_RUN_WORDS = frozenset(("run", "runs", "running", "use", "using", "call", "execute", "with", "via"))
# What notes of a kind say besides their code: one word of each group.
_NEEDED: Mapping[str, tuple[frozenset[str], ...]] = {
    "command": (frozenset(("also", "or", "with")),),
    "pitfall": (_FAILING, frozenset(("run", "try", "use", "work", "worked", "works"))),
    "workflow": (frozenset(("before",)), frozenset(("commit", "commits"))),
    "baseline": (_FAILING, frozenset(("before",)), frozenset(("change", "changes"))),
    "place": (frozenset(("command", "commands")),),
}


class Proposal(NamedTuple):
    """A note in a model's words: of another note, or of what users said in some sentences."""

    text: str
    note: RecalledNote | None = None
    sentences: tuple[UserSentence, ...] = ()


class Material(NamedTuple):
    """What a model is given of a project, by the ids that it is sent with, and what is known there."""

    notes: Mapping[str, RecalledNote]
    sentences: Mapping[str, UserSentence]
    programs: Collection[str] = frozenset()  # that clean sessions ran
    vocabulary: Vocabulary = Vocabulary()
    known: Sequence[str] = ()  # texts of wishes, and of proposals that were made before


class AnsweredRewording(msgspec.Struct, frozen=True):
    """A rewording as the model answers it."""

    note: str
    text: str


class AnsweredWish(msgspec.Struct, frozen=True):
    """A wish as the model answers it."""

    text: str
    sentences: tuple[str, ...]


class _ModelAnswer(msgspec.Struct, frozen=True):
    rewordings: tuple[msgspec.Raw, ...] = ()
    wishes: tuple[msgspec.Raw, ...] = ()


def read_answer(
    text: str, material: Material, redactor: Redactor
) -> tuple[list[Proposal], Counter[str]]:
    """Return the proposals in an answer that may be kept, and why others were discarded."""
    proposals: list[Proposal] = []
    discarded: Counter[str] = Counter()
    answer = _decode_json(
        text[text.find("{") : text.rfind("}") + 1].encode(errors="replace"), _ModelAnswer
    )
    if answer is None or len(text) > MAX_ANSWER_CHARS:
        return [], Counter({NO_FORMAT: 1})
    reworded: set[str] = set()
    for one in _iter_items(answer.rewordings, AnsweredRewording):
        note = material.notes.get(one.note) if one else None
        reason = review_rewording(one.text, note) if one else NO_FORMAT
        if not reason and one and one.note in reworded:
            reason = KNOWN
        if reason or one is None:
            discarded[reason] += 1
        else:
            reworded.add(one.note)
            proposals.append(Proposal(one.text, note))
    known = [*material.known]
    for wish in _iter_items(answer.wishes, AnsweredWish):
        cited = _find_cited(wish, material) if wish else ()
        reason = review_wish(wish.text, cited, material, redactor) if wish else NO_FORMAT
        if not reason and wish and any(matches_sentence(wish.text, one) for one in known):
            reason = KNOWN
        if reason or wish is None:
            discarded[reason] += 1
        else:
            known.append(wish.text)
            proposals.append(Proposal(wish.text, sentences=cited))
    return proposals, discarded


def _decode_json(data: bytes, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _iter_items(items: Sequence[msgspec.Raw], kind: type[T]) -> Iterator[T | None]:
    """Yield items of a kind, and None for each that is of another kind or too many."""
    for number, item in enumerate(items):
        yield _decode_json(bytes(item), kind) if number < MAX_ITEMS else None


# ── rewordings


def can_be_reworded(note: RecalledNote) -> bool:
    """Return whether a note says something besides its code that could be said differently."""
    return note.kind in _NEEDED and bool(_list_prose_words(split_evidence(note.text)[0]))


def review_rewording(text: str, note: RecalledNote | None) -> str:
    """Return why a rewording is discarded, or an empty text."""
    if note is None:
        return UNKNOWN_ID
    statement, _ = split_evidence(note.text)
    if not 0 < len(text) <= len(statement) + MAX_ADDED_CHARS:
        return BAD_LENGTH
    if not (text.isascii() and text.isprintable()):
        return BAD_CHARACTERS
    if list_code(text) != list_code(statement):
        return OTHER_NAMES
    if read_prose(text) is None or not PLAIN_WORDS.union(_list_prose_words(statement)).issuperset(
        words := _list_prose_words(text)
    ):
        return OTHER_WORDS
    if not _has_sense(text, words, note.kind):
        return OTHER_SENSE
    return KNOWN if text.rstrip(".") == statement.rstrip(".") else ""


def _list_prose_words(text: str) -> list[str]:
    return list_words(read_prose(text) or "")


def _has_sense(text: str, words: Sequence[str], kind: str) -> bool:
    """Return whether a text still says what notes of its kind say.

    What failed is the first thing that a pitfall names, and nothing else in it fails.
    """
    if not all(group.intersection(words) for group in _NEEDED[kind]):
        return False
    fails = sum(word in _FAILING for word in words)
    if kind not in ("pitfall", "baseline"):
        return not fails
    behind = list_words(text.split("`")[2])
    is_said = next((word for word in behind if word not in _HOW_OFTEN), "") in _FAILING
    return fails == 1 and is_said


# ── wishes


def _find_cited(wish: AnsweredWish, material: Material) -> tuple[UserSentence, ...]:
    """Return the sentences that a wish rests on; none if one of them was not sent."""
    ids = dict.fromkeys(wish.sentences)
    if not all(id in material.sentences for id in ids):
        return ()
    return tuple(material.sentences[id] for id in ids)


def review_wish(
    text: str, cited: Sequence[UserSentence], material: Material, redactor: Redactor
) -> str:
    """Return why a wish is discarded, or an empty text."""
    if not cited:
        return UNKNOWN_ID
    stems = list_stems(text)
    if not (len(text) <= MAX_WISH_CHARS and len({*stems}) >= MIN_COMMON_STEMS):
        return BAD_LENGTH
    if not text.isprintable():
        return BAD_CHARACTERS
    if GAP in text or not is_harmless_wish(text, material.vocabulary, redactor):
        return NOT_HARMLESS
    if names_other_program(text, material):
        return OTHER_PROGRAMS
    said = {stem for one in cited for stem in list_stems(one.text)}
    if not said.union(map(get_stem, PLAIN_WORDS)).issuperset(stems):
        return OTHER_WORDS
    agreeing = [one for one in cited if matches_sentence(text, one.text)]
    if not has_support(agreeing):
        return FEW_SESSIONS
    return "" if any(_is_in_order(stems, list_stems(one.text)) for one in agreeing) else OTHER_SENSE


def has_support(sentences: Collection[UserSentence]) -> bool:
    """Return whether users asked for something in independent sessions, or for every session."""
    is_standing = any(one.is_standing for one in sentences)
    return is_standing or len({one.origin for one in sentences}) >= MIN_SESSIONS


def _is_in_order(stems: Sequence[str], said: Sequence[str]) -> bool:
    """Return whether the words of a wish stand in the order in which a user said them."""
    ours = dict.fromkeys(stem for stem in stems if stem in said)
    return [*ours] == [*dict.fromkeys(stem for stem in said if stem in stems)]


def list_programs(playbook: Playbook) -> frozenset[str]:
    """Return the programs that the commands of a playbook run, in every part of them."""
    words = {
        word.rsplit("/", 1)[-1]
        for item in playbook.commands
        for form in item.forms
        for number, word in enumerate(form.text.split())
        if number == 0 or is_known_program(word)
    }
    return frozenset(words | {get_program(item.name) for item in playbook.commands})


def names_other_program(text: str, material: Material) -> bool:
    """Return whether a wish names a program that no clean session ran."""
    known = material.programs
    for code in list_code(text):
        first = next(iter(code.strip("`").split()), "")
        name = first.rsplit("/", 1)[-1]
        if name not in known and first not in material.vocabulary.paths:
            return True
    before = ""
    for word in text.replace("`", " ").lower().split():
        bare = word.strip(".,;:!()'\"")
        is_meant = before in _RUN_WORDS or not is_common_word(bare)
        if is_meant and is_known_program(bare) and bare not in known:
            return True
        before = bare
    return False
