"""The file format of templates: JSON that people can read and diff, validated when read.

Unknown fields are rejected by name: a file with fields that this version does not understand would
lose them when it is written again.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, cast, get_args

from rekindle.errors import InvalidInput
from rekindle.types import (
    JSON,
    Pattern,
    PatternKind,
    PatternStep,
    Seed,
    Template,
    TemplateState,
    UserStyle,
)

FORMAT_VERSION = 2
MAX_BYTES = 5_000_000
MAX_TEMPLATE_PATTERNS = 2_000
MAX_STEPS = 6
MAX_TEXT_CHARS = 20_000  # of a text

# Keys of `scan`: the only owner of its sessions, patterns that a person dropped, the origin of an
# import.
OWNER_KEY, DROPPED_KEY, ORIGIN_KEY = "owner", "dropped", "origin"
SOURCES_KEY = "sources"

# A lone surrogate, escaped or as bytes, or a NUL byte (as in UTF-16).
_MAYBE_INVALID_TEXT = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]|\0")
_MADE_VALUES = ("built", "extracted", "merged", "imported", "automatic")


def format_template(template: Template) -> str:
    """Format a template as the text of its file: indented, with keys in a fixed order."""
    return (
        json.dumps(template_to_fields(template), indent=2, ensure_ascii=False, allow_nan=False)
        + "\n"
    )


def template_to_fields(template: Template) -> dict[str, JSON]:
    """Convert a template to JSON values."""
    fields = {name: getattr(template, name) for name in Template._fields}
    fields |= {
        "tags": list(template.tags),
        "sources": list(template.sources),
        "scan": dict(template.scan),
        "seed": _seed_to_fields(template.seed),
        "patterns": [_pattern_to_fields(one) for one in template.patterns],
    }
    patterns = fields.pop("patterns")
    return {"format": FORMAT_VERSION, **fields, "patterns": patterns}


def encode_template(template: Template, where: str) -> bytes:
    """Encode a template's file; text that no file can hold is rejected with its field."""
    try:
        return format_template(template).encode()
    except UnicodeEncodeError:
        place = _find_invalid_text(template_to_fields(template))
        raise _make_text_error(where, place or "") from None


def get_dropped_patterns(template: Template) -> tuple[str, ...]:
    """Return the ids of patterns that a person dropped and that must not come back."""
    return tuple(template.scan.get(DROPPED_KEY, ()))


def get_source_counts(template: Template) -> dict[str, int]:
    """Return the number of sessions per source, as far as the template records them."""
    sources = cast("Mapping[str, JSON]", template.scan.get(SOURCES_KEY, {}))
    return {name: count for name, count in sources.items() if isinstance(count, int)}


def _seed_to_fields(seed: Seed) -> dict[str, JSON]:
    return {
        "system": seed.system,
        "instructions": list(seed.instructions),
        "markers": list(seed.markers),
        "style": seed.style._asdict(),
    }


def _pattern_to_fields(pattern: Pattern) -> dict[str, JSON]:
    fields = pattern._asdict()
    fields["steps"] = [_step_to_fields(step) for step in pattern.steps]
    fields["before"] = None if pattern.before is None else _step_to_fields(pattern.before)
    fields |= {"sessions": list(pattern.sessions), "also": list(pattern.also)}
    empty: dict[str, JSON] = {"asked": "", "before": None, "lesson": "", "also": []}
    empty |= {"error_rate": 0.0, "tainted": False}
    return {name: value for name, value in fields.items() if empty.get(name, ...) != value}


def _step_to_fields(step: PatternStep) -> dict[str, JSON]:
    fields: dict[str, JSON] = {"tool": step.tool, "arguments": dict(step.arguments)}
    if step.example is not None:
        fields["example"] = dict(step.example)
    return {**fields, "result": step.result} if step.result else fields


def compute_checksum(template: Template) -> str:
    """Compute a checksum over the whole content of a template."""
    canonical = json.dumps(
        template_to_fields(template), sort_keys=True, ensure_ascii=True, allow_nan=False
    )
    return f"sha256:{hashlib.sha256(canonical.encode()).hexdigest()}"


# ── reading


