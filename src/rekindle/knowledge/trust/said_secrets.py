"""Find the words that a user said as a secret: redaction removes them, or the name of one is near."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from rekindle.knowledge.common_words import is_common_word
from rekindle.knowledge.notes.command_forms import (
    CommandForm,
    get_value,
    hide_word,
    list_doubtful_words,
)
from rekindle.knowledge.notes.harmless import is_command_word, is_file_name, is_plain_value
from rekindle.knowledge.notes.programs import get_program, is_known_program
from rekindle.knowledge.notes.records import is_slot

MAX_SENTENCE = 2_000  # characters
MAX_SECRET_DISTANCE = 60  # characters behind the name of a secret, whatever is between
_PASSWORD_NAME = re.compile(
    r"(?i)pass(?:word|phrase|code|wd|wort)|\bp/?wd?\b|\bpin\b|\bcode (?:is|was|for)\b|\bcode:|\bunlock"
    r"|\bcombination\b|\bsafe word\b|\bopens? (?:it )?with\b|\bkennwort|\bcontrase|\bclave\b|\bsenha\b"
    r"|\bwachtwoord|\bhas[lł]o\b|\bheslo\b|\badgangskode|\bsalasana|\bparola\b|mot de passe|\blozinka"
    r"|\bl[öo]senord|\bgeslo\b|\bjelsz|\bcustomer|\bmy name is\b|\bthe word is\b"
)
# In a project with code for them these are about something else.
_OTHER_SECRET_NAME = re.compile(
    r"(?i)\bpass\b|secret|token|credential|\blog(?:ged)?[- ]?in\b|\bkey\b|\buser ?name\b"
)
_SAID_WORD = re.compile(r"[a-z]+(?:-[a-z]+)*")
_PATH_SIGN = re.compile("[/.]")
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)|\n")


def find_said_secrets(said: str, values: set[str], names: set[str]) -> set[str]:
    """Return what the user said as a secret: words that may be values, and names of what is run.

    All are in lower case. A name is one only in a sentence about a password.
    """
    heard = {*_SAID_WORD.findall(said.lower())}
    parts = {word: {*_SAID_WORD.findall(word)} for word in values | names}
    words = {word for word in parts if parts[word] and parts[word] <= heard}
    if not words:
        return set()
    from rekindle.redaction.redactor import Redactor  # few sessions need it
    from rekindle.redaction.vocabulary.languages import FOREIGN_PASSWORD_WORD

    public = {*_SAID_WORD.findall(Redactor().redact_text(said).lower())}
    passwords = _find_words_near(said, (_PASSWORD_NAME, FOREIGN_PASSWORD_WORD))
    others = _find_words_near(said, (_OTHER_SECRET_NAME,)) | passwords
    return {
        word
        for word in words
        if not parts[word] <= public or parts[word] <= (others if word in values else passwords)
    }


def _find_words_near(said: str, patterns: Sequence[re.Pattern[str]]) -> set[str]:
    """Return the words in sentences that name a secret, and those soon behind its name."""
    near: set[str] = set()
    ends = [0, *(found.end() for found in _SENTENCE_END.finditer(said)), len(said)]
    for found in (found for pattern in patterns for found in pattern.finditer(said)):
        start = ends[bisect_right(ends, found.start()) - 1]
        stop = ends[min(bisect_left(ends, found.end()), len(ends) - 1)]
        text = said[start : min(max(stop, found.end() + MAX_SECRET_DISTANCE), start + MAX_SENTENCE)]
        near.update(_SAID_WORD.findall(text.lower()))
    return near


def hide_said_secrets(
    lines: Iterable[tuple[CommandForm, ...]], said: str
) -> list[tuple[CommandForm, ...]]:
    """Put slots for words that may be values if the user said them as a secret; leave out programs."""
    lines = list(lines)
    found = [form for forms in lines for form in forms]
    values = {
        get_value(word) for form in found for word in list_doubtful_words(form.key, form.text)
    }
    names = {word for form in found for word in _list_names(form)}
    secrets = find_said_secrets(said, {*map(str.lower, values)}, {*map(str.lower, names)})
    hidden = (tuple(_hide_secrets(form, secrets) for form in forms) for forms in lines)
    return [tuple(form for form in forms if form is not None) for forms in hidden]


def _list_names(form: CommandForm) -> list[str]:
    """Return the words of a form that may be a secret, such as the name of a script or a program."""
    words = (word for word in form.text.split(" ") if _may_be_secret(word))
    return [part for word in words for part in _list_parts(word)]


def _list_parts(word: str) -> list[str]:
    """Return a word, and the names in it that are no common words if it is a path."""
    parts = _PATH_SIGN.split(word)
    rare = (part for part in parts if len(part) > 3 and not is_common_word(part.lower()))
    return [word, *rare] if len(parts) > 1 else [word]


def _may_be_secret(word: str) -> bool:
    if is_slot(word) or word[:1] in ("-", "") or is_known_program(word):
        return False
    if is_command_word(word) or is_plain_value(word):
        return False
    return "=" not in word and re.search("[A-Za-z]{3}", word) is not None


def _hide_secrets(form: CommandForm, secrets: set[str]) -> CommandForm | None:
    """Return a form without secrets; None if its program is one, or may be one."""
    program = get_program(form.key)
    if _is_bare(form.text) or any(one.lower() in secrets for one in _list_parts(program)):
        return None
    if not secrets:
        return form
    for word in list_doubtful_words(form.key, form.text):
        if get_value(word).lower() in secrets:
            key = program if word[0] == " " else form.key
            form = CommandForm(key, hide_word(form.text, program, word), form.folder)
    first, *words = form.text.split(" ")

    def is_secret(word: str) -> bool:
        return _may_be_secret(word) and any(one.lower() in secrets for one in _list_parts(word))

    shown = ["<value>" if is_secret(one) else one for one in words]
    if shown == words:
        return form
    key = [one for one in form.key.split(" ") if not is_secret(one)]
    return CommandForm(" ".join(key), " ".join([first, *shown]), form.folder)


def _is_bare(text: str) -> bool:
    """Return whether a line is one word, no path and no known program: it may be an answer."""
    is_named = "/" in text or is_known_program(text) or is_file_name(text)
    return " " not in text and not is_named
