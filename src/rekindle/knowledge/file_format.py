"""A template as its file says it: JSON that a person can read and diff, and that is checked when read.

What is not known is refused by name: a file that says more than this program understands would lose
it when it is written again.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, cast, get_args

from rekindle.errors import InvalidInput
from rekindle.types import JSON, Pattern, PatternKind, Seed, Step, Style, Template, TemplateState

FORMAT = 2
MOST_BYTES = 5_000_000
MOST_PATTERNS = 2_000
MOST_STEPS = 6
LONGEST = 20_000  # characters of a text

# What a template's `scan` tells beside what was looked at: whose sessions alone, which patterns a person
# dropped, and where it was exported.
OWNER, DROPPED, ORIGIN = "owner", "dropped", "origin"
SOURCES = "sources"

# Half of a surrogate pair as JSON escapes it, or as bytes; or not UTF-8 at all.
_PERHAPS_NO_TEXT = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]|\0")
_MADE = ("built", "extracted", "merged", "imported", "automatic")


def text_of(template: Template) -> str:
    """The file of a template: indented, its keys in a fixed order."""
    return json.dumps(fields_of(template), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def fields_of(template: Template) -> dict[str, JSON]:
    """A template as JSON can say it."""
    fields = {name: getattr(template, name) for name in Template._fields}
    fields |= {
        "tags": list(template.tags),
        "sources": list(template.sources),
        "scan": dict(template.scan),
        "seed": _seed_fields(template.seed),
        "patterns": [_pattern_fields(one) for one in template.patterns],
    }
    patterns = fields.pop("patterns")
    return {"format": FORMAT, **fields, "patterns": patterns}


def data_of(template: Template, where: str) -> bytes:
    """The bytes of a template's file; what no file can hold is refused with its field."""
    try:
        return text_of(template).encode()
    except UnicodeEncodeError:
        place = _no_text(fields_of(template))
        raise _not_text(where, place or "") from None


def dropped_of(template: Template) -> tuple[str, ...]:
    """The ids of patterns that a person dropped: they are not to come back."""
    return tuple(template.scan.get(DROPPED, ()))


def sources_of(template: Template) -> dict[str, int]:
    """The sources of its sessions, with how many there were, as far as the template tells."""
    told = cast("Mapping[str, JSON]", template.scan.get(SOURCES, {}))
    return {name: count for name, count in told.items() if isinstance(count, int)}


def _seed_fields(seed: Seed) -> dict[str, JSON]:
    return {
        "system": seed.system,
        "instructions": list(seed.instructions),
        "markers": list(seed.markers),
        "style": seed.style._asdict(),
    }


def _pattern_fields(pattern: Pattern) -> dict[str, JSON]:
    fields = pattern._asdict()
    fields["steps"] = [_step_fields(step) for step in pattern.steps]
    fields["before"] = None if pattern.before is None else _step_fields(pattern.before)
    fields |= {"sessions": list(pattern.sessions), "also": list(pattern.also)}
    empty: dict[str, JSON] = {"asked": "", "before": None, "lesson": "", "also": []}
    empty |= {"error_rate": 0.0, "tainted": False}
    return {name: value for name, value in fields.items() if empty.get(name, ...) != value}


def _step_fields(step: Step) -> dict[str, JSON]:
    fields: dict[str, JSON] = {"tool": step.tool, "arguments": dict(step.arguments)}
    if step.example is not None:
        fields["example"] = dict(step.example)
    return {**fields, "result": step.result} if step.result else fields


def checksum(template: Template) -> str:
    """A sum of everything a template says."""
    said = json.dumps(fields_of(template), sort_keys=True, ensure_ascii=True, allow_nan=False)
    return f"sha256:{hashlib.sha256(said.encode()).hexdigest()}"


# ── reading


