"""Takes secrets and private data out of text, before anything is learned from it.

    redactor = Redactor.of_machine(home, environ)   or Redactor(known, home="/home/ada", user="ada")
    redactor.text(command, "arguments")     a text without them
    redactor.value(arguments, "arguments")  the same for whatever JSON can say
    redactor.report                         how much of which kind was removed, and where

What goes is replaced by a mask that says what it was: `<secret:aws-key>`, `<mail>`, `<phone>`,
`<card>`, `<user>`, and `~` for a home folder. A mask is left alone, so that redacting twice gives
the same text. The report never holds what was removed. The rules stand in `secrets/`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from rekindle.redaction.detectors.cli_options import behind_options
from rekindle.redaction.detectors.encoded import wrapped
from rekindle.redaction.detectors.entropy import is_reference
from rekindle.redaction.detectors.environment import known as known_rule
from rekindle.redaction.detectors.environment import secret_values
from rekindle.redaction.detectors.personal_data import own
from rekindle.redaction.detectors.secret_names import Name, announced
from rekindle.types import JSON

from .detectors import RULES
from .scanner import Look, Rule, Span

if TYPE_CHECKING:
    from pathlib import PurePath

__all__ = ["Redactor", "secret_values"]

_PASSES = 4  # a mask may uncover what stood beside it; two passes are nearly always enough
_SHORTEST = 6  # no secret is shorter than this with its name
_ALONE = frozenset(("home", "mail"))  # frequent, and their masks uncover nothing
_SCHEMA = frozenset(("string", "number", "integer", "boolean", "object", "array", "null"))


class Redactor:
    """Redacts texts by the same rules, and counts what it removed.

    `known` are values that must go wherever they stand and however they are encoded, by name (see
    `secret_values`); `home` is the home folder and `user` the name of the user of this machine.
    `report` counts what was removed by kind and by the place that the caller names.
    """

    def __init__(
        self,
        known: Mapping[str, str] | None = None,
        home: str | None = None,
        user: str | None = None,
    ) -> None:
        self.report: Counter[tuple[str, str]] = Counter()
        direct = (known_rule(known or {}), own(home, user), *RULES)
        once = (*direct, wrapped(lambda text: _holds(text, direct)))
        self._rules: tuple[Rule, ...] = (*direct, wrapped(lambda text: _holds(text, once)))

    @classmethod
    def of_machine(cls, home: PurePath, env: Mapping[str, str]) -> Redactor:
        """One that knows a machine by its user's home folder and environment."""
        return cls(secret_values(env), str(home), env.get("USER") or None)

    def text(self, text: str, where: str = "") -> str:
        """The text without secrets; `where` is the place that the report names."""
        if len(text) < _SHORTEST:
            return text
        for _ in range(_PASSES):
            spans = _apart(_found(text, self._rules))
            if not spans:
                break
            for span in spans:
                self.report[span.kind, where] += 1
            text = _masked(text, spans)
            if all(span.kind in _ALONE for span in spans):
                break
        return text

    def value(self, value: JSON, where: str = "") -> JSON:
        """The same for a value of any shape: what stands under a secret's name is masked whole."""
        if isinstance(value, str):
            return self.text(value, where)
        if isinstance(value, Mapping):
            fields = cast("Mapping[object, JSON]", value)
            named = _named_value(fields)
            return {
                self._key(key, where): self._under(named if key == "value" else key, one, where)
                for key, one in fields.items()
            }
        if isinstance(value, (list, tuple)):
            return self._items(cast("Sequence[JSON]", value), where)
        return value

    def _items(self, items: Sequence[JSON], where: str) -> list[JSON]:
        """A list; when it is a command, word by word, an option tells about the word behind it."""
        redacted = [self.value(one, where) for one in items]
        if all(isinstance(one, str) for one in items):
            for number in behind_options(redacted):
                redacted[number] = "<secret:password>"
                self.report["password", where] += 1
        return redacted

    def _key(self, key: object, where: str) -> object:
        return self.text(key, where) if isinstance(key, str) else key

    def _under(self, key: object, value: JSON, where: str) -> JSON:
        says = announced(key) if isinstance(key, str) else None
        return self.value(value, where) if says is None else self._whole(says, value, where)

    def _whole(self, says: Name, value: JSON, where: str) -> JSON:
        """Everything below a secret's name, unless that only describes it."""
        if isinstance(value, Mapping):
            below = cast("Mapping[str, JSON]", value)
            kind = below.get("type")
            if isinstance(kind, str) and kind in _SCHEMA:
                return self.value(value, where)
            return {key: self._whole(says, one, where) for key, one in below.items()}
        if isinstance(value, (list, tuple)):
            return [self._whole(says, one, where) for one in cast("Sequence[JSON]", value)]
        if value is None or isinstance(value, bool) or value == "":
            return value
        if isinstance(value, str) and is_reference(value):
            return value
        self.report[says.kind, where] += 1
        return f"<secret:{says.kind}>"


def _named_value(fields: Mapping[object, JSON]) -> object:
    """What `value` stands for beside a `name`, as variables are listed: `{"name": …, "value": …}`."""
    name = fields.get("name", fields.get("key"))
    return name if isinstance(name, str) and announced(name) is not None else "value"


def _found(text: str, rules: Iterable[Rule]) -> list[Span]:
    look = Look(text)
    return [
        span
        for rule in rules
        for span in rule(look)
        if not is_reference(text[span.start : min(span.end, span.start + 100)])
    ]


def _holds(text: str, rules: Iterable[Rule]) -> bool:
    return len(text) >= _SHORTEST and bool(_found(text, rules))


def _apart(spans: list[Span]) -> list[Span]:
    """From left to right, without overlap: what touches another becomes one with it."""
    apart: list[Span] = []
    for span in sorted(spans, key=lambda one: (one.start, -one.end)):
        if apart and span.start < apart[-1].end:
            if span.end > apart[-1].end:
                apart[-1] = apart[-1]._replace(end=span.end)
        else:
            apart.append(span)
    return apart


def _masked(text: str, spans: Iterable[Span]) -> str:
    pieces: list[str] = []
    at = 0
    for span in spans:
        pieces += (text[at : span.start], span.mask)
        at = span.end
    pieces.append(text[at:])
    return "".join(pieces)
