# ruff: noqa: E501  (a pattern stays on one line)
"""Detects passwords in sentences: `the password for staging is …`, `log in with admin / …`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from rekindle.redaction.scanner import (
    NO_CANDIDATES,
    NO_SPANS,
    Candidates,
    LiteralDetectors,
    RedactionSpan,
    ScanInput,
    find_matches,
    make_secret_span,
)
from rekindle.redaction.vocabulary.entropy import is_placeholder, is_random, split_words
from rekindle.redaction.vocabulary.languages import (
    ASCII_PASSWORD_WORDS,
    FOREIGN_LETTER,
    FOREIGN_PASSWORD_WORD,
)
from rekindle.redaction.vocabulary.secret_values import is_path

from .bare_secrets import is_generated_password

_Q = r"""\\{0,3}["'`]?"""
_V = r"""[A-Za-z0-9!@#%^&*~][^\s"'`,;<>(){}\[\]|\\]{3,80}"""
# What may come between a word for password and the password.
_NAMED = re.compile(
    rf"""(?:words?|wd|wort|ord|e|phrase|code|key|s|\b)
      (?:[ ](?:for|of|on|to|at|from)[ ](?:[\w.@'-]{{1,40}}[ ]){{1,5}}?|[ ]\([^()\n]{{1,40}}\)[ ]?|[ ]?)
      (?:(?:is|was|are|ist|lautet|est|es|è|é|er|=|:|->|=>|>|-+>)[ ]?(?:now[ ]|set[ ]to[ ]|:[ ]?)?|(?:has[ ]been[ ]|was[ ]|is[ ])?(?:changed|set|reset|updated)[ ]to[ ])
      [ ]?{_Q}(?P<value>{_V})""",
    re.X | re.I,
)
_CHANGED = re.compile(
    rf"pass(?:word|phrase|code)?[ ]from[ ]{_Q}(?P<value>{_V}){_Q}[ ]to[ ]{_Q}(?P<other>{_V})", re.I
)
# `log in with ada / …`, `credentials: ada:…`, `wifi is Guest / …`
_LOGIN = re.compile(
    rf"""(?:log[ ]?in(?:to)?|sign[ ]in|wi-?fi|credentials?|creds?)\b[^\n]{{0,40}}?
      (?:[ ](?:with|as|using|is|are|to|use)[ ]|[:=][ ]?){_Q}(?!https?:)[\w.@-]{{2,60}}{_Q}
      [ ]?(?:/|:|,|[|]|[ ]and[ ]|[ ]with[ ]|[ ])[ ]?(?:pass(?:word)?[ ]|pw[ ])?{_Q}(?P<value>{_V})""",
    re.X | re.I,
)
_DIRECT = re.compile(rf"(?:token|key|secret|pass(?:word|phrase|code))[ ]{_Q}(?P<value>{_V})", re.I)
_ONE_TIME = re.compile(
    r"(?:otp|verif\w{0,8})(?:[ -](?:pass)?code)?(?:[ ](?:is|was)|[ ]?[:=])?[ ]{0,2}(?P<value>\d{3}[ -]?\d{3}|\d{4,8})(?![\w.-])",
    re.I,
)
_FOREIGN = re.compile(
    r"[\"'`]?(?:[^!-~\n]|(?:ist|lautet|est|es|sono|on|jest|je|is|er|adalah|la|to)(?=[ ])){0,10}[:=>]{0,2}[ ]{0,4}[\"'`]?"
    r"(?P<value>[A-Za-z0-9!@#$%^&*~][!#-&(-\[\]-_a-~]{4,80})"
)
_TECHNICAL = re.compile(
    r"(?:v?\d[\d.]*\w?|(?:utf|sha|md|base|oauth|http|ipv|aes|rsa|hs|rs|es|x|py|python|int|uint|float|tls|ssl|h|ed|p)-?\d+"
    r"|\d+-\w+|[\w.]+\.(?:py|ts|js|go|rs|md|json|ya?ml|toml|txt|sh|env|com|org|io|dev)\S*|\w+\(.*|-.*"
    r"|[A-Za-z]+(?:[-_/.][A-Za-z]+)*\d?)\Z",
    re.I,
)
_MEMORABLE = re.compile(
    r"(?=[^\s]*[A-Za-z])(?=[^\s]*[\d!@#$%^&*?+~])[A-Za-z0-9!@#$%^&*?+~_.-]{6,60}\Z"
)
_COMMON = split_words("admin root user username email login password passwd none null true false")


def is_memorable_password(value: str) -> bool:
    """Return whether a word looks like a password that a person chose: `hunter2!`, not `utf8`."""
    if is_placeholder(value) or _TECHNICAL.match(value) or is_path(value):
        return False
    if len(value) > 20 and value.isidentifier() and not is_random(value, 8):
        return False
    return _MEMORABLE.match(value) is not None and value.lower() not in _COMMON


def _mask_value(found: re.Match[str] | None, group: str = "value") -> Iterable[RedactionSpan]:
    if found is None:
        return NO_SPANS
    value = (
        found[group].rstrip(".,:;!?") if not is_generated_password(found[group]) else found[group]
    )
    if not (is_generated_password(value) or is_memorable_password(value)):
        return NO_SPANS
    start = found.start(group)
    return (make_secret_span(start, start + len(value), "password"),)


def _detect_named(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
    """Detect `password for x is …` from the literal `pass`, `phrase` or `pw` on."""
    text = scan.text
    size = (
        6
        if scan.lower.startswith(b"phrase", at)
        else 4
        if scan.lower.startswith(b"pass", at)
        else 2
    )
    if text[at + size : at + size + 1] in ("", "(", ".", "/", "_"):
        return NO_SPANS
    if text.startswith("--- PASS: ", at - 4):  # a test that passed
        return NO_SPANS
    if size == 4 and (changed := _CHANGED.match(text, at)):
        return (*_mask_value(changed), *_mask_value(changed, "other"))
    return _mask_value(_NAMED.match(text, at + size, at + 240))


def _detect_login(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
    return _mask_value(_LOGIN.match(scan.text, at, at + 240))


def _detect_direct(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
    """Detect `use token …`: the value follows at once."""
    found = _DIRECT.match(scan.text, at, at + 120)
    if found and is_random(found["value"].rstrip(".:"), 10):
        return _mask_value(found)
    return NO_SPANS


def _detect_one_time(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    found = _ONE_TIME.match(scan.text, at)
    if found and not (at and scan.text[at - 1].isalnum()):
        yield make_secret_span(found.start("value"), found.end("value"), "token")


def _detect_ascii_word(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
    for word in ASCII_PASSWORD_WORDS:
        if scan.lower.startswith(word, at):
            return _mask_value(_FOREIGN.match(scan.text, at + len(word)))
    return NO_SPANS


def detect_foreign_passwords(scan: ScanInput) -> Sequence[Candidates]:
    """Detect passwords after their name in another script."""
    if scan.text.isascii() or FOREIGN_LETTER.search(scan.text) is None:
        return NO_CANDIDATES
    found = find_matches(scan, FOREIGN_PASSWORD_WORD)
    return (Candidates(found, _check_foreign),) if found else NO_CANDIDATES


def _check_foreign(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
    name = FOREIGN_PASSWORD_WORD.match(scan.text, at)
    return _mask_value(_FOREIGN.match(scan.text, name.end())) if name else NO_SPANS


LITERAL_DETECTORS: LiteralDetectors = (
    (b"pass", _detect_named),
    (b"phrase", _detect_named),
    (b"pw", _detect_named),
    (b"login", _detect_login),
    (b"log in", _detect_login),
    (b"sign in", _detect_login),
    (b"wifi", _detect_login),
    (b"wi-fi", _detect_login),
    (b"cred", _detect_login),
    (b"token", _detect_direct),
    (b"key", _detect_direct),
    (b"secret", _detect_direct),
    (b"pass", _detect_direct),
    (b"otp", _detect_one_time),
    (b"verif", _detect_one_time),
    *((word, _detect_ascii_word) for word in ASCII_PASSWORD_WORDS),
)
