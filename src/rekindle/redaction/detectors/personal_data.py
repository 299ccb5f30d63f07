"""What tells who somebody is: mail addresses, phone numbers, cards, home folders, user names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rekindle.redaction.scanner import NOTHING, Look, Rule, Span, Stems, hits

from .entropy import words

_LOCAL = bytes(c for c in range(128) if chr(c).isalnum()) + b"._%+-"
_MAIL = re.compile(
    r"@(?<=[A-Za-z0-9._%+-]@)((?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.){1,6})([A-Za-z]{2,18})(?![A-Za-z0-9(=\[])"
)
# Names that belong to programs; whoever they stand for is nobody.
_NOBODY = frozenset((b"git", b"noreply", b"no-reply", b"hg", b"svn", b"npm", b"donotreply"))
# Two letters are a country; longer endings are those that people use.
_ENDINGS = words(
    """com org net edu gov mil int info biz name pro dev app cloud email tech online site xyz
    example test local internal invalid localdomain corp lan systems software agency studio
    company solutions group digital works world life live media news blog shop store team
    space website academy school mobi museum aero coop jobs travel asia berlin london nyc
    paris page mail inc ltd llc gmbh bank finance health care legal consulting
    """
)
_FILES = words(
    """py js ts md sh rs go cc hs rb cs so vb ps tf mk mm ml pl kt
    """
)

_PHONE = re.compile(
    r"\+(?P<country>[1-9]\d{0,2})[ .\-]?(?:\(\d{1,5}\)[ .\-]?)?\d{1,8}(?:[ .\-/]\d{1,8}){1,5}"
    r"(?![\w\-/.]{0,20}[\w/])"
    r"|\+[1-9]\d{9,14}(?![\w.])"
)
_NATIONAL = re.compile(r"\(\d{3}\)[ -]?\d{3}[ -]\d{4}(?![\w-])")
_TELEPHONE = re.compile(
    r"(?:phone|mobile|telephone|cell|tel|fax|sms)\w{0,8}\W{1,6}(?:is |number )?\W{0,3}"
    r"(?P<number>\+?\(?\d[\d ().-]{7,18}\d)(?![\w-])",
    re.I,
)
# An image in which a digit is `d`, what may stand between digits is `-`, and the rest is blank.
_DIGITS = bytes(
    100 if chr(c) in "0123456789" else 45 if chr(c) in " -" else c if chr(c) in "+()" else 32
    for c in range(256)
)
_CARD = re.compile(r"[3-6]\d{3}(?:[ -]?\d){9,15}(?![\d.]|[-_]?[A-Za-z])")

# What parts the folder of all homes from one of them: a slash, an escaped or encoded one, a backslash.
_HOME = re.compile(
    r"""(?:home|users)(?:(?P<part>/|\\/|%2f|-)(?P<user>[A-Za-z_][\w.]{0,40}(?:-[\w.]{1,40}){0,3})
      |\\{1,8}(?P<owner>[^\\/:*?"<>|\s][^\\/:*?"<>|\n']{0,40}?)(?=[\\/"'\s:;,)]|\Z))""",
    re.X | re.I,
)
_HOME_BEGINS = b"h"[0]  # as opposed to `users`
_PARTS = frozenset((b"/", b"\\", b"%", b"-"))
_BEFORE_HOME = re.compile(
    r"(?:(?<![\w.~})\]>*?/-])"
    r"(?:/mnt/[a-z]|/[a-z](?=/)|[A-Za-z]:(?:\\{1,8}|/)?|/var|/export|/usr|/data)?"
    r"(?:/|\\/|%2[fF]|\\{1,8})?|file:///?|(?<![\w.-])-?)\Z"
)
_SHARED = frozenset(("shared", "public", "default", "all", "index", "profile", "me", "list"))


def mails(look: Look) -> Iterator[Span]:
    """Mail addresses."""
    for found in _MAIL.finditer(look.text):
        if _is_ending(found[2].lower()):
            yield from _address(look, found.start(), found.end())


def _address(look: Look, at: int, end: int) -> Iterable[Span]:
    chunk = look.raw[max(0, at - 64) : at]
    local = chunk[len(chunk.rstrip(_LOCAL)) :].lstrip(b".-%")
    start = at - len(local)
    if local[:1] in (b"n", b"r", b"t") and look.raw[start - 1 : start] == b"\\":
        start += 1  # the end of an escape
    if start < at and local.lower() not in _NOBODY:
        return (Span(start, end, "mail", "<mail>"),)
    return NOTHING


def _is_ending(ending: str) -> bool:
    return (len(ending) == 2 and ending not in _FILES) or ending in _ENDINGS


def numbers(look: Look) -> Iterator[Span]:
    """Phone numbers and payment cards."""
    image = look.raw.translate(_DIGITS)
    if b"d" not in image:
        return
    for at in hits(image, b"+d"):
        yield from _international(look.text, at)
    for at in hits(image, b"(ddd)"):
        if found := _NATIONAL.match(look.text, at):
            yield Span(at, found.end(), "phone", "<phone>")
    for needle in (b"dddddddddddd", b"dddd-dddd-"):
        for at in hits(image, needle):
            before = look.text[at - 1 : at]
            if before and (before.isalnum() or before in "._-/%#$"):
                continue
            if (found := _CARD.match(look.text, at)) and _is_card(found.group()):
                yield Span(found.start(), found.end(), "card", "<card>")


def _international(text: str, at: int) -> Iterator[Span]:
    before = text[at - 1 : at]
    if (found := _PHONE.match(text, at)) and not (
        before and (before.isalnum() or before in "+)_=")
    ):
        digits = sum(letter.isdigit() for letter in found.group())
        loose = found["country"] is not None
        if 9 <= digits <= 15 and (loose or before not in ("", "\n")):
            yield Span(at, found.end(), "phone", "<phone>")


def _called(look: Look, at: int) -> Iterator[Span]:
    found = _TELEPHONE.match(look.text, at)
    if found and 9 <= sum(letter.isdigit() for letter in found["number"]) <= 15:
        yield Span(found.start("number"), found.end("number"), "phone", "<phone>")


def _is_card(text: str) -> bool:
    """Issuer, length and check digit are those of a card."""
    number = text.replace(" ", "").replace("-", "")
    if len(set(number)) < 2 or not re.match(
        r"(?:4\d{12}(?:\d{3}){0,2}|5[1-5]\d{14}|2[2-7]\d{14}|3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}|6(?:011|5\d\d|4[4-9]\d)\d{12}|35\d{14}|62\d{14,17})\Z",
        number,
    ):
        return False
    total = 0
    for place, letter in enumerate(reversed(number)):
        digit = int(letter) * (1 + place % 2)
        total += digit - 9 if digit > 9 else digit
    return total % 10 == 0


def _home(look: Look, at: int) -> Iterable[Span]:
    behind = at + (4 if look.low[at] == _HOME_BEGINS else 5)
    if look.low[behind : behind + 1] not in _PARTS:
        return NOTHING
    found = _HOME.match(look.text, at)
    if found is None:
        return NOTHING
    group = "user" if found["user"] else "owner"
    user, part = found[group].rstrip("."), found["part"]
    if part == "-":  # a path in which agents put hyphens for slashes
        user = user.split("-")[0]
    start = max(0, at - 12)
    before = _BEFORE_HOME.search(look.text[start:at])
    if before is None or not before.group() or user.lower() in _SHARED:
        return NOTHING
    if (part == "-") != before.group().endswith("-"):
        return NOTHING
    begin = start + before.start()
    if look.text.startswith("file:", begin):
        begin += len("file://")
    return (Span(begin, found.start(group) + len(user), "home", "~"),)


_COMMON = words(
    """root user users admin administrator ubuntu debian runner node app test dev guest home
    build ci git docker nobody daemon python main master vscode codespace agent default public
    work
    """
)


def own(home: str | None, user: str | None) -> Rule:
    """A rule for the home folder and the name of the user of this machine."""
    patterns: list[tuple[bytes, re.Pattern[str], str, str]] = []
    if home and len(home.rstrip("/\\")) > 1:
        home = home.rstrip("/\\")
        patterns.append((home.encode("ascii", "replace"), _bounded(home), "home", "~"))
    if user and len(user) >= 3 and user.lower() not in _COMMON:
        patterns.append((user.encode("ascii", "replace"), _bounded(user), "user", "<user>"))

    def rule(look: Look) -> Iterator[Span]:
        for literal, pattern, kind, mask in patterns:
            for at in hits(look.raw, literal):
                if found := pattern.match(look.text, at):
                    yield Span(at, found.end(), kind, mask)

    return rule


def _bounded(word: str) -> re.Pattern[str]:
    """The word where it stands alone; looked for where it begins, so the look back comes last."""
    whole = re.escape(word)
    return re.compile(rf"{whole}(?<![A-Za-z0-9_.~<-]{whole})(?![A-Za-z0-9_]|[.-][A-Za-z0-9])")


STEMS: Stems = (
    (b"phone", _called),
    (b"tel:", _called),
    (b"home", _home),
    (b"users", _home),
)
