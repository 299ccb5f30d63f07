"""Find the words that a user said as a secret: redaction removes them, or the name of one is near."""

from __future__ import annotations

import re
from collections.abc import Iterable

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

MAX_SECRET_DISTANCE = 60  # characters behind the name of a secret, whatever is between
_SECRET_NAME = re.compile(
    r"(?i)pass(?:word|phrase|code|wd|wort)|\bpass\b|\bp/?wd?\b|secret|token|credential"
    r"|\blog(?:ged)?[- ]?in\b|\bpin\b|\bkey\b|\buser ?name\b|\bcode (?:is|was|for)\b|\bcode:|\bunlock"
    r"|\bcombination\b|\bsafe word\b|\bopens? (?:it )?with\b|\bkennwort|\bcontrase|\bclave\b|\bsenha\b"
    r"|\bwachtwoord|\bhas[lł]o\b|\bheslo\b|\badgangskode|\bsalasana|\bparola\b|mot de passe|\blozinka"
    r"|\bl[öo]senord|\bgeslo\b|\bjelsz|\bcustomer|\bmy name is\b|\bthe word is\b"
)
_SAID_WORD = re.compile(r"[a-z]+(?:-[a-z]+)*")
_PATH_SIGN = re.compile("[/.]")
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)|\n")


def find_said_secrets(said: str, words: set[str]) -> set[str]:
    """Return which of the words, in lower case, the user said as a secret."""
    heard = {*_SAID_WORD.findall(said.lower())}
    parts = {word: {*_SAID_WORD.findall(word)} for word in words}
    words = {word for word in words if parts[word] and parts[word] <= heard}
    if not words:
        return set()
    from rekindle.redaction.redactor import Redactor  # few sessions need it

    public = {*_SAID_WORD.findall(Redactor().redact_text(said).lower())}
    near = _find_words_near_secrets(said)
    return {word for word in words if parts[word] & near or not parts[word] <= public}


def _find_words_near_secrets(said: str) -> set[str]:
    """Return the words in sentences that name a secret, and those soon behind its name."""
    from rekindle.redaction.vocabulary.languages import FOREIGN_PASSWORD_WORD

    near: set[str] = set()
    ends = [0, *(found.end() for found in _SENTENCE_END.finditer(said)), len(said)]
    for pattern in (_SECRET_NAME, FOREIGN_PASSWORD_WORD):
        for found in pattern.finditer(said):
            start = max(end for end in ends if end <= found.start())
            stop = min(end for end in ends if end >= found.end())
            text = said[start : max(stop, found.end() + MAX_SECRET_DISTANCE)]
            near.update(_SAID_WORD.findall(text.lower()))
    return near


def hide_said_secrets(
    lines: Iterable[tuple[CommandForm, ...]], said: str
) -> list[tuple[CommandForm, ...]]:
    """Put slots for words that may be values if the user said them as a secret; leave out programs."""
    lines = list(lines)
    doubtful = {word.lower() for forms in lines for form in forms for word in _list_doubtful(form)}
    secrets = find_said_secrets(said, doubtful)
    hidden = (tuple(_hide_secrets(form, secrets) for form in forms) for forms in lines)
    return [tuple(form for form in forms if form is not None) for forms in hidden]


def _list_doubtful(form: CommandForm) -> list[str]:
    """Return the words of a form that may be a secret, such as the name of a script or a program."""
    words = [get_value(word) for word in list_doubtful_words(form.key, form.text)]
    others = (word for word in form.text.split(" ") if _may_be_secret(word))
    return [*words, *(part for word in others for part in _list_parts(word))]


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
