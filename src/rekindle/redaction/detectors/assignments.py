# ruff: noqa: E501  (a pattern stays on one line)
"""Detects a secret's name and its value: in code, settings, JSON, YAML, XML, options and prose."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rekindle.redaction.scanner import (
    NO_SPANS,
    CharRuns,
    LiteralDetectors,
    RedactionSpan,
    ScanInput,
    make_secret_span,
)
from rekindle.redaction.vocabulary.entropy import is_digest, is_placeholder, is_random
from rekindle.redaction.vocabulary.secret_names import TOKEN, SecretName, classify_name
from rekindle.redaction.vocabulary.secret_values import (
    is_given_secret,
    is_secret_string,
    is_secret_word,
    is_short_token,
)

_MAX_DISTANCE = 60
_RANDOM_IMAGE = bytes(
    97 if chr(c) in "_+/=.!~-" or (chr(c).isalnum() and c < 128) else 32 for c in range(256)
)
_MIN_RANDOM_RUN = b"a" * 16
_RANDOM_START = re.compile(r"[A-Za-z0-9_+/=.!~-](?<![\w/.+-].)[A-Za-z0-9_+/=.!~-]{15}")
_RANDOM_RUN = re.compile(r"[A-Za-z0-9_+/=.!~-]{16,400}(?![\w(/])")


def detect_random_nearby(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    """Detect random text, no digest or path, shortly after a secret's name that ends at `at`."""
    if _MIN_RANDOM_RUN not in scan.raw[at : at + _MAX_DISTANCE + len(_MIN_RANDOM_RUN)].translate(
        _RANDOM_IMAGE
    ):
        return
    text = scan.text
    line = text.find("\n", at, at + _MAX_DISTANCE)
    end = line if line >= 0 else at + _MAX_DISTANCE
    last = (
        end if line >= 0 else end + len(_MIN_RANDOM_RUN) - 1
    )  # lets a run begin within the distance
    while begins := _RANDOM_START.search(text, at, last):
        run = _RANDOM_RUN.match(text, begins.start())
        at = run.end() if run else begins.start() + 1
        if run and _is_random_secret(run.group().rstrip(".=")):
            yield make_secret_span(run.start(), run.end(), "random")


def _is_random_secret(value: str) -> bool:
    if "/" in value or "--" in value or not is_random(value, 16):
        return False
    if is_digest(value) or is_placeholder(value):
        return False
    return any(is_random(piece, 12) for piece in re.split(r"[.=_-]", value))


# Every secret's name contains one of these; the full name decides.
_NAME_LITERALS = (
    b"pass", b"pw", b"psk", b"secret", b"token", b"key", b"cred", b"auth", b"cookie", b"sessid", b"sessionid", b"sig",
    b"mnemonic", b"phrase", b"pepper", b"otp", b"_pat", b"private", b"jwt", b"senha", b"clave", b"parola",
    b"wachtwoord", b"contrasena", b"haslo", b"heslo", b"salasana", b"sifre", b"kennwort", b"pasahitza",
    b"bearer", b"pswd", b"csrf", b"xsrf", b"hmac",
    b"session=", b"pat=", b"pat:", b'pat"', b"pat ",
)  # fmt: skip
# These occur inside of many words: `spinner`, `consider`. They must be a part of the name.
_SHORT_NAME_LITERALS = (
    b"pin=",
    b"pin:",
    b"pin ",
    b'pin"',
    b"pin'",
    b"pin\\",
    b"cvv",
    b"cvc",
    b"sid",
    b"dsn",
    b"salt",
)
_NAME_BYTES = bytes(c for c in range(128) if chr(c).isalnum()) + b"_-."
_QUALIFIED = re.compile(rb"(?:api|access|secret|private|auth|deploy|encryption) \Z")
_MAX_NAME_CHARS = 64  # on either side of the literal

_QUOTE = r"""(?:\\{0,7}["'`]|&quot;|&\#3[49];|%2[27]|\\{1,4}u002[27]|\\{1,4}x2[27])"""
_SPACE = r"(?:[ \t]|\\{1,2}[nrt]|\r?\n|\\\r?\n){0,24}"
_SIGN = r"(?::=|=>|={1,3}|!==?|:(?!:)|%3[ADad]|\\{1,4}u003[dDaA]|&\#61;)"
_TYPE = r"[A-Za-z_][\w.\[\], |?<>]{0,60}+[ ]?=[ ]{0,4}(?=[fbruFBRU]{0,2}[\"'])"

