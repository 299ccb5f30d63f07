"""Remove secrets and personal data from text, before anything is learned from it.

    redactor = Redactor.from_environment(home, environ)   or Redactor(known, "/home/ada", "ada")
    redactor.redact_text(command, "arguments")      the text without them
    redactor.redact_value(arguments, "arguments")   the same for any JSON value
    redactor.report                                 how much of each kind was removed, and where

Each finding is replaced by a mask that names its kind: `<secret:aws-key>`, `<mail>`, `<phone>`,
`<card>`, `<user>`, and `~` for a home folder. Masks are left alone, so redaction is idempotent. The
report never contains what was removed. The rules are in `detectors/`.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, cast

from rekindle.redaction.detectors.cli_options import find_password_words
from rekindle.redaction.detectors.encoded import make_encoded_detector
from rekindle.redaction.environment import find_secret_values
from rekindle.redaction.environment import make_known_value_detector as known_rule
from rekindle.redaction.personal.places import make_user_detector
from rekindle.redaction.vocabulary.entropy import is_reference
from rekindle.redaction.vocabulary.secret_names import SecretName, classify_name
from rekindle.types import JSON

from .detectors import DETECTORS
from .scanner import Detector, RedactionSpan, find_spans

if TYPE_CHECKING:
    from pathlib import PurePath

__all__ = ["Redactor", "find_secret_values"]

_MAX_PASSES = 4  # a mask may expose what is next to it; two passes nearly always suffice
_MIN_LENGTH = 6  # of a secret together with its name
_INDEPENDENT_KINDS = frozenset(("home", "mail"))  # frequent, and their masks expose nothing
_JSON_SCHEMA_TYPES = frozenset(
    ("string", "number", "integer", "boolean", "object", "array", "null")
)


# Words without digits, quotes or signs between them. The recovery phrase of a wallet is longer.
_PLAIN_WORDS = re.compile(r"(?:[A-Za-z_-]{0,19}+[ ,.();!?\n])*+[A-Za-z_-]{0,19}+\Z")
_MAX_PLAIN_CHARS = 48
# What may announce that one of the plain words is a secret.
_ANNOUNCED = re.compile(
    r"pass|pw|\bpin\b|login|log in|unlock|token|key|secret|code|phrase|cred|obscure|add_user|wort|senha"
    r"|macbook|\.corp\b|\.internal\b|clave|parol|haslo|heslo|author",
    re.I,
)


class Redactor:
    """Redacts texts by the same rules, and counts what it removed.

    `known` maps names to values that are removed wherever they occur and however they are encoded
    (see `find_secret_values`); `home` is the home folder and `user` the user name on this machine.
    `report` counts the findings by kind and by the location that the caller passes.
    """

    def __init__(
        self,
        known: Mapping[str, str] | None = None,
        home: str | None = None,
        user: str | None = None,
    ) -> None:
        self.report: Counter[tuple[str, str]] = Counter()
        self._own_names = tuple(name for name in (home, user, *(known or {}).values()) if name)
        own = (*((known_rule(known),) if known else ()), make_user_detector(home, user))
        direct = (*own, *DETECTORS)
        once = (*direct, make_encoded_detector(lambda text: _contains_secret(text, direct)))
        self._rules: tuple[Detector, ...] = (
            *direct,
            make_encoded_detector(lambda text: _contains_secret(text, once)),
        )

    @classmethod
    def from_environment(cls, home: PurePath, env: Mapping[str, str]) -> Redactor:
        """Create a redactor that knows a machine's home folder and environment."""
        return cls(find_secret_values(env), str(home), env.get("USER") or None)

    def redact_text(self, text: str, where: str = "") -> str:
        """Return the text without secrets; `where` is the location for the report."""
        if len(text) < _MIN_LENGTH or self._is_plain(text):
            return text
        excerpt = whole = [(0, len(text))]
        for _ in range(_MAX_PASSES):
            spans = self._find_in_excerpt(text, excerpt)
            if excerpt is whole and not text.isascii():
                spans += self._find_hidden(text)
            if not spans:
                break
            spans = _merge_overlaps(spans)
            for span in spans:
                self.report[span.kind, where] += 1
            text, excerpt = _apply_masks(text, spans)
            if all(span.kind in _INDEPENDENT_KINDS for span in spans):
                break
        return text

    def _is_plain(self, text: str) -> bool:
        """Return whether the text is only words, too short for a token and without any sign.

        This is a cheap first check: most texts of a session are names and short sentences.
        """
        return (
            _PLAIN_WORDS.match(text) is not None
            and " -" not in text
            and len(text) < _MAX_PLAIN_CHARS
            and (" " not in text or _ANNOUNCED.search(text) is None)
            and not any(name in text for name in self._own_names)
        )

    def _find_in_excerpt(
        self, text: str, excerpt: Sequence[tuple[int, int]]
    ) -> list[RedactionSpan]:
        """Find what is in some stretches of the text, as if nothing was between them."""
        if len(excerpt) == 1:
            start, end = excerpt[0]
            found = _find_spans(text[start:end], self._rules)
            return [_move_span(span, start) for span in found] if start else found
        starts = [0]
        for start, end in excerpt:
            starts.append(starts[-1] + end - start + 1)
        spans: list[RedactionSpan] = []
        for span in _find_spans("\n".join(text[start:end] for start, end in excerpt), self._rules):
            number = bisect_right(starts, span.start) - 1
            start, end = excerpt[number]
            found = _move_span(span, start - starts[number])
            spans.append(found._replace(end=min(found.end, end)))
        return spans

    def _find_hidden(self, text: str) -> list[RedactionSpan]:
        """Find secrets that invisible characters interrupt."""
        return [
            _move_span(span, start)
            for start, end in _merge_windows(
                (gap.start() - _NEAR_CHARS, gap.end() + _NEAR_CHARS)
                for gap in islice(_INVISIBLE.finditer(text), _MAX_GAPS)
            )
            for span in _find_interrupted(text[max(0, start) : end], self._rules)
        ]

    def redact_value(self, value: JSON, where: str = "") -> JSON:
        """Redact any JSON value; everything under the name of a secret is masked."""
        if isinstance(value, str):
            return self.redact_text(value, where)
        if isinstance(value, Mapping):
            fields = cast("Mapping[object, JSON]", value)
            value_name = _resolve_value_name(fields)
            return {
                self._redact_key(key, where): self._redact_field(
                    value_name if key == "value" else key, one, where
                )
                for key, one in fields.items()
            }
        if isinstance(value, (list, tuple)):
            return self._redact_items(cast("Sequence[JSON]", value), where)
        return value

    def _redact_items(self, items: Sequence[JSON], where: str) -> list[JSON]:
        """Redact a list; in the words of a command, also mask the value after a secret option."""
        redacted = [self.redact_value(one, where) for one in items]
        if all(isinstance(one, str) for one in items):
            for number in find_password_words(redacted):
                redacted[number] = "<secret:password>"
                self.report["password", where] += 1
        return redacted

    def _redact_key(self, key: object, where: str) -> object:
        return self.redact_text(key, where) if isinstance(key, str) else key

    def _redact_field(self, key: object, value: JSON, where: str) -> JSON:
        secret_name = classify_name(key) if isinstance(key, str) else None
        return (
            self.redact_value(value, where)
            if secret_name is None
            else self._mask_all(secret_name, value, where)
        )

    def _mask_all(self, secret_name: SecretName, value: JSON, where: str) -> JSON:
        """Mask everything below the name of a secret, unless it is only a JSON schema."""
        if isinstance(value, Mapping):
            fields = cast("Mapping[str, JSON]", value)
            kind = fields.get("type")
            if isinstance(kind, str) and kind in _JSON_SCHEMA_TYPES:
                return self.redact_value(value, where)
            return {key: self._mask_all(secret_name, one, where) for key, one in fields.items()}
        if isinstance(value, (list, tuple)):
            return [
                self._mask_all(secret_name, one, where) for one in cast("Sequence[JSON]", value)
            ]
        if value is None or isinstance(value, bool) or value == "":
            return value
        if isinstance(value, str) and is_reference(value):
            return value
        self.report[secret_name.kind, where] += 1
        return f"<secret:{secret_name.kind}>"


