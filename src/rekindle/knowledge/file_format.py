"""The file format of templates: JSON that people can read and diff, validated when read.

Unknown fields are rejected by name: a file with fields that this version does not understand would
lose them when it is written again. Text with characters that nobody sees is rejected, because a model
would read them. Files of format 2 are converted (see `old_patterns`).
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import unicodedata
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal, NoReturn, TypeAlias, TypeVar, cast, get_args

import msgspec
from msgspec import Meta
from msgspec.structs import asdict

from rekindle.errors import InvalidInput
from rekindle.json_fields import as_object, describe_json_error
from rekindle.types import (
    JSON,
    NoteKind,
    NotePosition,
    Seed,
    Template,
    TemplateNote,
    TemplateState,
    UserStyle,
)

from .old_patterns import OldStep, convert_pattern
from .template_notes import merge_notes

FORMAT_VERSION = 3
MAX_BYTES = 5_000_000
MAX_TEMPLATE_NOTES = 2_000
MAX_STEPS = 6
MAX_TEXT_CHARS = 20_000  # of a text
MAX_NOTE_CHARS = 1_000

# Keys of `scan`: the only owner of its sessions, notes that a person dropped, the origin of an import,
# and how many patterns of a file of format 2 became notes.
OWNER_KEY, DROPPED_KEY, ORIGIN_KEY, CONVERTED_KEY = "owner", "dropped", "origin", "converted"
SOURCES_KEY = "sources"
_JOINERS = "\u200c\u200d"  # some scripts and emoji need them
_PROBLEM = re.compile(r"(.*?)(?: - at `\$([\w.\[\]]*)`)?", re.DOTALL)  # of msgspec, and its place

F = TypeVar("F")
_Id: TypeAlias = Annotated[str, Meta(min_length=1, max_length=64)]
_Text: TypeAlias = Annotated[str, Meta(max_length=MAX_TEXT_CHARS)]
_NoteText: TypeAlias = Annotated[str, Meta(max_length=MAX_NOTE_CHARS)]
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
    }
    notes = [_note_to_fields(one) for one in fields.pop("notes")]
    return {"format": FORMAT_VERSION, **fields, "notes": notes}


def encode_template(template: Template, where: str) -> bytes:
    """Encode a template's file; text that no file can hold is rejected with its field."""
    try:
        return format_template(template).encode()
    except UnicodeEncodeError:
        raise _make_text_error(where, template_to_fields(template)) from None


def get_dropped_notes(template: Template) -> tuple[str, ...]:
    """Return the ids of notes that a person dropped and that must not come back."""
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


def _note_to_fields(note: TemplateNote) -> dict[str, JSON]:
    """Convert a note to JSON values, without fields that are empty."""
    fields = {**note._asdict(), "steps": list(note.steps)}
    return {name: value for name, value in fields.items() if value not in (None, "", [], 0)}


def compute_checksum(fields: Mapping[str, JSON]) -> str:
    """Compute a checksum over the fields of a template."""
    canonical = json.dumps(fields, sort_keys=True, ensure_ascii=True, allow_nan=False)
    return f"sha256:{hashlib.sha256(canonical.encode()).hexdigest()}"


# ── reading


def parse_json_object(data: bytes, where: str) -> dict[str, JSON]:
    """Parse the JSON object of a file that may have been edited by hand."""
    if len(data) > MAX_BYTES:
        raise InvalidInput(
            f"{where} exceeds the {MAX_BYTES:,} bytes that a template may have:"
            " remove notes, or split it in two"
        )
    try:
        value = json.loads(data, parse_constant=lambda name: _reject_constant(name))
        is_valid = find_invalid_text(value) is None
    except RecursionError:
        raise InvalidInput(f"{where} is nested too deeply") from None
    except ValueError as error:
        raise InvalidInput(f"{where} is not JSON: {describe_json_error(error)}") from None
    if not isinstance(value, dict):
        raise InvalidInput(f"{where}: expected a JSON object")
    if not is_valid:
        raise _make_text_error(where, value)
    return cast("dict[str, JSON]", value)


def is_valid_text(text: str) -> bool:
    """Return whether a text can be written in UTF-8 and has no invisible characters."""
    return (text.isascii() and text.isprintable()) or not any(map(_is_invisible, text))


def _is_invisible(char: str) -> bool:
    if char.isprintable() or char in "\n\t":
        return False
    return unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co") and char not in _JOINERS


def replace_invisible(text: str) -> str:
    """Replace characters that no template may have: a session or a person may have written them."""
    if is_valid_text(text):
        return text
    return "".join("\ufffd" if _is_invisible(char) else char for char in text)


def _make_text_error(where: str, value: JSON) -> InvalidInput:
    place, char = find_invalid_text(value) or ("", "")
    kind = "valid UTF-8 text" if "\ud800" <= char <= "\udfff" else "visible text"
    return InvalidInput(
        f"{where}: {place.lstrip('.')}: expected {kind}, got the character U+{ord(char or ' '):04X}"
    )


