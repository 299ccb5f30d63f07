# ruff: noqa: E501  (a pattern stays on one line)
"""Detects people in listings and files: owners, hosts of their own, birthdays, authors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from rekindle.redaction.scanner import (
    NO_SPANS,
    Candidates,
    LiteralDetectors,
    RedactionSpan,
    ScanInput,
    find_positions,
    make_secret_span,
)

from .places import COMMON_USER_NAMES

_USER = r"(?P<user>[A-Za-z_][\w.-]{1,31})"
# `-rw-r--r--@ 1 ada staff 12 Jan 1 x`
_LISTED = re.compile(
    rf"[-dlbcps](?:[r-][w-][xsStT-]){{3}}[.@+]?[ ]{{1,4}}\d{{1,6}}[ ]{{1,4}}{_USER}[ ]{{1,12}}(?P<group>[\w.-]{{1,32}})[ ]"
)
_UID = re.compile(rf"uid=\d{{1,10}}\({_USER}\)(?:[ ]gid=\d{{1,10}}\((?P<group>[\w.-]{{1,32}})\))?")
_REMOTE = re.compile(
    rf"(?:scp|rsync|sftp)[ ](?:[^\n|;&@]{{0,120}}[ ])?[\"']?{_USER}@[A-Za-z0-9][\w.-]{{0,80}}:"
)
_HOST_BYTES = bytes(c for c in range(128) if chr(c).isalnum()) + b"-."
_OWN_HOST = re.compile(
    r"(?:[A-Za-z0-9][\w-]{0,40}-(?:MacBook(?:-Pro|-Air)?|MBP|iMac|Mac-mini|Mac-Studio|PC|Laptop|Desktop)(?:-\d{1,3})?(?:\.local|\.lan|\.home)?"
    r"|[A-Za-z0-9][\w-]{0,40}\.local(?=[\s:/\"'`),;]|\Z))(?![\w-])",
    re.I,
)
_OWN_HOST_NAME = re.compile(r"-(?:macbook|mbp|imac|mac-mini|mac-studio)", re.I)
_INTERNAL = re.compile(
    r"(?:[A-Za-z0-9][A-Za-z0-9-]{0,62}\.){1,5}(?:corp\.(?:internal|local|[a-z]{2,4})|corp|intra|intranet|internal)(?![\w-]|\.\w)"
)
_KNOWN_HOSTS = re.compile(
    r"(?:[\w.-]*\.)?(?:docker|metadata\.google|containers|compute|ec2|example|testing|k8s|kubernetes|svc|cluster|host|self)\.internal\Z"
    r"|(?:.*\.)?compute\.internal\Z"
)
_BIRTHDAY = re.compile(
    r"(?:dob|birth(?:[ _]?da(?:y|te))?|geburts(?:datum|tag)|born(?:[ ]on)?|geboren(?:[ ]am)?)[\"']?"
    r"(?:[ ]is|[ ]?[:=])?[ ]{0,2}[\"']?"
    r"(?P<value>(?:19|20)\d\d[-./]\d{1,2}[-./]\d{1,2}|\d{1,2}[-./]\d{1,2}[-./](?:19|20)\d\d)(?![\w-])",
    re.I,
)
_NAME = r"[^\W\d_][\w'.-]{0,30}(?:[ ][^\W\d_][\w'.-]{0,30}){0,3}"
# The name before an address, in a commit or the head of a file.
_AUTHOR = re.compile(
    rf"(?:author|authored-by|committer|signed-off-by|reviewed-by)s?:[ ]{{1,6}}(?P<name>{_NAME})[ ]?<(?=[^>\n]{{1,80}}>)",
    re.I,
)
_NO_PERSON = re.compile(
    r"claude|bot\b|\[bot|copilot|cursor|codex|github|actions|gemini|agent|noreply", re.I
)


def _mask_user(found: re.Match[str] | None, group: str = "user") -> Iterable[RedactionSpan]:
    if found is None or found[group] is None or found[group].lower() in COMMON_USER_NAMES:
        return NO_SPANS
    if found[group].isdigit() or found[group].startswith(("_", "www-", "systemd")):
        return NO_SPANS
    return (RedactionSpan(found.start(group), found.end(group), "user", "<user>"),)


_MODES = (b"-rw", b"drw", b"lrw")


def detect_owners(scan: ScanInput) -> Sequence[Candidates]:
    """Detect the owners that `ls -l` lists."""
    return [
        Candidates(find_positions(scan, scan.raw, mode), _check_owner, 0.3)
        for mode in _MODES
        if mode in scan.raw
    ]


def _check_owner(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    found = _LISTED.match(scan.text, at)
    yield from _mask_user(found)
    if found and found["group"] == found["user"]:
        yield from _mask_user(found, "group")


def _detect_uid(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    found = _UID.match(scan.text, at)
    yield from _mask_user(found)
    if found and found["group"] == found["user"]:
        yield from _mask_user(found, "group")


def _detect_remote(scan: ScanInput, at: int) -> Iterable[RedactionSpan]:
    found = _REMOTE.match(scan.text, at, at + 300)
    return NO_SPANS if found and found["user"] == "git" else _mask_user(found)


def _find_host_start(scan: ScanInput, at: int) -> int:
    chunk = scan.raw[max(0, at - 80) : at]
    return at - (len(chunk) - len(chunk.rstrip(_HOST_BYTES)))


def _detect_own_host(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    """Detect `Adas-MacBook-Pro.local` from the literal inside it."""
    start = _find_host_start(scan, at)
    found = _OWN_HOST.match(scan.text, start)
    if found and _OWN_HOST_NAME.search(found.group()):
        yield make_secret_span(start, found.end(), "host")


def _detect_internal_host(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    start = _find_host_start(scan, at)
    before = scan.text[start - 1 : start]
    if scan.text.endswith(("import ", "from ", "package "), max(0, start - 8), start):
        return
    found = _INTERNAL.match(scan.text, start)
    if (
        found is None
        or found.end() <= at
        or before in ("_", "(")
        or _KNOWN_HOSTS.match(found.group())
    ):
        return
    if found.group().count(".") >= 2 or before in ("/", "@"):
        yield make_secret_span(start, found.end(), "host")


def _detect_birthday(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    if at and scan.text[at - 1].isalnum():
        return
    if found := _BIRTHDAY.match(scan.text, at):
        yield make_secret_span(found.start("value"), found.end("value"), "birthday")


def _detect_author(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
    found = _AUTHOR.match(scan.text, at)
    if found and not (_NO_PERSON.search(found["name"]) or found["name"].islower()):
        yield RedactionSpan(found.start("name"), found.end("name"), "name", "<name>")


LITERAL_DETECTORS: LiteralDetectors = (
    (b"uid=", _detect_uid),
    (b"scp ", _detect_remote),
    (b"rsync ", _detect_remote),
    (b"sftp ", _detect_remote),
    (b"-macbook", _detect_own_host),
    (b"-mbp", _detect_own_host),
    (b"-imac", _detect_own_host),
    (b".internal", _detect_internal_host),
    (b".corp.", _detect_internal_host),
    *((stem, _detect_birthday) for stem in (b"dob", b"birth", b"geburts", b"born", b"geboren")),
    *((stem, _detect_author) for stem in (b"auth", b"sig", b"committer:", b"reviewed-by")),
)
