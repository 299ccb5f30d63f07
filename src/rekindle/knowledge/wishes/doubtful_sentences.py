"""Find sentences of common words alone that may still hold a secret or a name.

A password can be a common word, or be spelled in letters, in digits or in words for them. A name of a
person can be two common words. Nothing of such a sentence is repeated.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from rekindle.judging.rules.text_patterns import split_words
from rekindle.knowledge.common_words import is_common_word, is_listed_word
from rekindle.knowledge.notes.programs import is_known_program

MAX_PARTS = 2  # of a word with hyphens, unless it has a function word in it: `end-to-end`
MIN_SPELLED = 2  # letters or groups of digits in one sentence

# A sentence with one of these is about somebody's credentials.
_CREDENTIAL_WORDS = split_words(
    """
    login logon signin username account accounts passphrase password passwort kennwort contraseña senha
    пароль 密码 パスワード credential credentials secret secrets pin pat otp passcode passkey keyword
    codeword watchword
    """
)
# They name secrets in code and something else in a sentence: tests pass.
_WORK_WORDS = split_words("pass private session sessions signature signatures")
_CREDENTIAL_NAME = re.compile(
    r"(?i)\b(?:access|admin|alarm|api|door|encryption|entry|gate|house|key|licen[cs]e|login|magic|main"
    r"|master|my|office|our|pass|private|recovery|root|safe|secret|security|seed|server|signing|ssh|user|wifi|your)"
    r"[ -](?:codes?|combinations?|keys?|numbers?|phrases?|words?)\b"
)
# `the code is fridge`, and not: the code is formatted.
_NAMED_VALUE = re.compile(
    r"(?i)\b(?:the|my|our|your|its|his|her|their|a)(?: [a-z]+)?"
    r" (?:answer|code|combination|key|number|pass|phrase|word)"
    r"(?: for [a-z ]{1,30})?(?: is| are| was| will be|:|=)"
    r"(?! (?:[a-z]+ed|not|always|never|well|clean|correct|simple|readable|short|safe|ready|in|on|as|at"
    r"|too|covered|idiomatic|consistent|easy|green|valid|unique|fully|properly)\b)"
)
_SAID_VALUE = re.compile(
    r"(?i)\b(?:answer|code|combination|key|phrase|word) (?:is|was|:)|\b(?:say|with the word|spell)\b"
)
_LOGGING_IN = re.compile(r"(?i)\b(?:log|logged|logging|sign|signed) (?:in|on) (?:as|with)\b")
_LOCK = re.compile(r"(?i)\b(?:alarm|door|gate|lock|locker|safe|vault)s?\b")
_OPENING = re.compile(
    r"(?i)\b(?:answer|asks?|call|dial|enter|open|opens|opened|say|says|spell|tell|type|unlocks?)\b"
)
_NUMBER_WORDS = (
    r"(?:zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|double|null|eins|zwei|drei"
    r"|vier|fünf|sechs|sieben|acht|neun)"
)
_SPOKEN_DIGITS = re.compile(rf"(?i)\b{_NUMBER_WORDS}(?:[ ,-]{{1,2}}{_NUMBER_WORDS})+\b")
_ABBREVIATION = re.compile(r"(?i)\b(?:e\.g|i\.e|a\.m|p\.m|w\.r\.t|a\.k\.a)\b\.?")
_RUN = re.compile(r"(?<!['’])(?:[^\W\d_]+|\d+(?:\.\d+)?)")
_PIECE = re.compile(r"[^\W_]+")
_VERSIONED = re.compile(r"([a-z]+)\d{1,2}")
_MEASURE = re.compile(
    r"\d{1,3}(?:px|ms|s|m|h|d|k|kb|mb|gb|x|st|nd|rd|th|em|rem|vh|vw|pt)|[vhp]\d{1,2}|es\d{1,4}"
)
_MIXED_TERMS = split_words(
    """
    2d 3d a11y arm64 auth0 b2b base64 e2e ec2 g11n http2 http3 i18n ipv4 ipv6 k8s l10n log4j md5 mp3 mp4
    n8n neo4j oauth2 s3 sha1 sha256 sha512 utf8 utf16 web3 win32 x64 x86
    """
)
_TECHNOLOGIES = split_words(
    """
    android angular anthropic apple bootstrap chrome chromium claude codex copilot cursor debian discord
    django dom edge electron english express fastapi firefox french gemini german github gitlab google
    graphql grpc ios italian japanese javascript jira kafka kotlin kubernetes linear linux mac macos
    markdown matrix microsoft mongodb notion openai oracle playwright portuguese postgres postgresql
    python rails react redis redux rust safari slack spanish spring sqlite storybook svelte swift
    telegram
    typescript ubuntu unicode unix vue webkit windows zod
    monday tuesday wednesday thursday friday saturday sunday
    """
)
# They are also written with a capital for emphasis, or where a sentence goes on.
_EMPHASIZED = split_words(
    "always never remember not no do don't must only please i i'm i'd i'll i've use the and or make"
)
_LEADS = split_words(
    "please pls also and but ok okay so no yes again just then oh btw note hey alright"
)
_INNER_WORDS = split_words("a an and at by in not of on or the to up vs")
_EDGES = ".,;:!?()[]{}\"'“”‘’*…`"


def may_hold_secret(sentence: str, paths: Collection[str] = ()) -> bool:
    """Return whether a sentence may say a secret or a name; `paths` are files that it may name."""
    return (
        is_about_credentials(sentence)
        or is_spelled(sentence, paths)
        or any(find_doubtful_words(sentence, paths))
    )


def find_doubtful_words(sentence: str, paths: Collection[str] = ()) -> list[bool]:
    """Return for each word of a sentence whether it may be a name or a value."""
    words = sentence.split()
    names = _find_names(words)
    return [
        word.strip(_EDGES) not in paths and (is_name or _is_mixed(word) or _is_chain(word))
        for word, is_name in zip(words, names, strict=True)
    ]


def is_about_credentials(sentence: str) -> bool:
    """Return whether a sentence is about a password, a code, or what opens a lock."""
    if any(one.search(sentence) for one in (_CREDENTIAL_NAME, _NAMED_VALUE, _LOGGING_IN)):
        return True
    if _LOCK.search(sentence) and _OPENING.search(sentence):
        return True
    words = {word.strip(_EDGES).casefold() for word in sentence.split()} - _WORK_WORDS
    return any(map(is_credential_word, words))


def is_about_secret(request: str) -> bool:
    """Return whether a request is about a password or says what must be said somewhere."""
    is_said = _SAID_VALUE.search(request) is not None or _SPOKEN_DIGITS.search(request) is not None
    runs = _RUN.findall(request)
    return is_said or is_about_credentials(request) or any(map(is_credential_word, runs))


def list_names(sentence: str) -> frozenset[str]:
    """Return the words of a sentence that have a capital in its middle and are no terms."""
    words = sentence.split()
    names = (word for word, is_name in zip(words, _find_names(words), strict=True) if is_name)
    return frozenset(part for word in names for part in _RUN.findall(word))


def is_credential_word(word: str) -> bool:
    """Return whether a text with this word is about somebody's credentials."""
    from rekindle.redaction.vocabulary.secret_names import classify_name  # it loads all detectors

    return classify_name(word) is not None or word.casefold() in _CREDENTIAL_WORDS