def parsed(data: bytes, where: str) -> dict[str, JSON]:
    """The JSON object of a file that somebody may have written by hand."""
    if len(data) > MOST_BYTES:
        raise InvalidInput(
            f"{where} is larger than the {MOST_BYTES:,} bytes that a template may have:"
            " take patterns out of it, or make two of it"
        )
    try:
        value = json.loads(data, parse_constant=lambda name: _not_json(name))
        place = _no_text(value) if _PERHAPS_NO_TEXT.search(data) else None
    except RecursionError:
        raise InvalidInput(f"{where}: it is nested too deeply") from None
    except ValueError as error:
        raise InvalidInput(f"{where} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidInput(f"{where}: expected a JSON object")
    if place is not None:
        raise _not_text(where, place)
    return cast("dict[str, JSON]", value)


def is_text(value: str) -> bool:
    """Can UTF-8 say it? Half of a surrogate pair is no text, and stands for a byte that was none."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _not_text(where: str, place: str) -> InvalidInput:
    return InvalidInput(f"{where}: {place.lstrip('.')}: expected text that UTF-8 can say")


def _no_text(value: JSON) -> str | None:
    """Where in a value something stands that is no text."""
    if isinstance(value, str):
        return None if is_text(value) else ""
    if isinstance(value, dict):
        for name, one in cast("dict[str, JSON]", value).items():
            place = _no_text(one) if is_text(name) else ""
            if place is not None:
                return f".{name!a:.60}{place}" if not name.isidentifier() else f".{name}{place}"
    elif isinstance(value, list):
        for number, one in enumerate(cast("list[JSON]", value)):
            place = _no_text(one)
            if place is not None:
                return f"[{number}]{place}"
    return None


def _not_json(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def template_of(fields: Mapping[str, JSON], where: str) -> Template:
    """The template that a file says, or a refusal that names the field."""
    given = dict(fields)
    version = given.pop("format", None)
    if not isinstance(version, int) or isinstance(version, bool):
        raise InvalidInput(f"{where}: format: expected {FORMAT}: this is no template")
    if version > FORMAT:
        raise InvalidInput(
            f"{where} has format {version}, this Rekindle reads format {FORMAT}: upgrade Rekindle"
        )
    read = _Reading(where, given, Template._fields)
    return Template(
        id=read.text("id", least=1, most=64),
        name=read.text("name", least=1, most=100),
        description=read.text("description", ""),
        task_type=read.text("task_type", "mixed", most=40),
        tags=read.texts("tags", most=50),
        patterns=tuple(
            _pattern(one, f"{where}: patterns[{n}]")
            for n, one in enumerate(read.items("patterns", most=MOST_PATTERNS))
        ),
        seed=_seed(read.object("seed"), f"{where}: seed"),
        sources=read.texts("sources", most=100_000),
        state=cast("TemplateState", read.one_of("state", get_args(TemplateState), "active")),
        made=read.one_of("made", _MADE, "built"),
        revision=read.whole("revision", 1, least=1),
        created=read.number("created"),
        updated=read.number("updated"),
        scan=_scan(read.object("scan"), f"{where}: scan"),
    )


def _scan(fields: Mapping[str, JSON], where: str) -> Mapping[str, JSON]:
    """What was looked at is told as it was; what is read again from it is checked."""
    ours = (SOURCES, DROPPED, ORIGIN)
    read = _Reading(where, {name: fields[name] for name in ours if name in fields}, ours)
    read.object(SOURCES)
    read.texts(DROPPED, most=MOST_PATTERNS)
    origin_of(read.object(ORIGIN), f"{where}.{ORIGIN}")
    return fields


def origin_of(fields: JSON, where: str) -> dict[str, JSON]:
    """Where a template was exported: the program, when, and what it was there. More is not kept."""
    known = ("program", "exported", "made", "sessions", "revision")
    given = {name: one for name, one in _object(fields, where).items() if name in known}
    read = _Reading(where, given, known)
    found = {
        "program": read.text("program", "", most=200),
        "exported": read.number("exported"),
        "made": read.text("made", "", most=40),
        "sessions": read.whole("sessions", 0),
        "revision": read.whole("revision", 0),
    }
    return {name: found[name] for name in given}


def _seed(fields: Mapping[str, JSON], where: str) -> Seed:
    read = _Reading(where, fields, Seed._fields)
    style = _Reading(f"{where}.style", read.object("style"), Style._fields)
    return Seed(
        read.text("system", ""),
        read.texts("instructions", most=50),
        read.texts("markers", most=500),
        Style(
            style.whole("messages", 0),
            style.number("mean_length"),
            style.number("questions"),
            style.number("commands"),
            style.text("preferred", ""),
        ),
    )


def _pattern(value: JSON, where: str) -> Pattern:
    read = _Reading(where, _object(value, where), Pattern._fields)
    steps = read.items("steps", most=MOST_STEPS)
    if not steps:
        raise InvalidInput(f"{where}.steps: expected 1 to {MOST_STEPS} steps, got none")
    before = read.given.get("before")
    return Pattern(
        id=read.text("id", least=1, most=64),
        kind=cast("PatternKind", read.one_of("kind", get_args(PatternKind))),
        steps=tuple(_step(one, f"{where}.steps[{n}]") for n, one in enumerate(steps)),
        asked=read.text("asked", ""),
        before=None if before is None else _step(before, f"{where}.before"),
        lesson=read.text("lesson", ""),
        support=read.whole("support", 1),
        sessions=read.texts("sessions", most=10_000),
        seen_in=read.whole("seen_in", 1),
        last_seen=read.number("last_seen"),
        error_rate=read.number("error_rate"),
        score=read.number("score"),
        tainted=read.flag("tainted"),
        also=read.texts("also", most=20),
    )


def _step(value: JSON, where: str) -> Step:
    read = _Reading(where, _object(value, where), Step._fields)
    return Step(
        read.text("tool", least=1, most=200),
        read.object("arguments"),
        read.text("result", ""),
        read.object("example") if "example" in read.given else None,
    )


def _object(value: JSON, where: str) -> Mapping[str, JSON]:
    if not isinstance(value, dict):
        raise InvalidInput(f"{where}: expected an object, got {_kind(value)}")
    return cast("dict[str, JSON]", value)


def _kind(value: object) -> str:
    return f"{value!r:.40}"


class _Reading:
    """The fields of one object, read by name; what is not known is refused at once."""

    def __init__(self, where: str, given: Mapping[str, JSON], known: Sequence[str]) -> None:
        self.where = where
        self.given = given
        for name in given:
            if name not in known:
                raise InvalidInput(
                    f"{where}: unknown field {name!r:.60}; known are {', '.join(known)}"
                )

    def _wrong(self, name: str, expected: str) -> NoReturn:
        got = _kind(self.given.get(name)) if name in self.given else "nothing"
        raise InvalidInput(f"{self.where}: {name}: expected {expected}, got {got}")

    def text(
        self, name: str, default: str | None = None, *, least: int = 0, most: int = LONGEST
    ) -> str:
        value = self.given.get(name, default)
        if not isinstance(value, str) or not least <= len(value) <= most:
            self._wrong(name, f"text of {least} to {most} characters")
        return value

    def texts(self, name: str, *, most: int) -> tuple[str, ...]:
        values = self.items(name, most=most)
        if not all(isinstance(value, str) and len(value) <= LONGEST for value in values):
            self._wrong(name, "a list of texts")
        return tuple(values)

    def items(self, name: str, *, most: int) -> list[Any]:
        value = self.given.get(name, [])
        if not isinstance(value, list) or len(cast("list[Any]", value)) > most:
            self._wrong(name, f"a list of at most {most}")
        return cast("list[Any]", value)

    def object(self, name: str) -> Mapping[str, JSON]:
        value = self.given.get(name, {})
        if not isinstance(value, dict):
            self._wrong(name, "an object")
        return cast("dict[str, JSON]", value)

    def one_of(self, name: str, allowed: Sequence[str], default: str | None = None) -> str:
        value = self.given.get(name, default)
        if value not in allowed:
            self._wrong(name, f"one of {', '.join(allowed)}")
        return cast("str", value)

    def whole(self, name: str, default: int, *, least: int = 0) -> int:
        value = self.given.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**53:
            self._wrong(name, f"a whole number from {least}")
        return value

    def number(self, name: str) -> float:
        value = self.given.get(name, 0.0)
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            self._wrong(name, "a number")
        if not math.isfinite(value):
            self._wrong(name, "a number")
        return float(value)

    def flag(self, name: str) -> bool:
        value = self.given.get(name, False)
        if not isinstance(value, bool):
            self._wrong(name, "true or false")
        return value
