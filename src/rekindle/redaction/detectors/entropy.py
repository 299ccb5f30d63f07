"""Is this text random, a placeholder, a digest, or made of words?"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from math import log2

# What stands where a secret would: masks, variables, forms to fill in.
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
# All that may begin with one of these letters or digits and be a placeholder is cut short by dots.
_ORDINARY = frozenset("abcdeijklnpqtuvwzABCDEIJKLNPQTUVWZ0123456789")
_CUT = re.compile(r"\w{0,8}(?:\*{3,}|•{3,}|…|\.{3})\w{0,6}\Z")
_REFERENCE = re.compile(r"<[a-z][\w:.-]*>|~|\$\{\w+\}|\$[A-Z_][A-Z0-9_]*|\{\{[^}]*\}\}|\*{3,}")
_DIGEST = re.compile(
    r"(?:[0-9a-f]{7,12}|[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{56}|[0-9a-f]{64}|[0-9a-f]{96}|[0-9a-f]{128})"
    r"|[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
    r"|(?:sha\d+|md5)[-:].*"
)
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def words(text: str) -> frozenset[str]:
    """The words of a text, for the tables of this folder."""
    return frozenset(text.split())


def is_placeholder(value: str) -> bool:
    """A mask, a variable, or something that a reader is to fill in: not a secret itself."""
    pattern = _CUT if value[:1] in _ORDINARY else _PLACEHOLDER
    return pattern.match(value) is not None


def is_reference(value: str) -> bool:
    """A mask or a variable, beyond doubt."""
    return _REFERENCE.fullmatch(value) is not None


def is_digest(value: str) -> bool:
    """A commit, a checksum or a UUID: random, and no secret."""
    return _DIGEST.fullmatch(value) is not None


@lru_cache(maxsize=4096)
def is_random(value: str, least: int = 12) -> bool:
    """Does this look drawn by lot rather than written?

    Chance changes between letters, capitals and digits far more often than words do.
    """
    size = len(value)
    if size < least:
        return False
    value = value[:256]
    changes, digits, letters = _changes(value)
    if not letters:
        return False
    if digits >= 2:
        return changes >= 0.2 * len(value) and entropy(value) >= 2.7
    # With one digit or none it may be words: theInnerName has long ones, chance has none.
    return (
        size >= 16 and changes >= 0.2 * len(value) and len(_WORDS.findall(value)) >= 0.32 * letters
    )


def entropy(value: str) -> float:
    """Bits per character, by how often each one stands in the text."""
    size = len(value)
    shares = [count / size for count in Counter(value).values()]
    return -sum(share * log2(share) for share in shares)


def _changes(value: str) -> tuple[int, int, int]:
    """How often the class of neighbours changes, how many digits and how many letters there are.

    Dates, versions and words joined by hyphens change at the hyphen only, which does not count.
    """
    image = value.encode().translate(_CLASSES) if value.isascii() else bytes(map(_class, value))
    number = int.from_bytes(image)
    beside = (number ^ number >> 8).to_bytes(len(image))  # each class with the one before it
    changes = len(beside.translate(None, _NO_CHANGE))
    return changes, len(image.translate(None, b"\2\4\x08")), len(image.translate(None, b"\1\x08"))


@lru_cache(maxsize=4096)
def _class(letter: str) -> int:
    """A digit is 1, a capital 2, another letter 4, all else 8: two of them tell in their sum which."""
    if letter.isdigit():
        return 1
    if letter.isalpha():
        return 2 if letter.isupper() else 4
    return 8


_CLASSES = bytes(_class(chr(code)) if code < 128 else 8 for code in range(256))
_NO_CHANGE = bytes(range(256)).translate(None, bytes((1 ^ 2, 1 ^ 4, 2 ^ 4)))