def is_spelled(sentence: str, paths: Collection[str] = ()) -> bool:
    """Return whether a sentence has several single letters, groups of digits, or words for digits."""
    words = (one for one in sentence.split() if one[0] != "-" and one.strip(_EDGES) not in paths)
    words = (one for one in words if _is_mixed(one) or not any(_list_mixed_pieces(one)))
    text = _ABBREVIATION.sub("", " ".join(words))
    if _SPOKEN_DIGITS.search(text):
        return True
    runs = [run for run in _RUN.findall(text) if run[0].isdigit() or len(run) == 1]
    return sum(run not in ("a", "A", "I") for run in runs) >= MIN_SPELLED


def _is_mixed(word: str) -> bool:
    """Return whether a word mixes letters and digits, other than terms, versions and measures."""
    for piece in _list_mixed_pieces(word):
        versioned = _VERSIONED.fullmatch(piece)
        is_known = (
            piece in _MIXED_TERMS
            or _MEASURE.fullmatch(piece)
            or (versioned and (is_known_program(versioned[1]) or versioned[1] in _TECHNOLOGIES))
        )
        if not is_known:
            return True
    return False


def _list_mixed_pieces(word: str) -> list[str]:
    pieces = _PIECE.findall(word.casefold())
    return [one for one in pieces if not one.isalpha() and any(map(str.isalpha, one))]


def _is_chain(word: str) -> bool:
    """Return whether a word is a chain of words, as passphrases are."""
    if word[0] == "-" or "/" in word:
        return False
    parts = word.strip(_EDGES).casefold().split("-")
    return len(parts) > MAX_PARTS and _INNER_WORDS.isdisjoint(parts)


def _find_names(words: list[str]) -> list[bool]:
    """Return for each word whether it has a capital in the middle of a sentence and is no term."""
    found: list[bool] = []
    starts = True
    for word in words:
        parts = re.split("[-/]", word.strip(_EDGES))
        if starts:
            parts = parts[1:]
        is_code = "`" in word
        found.append(
            any(part[:1].isupper() and not _is_term(part, is_code=is_code) for part in parts)
        )
        starts = starts and word.strip(_EDGES).casefold() in _LEADS
    return found


def _is_term(word: str, *, is_code: bool) -> bool:
    """Return whether a word with a capital is a technology, an emphasized word or an identifier."""
    plain = word.removesuffix("'s").casefold()
    if plain in _TECHNOLOGIES or plain in _EMPHASIZED or is_known_program(plain) or "." in plain:
        return True
    if word.isupper():
        return is_listed_word(plain)
    parts = re.findall(r"[A-Z][a-z]+", word)
    return is_code and len(parts) > 1 and "".join(parts) == word and all(map(is_common_word, parts))
