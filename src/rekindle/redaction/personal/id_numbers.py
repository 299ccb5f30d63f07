# ruff: noqa: E501  (a pattern stays on one line)
"""Detects numbers that identify a person, an account or a machine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rekindle.redaction.scanner import (
    NO_CANDIDATES,
    Candidates,
    Inspection,
    LiteralDetectors,
    RedactionSpan,
    ScanInput,
    find_positions,
    make_secret_span,
)

# ── numbers with a shape of their own

_IBAN = re.compile(r"[A-Z]{2}\d{2}[ ]?(?:[A-Z0-9]{4}[ ]?){2,7}[A-Z0-9]{1,4}(?![A-Za-z0-9])")
_IBAN_HEAD = re.compile(r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}[ ]?(?:[A-Z0-9]{4}[ ]?){0,2}\Z")
_SSN = re.compile(r"(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\w-])")
_PHONE_WITH_DOTS = re.compile(r"[2-9]\d{2}([.-])[2-9]\d{2}\1\d{4}(?![\w.-])")
_UK_MOBILE = re.compile(r"07\d{3}[ -]?\d{3}[ -]?\d{3}(?![\w-])")
_GERMAN_MOBILE = re.compile(r"01[567]\d{1,2}[ /-]{1,3}\d{6,8}(?![\w-])")
# Not a piece of a dump in hexadecimal, nor of a longer row of numbers.
_FRENCH_PHONE = re.compile(
    r"(?<![0-9A-Fa-f]{2}[ .-])0[1-79](?P<gap>[ .-])(?!00)\d\d(?P=gap)\d\d(?P=gap)\d\d(?P=gap)\d\d"
    r"(?![\w.-]|[ .-][0-9A-Fa-f]{2}\b)"
)
_RECOVERY_KEY = re.compile(r"\d{6}(?:-\d{6}){7}(?![\w-])")  # of a disk
_MAC = re.compile(
    r"[0-9A-Fa-f]{2}(?:(?::[0-9A-Fa-f]{2}){5}|(?:-[0-9A-Fa-f]{2}){5})(?![0-9A-Fa-f:-])"
)
_PRIVATE_ADDRESS = re.compile(
    r"(?:10\.\d{1,3}|172\.(?:1[6-9]|2\d|3[01])|192\.168)\.\d{1,3}\.\d{1,3}(?![\w.])"
)
# Defaults of routers, containers and clusters, and what examples use.
_COMMON_ADDRESS = re.compile(
    r"10\.(?:0\.[0-3]\.|96\.|244\.|1\.1\.|10\.)|172\.(?:1[6-9]|2[0-9])\.0\.|192\.168\.(?:0|1|2|65|99|100)\."
)


def _is_iban(text: str) -> bool:
    text = text.replace(" ", "")
    if not 15 <= len(text) <= 34:
        return False
    return int("".join(str(int(letter, 36)) for letter in text[4:] + text[:4])) % 97 == 1


def _check_iban(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    head = _IBAN_HEAD.search(scan.text, max(0, at - 16), at + 2)
    if head and (found := _IBAN.match(scan.text, head.start())) and _is_iban(found.group()):
        yield make_secret_span(found.start(), found.end(), "iban")


def _make_number_inspection(pattern: re.Pattern[str], kind: str, mask: str) -> Inspection:
    def inspect(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
        before = scan.text[at - 1 : at] if at else ""
        if before and (before.isalnum() or before in "._-/:+$#"):
            return
        if found := pattern.match(scan.text, at):
            yield RedactionSpan(at, found.end(), kind, mask)

    return inspect


def _check_address(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    before = scan.text[at - 1 : at] if at else ""
    if (before and (before.isalnum() or before in "._-")) or _COMMON_ADDRESS.match(scan.text, at):
        return
    found = _PRIVATE_ADDRESS.match(scan.text, at)
    if found and not found.group().endswith((".0", ".1")):
        yield make_secret_span(at, found.end(), "ip")


def _check_mac(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    before = scan.text[at - 1 : at] if at else ""
    if before.isalnum() or before in (":", "-"):
        return
    if (found := _MAC.match(scan.text, at)) and len(set(found.group().lower())) > 3:
        yield make_secret_span(at, found.end(), "mac")


# ── numbers that only their label makes personal

_LABEL = re.compile(
    r"""(?:\baccount|\bacct|konto(?:nummer)?|sort[ ]code|steuer-?id|tax[ ]id|\btin|\bssn|\bsin|\bnhs|\bbsn|\bcpf|\bdni
      |\bnif|aadhaar|national[ ]id|personnummer|licen[cs]e|passport|\bpan|routing)
      [ ]?(?:no\.?|number|num|nr\.?|id|\#)?[ ]?[:=\#]?[ ]{0,2}[A-Z]{0,2}\Z""",
    re.X | re.I,
)
_LABEL_WORDS = (
    b"ac", b"konto", b"code", b"id", b"tin", b"ssn", b"sin", b"nhs", b"bsn", b"cpf", b"dni", b"nif", b"aadh",
    b"licen", b"pass", b"pan", b"rout", b"perso",
)  # fmt: skip
_BEFORE_LABELLED = frozenset(" :=#")
_LABELLED = re.compile(r"[A-Z]{0,2}\d[\dA-Z]{1,3}[\d -]{4,14}[\dA-Z](?![\w-])")
_NINO = re.compile(r"[A-CEGHJ-PR-TW-Z]{2}[ ]?\d{2}[ ]?\d{2}[ ]?\d{2}[ ]?[A-D](?!\w)")
_PASSPORT = re.compile(
    r"passport[ ]?(?:no\.?|number|nr\.?|\#)?(?:[ ]is)?[ ]?[:=]?[ ]?(?P<value>(?=\w{0,4}\d\w*\d)[A-Z0-9]{7,10})(?!\w)",
    re.I,
)


