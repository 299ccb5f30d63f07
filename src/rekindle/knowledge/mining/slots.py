"""Arguments with slots: `uv run pytest -q <path:py>` for many calls that differ in their file.

A *skeleton* is what the arguments of a call have in common with those of others like it; marks in it
say what kind of thing stood in each slot, and the values stand beside it. What recurs is put back
later (`fill`), where many calls are seen together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

from rekindle.judging.rules.text_patterns import words
from rekindle.types import JSON

OPEN, CLOSE = "\ue000", "\ue001"
LONGEST_VALUE = 120  # characters: a longer one is not compared, and never put back
LONGEST_TEXT = 240  # characters of an argument that is looked at at all
MOST_ITEMS = 4  # of a list
DEEPEST = 4

MARK = re.compile(f"{OPEN}([^{CLOSE}]*){CLOSE}")
_SHORT_WORD = re.compile(r"[a-z][a-z0-9_:-]{0,24}")
_OPTION_VALUE = re.compile(r"(--?[A-Za-z][\w.-]*)=(.+)", re.DOTALL)
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_EXTENSION = re.compile(r"[^./]\.([A-Za-z][A-Za-z0-9]{0,5})(?::\d+(?:[:-]\d+)?)?$")
_FORMS = (
    ("int", re.compile(r"[+-]?\d{1,18}")),
    ("number", re.compile(r"[+-]?\d+\.\d+")),
    ("date", re.compile(r"\d{4}-\d\d-\d\d(?:[T ][\d:.Z+-]+)?")),
    ("range", re.compile(r"\d+,\$?\d*p?|\d+:\d+")),
    ("uuid", re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")),
    ("hash", re.compile(r"(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,64}[~^]?")),
    ("version", re.compile(r"v?\d+\.\d+(?:\.\d+)*(?:[-+.]\w+)*")),
    ("mail", re.compile(r"[\w.+-]+@[\w-]+\.[\w.]+|<mail>")),
    ("id", re.compile(r"(?=\D*\d)(?=[^A-Z]*[A-Z])[A-Z0-9]{5,12}|[a-z]+(?:_[a-z]+)*_\d+")),
)
# Texts under these names are what somebody was looking for or writing, never one of a few choices.
_FREE = words(
    """
    query q pattern search search_term regex keyword keywords name title text content message prompt
    question topic subject body description user username user_id value expression input url path
    file file_path filepath filename
    """
)
# What an agent says about a call to whoever watches, and for how long it would wait: not the call.
COMMENTS = words(
    """
    description justification explanation thought reason summary intent toolSummary toolAction
    security_risk rationale comment yield_time_ms max_output_tokens timeout timeout_ms login
    sandbox_permissions prefix_rule initial_wait is_input is_background run_in_background
    """
)


# What stands in these slots belongs to one moment or one person: it is never put back.
FLEETING = frozenset(
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


class Shaped(NamedTuple):
    """Arguments taken apart: the skeleton with its marks, and what stood in them, in order."""

    skeleton: JSON
    values: tuple[str, ...]


def mark(kind: str) -> str:
    """The place of a slot in a skeleton."""
    return f"{OPEN}{kind}{CLOSE}"


def shape(arguments: Mapping[str, JSON]) -> Shaped:
    """The arguments of a call that is no command line."""
    values: list[str] = []
    found: dict[str, JSON] = {
        key: _text(key, value, values) if type(value) is str else _part(key, value, values, 0)
        for key, value in arguments.items()
        if key not in COMMENTS
    }
    return Shaped(found, tuple(values))


def _part(key: str, value: JSON, values: list[str], depth: int) -> JSON:
    if isinstance(value, str):
        return _text(key, value, values)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, (int, float)):
        values.append(f"{value}")
        return mark("int" if isinstance(value, int) else "number")
    if depth >= DEEPEST:
        values.append("")
        return mark("value")
    if isinstance(value, dict):
        parts = cast("Mapping[str, JSON]", value)
        return {name: _part(name, part, values, depth + 1) for name, part in parts.items()}
    items = cast("Sequence[JSON]", value)
    kept = [_part(key, item, values, depth + 1) for item in items[:MOST_ITEMS]]
    return kept if len(items) <= MOST_ITEMS else [*kept, "…"]


def _text(key: str, text: str, values: list[str]) -> str:
    if text[:1] == OPEN and MARK.fullmatch(text):  # too long to look at: see `pruned`
        values.append("")
        return text
    kind = "text" if " " in text or "\n" in text else kind_of(text)
    if kind == "word" and key.lower() not in _FREE and _SHORT_WORD.fullmatch(text):
        return text
    if not kind:
        return text
    values.append(text if len(text) <= LONGEST_VALUE and "\n" not in text else "")
    return mark(kind)


def pruned(value: JSON, depth: int = 0) -> JSON:
    """The same without texts that are too long to be an example of anything."""
    if isinstance(value, str):
        if len(value) <= LONGEST_TEXT and value.count("\n") < 2:
            return value
        return mark("patch" if value.startswith(("*** Begin", "diff --git", "--- ")) else "text")
    if isinstance(value, dict):
        if depth > DEEPEST:
            return mark("value")
        parts = cast("Mapping[str, JSON]", value)
        return {str(key): pruned(part, depth + 1) for key, part in list(parts.items())[:40]}
    if isinstance(value, (list, tuple)):
        if depth > DEEPEST:
            return mark("value")
        return [pruned(part, depth + 1) for part in cast("list[JSON]", value)[: MOST_ITEMS + 1]]
    return value


@lru_cache(maxsize=50_000)
def kind_of(word: str) -> str:
    """What kind of thing a word is; empty for one that belongs to the skeleton."""
    if word[:1] in "'\"":
        inner = word[1:-1] if word[-1:] == word[:1] else word[1:]
        return (kind_of(inner) or "word") if inner and not _is_prose(inner) else "text"
    if word in ("", ".", "..", "-", "--", "./...", "...", "HEAD"):
        return ""
    if "://" in word:
        return "url"
    if word[0] == "<" and word[-1] == ">":  # what redaction left
        return ""
    if "$" in word or "`" in word:
        return "expression"
    if "/" not in word or "@" in word:  # else a path, and nothing of these
        for kind, form in _FORMS:
            if form.fullmatch(word):
                return kind
    if any(sign in word for sign in "*?[{"):
        return "glob"
    if word[0] == "@" and word.count("/") == 1:
        return ""  # a package with its scope
    return _path_or_word(word)


def _is_prose(text: str) -> bool:
    return len(text) > 40 or any(space in text for space in " \t\n")


def _path_or_word(word: str) -> str:
    ending = _EXTENSION.search(word)
    if ending:
        return f"path:{ending[1].lower()}"
    return "path" if "/" in word or word[0] == "~" else "word"


def shaped_word(word: str, values: list[str], *, literal: bool) -> str:
    """One word of a command, as the skeleton has it; what it hides is added to `values`."""
    if word[0] == "-":
        return _option(word, values)
    kind = "" if literal else kind_of(word)
    if not kind:
        return word
    if kind == "word" and (given := _ASSIGNED.fullmatch(word)):
        values.append(given[2][:LONGEST_VALUE])
        return f"{given[1]}={mark('value')}"
    values.append(word if len(word) <= LONGEST_VALUE and "\n" not in word else "")
    return mark(kind)


def _option(word: str, values: list[str]) -> str:
    given = _OPTION_VALUE.fullmatch(word)
    if given is None:
        return word if len(word) <= 40 else mark("text")
    kind = kind_of(given[2])
    if not kind or (kind == "word" and _SHORT_WORD.fullmatch(given[2])):
        return word
    values.append(given[2] if len(given[2]) <= LONGEST_VALUE else "")
    return f"{given[1]}={mark(kind)}"


# ── back to arguments


def marks(skeleton: JSON) -> list[str]:
    """The kinds of its slots, in the order of their values."""
    found: list[str] = []
    parts: Iterable[JSON] = (skeleton,)
    if isinstance(skeleton, dict):
        parts = cast("Mapping[str, JSON]", skeleton).values()
    elif isinstance(skeleton, (list, tuple)):
        parts = cast("Sequence[JSON]", skeleton)
    for part in parts:
        if isinstance(part, str):
            if OPEN in part:
                found += _marks(part)
        elif isinstance(part, (dict, list, tuple)):
            found += marks(cast(JSON, part))
    return found


@lru_cache(maxsize=20_000)
def _marks(skeleton: str) -> tuple[str, ...]:
    return tuple(MARK.findall(skeleton))


def fill(skeleton: JSON, chosen: Sequence[str | None]) -> JSON:
    """Arguments again: in each slot the value that was chosen, or its name, as in `<path:py>`."""
    return _fill(skeleton, iter(chosen))


def _fill(part: JSON, chosen: Any) -> JSON:
    if isinstance(part, dict):
        parts = cast("Mapping[str, JSON]", part)
        return {key: _fill(value, chosen) for key, value in parts.items()}
    if isinstance(part, (list, tuple)):
        return [_fill(value, chosen) for value in cast("list[JSON]", part)]
    if not isinstance(part, str) or OPEN not in part:
        return part
    whole = MARK.fullmatch(part)
    if whole and whole[1] in ("int", "number"):
        value = next(chosen, None)
        return f"<{whole[1]}>" if value is None else _number(value)
    return MARK.sub(lambda found: _shown(found[1], next(chosen, None)), part)


def _shown(kind: str, value: str | None) -> str:
    return f"<{kind}>" if value is None else value


def _number(value: str) -> JSON:
    try:
        return int(value)
    except ValueError:
        return float(value)
