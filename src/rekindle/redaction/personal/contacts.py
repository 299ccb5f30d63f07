"""Detects email addresses, phone numbers and payment cards."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from rekindle.redaction.scanner import (
    NO_CANDIDATES,
    NO_SPANS,
    Candidates,
    Inspection,
    LiteralDetectors,
    RedactionSpan,
    ScanInput,
    find_matches,
    find_positions,
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
# Endings of files and attributes; any other word of letters may be a top-level domain.
_FILE_EXTENSIONS = split_words(
    """js ts go cc hs rb cs vb tf mm kt png jpg jpeg gif svg webp ico json yaml yml toml html htm css
    scss less tsx jsx mjs cjs txt log lock tgz zip tar bin exe dll java php swift dart vue sql csv xml
    map
    wasm conf cfg ini bak tmp patch diff snap test spec mod sum proto whl jar class pdf docx
    """
)
_CODE_COUNTRIES = split_words("py sh rs md so ps mk ml pl")  # countries, and extensions of code

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
_CARD = re.compile(r"[3-6]\d{3}(?:[ -]?\d){9,15}(?![\d.]|[-_]?[A-Za-z])")


def detect_emails(scan: ScanInput) -> Sequence[Candidates]:
    """Detect email addresses."""
    if b"@" not in scan.raw:
        return NO_CANDIDATES
    found = find_matches(scan, _EMAIL_DOMAIN)
    return (Candidates(found, _check_email, 0.3),) if found else NO_CANDIDATES


def _check_email(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
    found = _EMAIL_DOMAIN.match(scan.text, at)
    if found is None or not _is_top_level_domain(found[1], found[2].lower()):
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


def _is_top_level_domain(domain: str, ending: str) -> bool:
    if ending in _FILE_EXTENSIONS:
        return False
    if ending in _CODE_COUNTRIES:
        return domain.replace(".", "").replace("-", "").isalpha()
    return True


# ── addresses written in words: `ada [at] example [dot] com`

_SPELLED = re.compile(
    r"(?P<local>[\w.+-]{2,40})[ ]?[\[(]at[\])][ ]?[\w-]{2,40}(?:[ ]?[\[(]dot[\])][ ]?[\w-]{2,20}){1,4}",
    re.I,
)


def detect_spelled_emails(scan: ScanInput) -> Sequence[Candidates]:
    """Detect email addresses that are spelled out."""
    if b"[at]" not in scan.lower:
        return NO_CANDIDATES
    marks = find_positions(scan, scan.lower, b"[at]")
    return (Candidates(marks, _check_spelled_email),)


def _check_spelled_email(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    chunk = scan.raw[max(0, at - 41) : at].rstrip()
    start = max(0, at - 41) + len(chunk.rstrip(_LOCAL_PART_BYTES))
    if found := _SPELLED.match(scan.text, start):
        yield RedactionSpan(start, found.end(), "mail", "<mail>")


def detect_numbers(scan: ScanInput) -> Sequence[Candidates]:
    """Detect phone numbers and payment cards."""
    image = scan.digit_image
    if b"ddd" not in image:
        return NO_CANDIDATES
    return [
        Candidates(find_positions(scan, image, needle), inspect, 0.3)
        for needle, inspect in _NUMBER_NEEDLES
        if needle in image
    ]


def _check_us_phone(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    if found := _US_PHONE.match(scan.text, at):
        yield RedactionSpan(at, found.end(), "phone", "<phone>")


def _check_card(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    before = scan.text[at - 1 : at]
    if before and (before.isalnum() or before in "._-/%#$"):
        return
    if (found := _CARD.match(scan.text, at)) and _is_card_number(found.group()):
        yield RedactionSpan(found.start(), found.end(), "card", "<card>")


def _check_phone(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    return _detect_international_phone(scan.text, at)


def _detect_international_phone(text: str, at: int) -> Iterator[RedactionSpan]:
    before = text[at - 1 : at]
    if (found := _PHONE.match(text, at)) and not (before and (before.isalnum() or before in "+)_")):
        digits = sum(letter.isdigit() for letter in found.group())
        is_grouped = found["country"] is not None
        if before == "=" and (is_grouped or digits < 11):
            return
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


_NUMBER_NEEDLES: tuple[tuple[bytes, Inspection], ...] = (
    (b"+d", _check_phone),
    (b"(ddd)", _check_us_phone),
    (b"dddddddddddd", _check_card),
    (b"dddd-dddd-", _check_card),
)
LITERAL_DETECTORS: LiteralDetectors = ((b"phone", _detect_labelled_phone),)