def _check_labelled(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    """Detect an account's or person's number after its label."""
    text = scan.text
    before = text[at - 1 : at]
    if before.isdigit() or (before not in _BEFORE_LABELLED and not "A" <= before <= "Z"):
        return
    start = at
    while start > max(0, at - 3) and "A" <= text[start - 1] <= "Z":
        start -= 1
    is_alone = not (start and text[start - 1].isalnum())
    if at - start == 2 and is_alone and (found := _NINO.match(text, start)):
        yield make_secret_span(start, found.end(), "id-number")
        return
    chunk = scan.lower[max(0, start - 30) : start]
    if not any(word in chunk for word in _LABEL_WORDS):
        return
    if _LABEL.search(text, max(0, start - 30), start) and (found := _LABELLED.match(text, start)):
        yield make_secret_span(start, found.end(), "id-number")


def _detect_passport(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    if found := _PASSPORT.match(scan.text, at):
        yield make_secret_span(found.start("value"), found.end("value"), "id-number")


# ── the search

_MAC_IMAGE = bytes(100 if chr(c) in "0123456789abcdefABCDEF" else c for c in range(256))
_check_us_phone = _make_number_inspection(_PHONE_WITH_DOTS, "phone", "<phone>")
# By a needle that they have in common; most texts contain none of these.
_GROUPED: tuple[tuple[bytes, Inspection], ...] = (
    (b"ddd-dd-dddd", _make_number_inspection(_SSN, "ssn", "<secret:ssn>")),
    (
        b"dddddd-dddddd-dddddd",
        _make_number_inspection(_RECOVERY_KEY, "recovery-key", "<secret:recovery-key>"),
    ),
    (b"ddd-ddd-dddd", _check_us_phone),
    (b"ddddd-dddddd", _make_number_inspection(_UK_MOBILE, "phone", "<phone>")),
    (b"dd-dddd-dddd", _check_iban),
    (b"dddd-dddd-dddd", _check_iban),
    (b"ddd-dddd-dddd", _check_labelled),
)
_SPACED: tuple[tuple[bytes, Inspection], ...] = (
    (b"dddd-dddddd", _make_number_inspection(_GERMAN_MOBILE, "phone", "<phone>")),
    (b"dd-dd-dd-dd-dd", _make_number_inspection(_FRENCH_PHONE, "phone", "<phone>")),
)
_DOTTED: tuple[tuple[bytes, Inspection], ...] = (
    (b"dd.d", _check_address),
    (b"ddd.ddd.dddd", _check_us_phone),
)
_LONG: tuple[tuple[bytes, Inspection], ...] = ((b"dddddd", _check_labelled),)
_SORT_CODES: tuple[tuple[bytes, Inspection], ...] = ((b"dd-dd-dd", _check_labelled),)


def detect_id_numbers(scan: ScanInput) -> Sequence[Candidates]:
    """Detect numbers by their groups of digits."""
    image = scan.digit_image
    if b"dd" not in image:
        return NO_CANDIDATES
    needles: tuple[tuple[bytes, Inspection], ...] = ()
    if b"d-dddd" in image:
        needles += _GROUPED
    if b"dd-dd" in image:
        needles += _SPACED
    if b"dddddd" in image:
        needles += _LONG + (_SORT_CODES if b"sort code" in scan.lower else ())
    if b"dd.d" in image:
        needles += _DOTTED
    found = [
        Candidates(find_positions(scan, image, needle), inspect, 0.1)
        for needle, inspect in needles
        if needle in image
    ]
    if image.count(b":") > 4 and b"dd:dd:dd:dd:dd:dd" in (mac := scan.raw.translate(_MAC_IMAGE)):
        found.append(Candidates(find_positions(scan, mac, b"dd:dd:dd:dd:dd:dd"), _check_mac, 0.2))
    return found


LITERAL_DETECTORS: LiteralDetectors = ((b"passport", _detect_passport),)
