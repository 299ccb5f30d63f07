"""Detects personal data: email addresses, phone numbers, cards, home folders, user names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from rekindle.redaction.scanner import (
    NO_CANDIDATES,
    NO_SPANS,
    Candidates,
    Detector,
    Inspection,
    LiteralDetectors,
    RedactionSpan,
    ScanInput,
    iter_positions,
)

from rekindle.redaction.vocabulary.entropy import split_words

_LOCAL_PART_BYTES = bytes(c for c in range(128) if chr(c).isalnum()) + b"._%+-"
_EMAIL_DOMAIN = re.compile(
    r"@(?<=[A-Za-z0-9._%+-]@)((?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.){1,6})([A-Za-z]{2,18})(?![A-Za-z0-9(=\[])"
)
# These belong to services, not to people.
_SERVICE_ACCOUNTS = frozenset(
    (b"git", b"noreply", b"no-reply", b"hg", b"svn", b"npm", b"donotreply")
)
# Two letters are a country; these are the common longer ones.
_TOP_LEVEL_DOMAINS = split_words(
    """com org net edu gov mil int info biz name pro dev app cloud email tech online site xyz
    example test local internal invalid localdomain corp lan systems software agency studio
    company solutions group digital works world life live media news blog shop store team
    space website academy school mobi museum aero coop jobs travel asia berlin london nyc
    paris page mail inc ltd llc gmbh bank finance health care legal consulting
    """
)
_FILE_EXTENSIONS = split_words(
    """py js ts md sh rs go cc hs rb cs so vb ps tf mk mm ml pl kt
    """
)

_PHONE = re.compile(
    r"\+(?P<country>[1-9]\d{0,2})[ .\-]?(?:\(\d{1,5}\)[ .\-]?)?\d{1,8}(?:[ .\-/]\d{1,8}){1,5}"
    r"(?![\w\-/.]{0,20}[\w/])"
    r"|\+[1-9]\d{9,14}(?![\w.])"
)
_US_PHONE = re.compile(r"\(\d{3}\)[ -]?\d{3}[ -]\d{4}(?![\w-])")
_LABELLED_PHONE = re.compile(
    r"(?:phone|mobile|telephone|cell|tel|fax|sms)\w{0,8}\W{1,6}(?:is |number )?\W{0,3}"
    r"(?P<number>\+?\(?\d[\d ().-]{7,18}\d)(?![\w-])",
    re.I,
)
# Maps digits to `d`, separators between digits to `-`, and the rest to blanks.
_DIGIT_IMAGE = bytes(
    100 if chr(c) in "0123456789" else 45 if chr(c) in " -" else c if chr(c) in "+()" else 32
    for c in range(256)
)
_CARD = re.compile(r"[3-6]\d{3}(?:[ -]?\d){9,15}(?![\d.]|[-_]?[A-Za-z])")

# The separator after `home` or `users`: a slash, an escaped or encoded one, or a backslash.
_HOME = re.compile(
    r"""(?:home|users)(?:(?P<part>/|\\/|%2f|-)(?P<user>[A-Za-z_][\w.]{0,40}(?:-[\w.]{1,40}){0,3})
      |\\{1,8}(?P<owner>[^\\/:*?"<>|\s][^\\/:*?"<>|\n']{0,40}?)(?=[\\/"'\s:;,)]|\Z))""",
    re.X | re.I,
)
_HOME_FIRST_BYTE = b"h"[0]  # as opposed to `users`
_PATH_SEPARATORS = frozenset((b"/", b"\\", b"%", b"-"))
_BEFORE_HOME = re.compile(
    r"(?:(?<![\w.~})\]>*?/-])"
    r"(?:/mnt/[a-z]|/[a-z](?=/)|[A-Za-z]:(?:\\{1,8}|/)?|/var|/export|/usr|/data)?"
    r"(?:/|\\/|%2[fF]|\\{1,8})?|file:///?|(?<![\w.-])-?)\Z"
)
_SHARED_FOLDERS = frozenset(
    ("shared", "public", "default", "all", "index", "profile", "me", "list")
)


def detect_emails(scan: ScanInput) -> Sequence[Candidates]:
    """Detect email addresses."""
    if b"@" not in scan.raw:
        return NO_CANDIDATES
    found = [one.start() for one in _EMAIL_DOMAIN.finditer(scan.text)]
    return (Candidates(found, _inspect_email, 0.3),) if found else NO_CANDIDATES


def _inspect_email(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
    found = _EMAIL_DOMAIN.match(scan.text, at)
    if found is None or not _is_top_level_domain(found[2].lower()):
        return NO_SPANS
    return _detect_email(scan, at, found.end())


def _detect_email(scan: ScanInput, at: int, end: int) -> Iterable[RedactionSpan]:
    chunk = scan.raw[max(0, at - 64) : at]
    local = chunk[len(chunk.rstrip(_LOCAL_PART_BYTES)) :].lstrip(b".-%")
    start = at - len(local)
    if local[:1] in (b"n", b"r", b"t") and scan.raw[start - 1 : start] == b"\\":
        start += 1  # the end of an escape
    if start < at and local.lower() not in _SERVICE_ACCOUNTS:
        return (RedactionSpan(start, end, "mail", "<mail>"),)
    return NO_SPANS


def _is_top_level_domain(ending: str) -> bool:
    return (len(ending) == 2 and ending not in _FILE_EXTENSIONS) or ending in _TOP_LEVEL_DOMAINS


def detect_numbers(scan: ScanInput) -> Sequence[Candidates]:
    """Detect phone numbers and payment cards."""
    image = scan.raw.translate(_DIGIT_IMAGE)
    if b"dd" not in image:
        return NO_CANDIDATES
    return [
        Candidates(list(iter_positions(image, needle)), inspect, 0.3)
        for needle, inspect in _NUMBER_NEEDLES
        if needle in image
    ]


def _inspect_us_phone(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    if found := _US_PHONE.match(scan.text, at):
        yield RedactionSpan(at, found.end(), "phone", "<phone>")


def _inspect_card(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    before = scan.text[at - 1 : at]
    if before and (before.isalnum() or before in "._-/%#$"):
        return
    if (found := _CARD.match(scan.text, at)) and _is_card_number(found.group()):
        yield RedactionSpan(found.start(), found.end(), "card", "<card>")


def _inspect_phone(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    return _detect_international_phone(scan.text, at)


def _detect_international_phone(text: str, at: int) -> Iterator[RedactionSpan]:
    before = text[at - 1 : at]
    if (found := _PHONE.match(text, at)) and not (
        before and (before.isalnum() or before in "+)_=")
    ):
        digits = sum(letter.isdigit() for letter in found.group())
        is_grouped = found["country"] is not None
        if 9 <= digits <= 15 and (is_grouped or before not in ("", "\n")):
            yield RedactionSpan(at, found.end(), "phone", "<phone>")


def _detect_labelled_phone(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    found = _LABELLED_PHONE.match(scan.text, at)
    if found and 9 <= sum(letter.isdigit() for letter in found["number"]) <= 15:
        yield RedactionSpan(found.start("number"), found.end("number"), "phone", "<phone>")


def _is_card_number(text: str) -> bool:
    """Return whether issuer, length and check digit are those of a payment card."""
    number = text.replace(" ", "").replace("-", "")
    if len(set(number)) < 2 or not re.match(
        r"(?:4\d{12}(?:\d{3}){0,2}|5[1-5]\d{14}|2[2-7]\d{14}|3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}|6(?:011|5\d\d|4[4-9]\d)\d{12}|35\d{14}|62\d{14,17})\Z",
        number,
    ):
        return False
    total = 0
    for index, letter in enumerate(reversed(number)):
        digit = int(letter) * (1 + index % 2)
        total += digit - 9 if digit > 9 else digit
    return total % 10 == 0


def _detect_home_folder(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
    after = at + (4 if scan.lower[at] == _HOME_FIRST_BYTE else 5)
    if scan.lower[after : after + 1] not in _PATH_SEPARATORS:
        return NO_SPANS
    found = _HOME.match(scan.text, at)
    if found is None:
        return NO_SPANS
    group = "user" if found["user"] else "owner"
    user, separator = found[group].rstrip("."), found["part"]
    if separator == "-":  # a path with hyphens for slashes, as some agents write it
        user = user.split("-")[0]
    start = max(0, at - 12)
    before = _BEFORE_HOME.search(scan.text[start:at])
    if before is None or not before.group() or user.lower() in _SHARED_FOLDERS:
        return NO_SPANS
    if (separator == "-") != before.group().endswith("-"):
        return NO_SPANS
    begin = start + before.start()
    if scan.text.startswith("file:", begin):
        begin += len("file://")
    return (RedactionSpan(begin, found.start(group) + len(user), "home", "~"),)


_COMMON_USER_NAMES = split_words(
    """root user users admin administrator ubuntu debian runner node app test dev guest home
    build ci git docker nobody daemon python main master vscode codespace agent default public
    work
    """
)


def make_user_detector(home: str | None, user: str | None) -> Detector:
    """Make a detector for the home folder and the name of this machine's user."""
    inspections: list[tuple[bytes, Inspection]] = []
    if home and len(home.rstrip("/\\")) > 1:
        home = home.rstrip("/\\")
        inspections.append((home.encode("ascii", "replace"), _make_word_inspection(home, "home", "~")))
    if user and len(user) >= 3 and user.lower() not in _COMMON_USER_NAMES:
        inspections.append(
            (user.encode("ascii", "replace"), _make_word_inspection(user, "user", "<user>"))
        )

    def detect(scan: ScanInput) -> Sequence[Candidates]:
        return [
            Candidates(list(iter_positions(scan.raw, literal)), inspect, 0.3)
            for literal, inspect in inspections
            if literal in scan.raw
        ]

    return detect


def _make_word_inspection(word: str, kind: str, mask: str) -> Inspection:
    pattern = _compile_bounded(word)

    def inspect(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
        if found := pattern.match(scan.text, at):
            yield RedactionSpan(at, found.end(), kind, mask)

    return inspect


def _compile_bounded(word: str) -> re.Pattern[str]:
    """Compile a pattern for the word on its own.

    It is matched at the word's start, so the lookbehind comes last.
    """
    whole = re.escape(word)
    return re.compile(rf"{whole}(?<![A-Za-z0-9_.~<-]{whole})(?![A-Za-z0-9_]|[.-][A-Za-z0-9])")


_NUMBER_NEEDLES: tuple[tuple[bytes, Inspection], ...] = (
    (b"+d", _inspect_phone),
    (b"(ddd)", _inspect_us_phone),
    (b"dddddddddddd", _inspect_card),
    (b"dddd-dddd-", _inspect_card),
)
LITERAL_DETECTORS: LiteralDetectors = (
    (b"phone", _detect_labelled_phone),
    (b"home", _detect_home_folder),
    (b"users", _detect_home_folder),
)
