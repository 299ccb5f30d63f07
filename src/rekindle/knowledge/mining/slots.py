"""Arguments with slots: `uv run pytest -q <path:py>` for many calls that differ in their file.

A *skeleton* is what the arguments of similar calls have in common; marks in it name the kind of value
in each slot, and the values are kept next to it. Recurring values are put back later (`fill_slots`),
when many calls are seen together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

from rekindle.judging.rules.text_patterns import split_words
from rekindle.types import JSON

MARK_OPEN, MARK_CLOSE = "\ue000", "\ue001"
MAX_VALUE_CHARS = 120  # a longer value is not compared and never put back
MAX_ARGUMENT_CHARS = 240  # a longer argument is ignored
MAX_ITEMS = 4  # of a list
MAX_DEPTH = 4

MARK = re.compile(f"{MARK_OPEN}([^{MARK_OPEN}{MARK_CLOSE}]*){MARK_CLOSE}")
_SHORT_WORD = re.compile(r"[a-z][a-z0-9_:-]{0,24}")
_OPTION_VALUE = re.compile(r"(--?[A-Za-z][\w.-]*)=(.+)", re.DOTALL)
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_EXTENSION = re.compile(r"[^./]\.([A-Za-z][A-Za-z0-9]{0,5})(?::\d+(?:[:-]\d+)?)?$")
_KIND_PATTERNS = (
    ("int", re.compile(r"[+-]?\d{1,18}")),
    ("number", re.compile(r"[+-]?\d+\.\d+")),
    ("date", re.compile(r"\d{4}-\d\d-\d\d(?:[T ][\d:.Z+-]+)?")),
    ("range", re.compile(r"\d+,\$?\d*p?|\d+:\d+")),
    ("uuid", re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")),
    ("hash", re.compile(r"(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,64}[~^]?")),
    ("version", re.compile(r"v?\d+\.\d+(?:[-+.]\w+)*")),
    ("mail", re.compile(r"[\w.+-]+@[\w-]+\.[\w.]+|<mail>")),
    ("id", re.compile(r"(?=\D*\d)(?=[^A-Z]*[A-Z])[A-Z0-9]{5,12}|[a-z]+(?:_[a-z]+)*_\d+")),
)
# Arguments with free text, never one of a few choices.
_FREE_TEXT_NAMES = split_words(
    """
    query q pattern search search_term regex keyword keywords name title text content message prompt
    question topic subject body description user username user_id value expression input url path
    file file_path filepath filename
    """
)
# Arguments that explain the call or limit its waiting time, and are not part of it.
COMMENT_ARGUMENTS = split_words(
    """
    description justification explanation thought reason summary intent toolSummary toolAction
    security_risk rationale comment yield_time_ms max_output_tokens timeout timeout_ms login
    sandbox_permissions prefix_rule initial_wait is_input is_background run_in_background
    """
)


# Values of these kinds belong to one moment or one person: they are never put back.
FLEETING_KINDS = frozenset(
    (
        "id",
        "uuid",
        "hash",
        "date",
        "mail",
        "number",
        "range",
        "text",
        "script",
        "patch",
        "expression",
    )
)


class SlottedArguments(NamedTuple):
    """Arguments with slots: the skeleton with its marks, and the slot values in order."""

    skeleton: JSON
    values: tuple[str, ...]


def make_mark(kind: str) -> str:
    """Make the mark of a slot in a skeleton."""
    return f"{MARK_OPEN}{kind}{MARK_CLOSE}"


def slot_arguments(arguments: Mapping[str, JSON]) -> SlottedArguments:
    """Replace the values in the arguments of a call that is not a command line by slots."""
    values: list[str] = []
    found: dict[str, JSON] = {
        key: _slot_text(key, value, values)
        if type(value) is str
        else _slot_part(key, value, values, 0)
        for key, value in arguments.items()
        if key not in COMMENT_ARGUMENTS
    }
    return SlottedArguments(found, tuple(values))


def _slot_part(key: str, value: JSON, values: list[str], depth: int) -> JSON:
    if isinstance(value, str):
        return _slot_text(key, value, values)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, (int, float)):
        values.append(f"{value}")
        return make_mark("int" if isinstance(value, int) else "number")
    if depth >= MAX_DEPTH:
        values.append("")
        return make_mark("value")
    if isinstance(value, dict):
        parts = cast("Mapping[str, JSON]", value)
        return {name: _slot_part(name, part, values, depth + 1) for name, part in parts.items()}
    items = cast("Sequence[JSON]", value)
    kept = [_slot_part(key, item, values, depth + 1) for item in items[:MAX_ITEMS]]
    return kept if len(items) <= MAX_ITEMS else [*kept, "…"]


def _slot_text(key: str, text: str, values: list[str]) -> str:
    if text[:1] == MARK_OPEN and MARK.fullmatch(text):  # too long: see `prune_long_texts`
        values.append("")
        return text
    kind = "text" if " " in text or "\n" in text else classify_word(text)
    if kind == "word" and key.lower() not in _FREE_TEXT_NAMES and _SHORT_WORD.fullmatch(text):
        return text
    if not kind:
        return text
    values.append(text if len(text) <= MAX_VALUE_CHARS and "\n" not in text else "")
    return make_mark(kind)


def prune_long_texts(value: JSON, depth: int = 0) -> JSON:
    """Replace texts that are too long for an example by marks."""
    if isinstance(value, str):
        if len(value) <= MAX_ARGUMENT_CHARS and value.count("\n") < 2:
            return value
        return make_mark(
            "patch" if value.startswith(("*** Begin", "diff --git", "--- ")) else "text"
        )
    if isinstance(value, dict):
        if depth > MAX_DEPTH:
            return make_mark("value")
        parts = cast("Mapping[str, JSON]", value)
        return {
            str(key): prune_long_texts(part, depth + 1) for key, part in list(parts.items())[:40]
        }
    if isinstance(value, (list, tuple)):
        if depth > MAX_DEPTH:
            return make_mark("value")
        return [
            prune_long_texts(part, depth + 1) for part in cast("list[JSON]", value)[: MAX_ITEMS + 1]
        ]
    return value


@lru_cache(maxsize=50_000)
def classify_word(word: str) -> str:
    """Return the kind of value a word is; empty for a word that belongs to the skeleton."""
    if word[:1] in "'\"":
        inner = word[1:-1] if word[-1:] == word[:1] else word[1:]
        return (classify_word(inner) or "word") if inner and not _is_prose(inner) else "text"
    if word in ("", ".", "..", "-", "--", "./...", "...", "HEAD"):
        return ""
    if "://" in word:
        return "url"
    if word[0] == "<" and word[-1] == ">":  # a mask left by redaction
        return ""
    if "$" in word or "`" in word:
        return "expression"
    if "/" not in word or "@" in word:  # otherwise a path
        for kind, form in _KIND_PATTERNS:
            if form.fullmatch(word):
                return kind
    if any(sign in word for sign in "*?[{"):
        return "glob"
    if word[0] == "@" and word.count("/") == 1:
        return ""  # a scoped package
    return _classify_path(word)


def _is_prose(text: str) -> bool:
    return len(text) > 40 or any(space in text for space in " \t\n")


def _classify_path(word: str) -> str:
    ending = _EXTENSION.search(word)
    if ending:
        return f"path:{ending[1].lower()}"
    return "path" if "/" in word or word[0] == "~" else "word"


def slot_word(word: str, values: list[str], *, literal: bool) -> str:
    """Return a word of a command as the skeleton has it; add the hidden value to `values`."""
    if word[0] == "-":
        return _slot_option(word, values)
    kind = "" if literal else classify_word(word)
    if not kind:
        return word
    if kind == "word" and (assignment := _ASSIGNED.fullmatch(word)):
        values.append(assignment[2][:MAX_VALUE_CHARS])
        return f"{assignment[1]}={make_mark('value')}"
    values.append(word if len(word) <= MAX_VALUE_CHARS and "\n" not in word else "")
    return make_mark(kind)


def _slot_option(word: str, values: list[str]) -> str:
    option = _OPTION_VALUE.fullmatch(word)
    if option is None:
        return word if len(word) <= 40 else make_mark("text")
    kind = classify_word(option[2])
    if not kind or (kind == "word" and _SHORT_WORD.fullmatch(option[2])):
        return word
    values.append(option[2] if len(option[2]) <= MAX_VALUE_CHARS else "")
    return f"{option[1]}={make_mark(kind)}"


# ── filling


def list_slot_kinds(skeleton: JSON) -> list[str]:
    """Return the kinds of the slots, in the order of their values."""
    found: list[str] = []
    parts: Iterable[JSON] = (skeleton,)
    if isinstance(skeleton, dict):
        parts = cast("Mapping[str, JSON]", skeleton).values()
    elif isinstance(skeleton, (list, tuple)):
        parts = cast("Sequence[JSON]", skeleton)
    for part in parts:
        if isinstance(part, str):
            if MARK_OPEN in part:
                found += _find_marks(part)
        elif isinstance(part, (dict, list, tuple)):
            found += list_slot_kinds(cast(JSON, part))
    return found


@lru_cache(maxsize=20_000)
def _find_marks(skeleton: str) -> tuple[str, ...]:
    return tuple(MARK.findall(skeleton))


def fill_slots(skeleton: JSON, chosen: Sequence[str | None]) -> JSON:
    """Fill each slot with its chosen value, or else with its name, as in `<path:py>`."""
    return _fill_part(skeleton, iter(chosen))


def _fill_part(part: JSON, chosen: Any) -> JSON:
    if isinstance(part, dict):
        parts = cast("Mapping[str, JSON]", part)
        return {key: _fill_part(value, chosen) for key, value in parts.items()}
    if isinstance(part, (list, tuple)):
        return [_fill_part(value, chosen) for value in cast("list[JSON]", part)]
    if not isinstance(part, str) or MARK_OPEN not in part:
        return part
    whole = MARK.fullmatch(part)
    if whole and whole[1] in ("int", "number"):
        value = next(chosen, None)
        return f"<{whole[1]}>" if value is None else _parse_number(value)
    return MARK.sub(lambda found: _format_slot(found[1], next(chosen, None)), part)


def _format_slot(kind: str, value: str | None) -> str:
    return f"<{kind}>" if value is None else value


def _parse_number(value: str) -> JSON:
    try:
        return int(value)
    except ValueError:
        return float(value)
