"""Detects where people live and log in: home folders, user names, prompts, street addresses."""

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
    find_matches,
    find_positions,
    make_secret_span,
)
from rekindle.redaction.vocabulary.entropy import split_words

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


# Homes on servers: below a file system, never below the path of a URL or a package.
_SERVER_HOME = re.compile(
    r"""/(?:srv|scratch|export|data|mnt|nfs|net|vol\d*|volume\d*|volumes|lustre|gpfs|work|afs|cluster|storage|nas|ifs)
      (?:/[\w.-]{1,30}){0,3}/(?:homes?|users?|people|staff)/(?:[a-z]/){0,2}
      (?P<user>[A-Za-z][\w.-]{1,40})""",
    re.X | re.I,
)
_MEDIA = re.compile(r"/(?:run/)?media/(?P<user>[A-Za-z][\w.-]{1,40})(?=/)")
_USER_TEMP = re.compile(r"/var/folders/[\w+]{2}/[\w+]{20,40}")
_PATH_BYTES = bytes(c for c in range(128) if chr(c).isalnum()) + b"/._-"
_PROMPT = re.compile(r"@[A-Za-z0-9][\w.-]{0,63}:[~/][^\n$#%]{0,80}[$#%](?=[ \n]|\Z)")
_PROMPT_USER = re.compile(r"(?:^|\n|\) ?)([A-Za-z_][\w.-]{1,31})\Z")
_BUCKET = re.compile(r"(?<![a-z])(?:s3|gs)://(?P<name>[a-z0-9][a-z0-9.-]{2,62})(?=[/\s\"'`]|\Z)")
_EXAMPLE_BUCKET = re.compile(r"my|your|example|bucket|demo|sample|test|foo")


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


COMMON_USER_NAMES = split_words(
    """root user users admin administrator ubuntu debian runner node app test dev guest home
    build ci git docker nobody daemon python main master vscode codespace agent default public
    work staff wheel bin sys adm www mail nobody nogroup postgres mysql redis nginx apache jenkins deploy
    deployer system circleci gitlab github actions ec2-user centos fedora alpine pi vagrant me you name
    """
)


def make_user_detector(home: str | None, user: str | None) -> Detector:
    """Make a detector for the home folder and the name of this machine's user."""
    inspections: list[tuple[bytes, Inspection]] = []
    if home and len(home.rstrip("/\\")) > 1:
        home = home.rstrip("/\\")
        inspections.append(
            (home.encode("ascii", "replace"), _make_word_inspection(home, "home", "~"))
        )
    if user and len(user) >= 3 and user.lower() not in COMMON_USER_NAMES:
        inspections.append(
            (user.encode("ascii", "replace"), _make_word_inspection(user, "user", "<user>"))
        )

    def detect(scan: ScanInput) -> Sequence[Candidates]:
        return [
            Candidates(find_positions(scan, scan.raw, literal), inspect, 0.3)
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


def _detect_server_home(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
    """Detect `/scratch/users/ada` from the literal inside it."""
    chunk = scan.raw[max(0, at - 120) : at]
    size = len(chunk) - len(chunk.rstrip(_PATH_BYTES))
    start = at - size
    before = scan.text[start - 1 : start] if start else ""
    if size == 0 or scan.raw[start : start + 1] != b"/" or before == ":":
        return NO_SPANS
    found = _SERVER_HOME.match(scan.text, start) or _MEDIA.match(scan.text, start)
    if found is None or found.end() <= at or found["user"].lower() in _SHARED_FOLDERS:
        return NO_SPANS
    return (RedactionSpan(start, found.end("user"), "home", "~"),)


def _detect_user_temp(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    start = at - len("/var/")
    if start >= 0 and (found := _USER_TEMP.match(scan.text, start)):
        yield make_secret_span(start, found.end(), "folder")


def _detect_bucket(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    found = _BUCKET.match(scan.text, max(0, at - 2))
    if found and not _EXAMPLE_BUCKET.search(found["name"]):
        yield make_secret_span(found.start("name"), found.end("name"), "bucket")


def detect_prompts(scan: ScanInput) -> Sequence[Candidates]:
    """Detect the name in a shell's prompt: `ada@laptop:~$`."""
    if b"@" not in scan.raw or b":" not in scan.raw:
        return NO_CANDIDATES
    found = find_matches(scan, _PROMPT)
    return (Candidates(found, _check_prompt),) if found else NO_CANDIDATES


def _check_prompt(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    user = _PROMPT_USER.search(scan.text, max(0, at - 40), at)
    if user and user[1].lower() not in COMMON_USER_NAMES:
        end = scan.text.index(":", at)
        yield RedactionSpan(user.start(1), end, "user", "<user>")


# ── street addresses

_STREET = re.compile(
    r"""\d{1,5}[A-Z]?[ ](?:[NSEW]\.?[ ])?(?:[A-Z][a-z'.-]{1,20}[ ]){1,3}
      (?:Street|St|Road|Rd|Avenue|Ave|Lane|Ln|Drive|Boulevard|Blvd|Court|Square|Terrace|Crescent|Parkway|Highway)\b\.?
      (?:,?[ ](?:Apt|Suite|Unit|Flat)\.?[ ]?\#?\w{1,6})?
      (?:,[ ][A-Z][a-z]{2,20}(?:[ ][A-Z][a-z]{2,20})?)?
      (?:,?[ ][A-Z]{1,2}\d[A-Z\d]?[ ]\d[A-Z]{2}|,?[ ][A-Z]{2}[ ]\d{5}(?:-\d{4})?)?""",
    re.X,
)
_GERMAN_STREET = re.compile(
    r"\b[A-ZÄÖÜ][a-zäöüß-]{2,25}(?:straße|str\.|gasse|allee|platz) \d{1,4}[a-z]?\b"
)


def _detect_street(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    start = at
    while start > max(0, at - 5) and scan.text[start - 1].isdigit():
        start -= 1
    if start and (scan.text[start - 1].isalnum() or scan.text[start - 1] in "._-/:"):
        return
    if found := _STREET.match(scan.text, start):
        yield make_secret_span(start, found.end(), "address")


def detect_streets(scan: ScanInput) -> Sequence[Candidates]:
    """Detect street addresses, by the number before a capital or by the German ending."""
    image = scan.digit_image
    if b"-A" not in image:
        return NO_CANDIDATES
    found = find_positions(scan, image, b"d-A") + find_positions(scan, image, b"dA-A")
    work = [Candidates(found, _detect_street, 0.2)] if found else []
    if not scan.text.isascii() and "stra\u00dfe " in scan.text:
        german = find_matches(scan, _GERMAN_STREET)
        work.append(Candidates(german, _check_german_street))
    return work


def _check_german_street(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    if found := _GERMAN_STREET.match(scan.text, at):
        yield make_secret_span(at, found.end(), "address")


LITERAL_DETECTORS: LiteralDetectors = (
    (b"home", _detect_home_folder),
    (b"users", _detect_home_folder),
    (b"home", _detect_server_home),
    (b"users", _detect_server_home),
    (b"user/", _detect_server_home),
    (b"/media/", _detect_server_home),
    (b"folders/", _detect_user_temp),
    (b"://", _detect_bucket),
)
