"""The file format of templates: JSON that people can read and diff, validated when read.

Unknown fields are rejected by name: a file with fields that this version does not understand would
lose them when it is written again.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal, NoReturn, TypeAlias, TypeVar, cast, get_args

import msgspec
from msgspec import Meta
from msgspec.structs import asdict

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
_PROBLEM = re.compile(r"(.*?)(?: - at `\$([\w.\[\]]*)`)?", re.DOTALL)  # of msgspec, and its place

F = TypeVar("F", bound=msgspec.Struct)
_Id: TypeAlias = Annotated[str, Meta(min_length=1, max_length=64)]
_Text: TypeAlias = Annotated[str, Meta(max_length=MAX_TEXT_CHARS)]
_Count: TypeAlias = Annotated[int, Meta(ge=0, lt=2**53)]
_Number: TypeAlias = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]  # finite
_Made: TypeAlias = Literal["built", "extracted", "merged", "imported", "automatic"]


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


class _FileFields(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of an object in the file, with their limits."""


class _StepFields(_FileFields):
    tool: Annotated[str, Meta(min_length=1, max_length=200)]
    arguments: dict[str, Any] = {}
    result: _Text = ""
    example: dict[str, Any] | None = None


class _PatternFields(_FileFields):
    id: _Id
    kind: PatternKind
    steps: Annotated[tuple[_StepFields, ...], Meta(min_length=1, max_length=MAX_STEPS)]
    asked: _Text = ""
    before: _StepFields | None = None
    lesson: _Text = ""
    support: _Count = 1
    sessions: Annotated[tuple[_Text, ...], Meta(max_length=10_000)] = ()
    seen_in: _Count = 1
    last_seen: _Number = 0.0
    error_rate: _Number = 0.0
    score: _Number = 0.0
    tainted: bool = False
    also: Annotated[tuple[_Text, ...], Meta(max_length=20)] = ()


class _StyleFields(_FileFields):
    messages: _Count = 0
    mean_length: _Number = 0.0
    questions: _Number = 0.0
    commands: _Number = 0.0
    preferred: _Text = ""


class _SeedFields(_FileFields):
    system: _Text = ""
    instructions: Annotated[tuple[_Text, ...], Meta(max_length=50)] = ()
    markers: Annotated[tuple[_Text, ...], Meta(max_length=500)] = ()
    style: _StyleFields = msgspec.field(default_factory=_StyleFields)


class _OriginFields(msgspec.Struct):
    """Where a template was exported: program, time and former state."""

    program: Annotated[str, Meta(max_length=200)] = ""
    exported: _Number = 0.0
    made: Annotated[str, Meta(max_length=40)] = ""
    sessions: _Count = 0
    revision: _Count = 0


class _ScanFields(msgspec.Struct):
    """The parts of `scan` that are read again."""

    sources: dict[str, Any] = {}
    dropped: Annotated[tuple[_Text, ...], Meta(max_length=MAX_TEMPLATE_PATTERNS)] = ()
    origin: _OriginFields = msgspec.field(default_factory=_OriginFields)


class _TemplateFields(_FileFields):
    id: _Id
    name: Annotated[str, Meta(min_length=1, max_length=100)]
    description: _Text = ""
    task_type: Annotated[str, Meta(max_length=40)] = "mixed"
    tags: Annotated[tuple[_Text, ...], Meta(max_length=50)] = ()
    patterns: Annotated[tuple[_PatternFields, ...], Meta(max_length=MAX_TEMPLATE_PATTERNS)] = ()
    seed: _SeedFields = msgspec.field(default_factory=_SeedFields)
    sources: Annotated[tuple[_Text, ...], Meta(max_length=100_000)] = ()
    state: TemplateState = "active"
    made: _Made = "built"
    revision: Annotated[int, Meta(ge=1, lt=2**53)] = 1
    created: _Number = 0.0
    updated: _Number = 0.0
    scan: _ScanFields = msgspec.field(default_factory=_ScanFields)


_NESTED_FIELDS = {
    "patterns": _PatternFields,
    "steps": _StepFields,
    "before": _StepFields,
    "seed": _SeedFields,
    "style": _StyleFields,
}
_CHOICES = {"kind": PatternKind, "state": TemplateState, "made": _Made}
_TYPE_NAMES = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "object": "an object",
    "str": "text",
}


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
    read = _convert_fields(given, _TemplateFields, where)
    style = UserStyle(**asdict(read.seed.style))
    return Template(**asdict(read))._replace(
        patterns=tuple(map(_build_pattern, read.patterns)),
        seed=Seed(**asdict(read.seed))._replace(style=style),
        scan=given.get("scan", {}),  # as it is: it may hold more than we read again
    )


def parse_origin(fields: JSON, where: str) -> dict[str, JSON]:
    """Parse where a template was exported: program, time and former state. Drop the rest."""
    origin = asdict(_convert_fields(fields, _OriginFields, where))
    return {name: origin[name] for name in fields if name in origin}


def _build_pattern(read: _PatternFields) -> Pattern:
    return Pattern(**asdict(read))._replace(
        steps=tuple(PatternStep(**asdict(step)) for step in read.steps),
        before=None if read.before is None else PatternStep(**asdict(read.before)),
    )


def _convert_fields(fields: JSON, kind: type[F], where: str) -> F:
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        found = _PROBLEM.fullmatch(str(error))
        problem, path = found.groups("") if found else (str(error), "")
        raise _make_field_error(problem, path.lstrip("."), fields, where) from None


def _make_field_error(problem: str, path: str, fields: JSON, where: str) -> InvalidInput:
    """Explain a problem of `msgspec` in the file's terms, with what is allowed and what is given."""
    place = f"{where}: {path}" if path else where
    name = (re.findall(r"[a-z_]+", path) or [""])[-1]
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", problem, re.DOTALL):
        known = ", ".join(_NESTED_FIELDS.get(name, _TemplateFields).__struct_fields__)
        return InvalidInput(f"{place}: unknown field {unknown[1]!r:.60}; known fields: {known}")
    if missing := re.fullmatch(r"Object missing required field `(.*)`", problem):
        return InvalidInput(f"{place}: missing field {missing[1]}")
    if problem.startswith("Invalid enum"):
        problem = f"expected one of {', '.join(get_args(_CHOICES[name]))}"
    limit = re.sub(
        r"`(\w++)[^`]*+`", lambda type: _TYPE_NAMES[type[1]], problem.partition(", got")[0]
    )
    with suppress(LookupError, TypeError):
        for index, key in re.findall(r"\[(\d+)\]|(\w+)", path):
            fields = fields[int(index)] if index else fields[key]
    return InvalidInput(f"{place}: {limit[0].lower()}{limit[1:]}, got {fields!r:.40}")
