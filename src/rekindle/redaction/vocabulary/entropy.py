"""Tells whether a text is random, a placeholder, a digest, or made of words."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from math import log2

# Stand-ins for a secret: masks, variables, blanks to fill in.
_PLACEHOLDER = re.compile(
    r"""<[^<>\n]{0,80}>\Z | <[%?\w:.-]*\Z | <secret: | [~]\Z
      | \$\{?[A-Za-z_]\w*\}?\Z | \$\{[^}]*\} | \$\( | \$\{\{ | \{\{ | \{[\w.\[\]'"!:]*\}\Z
      | %\(\w+\)s | %s\Z | %\w+%\Z | \#\{ | ` | <% | @[\w.]+@\Z | ![\w:]+[ ]
      | [*•.…_-]{3,}\Z | \w{0,8}(?:\*{3,}|•{3,}|…|\.{3})\w{0,6}\Z | [xX]{3,}+[xX-]*\Z
      | [\[<(]?(?:redacted|hidden|masked|filtered|omitted|removed)\b | your[\W_]
      | (?:sk|ghp|xox\w)[-_](?:x{3,}|\.{3}|your)
    """,
    re.X | re.I,
)
# A placeholder that begins with one of these is always truncated by dots or asterisks.
_ORDINARY_STARTS = frozenset("abcdeijklnpqtuvwzABCDEIJKLNPQTUVWZ0123456789")
_TRUNCATED = re.compile(r"\w{0,8}(?:\*{3,}|•{3,}|…|\.{3})\w{0,6}\Z")
_REFERENCE = re.compile(r"<[a-z][\w:.-]*>|~|\$\{\w+\}|\$[A-Z_][A-Z0-9_]*|\{\{[^}]*\}\}|\*{3,}")
_DIGEST = re.compile(
    r"(?:[0-9a-f]{7,12}|[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{56}|[0-9a-f]{64}|[0-9a-f]{96}|[0-9a-f]{128})"
    r"|[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
    r"|(?:sha\d+|md5)[-:].*"
)
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def split_words(text: str) -> frozenset[str]:
    """Return the distinct words of a text."""
    return frozenset(text.split())


def is_placeholder(value: str) -> bool:
    """Return whether the value is a mask, a variable or a blank to fill in, not a secret."""
    pattern = _TRUNCATED if value[:1] in _ORDINARY_STARTS else _PLACEHOLDER
    return pattern.match(value) is not None


def is_reference(value: str) -> bool:
    """Return whether the value is unmistakably a mask or a variable."""
    return _REFERENCE.fullmatch(value) is not None


def is_digest(value: str) -> bool:
    """Return whether the value is a commit hash, a checksum or a UUID: random, but not secret."""
    return _DIGEST.fullmatch(value) is not None


@lru_cache(maxsize=4096)
def is_random(value: str, min_length: int = 12) -> bool:
    """Return whether the value looks randomly generated.

    Random text switches between lower case, upper case and digits far more often than words do.
    """
    size = len(value)
    if size < min_length:
        return False
    value = value[:256]
    changes, digits, letters = _count_changes(value)
    if not letters:
        return False
    if digits >= 2:
        return changes >= 0.2 * len(value) and compute_entropy(value) >= 2.7
    # With at most one digit it may be words: theInnerName has long ones, random text does not.
    return (
        size >= 16 and changes >= 0.2 * len(value) and len(_WORDS.findall(value)) >= 0.32 * letters
    )


def compute_entropy(value: str) -> float:
    """Return the entropy of the text in bits per character."""
    size = len(value)
    shares = [count / size for count in Counter(value).values()]
    return -sum(share * log2(share) for share in shares)


def _count_changes(value: str) -> tuple[int, int, int]:
    """Count the changes of character class, the digits and the letters.

    Dates, versions and words joined by hyphens change only at the hyphen, which does not count.
    """
    image = (
        value.encode().translate(_CLASSES) if value.isascii() else bytes(map(_classify_char, value))
    )
    number = int.from_bytes(image)
    pairs = (number ^ number >> 8).to_bytes(len(image))  # each class XOR the previous one
    changes = len(pairs.translate(None, _UNCHANGED_PAIRS))
    return changes, len(image.translate(None, b"\2\4\x08")), len(image.translate(None, b"\1\x08"))


def count_classes(value: str) -> tuple[int, int, int, int]:
    """Return how many lower case letters, upper case letters and digits there are, and the changes."""
    image = (
        value.encode().translate(_CLASSES) if value.isascii() else bytes(map(_classify_char, value))
    )
    number = int.from_bytes(image)
    pairs = (number ^ number >> 8).to_bytes(len(image))
    changes = len(pairs.translate(None, _UNCHANGED_PAIRS))
    return image.count(4), image.count(2), image.count(1), changes


@lru_cache(maxsize=4096)
def _classify_char(letter: str) -> int:
    """Return the character's class as a bit: digit 1, upper case 2, lower case 4, other 8."""
    if letter.isdigit():
        return 1
    if letter.isalpha():
        return 2 if letter.isupper() else 4
    return 8


_CLASSES = bytes(_classify_char(chr(code)) if code < 128 else 8 for code in range(256))
_UNCHANGED_PAIRS = bytes(range(256)).translate(None, bytes((1 ^ 2, 1 ^ 4, 2 ^ 4)))