def parse_json_object(data: bytes, where: str) -> dict[str, JSON]:
    """Parse the JSON object of a file that may have been edited by hand."""
    if len(data) > MAX_BYTES:
        raise InvalidInput(
            f"{where} exceeds the {MAX_BYTES:,} bytes that a template may have:"
            " remove patterns, or split it in two"
        )
    try:
        value = json.loads(data, parse_constant=lambda name: _reject_constant(name))
        place = _find_invalid_text(value) if _MAYBE_INVALID_TEXT.search(data) else None
    except RecursionError:
        raise InvalidInput(f"{where} is nested too deeply") from None
    except ValueError as error:
        raise InvalidInput(f"{where} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidInput(f"{where}: expected a JSON object")
    if place is not None:
        raise _make_text_error(where, place)
    return cast("dict[str, JSON]", value)


def is_valid_text(value: str) -> bool:
    """Return whether the text can be encoded as UTF-8; lone surrogates cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _make_text_error(where: str, place: str) -> InvalidInput:
    return InvalidInput(f"{where}: {place.lstrip('.')}: expected valid UTF-8 text")


def _find_invalid_text(value: JSON) -> str | None:
    """Return the location of invalid text in a value, or None if there is none."""
    if isinstance(value, str):
        return None if is_valid_text(value) else ""
    if isinstance(value, dict):
        for name, one in cast("dict[str, JSON]", value).items():
            place = _find_invalid_text(one) if is_valid_text(name) else ""
            if place is not None:
                return f".{name!a:.60}{place}" if not name.isidentifier() else f".{name}{place}"
    elif isinstance(value, list):
        for number, one in enumerate(cast("list[JSON]", value)):
            place = _find_invalid_text(one)
            if place is not None:
                return f"[{number}]{place}"
    return None


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def parse_template(fields: Mapping[str, JSON], where: str) -> Template:
    """Build the template from the fields of a file, or raise an error that names the field."""
    given = dict(fields)
    version = given.pop("format", None)
    if not isinstance(version, int) or isinstance(version, bool):
        raise InvalidInput(f"{where}: format: expected {FORMAT_VERSION}; this is not a template")
    if version > FORMAT_VERSION:
        raise InvalidInput(
            f"{where} has format {version}, this Rekindle reads format {FORMAT_VERSION}:"
            " upgrade Rekindle"
        )
    reader = _FieldReader(where, given, Template._fields)
    return Template(
        id=reader.read_text("id", min_length=1, max_length=64),
        name=reader.read_text("name", min_length=1, max_length=100),
        description=reader.read_text("description", ""),
        task_type=reader.read_text("task_type", "mixed", max_length=40),
        tags=reader.read_texts("tags", max_items=50),
        patterns=tuple(
            _parse_pattern(one, f"{where}: patterns[{n}]")
            for n, one in enumerate(reader.read_list("patterns", max_items=MAX_TEMPLATE_PATTERNS))
        ),
        seed=_parse_seed(reader.read_object("seed"), f"{where}: seed"),
        sources=reader.read_texts("sources", max_items=100_000),
        state=cast("TemplateState", reader.read_choice("state", get_args(TemplateState), "active")),
        made=reader.read_choice("made", _MADE_VALUES, "built"),
        revision=reader.read_integer("revision", 1, minimum=1),
        created=reader.read_number("created"),
        updated=reader.read_number("updated"),
        scan=_check_scan(reader.read_object("scan"), f"{where}: scan"),
    )


def _check_scan(fields: Mapping[str, JSON], where: str) -> Mapping[str, JSON]:
    """Validate the parts of `scan` that are read again; keep the rest as it is."""
    ours = (SOURCES_KEY, DROPPED_KEY, ORIGIN_KEY)
    reader = _FieldReader(where, {name: fields[name] for name in ours if name in fields}, ours)
    reader.read_object(SOURCES_KEY)
    reader.read_texts(DROPPED_KEY, max_items=MAX_TEMPLATE_PATTERNS)
    parse_origin(reader.read_object(ORIGIN_KEY), f"{where}.{ORIGIN_KEY}")
    return fields


def parse_origin(fields: JSON, where: str) -> dict[str, JSON]:
    """Parse where a template was exported: program, time and former state. Drop the rest."""
    known = ("program", "exported", "made", "sessions", "revision")
    given = {name: one for name, one in _require_object(fields, where).items() if name in known}
    reader = _FieldReader(where, given, known)
    found = {
        "program": reader.read_text("program", "", max_length=200),
        "exported": reader.read_number("exported"),
        "made": reader.read_text("made", "", max_length=40),
        "sessions": reader.read_integer("sessions", 0),
        "revision": reader.read_integer("revision", 0),
    }
    return {name: found[name] for name in given}


def _parse_seed(fields: Mapping[str, JSON], where: str) -> Seed:
    reader = _FieldReader(where, fields, Seed._fields)
    style_reader = _FieldReader(f"{where}.style", reader.read_object("style"), UserStyle._fields)
    return Seed(
        reader.read_text("system", ""),
        reader.read_texts("instructions", max_items=50),
        reader.read_texts("markers", max_items=500),
        UserStyle(
            style_reader.read_integer("messages", 0),
            style_reader.read_number("mean_length"),
            style_reader.read_number("questions"),
            style_reader.read_number("commands"),
            style_reader.read_text("preferred", ""),
        ),
    )


def _parse_pattern(value: JSON, where: str) -> Pattern:
    reader = _FieldReader(where, _require_object(value, where), Pattern._fields)
    steps = reader.read_list("steps", max_items=MAX_STEPS)
    if not steps:
        raise InvalidInput(f"{where}.steps: expected 1 to {MAX_STEPS} steps, got none")
    before = reader.given.get("before")
    return Pattern(
        id=reader.read_text("id", min_length=1, max_length=64),
        kind=cast("PatternKind", reader.read_choice("kind", get_args(PatternKind))),
        steps=tuple(_parse_step(one, f"{where}.steps[{n}]") for n, one in enumerate(steps)),
        asked=reader.read_text("asked", ""),
        before=None if before is None else _parse_step(before, f"{where}.before"),
        lesson=reader.read_text("lesson", ""),
        support=reader.read_integer("support", 1),
        sessions=reader.read_texts("sessions", max_items=10_000),
        seen_in=reader.read_integer("seen_in", 1),
        last_seen=reader.read_number("last_seen"),
        error_rate=reader.read_number("error_rate"),
        score=reader.read_number("score"),
        tainted=reader.read_flag("tainted"),
        also=reader.read_texts("also", max_items=20),
    )


def _parse_step(value: JSON, where: str) -> PatternStep:
    reader = _FieldReader(where, _require_object(value, where), PatternStep._fields)
    return PatternStep(
        reader.read_text("tool", min_length=1, max_length=200),
        reader.read_object("arguments"),
        reader.read_text("result", ""),
        reader.read_object("example") if "example" in reader.given else None,
    )


def _require_object(value: JSON, where: str) -> Mapping[str, JSON]:
    if not isinstance(value, dict):
        raise InvalidInput(f"{where}: expected an object, got {_quote_value(value)}")
    return cast("dict[str, JSON]", value)


def _quote_value(value: object) -> str:
    return f"{value!r:.40}"


class _FieldReader:
    """Reads the fields of one object by name; unknown fields are rejected at once."""

    def __init__(self, where: str, given: Mapping[str, JSON], known: Sequence[str]) -> None:
        self.where = where
        self.given = given
        for name in given:
            if name not in known:
                raise InvalidInput(
                    f"{where}: unknown field {name!r:.60}; known fields: {', '.join(known)}"
                )

    def _reject(self, name: str, expected: str) -> NoReturn:
        got = _quote_value(self.given.get(name)) if name in self.given else "nothing"
        raise InvalidInput(f"{self.where}: {name}: expected {expected}, got {got}")

    def read_text(
        self,
        name: str,
        default: str | None = None,
        *,
        min_length: int = 0,
        max_length: int = MAX_TEXT_CHARS,
    ) -> str:
        value = self.given.get(name, default)
        if not isinstance(value, str) or not min_length <= len(value) <= max_length:
            self._reject(name, f"text of {min_length} to {max_length} characters")
        return value

    def read_texts(self, name: str, *, max_items: int) -> tuple[str, ...]:
        values = self.read_list(name, max_items=max_items)
        if not all(isinstance(value, str) and len(value) <= MAX_TEXT_CHARS for value in values):
            self._reject(name, "a list of strings")
        return tuple(values)

    def read_list(self, name: str, *, max_items: int) -> list[Any]:
        value = self.given.get(name, [])
        if not isinstance(value, list) or len(cast("list[Any]", value)) > max_items:
            self._reject(name, f"a list of at most {max_items} items")
        return cast("list[Any]", value)

    def read_object(self, name: str) -> Mapping[str, JSON]:
        value = self.given.get(name, {})
        if not isinstance(value, dict):
            self._reject(name, "an object")
        return cast("dict[str, JSON]", value)

    def read_choice(self, name: str, allowed: Sequence[str], default: str | None = None) -> str:
        value = self.given.get(name, default)
        if value not in allowed:
            self._reject(name, f"one of {', '.join(allowed)}")
        return cast("str", value)

    def read_integer(self, name: str, default: int, *, minimum: int = 0) -> int:
        value = self.given.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value < 2**53:
            self._reject(name, f"a whole number from {minimum}")
        return value

    def read_number(self, name: str) -> float:
        value = self.given.get(name, 0.0)
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            self._reject(name, "a number")
        if not math.isfinite(value):
            self._reject(name, "a number")
        return float(value)

    def read_flag(self, name: str) -> bool:
        value = self.given.get(name, False)
        if not isinstance(value, bool):
            self._reject(name, "true or false")
        return value