_SEPARATOR = re.compile(
    rf"""(?P<tight>{_SIGN})(?:[ ]{{0,4}}{_TYPE})?
      | (?P<pair>{_QUOTE}{_SPACE},{_SPACE}(?={_QUOTE}))
      | (?:{_QUOTE}{_SPACE},?|(?=[ ]{{0,8}}(?:\\r?\\?n|\r?\n))){_SPACE}
        {_QUOTE}?value{_QUOTE}?[ ]?(?P<listed>[:=])
      | {_QUOTE}{_SPACE}:{_SPACE}\{{{_SPACE}{_QUOTE}value{_QUOTE}{_SPACE}(?P<nested>:)
      | {_QUOTE}[ ]?\{{[^{{}}]{{0,120}}?\bdefault[ ]{{0,8}}(?P<declared>=)
      | (?P<call>\([ ]{{0,4}}(?=["']))
      | (?P<plist></key>\s{{0,20}}<string>)
      | (?P<xml>>)
      | (?P<close>{_QUOTE})?\]?\??(?P<before>{_SPACE})(?:[ ]\w{{2,10}}[ ])?(?P<sign>{_SIGN})
        (?:[ ]{{0,4}}{_TYPE})?
      | [ ](?P<prose>is|was|to|are)[ ]
      | (?P<space>(?:[ \t]|\\\r?\n){{1,40}})
    """,
    re.X,
)
_VALUE_PREFIX = re.compile(
    r"[ ]?![\w-]{1,30}[ ](?![|>])|(?:[ \t]|\\?\r?\n|\\n|\\t){0,40}(?:\([ \t\n]{0,40})?[fbruFBRU@$]{0,2}(?=\\{0,7}[\"'`&%])"
    r"|[ \t]{0,40}"
)
_OPENING_QUOTE = re.compile(rf'"""|\[\[|{_QUOTE}', re.X)
_QUOTE_STARTS = frozenset("\"'`\\&%[")  # may begin a quote
_NAME_FOLLOWERS = _QUOTE_STARTS | frozenset(" \t\r\n(<>]?:=!")  # may follow a name
_VALUE_STARTS = _QUOTE_STARTS | frozenset(" \t\r\n(fbruFBRU@$")  # may precede a value
_PLAIN_VALUE = CharRuns(r"[^\s\"'`,;&<>(){}\[\]|\\]")
_SHELL_WORD = CharRuns(r"[^\s\"'`;&|<>\\]")
_ESCAPED_SHELL_WORD = re.compile(r"(?:\\(?!\\*[nrt\"'])[^\n]|[^\s\"'`;&|<>\\]){1,400}+")
_INDENT = CharRuns(r"[ \t\-#>]")
_URL_PARAMETER = CharRuns(r"[^\s\"'`&#<>\\;]")
_IN_TAG = re.compile(r"[^<\n]{1,400}(?=</)|[A-Za-z0-9+/=]{40,4000}")
_BLOCK = re.compile(
    r"[|>][+-]?\d?[ \t]{0,8}((?:(?:\r?\n|\\n)[ \t]{1,40}[^\s\\][^\n\\]{0,400}){1,60})"
)
_CONTINUED_STRING = re.compile(
    r"""[ \t]{0,8}(?:\+|\\)?[ \t]{0,8}(\r?\n|\\n)?[ \t]{0,40}\+?[ \t]{0,8}(["'])([^"'\n]{1,400})\2"""
)
_SET_COMMAND = re.compile(
    r"(?:\bset|\bconfig|\badd|\bput|:set|wifi[^\n|;]{0,60})[ ]+(?:--\w+[ ]+)?[\w./:@-]*\Z"
)
# The lines of a settings file from its section on, up to the name.
_INI_SECTION = re.compile(
    r"(?:^|\n)\[[\w. :-]{1,60}\][ \t\r]{0,4}\n(?:(?:[\w. -]{1,40}=[^\n]{0,120}|[#;][^\n]{0,120}|)\n){0,10}[ \t]{0,8}\Z"
)
_SET_VERBS = ("set", "config", "add", "put", "wifi")