def _resolve_value_name(fields: Mapping[object, JSON]) -> object:
    """Return the name that `value` belongs to in `{"name": …, "value": …}`."""
    name = fields.get("name", fields.get("key"))
    return name if isinstance(name, str) and classify_name(name) is not None else "value"


def _find_spans(text: str, rules: Iterable[Detector]) -> list[RedactionSpan]:
    return [
        span
        for span in find_spans(text, rules)
        if not is_reference(text[span.start : min(span.end, span.start + 100)])
    ]


_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]+")
_NEAR_CHARS = 300  # how far a mask or an invisible character matters
_MAX_GAPS = 500


def _move_span(span: RedactionSpan, distance: int) -> RedactionSpan:
    return span._replace(start=span.start + distance, end=span.end + distance)


def _merge_windows(windows: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge windows that touch; they come in order."""
    merged: list[tuple[int, int]] = []
    for start, end in windows:
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((max(0, start), end))
    return merged


def _find_interrupted(text: str, rules: Iterable[Detector]) -> list[RedactionSpan]:
    """Find secrets in the text without its invisible characters, where they contain one."""
    starts, shifts = [0], [0]
    for gap in _INVISIBLE.finditer(text):
        starts.append(gap.start() - shifts[-1])
        shifts.append(shifts[-1] + gap.end() - gap.start())
    found: list[RedactionSpan] = []
    for span in _find_spans(_INVISIBLE.sub("", text), rules):
        first, last = bisect_right(starts, span.start) - 1, bisect_left(starts, span.end) - 1
        if last > first:
            found.append(
                span._replace(start=span.start + shifts[first], end=span.end + shifts[last])
            )
    return found


def _contains_secret(text: str, rules: Iterable[Detector]) -> bool:
    return len(text) >= _MIN_LENGTH and bool(_find_spans(text, rules))


def _merge_overlaps(spans: list[RedactionSpan]) -> list[RedactionSpan]:
    """Sort the spans from left to right and merge those that overlap."""
    merged: list[RedactionSpan] = []
    for span in sorted(spans, key=lambda one: (one.start, -one.end)):
        if merged and span.start < merged[-1].end:
            last, end = merged[-1], max(span.end, merged[-1].end)
            named = span if span.kind == "known" else last  # the name of a variable says most
            merged[-1] = RedactionSpan(last.start, end, named.kind, named.mask)
        else:
            merged.append(span)
    return merged


def _apply_masks(text: str, spans: Iterable[RedactionSpan]) -> tuple[str, list[tuple[int, int]]]:
    """Return the text with masks, and the windows around them."""
    pieces: list[str] = []
    windows: list[tuple[int, int]] = []
    position = size = 0
    for span in spans:
        size += span.start - position
        windows.append((size - _NEAR_CHARS, size + len(span.mask) + _NEAR_CHARS))
        size += len(span.mask)
        pieces += (text[position : span.start], span.mask)
        position = span.end
    pieces.append(text[position:])
    size += len(text) - position
    return "".join(pieces), [(start, min(end, size)) for start, end in _merge_windows(windows)]