def find_invalid_text(value: JSON) -> tuple[str, str] | None:
    """Return where a value has text that a template may not have, and the character."""
    if isinstance(value, str):
        return None if is_valid_text(value) else ("", next(filter(_is_invisible, value)))
    items: list[tuple[str, JSON]] = []
    if isinstance(value, dict):
        for name, one in cast("dict[str, JSON]", value).items():
            shown = f".{name}" if name.isidentifier() else f".{name!a:.60}"
            items += [(shown, name), (shown, one)]
    elif isinstance(value, list):
        items = [(f"[{number}]", one) for number, one in enumerate(cast("list[JSON]", value))]
    for shown, one in items:
        if found := find_invalid_text(one):
            return shown + found[0], found[1]
    return None


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


class _FileFields(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of an object in the file, with their limits."""


class _NoteFields(_FileFields):
    id: _Id
    kind: NoteKind
    text: _NoteText
    command: _NoteText | None = None
    folder: _NoteText | None = None
    path: _NoteText | None = None
    failed_command: _NoteText | None = None
    steps: Annotated[tuple[_NoteText, ...], Meta(max_length=MAX_STEPS)] = ()
    position: NotePosition = ""
    asked: _NoteText = ""
    answer: _NoteText = ""
    project: _NoteText | None = None
    sessions: _Count = 0
    worked: _Count = 0
    failed: _Count = 0
    last: Annotated[str, Meta(max_length=40)] = ""


class _OldStepFields(msgspec.Struct):
    tool: str
    arguments: dict[str, Any] = {}
    example: dict[str, Any] | None = None

    @property
    def step(self) -> OldStep:
        return OldStep(self.tool, self.example or self.arguments)


class _OldPatternFields(msgspec.Struct):
    """The parts of a pattern of format 2 that can become a note."""

    kind: str
    steps: tuple[_OldStepFields, ...]
    before: _OldStepFields | None = None
    seen_in: _Count = 1
    tainted: bool = False


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
    dropped: Annotated[tuple[_Text, ...], Meta(max_length=MAX_TEMPLATE_NOTES)] = ()
    origin: _OriginFields = msgspec.field(default_factory=_OriginFields)


class _TemplateFields(_FileFields):
    id: _Id
    name: Annotated[str, Meta(min_length=1, max_length=100)]
    description: _Text = ""
    task_type: Annotated[str, Meta(max_length=40)] = "mixed"
    tags: Annotated[tuple[_Text, ...], Meta(max_length=50)] = ()
    notes: Annotated[tuple[_NoteFields, ...], Meta(max_length=MAX_TEMPLATE_NOTES)] = ()
    seed: _SeedFields = msgspec.field(default_factory=_SeedFields)
    sources: Annotated[tuple[_Text, ...], Meta(max_length=100_000)] = ()
    state: TemplateState = "active"
    made: _Made = "built"
    revision: Annotated[int, Meta(ge=1, lt=2**53)] = 1
    created: _Number = 0.0
    updated: _Number = 0.0
    scan: _ScanFields = msgspec.field(default_factory=_ScanFields)
    project: _NoteText | None = None


_NESTED_FIELDS = {
    "notes": _NoteFields,
    "seed": _SeedFields,
    "style": _StyleFields,
}
_CHOICES = {
    "kind": NoteKind,
    "position": NotePosition,
    "state": TemplateState,
    "made": _Made,
}
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
    if version < FORMAT_VERSION:
        given = _convert_format(given, where)
    read = _convert_fields(given, _TemplateFields, where)
    style = UserStyle(**asdict(read.seed.style))
    return Template(**asdict(read))._replace(
        notes=tuple(TemplateNote(**asdict(note)) for note in read.notes),
        seed=Seed(**asdict(read.seed))._replace(style=style),
        scan=given.get("scan", {}),  # as it is: it may hold more than we read again
    )


def _convert_format(given: dict[str, JSON], where: str) -> dict[str, JSON]:
    """Convert the fields of format 2: patterns that name only harmless values become notes.

    Instructions and files of the seed may hold any value, so only its style is kept.
    """
    patterns = _convert_fields(given.pop("patterns", []), list[_OldPatternFields], where)
    notes = [
        convert_pattern(
            one.kind,
            [step.step for step in one.steps],
            one.before.step if one.before else None,
            one.seen_in,
        )
        for one in patterns
        if not one.tainted
    ]
    kept = merge_notes(note for note in notes if note is not None)
    scan, seed = as_object(given.get("scan")), as_object(given.get("seed"))
    converted = {"patterns": len(patterns), "kept": len(kept)}
    return {
        **given,
        "notes": [_note_to_fields(note) for note in kept],
        "scan": {**scan, CONVERTED_KEY: converted},
        "seed": {"style": seed.get("style", {})},
    }


def parse_origin(fields: JSON, where: str) -> dict[str, JSON]:
    """Parse where a template was exported: program, time and former state. Drop the rest."""
    origin = asdict(_convert_fields(fields, _OriginFields, where))
    return {name: origin[name] for name in fields if name in origin}


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
