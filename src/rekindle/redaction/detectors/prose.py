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
from rekindle.redaction.vocabulary.secret_names import PASSWORD
from rekindle.redaction.vocabulary.secret_values import is_given_secret, is_path

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
_PAIR = re.compile(
    rf"""(?:log[ ]?in|sign[ ]in|credentials|creds)(?:[ ](?:with|as|are)[ ]|:[ ]){_Q}(?!https?:)[\w.@-]{{2,60}}{_Q}
      [ ]?(?:/|:)[ ]{_Q}(?P<value>[A-Za-z0-9][^\s"'`<>|,;/]{{3,60}})(?=["'`]?[.!]?[ ]*(?:\Z|\n|\\n|["']))""",
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
    found = _LOGIN.match(scan.text, at, at + 240)
    spans = _mask_value(found)
    if not spans and (found := _PAIR.match(scan.text, at, at + 160)):
        return _mask_said(found)
    return spans


def _detect_direct(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
    """Detect `use token …`, where the value follows at once, and what a sentence calls a secret."""
    found = _DIRECT.match(scan.text, at, at + 120)
    if found and is_random(found["value"].rstrip(".:"), 10):
        return _mask_value(found)
    return _detect_said(scan, at)


def _detect_one_time(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    found = _ONE_TIME.match(scan.text, at)
    if found and not (at and scan.text[at - 1].isalnum()):
        yield make_secret_span(found.start("value"), found.end("value"), "token")


def _detect_ascii_word(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
    for word in ASCII_PASSWORD_WORDS:
        if scan.lower.startswith(word, at):
            return _mask_foreign(_FOREIGN.match(scan.text, at + len(word)))
    return NO_SPANS


def detect_foreign_passwords(scan: ScanInput) -> Sequence[Candidates]:
    """Detect passwords after their name in another script."""
    if scan.text.isascii() or FOREIGN_LETTER.search(scan.text) is None:
        return NO_CANDIDATES
    found = find_matches(scan, FOREIGN_PASSWORD_WORD)
    return (Candidates(found, _check_foreign),) if found else NO_CANDIDATES


def _check_foreign(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
    name = FOREIGN_PASSWORD_WORD.match(scan.text, at)
    return _mask_foreign(_FOREIGN.match(scan.text, name.end())) if name else NO_SPANS


def _mask_foreign(found: re.Match[str] | None) -> Iterable[RedactionSpan]:
    """Mask what is a password by its form, or any word after a sign or verb."""
    if found is None:
        return NO_SPANS
    value = found["value"].rstrip(".,:;!?")
    between = found.string[found.start() : found.start("value")].strip(" \"'`")
    if between and value[:1].isalnum() and _is_said_password(value):
        return (
            make_secret_span(found.start("value"), found.start("value") + len(value), "password"),
        )
    return _mask_value(found)


# ── words that a sentence calls a password

# What is said about a password in the place of one: `the password is wrong`.
_DESCRIPTIONS = split_words(
    """right correct incorrect wrong bad good fine empty blank weak strong long short longer shorter safe unsafe
    secure insecure ready unique different identical equal same public private plain unknown secret below
    above somewhere anywhere elsewhere everywhere inside outside random temporary permanent stale fresh
    broken hidden shown known forgotten lost stolen chosen taken given written sent kept set kept unset legacy
    visible invisible mandatory optional important necessary sufficient absent present null undefined nil
    null'd wrongly free gone down online offline available case-sensitive alphanumeric numeric ascii hex opaque
    base64 json jwt bcrypt argon2 sha256 plaintext cleartext ciphertext github gitlab google facebook apple
    microsoft okta sso saml oauth email username password passwords account accounts manager managers
    protection policy policies hash hashes hashing grant reset resets login logins prompt prompts store based
    rotation generator flow flows endpoint service services parser counting usage limit limits budget refresh
    exchange count counts type types class object instance dialog page form screen strength check checks
    falsch richtig korrekt leer geheim ung\u00fcltig abgelaufen erforderlich notwendig vergessen incorrecto incorrecta
    correcto correcta requis requise obligatoire invalide vide errata corretta obrigat\u00f3ria zwingend hier dort
    characters character letters digits minimum maximum least eight twelve words whitespace identifier keyword
    operator comment newline punctuation eof expression literal statement delimiter comma colon number
    """
)
_DESCRIBES = re.compile(
    r"[a-z]+(?:ed|ing|able|ible|ly|ful|less|ive|ous|tion|ment|ity|ence|ance|ness)\Z"
)
_PW = r"(?:pass(?:word|phrase|code|wort)|pwd?)"
_WORD_END = r"(?=[\"'`]?[.,!]?(?:[ \t]{0,4}(?:\Z|\n|\\n)|[\"'`]|[ ](?:on|for|in|at|to|when|as|now|there)\b))"
_W = r"[A-Za-z0-9!@#$^&*][^\s\"'`<>(){}\[\]|\\,;:]{3,60}?"
_FOR = r"(?:[ ](?:for|of|on|at)[ ](?:[\w.@'/-]{1,40}[ ]){0,3}?[\w.@'/-]{1,60})?"
_SAID = re.compile(
    rf"""(?:(?P<weak>token|secret|(?<=api[ ])key|(?<=api)key|(?<=access[ ])key|(?<=secret[ ])key|(?<=private[ ])key)|{_PW}){_FOR}
      (?:[ ](?:is|was|ist|lautet)(?:[ ]now)?|[ ](?:has[ ]been|was|is)[ ](?:set|changed|reset|updated)[ ]to|[ ]from[ ]\S{{1,80}}[ ]to
        |(?P<prompt>(?<![\w ])|):)[ ]{{1,2}}{_Q}(?P<value>{_W}){_WORD_END}""",
    re.X | re.I,
)
_CALLED = re.compile(r"\b(?:the|our|my|your|their|its|this)[ ](?:[\w-]{1,20}[ ]){0,3}\Z", re.I)
_SAID_BEFORE = re.compile(
    r"(?:\b(?:the|our|my|your|their|his|her|its|this|that|das|le|la|new|old|enter|changed?|current)[ ](?:[\w-]{1,20}[ ]){0,3}"
    r"|(?:\A|[\n.:;,!?\"'] ?)(?:[\w-]{1,15}[ ]){0,2})\Z",
    re.I,
)
_USED = re.compile(
    rf"(?:{_PW}|token|pin|(?<=api[ ])key|(?<=access[ ])key)[ ]{_Q}(?P<value>{_W}){_WORD_END}", re.I
)
_USED_BEFORE = re.compile(
    r"\b(?:use|uses|using|with|type|try)[ ](?:(?:the|this|my|our)[ ])?(?:[\w-]{1,20}[ ])?\Z", re.I
)
_QUOTED = re.compile(
    rf"""{_PW}[ ](?:is[ ]|was[ ])?(?P<quote>["'`])(?P<value>[^"'`\n<>{{}}$]{{4,60}})(?P=quote)
      (?![ ](?:field|flow|option|flag|param|column|argument|attribute|variable|env|type|key|setting|property|input|in|and|or)|[:=(])""",
    re.X | re.I,
)
_SEVERAL_WORDS = re.compile(
    rf"{_PW}{_FOR}(?:[ ](?:is|was)|:)[ ](?P<value>(?:[a-z]{{3,12}}[ ]){{3,7}}[a-z]{{3,12}})(?=[.!]?[ ]*(?:\Z|\n|[\"']))",
    re.I,
)
_COMMON_WORDS = re.compile(
    r"\b(?:the|and|for|are|was|were|with|from|not|but|has|have|had|his|its|you|your|our|their|any|all|can|will"
    r"|must|should|when|where|which|who|that|this|these|those|into|than|then|them|they|here|there|via|per|using"
    r"|only|also|before|after|least|characters?|digits?|letters?|required|optional|stored|enter|please|user|what"
    r"|how|why|because|while|since|being|been|does|did|too|very|more|less|longer|already|never|always|file|set"
    r"|field|value|string|password|passphrase|invalid|wrong|empty|still|just|now|use|used)\b"
)
_PIN_SAID = re.compile(
    r"(?:pin|cvv|cvc)(?:[ ]code|[ ]number)?(?:[ ]for[ ](?:[\w-]{1,20}[ ]){0,2}?[\w-]{1,20})?(?:[ ](?:is|was|ist|lautet))?[ ]{_Q}(?P<value>\d{{3,8}})(?![\w.:/-])".replace(
        "{_Q}", _Q
    )
    .replace("{{", "{")
    .replace("}}", "}"),
    re.I,
)


def _is_said_password(value: str) -> bool:
    """Return whether a word of a sentence is a password, and says nothing about one."""
    lower = value.lower()
    if lower in _DESCRIPTIONS or _DESCRIBES.match(lower) or "/" in value:
        return False
    return not value.isalpha() or len(value) < 20 if is_given_secret(PASSWORD, value) else False


def _mask_said(found: re.Match[str]) -> Iterable[RedactionSpan]:
    value = found["value"].rstrip(".,!?")
    if not _is_said_password(value):
        return NO_SPANS
    return (make_secret_span(found.start("value"), found.start("value") + len(value), "password"),)


def _detect_said(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
    """Detect any last word of `the password is …`, `use password …` and `password for x: …`."""
    text = scan.text
    before = text[max(0, at - 60) : at]
    if before[-1:].isalnum():
        return NO_SPANS
    if (found := _SAID.match(text, at, at + 200)) and _SAID_BEFORE.search(before):
        is_prompt = found["prompt"] is not None
        is_said = not found["weak"] or (not is_prompt and _CALLED.search(before) is not None)
        if is_said and (not is_prompt or " for " in found.group()):
            return _mask_said(found)
    if (
        (found := _USED.match(text, at, at + 120))
        and (scan.lower.startswith(b"pass", at) or not found["value"].isalpha())
        and _USED_BEFORE.search(before)
    ):
        return _mask_said(found)
    if found := _QUOTED.match(text, at, at + 120):
        value = found["value"]
        is_secret = (
            _is_said_password(value) if " " not in value else not _COMMON_WORDS.search(value)
        )
        if is_secret and not found["value"].startswith(" "):
            return (make_secret_span(found.start("value"), found.end("value"), "password"),)
    if (found := _SEVERAL_WORDS.match(text, at, at + 160)) and not _COMMON_WORDS.search(
        found["value"]
    ):
        return (make_secret_span(found.start("value"), found.end("value"), "password"),)
    return NO_SPANS


def _detect_pin(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
    """Detect `the PIN is 4711`, and `cvv 803`."""
    found = _PIN_SAID.match(scan.text, at, at + 100)
    if found is None or (at and scan.text[at - 1].isalnum()):
        return NO_SPANS
    if scan.lower.startswith(b"pin", at) and len(found["value"]) < 4:  # of a chip
        return NO_SPANS
    return (make_secret_span(found.start("value"), found.end("value"), "pin"),)


LITERAL_DETECTORS: LiteralDetectors = (
    (b"pw", _detect_said),
    (b"pin ", _detect_said),
    *((stem, _detect_pin) for stem in (b"pin ", b"cvv", b"cvc")),
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
