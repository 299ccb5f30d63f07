"""A secret's name and its value: in code, settings, JSON, YAML, XML, options of commands, prose."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rekindle.redaction.scanner import NOTHING, Look, Runs, Span, Stems, secret

from .entropy import is_random
from .literals import is_secret_string, is_secret_word
from .proximity import nearby
from .secret_names import TOKEN, Name, announced

# What every secret's name holds; the name around it decides.
_WORDS = (
    b"pass", b"pw", b"psk", b"secret", b"token", b"key", b"cred", b"auth", b"cookie", b"sess", b"sig",
    b"mnemonic", b"phrase",
)  # fmt: skip
_NAME = bytes(c for c in range(128) if chr(c).isalnum()) + b"_-."
_QUALIFIED = re.compile(rb"(?:api|access|secret|private|auth|deploy|encryption) \Z")
_LONGEST = 64  # of a name, on either side of the word

_QUOTE = r"""(?:\\{0,7}["'`]|&quot;|&\#3[49];|%2[27]|\\{1,4}u002[27]|\\{1,4}x2[27])"""
_SPACE = r"(?:[ \t]|\\{1,2}[nrt]|\r?\n|\\\r?\n){0,24}"
_SIGN = r"(?::=|=>|={1,3}|!==?|:(?!:)|%3[ADad]|\\{1,4}u003[dDaA]|&\#61;)"
_TYPE = r"[A-Za-z_][\w.\[\], |?<>]{0,60}+[ ]?=[ ]{0,4}(?=[fbruFBRU]{0,2}[\"'])"

_BETWEEN = re.compile(
    rf"""(?P<tight>{_SIGN})(?:[ ]{{0,4}}{_TYPE})?
      | (?P<pair>{_QUOTE}{_SPACE},{_SPACE}(?={_QUOTE}))
      | (?:{_QUOTE}{_SPACE},?|(?=[ ]{{0,8}}(?:\\r?\\?n|\r?\n))){_SPACE}
        {_QUOTE}?value{_QUOTE}?[ ]?(?P<listed>[:=])
      | (?P<call>\([ ]{{0,4}}(?=["']))
      | (?P<xml>>)
      | (?P<close>{_QUOTE})?\]?\??(?P<before>{_SPACE})(?:[ ]\w{{2,10}}[ ])?(?P<sign>{_SIGN})
        (?:[ ]{{0,4}}{_TYPE})?
      | [ ](?P<prose>is|was|to|are)[ ]
      | (?P<space>(?:[ \t]|\\\r?\n){{1,40}})
    """,
    re.X,
)
_AFTER = re.compile(
    r"(?:[ \t]|\\?\r?\n|\\n|\\t){0,40}(?:\([ \t\n]{0,40})?[fbruFBRU@$]{0,2}(?=\\{0,7}[\"'`&%])"
    r"|[ \t]{0,40}"
)
_OPEN = re.compile(rf'"""|{_QUOTE}', re.X)
_OPENS = frozenset("\"'`\\&%")  # what may begin a quote
_FOLLOWS = _OPENS | frozenset(" \t\r\n(>]?:=!")  # and what may stand behind a name
_BLANKS = _OPENS | frozenset(" \t\r\n(fbruFBRU@$")  # and what may stand before a value
_PLAIN = Runs(r"[^\s\"'`,;&<>(){}\[\]|\\]")
_WORD = Runs(r"[^\s\"'`;&|<>\\]")
_ESCAPED = re.compile(r"(?:\\(?!\\*[nrt\"'])[^\n]|[^\s\"'`;&|<>\\]){1,400}+")
_INDENT = Runs(r"[ \t\-#>]")
_PARAMETER = Runs(r"[^\s\"'`&#<>\\;]")
_IN_TAG = re.compile(r"[^<\n]{1,400}(?=</)")
_BLOCK = re.compile(
    r"[|>][+-]?\d?[ \t]{0,8}((?:(?:\r?\n|\\n)[ \t]{1,40}[^\s\\][^\n\\]{0,400}){1,60})"
)
_FURTHER = re.compile(
    r"""[ \t]{0,8}(?:\+|\\)?[ \t]{0,8}(\r?\n|\\n)?[ \t]{0,40}\+?[ \t]{0,8}(["'])([^"'\n]{1,400})\2"""
)
_SETS = re.compile(
    r"(?:\bset|\bconfig|\badd|\bput|:set|wifi[^\n|;]{0,60})[ ]+(?:--\w+[ ]+)?[\w./:@-]*\Z"
)
_SETTERS = ("set", "config", "add", "put", "wifi")


def _named(look: Look, at: int) -> Iterable[Span]:
    """The value behind the name in which a stem stands, if it is the name of a secret."""
    low = look.low
    chunk = low[at - _LONGEST if at > _LONGEST else 0 : at]
    before = len(chunk) - len(chunk.rstrip(_NAME))
    chunk = low[at : at + _LONGEST]
    after = len(chunk) - len(chunk.lstrip(_NAME))
    if before == _LONGEST or after == _LONGEST:
        return NOTHING
    name = look.text[at - before : at + after].rstrip(".-")
    start = at - before
    if start in look.names:  # by another stem of the same name
        return NOTHING
    look.names.add(start)
    says = announced(name)
    if says is None:
        if name.lower() in ("key", "keys") and _QUALIFIED.search(low, max(0, start - 12), start):
            return nearby(look, start + len(name))
        return NOTHING
    end = start + len(name)
    if look.text[end : end + 1] in _FOLLOWS and (found := list(_value(look, start, end, says))):
        return found
    return nearby(look, end)


def _value(look: Look, start: int, end: int, name: Name) -> Iterator[Span]:
    text = look.text
    between = _BETWEEN.match(text, end, end + 160)
    if between is None or text.startswith("${", max(0, start - 2)):
        return
    if text.startswith("<secret:", max(0, start - 1)):  # a mask
        return
    how = between.lastgroup or ""
    if how == "xml" and text[start - 1 : start] != "<":
        return
    if how == "space" and not _takes_a_word(text, start, name):
        return
    at = between.end()
    if text[at : at + 1] in _BLANKS and (after := _AFTER.match(text, at, at + 120)):
        at = after.end()
    first = text[at : at + 1]
    if first in _OPENS and (opening := _OPEN.match(text, at)):
        yield from _quoted(text, opening, name, how)
    elif how in ("pair", "call") or (how == "space" and not _is_option(text, start)):
        return
    elif how == "xml":
        if (found := _IN_TAG.match(text, at)) and is_secret_word(name, found.group(), bare=True):
            yield secret(found.start(), found.end(), name.kind)
    elif first in ("|", ">") and (block := _BLOCK.match(text, at)):
        if name.strong:
            yield secret(block.start(1) + 1, block.end(1), name.kind)
    else:
        yield from _unquoted(look, start, at, name, between)


def _takes_a_word(text: str, start: int, name: Name) -> bool:
    """Does what stands behind a space belong to the name? For options, `set NAME VALUE` and SQL."""
    if _is_option(text, start):
        return True
    return name.kind == "password" and text[start : start + 4].isupper()


def _is_option(text: str, start: int) -> bool:
    """`--password`, or `config set password`: a word may follow."""
    if text.startswith("-", start):
        return True
    space = text.rfind(" ", max(0, start - 60), start)
    if space < 0:
        return False
    before = text[max(0, start - 60) : start]
    return any(word in before for word in _SETTERS) and _SETS.search(before) is not None


def _quoted(text: str, opening: re.Match[str], name: Name, how: str) -> Iterator[Span]:
    quote, at = opening.group(), opening.end()
    far = at + (4000 if quote == '"""' else 600)
    end = _closing(text, quote, at, far)
    value = text[at:end]
    if not value.strip() or not is_secret_string(name, value):
        return
    if how in ("pair", "call") and not (name.strong and _is_odd(value)):
        return
    if how == "pair" and value.isalnum() and not is_random(value, 8):
        return
    yield secret(at, end, name.kind)
    end += len(quote)
    while (more := _FURTHER.match(text, end)) and ("+" in more[0] or more[1]):
        yield secret(more.start(3), more.end(3), name.kind)
        end = more.end()


def _closing(text: str, quote: str, at: int, far: int) -> int:
    """Where a quoted text ends: at its quote, or with the line where that is missing."""
    end = text.find(quote, at, far)
    while end > at and len(quote) == 1 and text[end - 1] == "\\":
        end = text.find(quote, end + 1, far)
    if end >= 0 and (len(quote) == 3 or "\n" not in text[at:end]):
        return end
    line = text.find("\n", at, far)
    stop = line if line >= 0 else min(far, len(text))
    return at + len(text[at:stop].split(" ")[0])


def _is_odd(value: str) -> bool:
    """Something that is no name of a field: it has digits or marks in it."""
    return len(value) >= 6 and not value.replace("_", "").replace("-", "").isalpha()


def _unquoted(
    look: Look, start: int, at: int, name: Name, between: re.Match[str]
) -> Iterator[Span]:
    text = look.text
    sign, is_option = between["tight"] or between["sign"] or "", _is_option(text, start)
    tight = bool(sign) and not between["before"] and at == between.end()
    if sign and tight and text[start - 1 : start] in ("?", "&", ";"):
        end = _PARAMETER.end(look, at, 2000)
        name = name if name.strong else TOKEN  # whoever has the address has what it allows
    elif is_option or (tight and sign == "="):
        end = _shell_word(look, at)
    else:
        end = _PLAIN.end(look, at, 400)
    if end == at or (is_option and text[at] in "-$@"):
        return
    value = text[at:end].rstrip(".,:)" if between["prose"] else ",")
    follows = text[end : end + 1]
    ends = follows in ("", "\n", "\r", " ", "&", ";", '"', "'", "\\", "`", "<", "|")
    bare = ends and (is_option or _is_setting(look, start, sign, tight, follows))
    if between["prose"]:
        bare = False
        if not _is_odd(value) or not any(letter.isdigit() for letter in value):
            return
    if between["space"] and not text.startswith("-", start) and not _is_odd(value):
        return
    if between["close"] and not value.isdigit():
        return  # JSON has only numbers without quotes
    if is_secret_word(name, value, bare=bare):
        yield secret(at, at + len(value), name.kind)


def _shell_word(look: Look, at: int) -> int:
    """Where a word of a shell ends, which may have escaped characters in it."""
    end = _WORD.end(look, at, 400)
    if end < at + 400 and look.text.startswith("\\", end):
        escaped = _ESCAPED.match(look.text, at)
        return escaped.end() if escaped else at
    return end


def _is_setting(look: Look, start: int, sign: str, tight: bool, follows: str) -> bool:
    """A line of a settings file, or `NAME=value` for a shell: no language writes this for code."""
    if tight and sign == "=":
        return True
    if sign != ":" or follows not in ("", "\n", "\r", "\\", '"', "'"):
        return False
    line = look.text.rfind("\n", max(0, start - 80), start) + 1
    is_first = _INDENT.end(look, line, len(look.text)) >= start
    return is_first or look.text.endswith(("\\n", "export "), line, start)


STEMS: Stems = tuple((stem, _named) for stem in _WORDS)
