"""Find what users ask for again and again: always, never, remember, use this and not that.

What is kept of a session says where such a sentence stands and what it is about, in hashes, and not
what it says. Only a wish that may be repeated is read again: the user said always, never or remember,
or independent sessions share it; and each of its words is common or used by independent sessions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from rekindle.judging.outcomes.user_text import extract_user_text
from rekindle.judging.rules.text_patterns import split_words
from rekindle.knowledge.common_words import get_stem, is_common_word
from rekindle.knowledge.notes.harmless import is_subcommand, keep_option, keep_path
from rekindle.knowledge.notes.programs import is_known_program
from rekindle.knowledge.plain_words import GAP
from rekindle.shell.bypasses import find_bypass

from .doubtful_sentences import find_doubtful_words, is_about_credentials, is_spelled
from .records import SessionWish, Wish

if TYPE_CHECKING:
    from rekindle.redaction.redactor import Redactor

WISH_VERSION = 1  # raise with every change that may change what is found

MAX_WISH_CHARS = 160
MIN_WORDS, MAX_WORDS = 4, 30
MAX_OWN_CHARS = 700  # of a message; what is longer is a specification or was pasted
MAX_WISHES = 12  # per session
MIN_SESSIONS = 2  # that share a wish which is not standing

_SENTENCE_END = re.compile(r"(?<=[.!?]) | [–—-]++ |(?<!\.)\.{2,}+")
_MARKUP = re.compile(r"(?m)^[ \t]*+(?:#{1,6} |\|)|\*\*")
_LEAD = (
    r"(?:(?:please|pls|also|and|but|ok|okay|so|no|yes|again|just|then|oh|btw|note|hey|alright"
    r"|let's|make sure(?: to| you| we| that)?|be sure to|i want you to|i'd like you to),? ){0,4}"
)
# The user means every session.
_STANDING = re.compile(
    _LEAD + r"(?:(?:you|we) (?:should|must|need to) )?(?:"
    r"(?:always|never) (?!mind\b|ending\b|again\b|been\b)\w"
    r"|remember (?:to|that|also|we|you|not) \w|don't forget (?:to|that) \w"
    r"|(?:from now on|going forward|in (?:the )?future|as a rule|in general),? \w"
    r"|(?:don't|do not) ever \w"
    r"|(?:immer|niemals|denk daran|ab jetzt|toujours|n'oublie pas|désormais|siempre|nunca|recuerda) \w"
    r")",
    re.IGNORECASE,
)
# What the user prefers, at least now.
_PREFERENCE = re.compile(
    _LEAD + r"(?:"
    r"(?:don't|do not|stop|avoid|no more) \w"
    r"|(?:use|prefer|run|call|name|put|write|keep|compare) .{1,120}"
    r"(?:instead of|rather than|over|not) \w"
    r"|(?:we|you) (?:should|must) (?:not |only )?\w"
    r"|we(?:'re| are) using \w"
    r"|i(?:'d like| want| prefer| would like) .{1,120}(?:instead of|rather than|over) \w"
    r"|for (?:every|each|all) "
    r")",
    re.IGNORECASE,
)
_EVERYWHERE = re.compile(
    r"(?i)\b(?:everywhere|wherever|whenever|every time|each time|at all times|for every)\b"
)
_POINTING = re.compile(
    r"(?i)\b(?:this|that|these|those)(?: (?:one|time|way|again|too|now|first|instead))?(?=[.,;:!]|$)"
    r"|\b(?:it|them|above|below|he|she|they|here|yesterday|today|tomorrow|earlier)\b"
    r"|\bthe (?:last|other|first|second) one\b"
)
_NEGATION = re.compile(
    r"(?i)\b(?:not|never|no|don't|stop|avoid|without|nie|niemals|jamais|nunca)\b|n't\b"
)
_JOINING = re.compile(
    r"\A(?:(?:(?:alright|also|and|but|hey|just|note|oh|ok|okay|please|pls|so|then|yes)\b,?|no,) ){1,4}",
    re.IGNORECASE,
)
# Goes on with what was said before: it may be meant for that alone.
_CONTINUED = re.compile(r"(?i)(?:and|but|then)\b")
# What stands behind such a line was pasted, unless the user announces rules of their own.
_ANNOUNCEMENT = re.compile(
    r"(?i)(?:\S+ ){0,3}(?:conventions|guidelines|important|notes?|please|remember|rules?)\s*:"
)
_HARNESS = re.compile(
    r"(?im)^[^\n]{0,200}\bhook\b[^\n]{0,60}(?:context|error|feedback|output)\b[^\n]{0,40}:"
)
_FORCING = split_words("--force --force-with-lease --hard --admin --yes --no-hooks --skip-checks")
_LOOSENING = re.compile(
    r"(?i)\b(?:bypass|disable|ignore|skip|turn off)\w*\b.{0,40}\b(?:approvals?|certificates?|checks?"
    r"|hooks?|permissions?|sandbox|signatures?|signing|verification)\b"
)
_TRAILING = re.compile(r"(?i),? (?:please|pls|thanks|thank you)[.!]?$")
_TOKEN_EDGES = ".,;:!?()[]{}\"'“”‘’*…"
_PART = re.compile(r"[A-Z]?[a-z]+(?:'[a-z]+)?|[A-Z]+(?![a-z])|[^\W\d_]+|\d+")
_FILE = re.compile(r"[\w+-]++(?:\.[\w+-]++)*")
_VERSION = re.compile(r"\d\.\d{1,2}")
_PLAIN = re.compile(r"[A-Za-zÀ-ÿ' _.,()-]*")
_FUNCTION_WORDS = split_words(
    """
    a an the to of in on at for and or but please also just so you we i my your our be is are do does
    should must need always never remember ever from now going forward that not no don't let's make
    sure use using used
    """
)


class UserTurn(NamedTuple):
    """A message with the role of the user."""

    position: int
    text: str


class WishSession(NamedTuple):
    """A session with its wishes; `request` is equal for sessions that begin alike."""

    id: str
    started: float
    request: Sequence[int]
    wishes: Sequence[SessionWish]


def _is_shared_by_none(_word: str) -> bool:
    return False


class Vocabulary(NamedTuple):
    """What independent sessions of a project share: words in lower case, and files."""

    is_shared: Callable[[str], bool] = _is_shared_by_none
    paths: Collection[str] = frozenset()


def find_wishes(turns: Iterable[UserTurn]) -> tuple[SessionWish, ...]:
    """Return the wishes in what a user wrote, each once; give no turns that an agent wrote."""
    found: dict[int, SessionWish] = {}
    for turn in turns:
        for sentence in iter_sentences(turn.text):
            standing = is_standing(sentence)
            if standing or is_preference(sentence) or _STANDING.match(sentence):
                digest = _digest_sentence(sentence)
                found.setdefault(digest, SessionWish(digest, turn.position, standing))
    return tuple(found.values())[:MAX_WISHES]


def collect_wishes(
    sessions: Iterable[WishSession],
    vocabulary: Vocabulary,
    redactor: Redactor,
    load_text: Callable[[str, int], str],
) -> list[Wish]:
    """Return the wishes that may be repeated, those of most sessions first.

    `load_text` returns the text of a session's message; it is called only for wishes that are
    standing or shared. A wish in which `redactor` finds anything is left out.
    """
    groups: dict[int, list[tuple[WishSession, SessionWish]]] = {}
    for session in sorted(sessions, key=lambda one: (-one.started, one.id)):
        for wish in session.wishes:
            groups.setdefault(wish.digest, []).append((session, wish))
    found: list[Wish] = []
    for digest, group in groups.items():
        independent = {tuple(session.request) or session.id for session, _ in group}
        standing = any(wish.is_standing for _, wish in group)
        if not standing and len(independent) < MIN_SESSIONS:
            continue
        newest, wish = group[0]
        text = _find_sentence(load_text(newest.id, wish.position), digest)
        if text is not None and is_harmless_wish(text, vocabulary, redactor):
            ids = tuple(dict.fromkeys(session.id for session, _ in group))
            found.append(Wish(_format_wish(text), standing, ids, newest.started))
    valid = _drop_contradicted(found)
    return sorted(valid, key=lambda one: (-len(one.sessions), -one.last, one.text))


def _drop_contradicted(wishes: Iterable[Wish]) -> list[Wish]:
    """Return the wishes without those whose opposite was said later."""
    newest: dict[tuple[str, ...], Wish] = {}
    for one in sorted(wishes, key=lambda one: one.last):
        newest[tuple(sorted(list_stems(one.text)))] = one
    return [*newest.values()]


def is_harmless_wish(sentence: str, vocabulary: Vocabulary, redactor: Redactor) -> bool:
    """Return whether each word is common or shared, and nothing looks like a secret or skips a check."""
    if names_bypass(sentence):
        return False
    return hide_unknown_words(sentence, vocabulary, redactor) == " ".join(sentence.split())


def hide_unknown_words(sentence: str, vocabulary: Vocabulary, redactor: Redactor) -> str | None:
    """Return a sentence with gaps for words that are neither common nor shared.

    Return None if anything looks like a secret, or if it is about somebody's credentials.
    """
    if is_about_credentials(sentence) or is_spelled(sentence, vocabulary.paths):
        return None
    if redactor.redact_text(sentence) != sentence:
        return None
    kept: list[str] = []
    doubtful = find_doubtful_words(sentence, vocabulary.paths)
    for word, is_doubtful in zip(sentence.split(), doubtful, strict=True):
        tokens = [token.strip(_TOKEN_EDGES) for token in word.replace("`", " ").split()]
        kept.append(
            word
            if not is_doubtful and all(_is_harmless_token(one, vocabulary) for one in tokens)
            else GAP
        )
    return " ".join(kept)


def names_bypass(sentence: str) -> bool:
    """Return whether a sentence names an option or asks for something that skips a check."""
    words = [word.strip(_TOKEN_EDGES + "`") for word in sentence.split()]
    if find_bypass(words) is not None or not _FORCING.isdisjoint(words):
        return True
    return _LOOSENING.search(sentence) is not None and not is_negative(sentence)


def _find_sentence(text: str, digest: int) -> str | None:
    """Return the sentence of a message that has this digest."""
    return next((one for one in iter_sentences(text) if _digest_sentence(one) == digest), None)


def _format_wish(sentence: str) -> str:
    """Return the sentence without the words that join it to what was said before."""
    text = _TRAILING.sub("", _JOINING.sub("", sentence)).rstrip(".!, ")
    return f"{text[:1].upper()}{text[1:]}."


# ── sentences


def iter_sentences(text: str, *, may_point: bool = False) -> Iterator[str]:
    """Yield sentences of the user that can be understood by themselves.

    Those that point to something said before (`this`, `it`) only if they may.
    """
    own = extract_user_text(text)
    if not own or len(own) > MAX_OWN_CHARS or _MARKUP.search(own):
        return
    for line in _iter_unquoted_lines(own):
        for part in _SENTENCE_END.split(" ".join(line.split())):
            sentence = part.strip().lstrip("-*• ")
            words = sentence.split(" ")
            if (
                len(sentence) <= MAX_WISH_CHARS
                and MIN_WORDS <= len(words) <= MAX_WORDS
                and not sentence.endswith(("?", ":"))
                and (may_point or not _POINTING.search(sentence))
                and sentence.isprintable()
            ):
                yield sentence


def _iter_unquoted_lines(text: str) -> Iterator[str]:
    """Yield lines without the paragraph behind one that ends with a colon, which was pasted."""
    if _HARNESS.search(text):
        return
    is_quoted = has_begun = False
    for line in text.splitlines():
        if not line.strip():
            is_quoted = is_quoted and not has_begun
        elif is_quoted:
            has_begun = True
        else:
            is_quoted = line.rstrip().endswith(":") and not _ANNOUNCEMENT.fullmatch(line.strip())
            has_begun = False
            yield line


def is_standing(sentence: str) -> bool:
    """Return whether the user means every session: always, never, remember."""
    if _STANDING.match(sentence):
        return _CONTINUED.match(sentence) is None
    return _EVERYWHERE.search(sentence) is not None and is_preference(sentence)


def is_preference(sentence: str) -> bool:
    """Return whether the user prefers or forbids something, at least now."""
    return _PREFERENCE.match(sentence) is not None


def is_negative(sentence: str) -> bool:
    """Return whether a sentence says what not to do."""
    return _NEGATION.search(sentence) is not None


def list_stems(sentence: str) -> list[str]:
    """Return the stems of the words that say what a sentence is about, in order."""
    words = dict.fromkeys(part.casefold() for part in _PART.findall(sentence))
    return [get_stem(word) for word in words if word not in _FUNCTION_WORDS]


def _digest_sentence(sentence: str) -> int:
    """Return a number that is equal for sentences with the same words, and the same sense."""
    sign = "not" if is_negative(sentence) else ""
    text = " ".join((sign, *sorted(list_stems(sentence))))
    hashed = blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(hashed, "big", signed=True)


# ── what may be repeated


def _is_harmless_token(token: str, vocabulary: Vocabulary) -> bool:
    if not token or token in vocabulary.paths:
        return True
    if token.startswith("/") or any(sign in token for sign in ("://", "@", "~", "\\", "=", "..")):
        return False
    if token.startswith("-"):
        parts = _PART.findall(token)
        return keep_option(token, "") == token and all(
            _is_known_part(one, vocabulary) for one in parts
        )
    if is_known_program(token) or is_subcommand(token, "", "") or _VERSION.fullmatch(token):
        return True
    if "." in token and _FILE.fullmatch(token) and keep_path(token) is None:
        return False
    return all(_is_known_part(part, vocabulary) for part in _PART.findall(token)) and (
        _PLAIN.fullmatch(token) is not None or token.isalnum() or "/" in token or "+" in token
    )


def _is_known_part(part: str, vocabulary: Vocabulary) -> bool:
    if part.isdigit():
        return len(part) <= 2
    return len(part) == 1 or is_common_word(part) or vocabulary.is_shared(part.casefold())
