"""Tells which environment variables are secret, and detects their values wherever they occur."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote, quote_plus

from rekindle.redaction.scanner import (
    NO_CANDIDATES,
    Candidates,
    Detector,
    RedactionSpan,
    ScanInput,
    find_matches,
    find_spans,
)
from rekindle.redaction.vocabulary.entropy import is_placeholder, is_random
from rekindle.redaction.vocabulary.secret_names import classify_name
from rekindle.redaction.vocabulary.secret_values import is_path

from .detectors import SECRET_DETECTORS

MIN_VALUE_LENGTH = 8  # a shorter value may occur in ordinary text by chance
_USUAL_MIN_CHARS = 10  # of a name that hardly means anything else
_BLANK = re.compile(r"\s")
_MIN_NAMED_LENGTH = 5  # for a value whose name announces a secret


_FOLDERS = frozenset(("PWD", "OLDPWD"))
_LOGIN = re.compile(r"://[^\s/:@]*:([^\s/@]{5,})@")


def is_secret_variable(name: str, value: str) -> bool:
    """Return whether a variable holds a secret: its name says so, or its value has one in it."""
    value = value.strip()
    if name in _FOLDERS or is_placeholder(value) or is_path(value):
        return False
    return _is_named_secret(name, value) or bool(find_spans(value, SECRET_DETECTORS))


def _is_named_secret(name: str, value: str) -> bool:
    secret_name = classify_name(name)
    if secret_name is None or not value:
        return False
    return secret_name.min_chars <= _USUAL_MIN_CHARS or is_random(value, secret_name.min_chars)


def find_secret_values(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that hold a secret and its value, if that is long enough to search for."""
    found: dict[str, str] = {}
    for name, value in env.items():
        value = value.strip()
        if value.isdigit() or not is_secret_variable(name, value):
            continue
        if login := _LOGIN.search(value):
            found[name] = login[1]
            continue
        secret_name = classify_name(name)
        is_named = _is_named_secret(name, value)
        is_strong = is_named and secret_name is not None and secret_name.is_strong
        if len(value) >= (_MIN_NAMED_LENGTH if is_strong else MIN_VALUE_LENGTH) and (
            is_named or not _BLANK.search(value)
        ):
            found[name] = value
    return found


def iter_encodings(value: str) -> Iterator[str]:
    """Yield the value and its encodings, as they appear at any offset of a longer text."""
    data = value.encode("utf-8", "surrogatepass")
    yield value
    yield quote(value, safe="")
    yield quote_plus(value)
    yield json.dumps(value)[1:-1]
    for offset in range(3):
        # The first and last characters depend on the neighbouring bytes; leave them out.
        encoded = b64encode(b"\0" * offset + data).decode()
        stable = encoded[(0, 2, 3)[offset] : (len(data) + offset) * 8 // 6]
        yield stable
        yield stable.replace("+", "-").replace("/", "_")


def make_known_value_detector(values: Mapping[str, str]) -> Detector:
    """Make a detector for these values in all their encodings; the mask names the variable."""
    names_by_encoding: dict[str, str] = {}
    for name, value in values.items():
        for encoding in iter_encodings(value):
            if len(encoding) >= _MIN_NAMED_LENGTH:
                names_by_encoding.setdefault(encoding, name.lower().replace("_", "-"))
    ordered = sorted(names_by_encoding, key=len, reverse=True)
    literals = [encoding.encode("ascii", "replace") for encoding in ordered]
    pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def detect(scan: ScanInput) -> Sequence[Candidates]:
        if pattern is None or not any(literal in scan.raw for literal in literals):
            return NO_CANDIDATES
        found = find_matches(scan, pattern)
        return (Candidates(found, inspect, 0.3),) if found else NO_CANDIDATES

    def inspect(scan: ScanInput, at: int) -> Iterator[RedactionSpan]:
        if pattern and (found := pattern.match(scan.text, at)):
            name = names_by_encoding[found.group()]
            yield RedactionSpan(at, found.end(), "known", f"<secret:env:{name}>")

    return detect