def _detect_assignment(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
    """Detect the value after the name around a literal, if the name announces a secret."""
    lower = scan.lower
    chunk = lower[at - _MAX_NAME_CHARS if at > _MAX_NAME_CHARS else 0 : at]
    before = len(chunk) - len(chunk.rstrip(_NAME_BYTES))
    chunk = lower[at : at + _MAX_NAME_CHARS]
    after = len(chunk) - len(chunk.lstrip(_NAME_BYTES))
    if before == _MAX_NAME_CHARS or after == _MAX_NAME_CHARS:
        return NO_SPANS
    name = scan.text[at - before : at + after].rstrip(".-")
    start = at - before
    if start in scan.seen_names:  # already seen through another literal in the same name
        return NO_SPANS
    scan.seen_names.add(start)
    secret_name = classify_name(name)
    if secret_name is None:
        if name.lower() in ("key", "keys") and _QUALIFIED.search(lower, max(0, start - 12), start):
            return detect_random_nearby(scan, start + len(name))
        return NO_SPANS
    end = start + len(name)
    if scan.text[end : end + 1] in _NAME_FOLLOWERS and (
        found := list(_detect_value(scan, start, end, secret_name))
    ):
        return found
    return detect_random_nearby(scan, end) if secret_name.min_chars <= 10 else NO_SPANS


def _detect_short_name(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
    """Detect the value after a short name, unless its letters are only a piece of a longer word."""
    raw = scan.raw
    is_capital = raw[at : at + 1].isupper()
    if at and raw[at - 1 : at].isalpha() and not (is_capital and raw[at - 1 : at].islower()):
        return NO_SPANS
    end = at + (4 if scan.lower.startswith(b"salt", at) else 3)
    if raw[end : end + 1].isalpha() and not raw[end : end + 1].isupper():
        return NO_SPANS
    return _detect_assignment(scan, at)


def _detect_value(
    scan: ScanInput, start: int, end: int, name: SecretName
) -> Iterator[RedactionSpan]:
    text = scan.text
    separator = _SEPARATOR.match(text, end, end + 160)
    if separator is None or text.startswith("${", max(0, start - 2)):
        return
    if text.startswith("<secret:", max(0, start - 1)):  # a mask
        return
    separator_kind = separator.lastgroup or ""
    if separator_kind == "xml" and text[start - 1 : start] not in ("<", ":"):
        return
    if separator_kind == "space" and not _accepts_spaced_value(text, start, name):
        return
    at = separator.end()
    if text[at : at + 1] in _VALUE_STARTS and (after := _VALUE_PREFIX.match(text, at, at + 120)):
        at = after.end()
    first_char = text[at : at + 1]
    if first_char in _QUOTE_STARTS and (opening := _OPENING_QUOTE.match(text, at)):
        yield from _detect_quoted(text, opening, name, separator_kind)
    elif separator_kind in ("pair", "call") or (
        separator_kind == "space" and not _is_option(text, start)
    ):
        return
    elif separator_kind in ("xml", "plist"):
        if (found := _IN_TAG.match(text, at)) and is_secret_word(name, found.group(), is_bare=True):
            yield make_secret_span(found.start(), found.end(), name.kind)
    elif first_char in ("|", ">") and (block := _BLOCK.match(text, at)):
        if name.is_strong:
            yield make_secret_span(block.start(1) + 1, block.end(1), name.kind)
    else:
        yield from _detect_unquoted(scan, start, at, name, separator)


def _accepts_spaced_value(text: str, start: int, name: SecretName) -> bool:
    """Return whether a value may follow after a space: options, `set NAME VALUE`, SQL."""
    if _is_option(text, start):
        return True
    return name.kind == "password" and text[start : start + 4].isupper()


def _is_option(text: str, start: int) -> bool:
    """Return whether the name is an option with a value: `--password`, `config set password`."""
    if text.startswith("-", start):
        return True
    space = text.rfind(" ", max(0, start - 60), start)
    if space < 0:
        return False
    before = text[max(0, start - 60) : start]
    return any(word in before for word in _SET_VERBS) and _SET_COMMAND.search(before) is not None


def _detect_quoted(
    text: str, opening: re.Match[str], name: SecretName, separator_kind: str
) -> Iterator[RedactionSpan]:
    quote, at = opening.group(), opening.end()
    limit = at + (4000 if quote == '"""' else 600)
    end = _find_closing_quote(text, "]]" if quote == "[[" else quote, at, limit)
    value = text[at:end]
    if not value.strip() or not is_secret_string(name, value):
        return
    if separator_kind in ("pair", "call") and not _has_non_letters(value):
        return
    if separator_kind == "pair" and value.isalnum() and not is_random(value, 8):
        return
    yield make_secret_span(at, end, name.kind)
    end += len(quote)
    while (more := _CONTINUED_STRING.match(text, end)) and ("+" in more[0] or more[1]):
        yield make_secret_span(more.start(3), more.end(3), name.kind)
        end = more.end()


def _find_closing_quote(text: str, quote: str, at: int, limit: int) -> int:
    """Return the end of a quoted text: its closing quote, or the first word if that is missing."""
    end = text.find(quote, at, limit)
    while end > at and len(quote) == 1 and text[end - 1] == "\\":
        end = text.find(quote, end + 1, limit)
    if end >= 0 and (len(quote) == 3 or "\n" not in text[at:end]):
        return end
    line = text.find("\n", at, limit)
    stop = line if line >= 0 else min(limit, len(text))
    return at + len(text[at:stop].split(" ")[0])


def _has_non_letters(value: str) -> bool:
    """Return whether the value contains digits or punctuation, unlike the name of a field."""
    return len(value) >= 6 and not value.replace("_", "").replace("-", "").isalpha()


def _detect_unquoted(
    scan: ScanInput, start: int, at: int, name: SecretName, separator: re.Match[str]
) -> Iterator[RedactionSpan]:
    text = scan.text
    sign, is_option = separator["tight"] or separator["sign"] or "", _is_option(text, start)
    is_tight = bool(sign) and not separator["before"] and at == separator.end()
    if sign and is_tight and text[start - 1 : start] in ("?", "&", ";"):
        end = _URL_PARAMETER.find_end(scan, at, 2000)
        name = name if name.is_strong else TOKEN  # a URL with a token grants access by itself
    elif is_option or (is_tight and sign == "="):
        end = _find_shell_word_end(scan, at)
    else:
        end = _PLAIN_VALUE.find_end(scan, at, 400)
    if end == at or (is_option and text[at] in "-$@"):
        return
    value = text[at:end].rstrip(".,:)" if separator["prose"] else ",")
    follows = text[end : end + 1]
    if value.endswith(")") and "(" not in value:  # the end of a call
        value, follows = value.rstrip(")"), ")"
    is_complete = follows in ("", "\n", "\r", " ", "&", ";", '"', "'", "\\", "`", "<", "|")
    is_bare = is_complete and (is_option or _is_config_line(scan, start, sign, is_tight, follows))
    if sign == "=" and name.kind == "password" and not is_bare and is_complete:
        is_bare = _INI_SECTION.search(text, max(0, start - 400), start) is not None
    if separator["prose"]:
        is_bare = False
        if not _has_non_letters(value) or not any(letter.isdigit() for letter in value):
            return
    is_given = is_complete and _is_given(text, start, separator, name)
    if (
        separator["space"]
        and not (is_given or text.startswith("-", start))
        and not _has_non_letters(value)
    ):
        return
    if separator["close"] and not value.isdigit():
        return  # unquoted JSON values are numbers
    variable = text[start : separator.start()]
    is_token_variable = (
        name.kind == "token" and is_tight and sign == "=" and is_short_token(variable, value)
    )
    if (
        is_token_variable
        or is_secret_word(name, value, is_bare=is_bare)
        or (is_given and is_given_secret(name, value))
    ):
        yield make_secret_span(at, at + len(value), name.kind)
        if text.startswith(('""', "''"), end):  # empty quotes do not end a shell word
            rest = _SHELL_WORD.find_end(scan, end + 2, 400)
            if rest > end + 2:
                yield make_secret_span(end + 2, rest, name.kind)


_HEADER = re.compile(
    r"(?:x-[\w-]+|[\w-]*(?:api-?key|private-token|job-token|access-token))\Z", re.I
)
_BEFORE_HEADER = frozenset(("", "\n", "'", '"', "`"))


def _is_given(text: str, start: int, separator: re.Match[str], name: SecretName) -> bool:
    """Return whether only a secret is given there: to an option, in a URL, or as a header."""
    before = text[start - 1 : start] if start else ""
    if len(separator["space"] or "") > 1 and not separator["space"].strip(" "):  # a list of options
        return False
    if before == "-" or text.startswith("--", start):
        return not name.is_strong or name.kind != "password" or bool(separator["tight"])
    sign = separator["tight"] or separator["sign"]
    if before in ("?", "&") and sign == "=":
        return True
    variable = text[start : separator.start()]
    if separator["space"]:  # `config set NAME VALUE`
        return "_" in variable or "wifi" in text[max(0, start - 60) : start]
    if separator["tight"] == "=" and "_" in variable and variable.isupper():
        return True
    return sign == ":" and before in _BEFORE_HEADER and _HEADER.match(variable) is not None


def _find_shell_word_end(scan: ScanInput, at: int) -> int:
    """Return the end of a shell word, which may contain escaped characters."""
    end = _SHELL_WORD.find_end(scan, at, 400)
    if end < at + 400 and scan.text.startswith("\\", end):
        escaped = _ESCAPED_SHELL_WORD.match(scan.text, at)
        return escaped.end() if escaped else at
    return end


def _is_config_line(scan: ScanInput, start: int, sign: str, tight: bool, follows: str) -> bool:
    """Return whether this is a line of a settings file, or `NAME=value` for a shell."""
    if tight and sign == "=":
        return True
    if sign != ":" or follows not in ("", "\n", "\r", "\\", '"', "'"):
        return False
    line = scan.text.rfind("\n", max(0, start - 80), start) + 1
    is_first = _INDENT.find_end(scan, line, len(scan.text)) >= start
    return is_first or scan.text.endswith(("\\n", "export "), line, start)


LITERAL_DETECTORS: LiteralDetectors = (
    *((stem, _detect_assignment) for stem in _NAME_LITERALS),
    *((stem, _detect_short_name) for stem in _SHORT_NAME_LITERALS),
)
