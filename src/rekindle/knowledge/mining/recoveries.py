"""Recoveries: a call that failed, the call like it that worked soon after, and the difference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import NamedTuple, cast

from rekindle.judging.tool_kinds import kind_of
from rekindle.types import JSON, Step

from .call_reader import Deed
from .call_signature import Form
from .command_skeleton import TELLING, words_of
from .slots import FLEETING, fill, marks

SOON = 5  # calls after the failure
ALIKE = 0.5  # of the words in common makes two commands tries of the same
MOST_WORDS = 5  # that the second try may differ in
LONGEST_LESSON = 240
_SHOWN = 60  # characters of a value in a lesson


class Recovery(NamedTuple):
    """`place`: the failed call first, then those that mended it."""

    sign: object
    place: tuple[int, ...]


def recoveries(numbered: Sequence[tuple[int, Deed]], deeds: Sequence[Deed]) -> Iterator[Recovery]:
    """Every error of the agent's own that a later call of its turn mended."""
    for index, (number, deed) in enumerate(numbered):
        if not deed.failed or deed.blame == "environment":
            continue
        tool, turn = deed.form.tool, deed.turn
        between: list[int] = []
        for later, other in numbered[index + 1 : index + 1 + SOON]:
            if other.turn != turn:
                break
            if not (other.ok or other.failed) or other.form.barred:
                continue
            if other.form.tool == tool and _is_same_try(deed.form, other.form):
                if other.ok:
                    place = (number, *_needed(deeds, deed, other, between), later)
                    if (sign := _sign(deeds, place)) is not None:
                        yield Recovery(sign, place)
                break  # one that failed again will be looked at by itself
            if other.ok:
                between.append(later)


def _is_same_try(failed: Form, other: Form) -> bool:
    if failed.family not in ("shell", "code"):
        ours, theirs = _paths(failed), _paths(other)
        return ours == theirs if ours and theirs else failed.work == other.work
    if failed.work != other.work:  # another program for the same, or another purpose
        rest = _skeleton(failed).partition(" ")[2]
        return (
            rest != ""
            and rest == _skeleton(other).partition(" ")[2]
            and (command_words(failed)[1:] == command_words(other)[1:])
        )
    a, b = set(command_words(failed)), set(command_words(other))
    return len(a & b) >= ALIKE * min(len(a), len(b))


def _skeleton(form: Form) -> str:
    """The skeleton of the command line: it comes first."""
    for part in form.skeleton.values():
        return part if isinstance(part, str) else ""
    return ""


def _paths(form: Form) -> set[str]:
    kinds = marks(form.skeleton)
    return {
        value
        for kind, value in zip(kinds, form.values, strict=False)
        if kind.startswith("path") and value
    }


def _needed(deeds: Sequence[Deed], failed: Deed, mended: Deed, between: Sequence[int]) -> list[int]:
    """What was done between the two that the second try may have needed."""
    paths, family = _paths(failed.form), failed.form.family
    if family in ("shell", "code"):
        if command_words(failed.form) != command_words(mended.form):
            return []  # the difference says it all
        return [number for number in between if deeds[number].form.tier == TELLING][-2:]
    if family == "edit":
        return [n for n in between if paths & _paths(deeds[n].form)][-1:]
    return [n for n in between if deeds[n].form.tier == TELLING][-2:]


def _sign(deeds: Sequence[Deed], place: tuple[int, ...]) -> object | None:
    """What two recoveries have in common when they are the same; None when nothing is learned."""
    failed, mended = deeds[place[0]].form, deeds[place[-1]].form
    middle = [deeds[number].form for number in place[1:-1]]
    if failed.family in ("shell", "code"):
        if mended.tier < TELLING:
            return None
        less, more = (
            _general_words(*one)
            for one in zip((failed, mended), _difference(failed, mended), strict=True)
        )
        if not less and not more:
            return [mended.tool, mended.work, [one.digest for one in middle]] if middle else None
        is_small = len(less) <= MOST_WORDS and len(more) <= MOST_WORDS
        is_telling = any(not word.startswith("<") for word in (*less, *more))
        return [mended.tool, mended.work, less, more] if is_small and is_telling else None
    if failed.family == "edit":
        looks = [one for one in middle if one.family in ("read", "search", "shell")]
        return [mended.tool, mended.work, looks[0].tool] if looks else None
    if failed.exact == mended.exact and not middle:
        return None  # the same again: it was not the call
    changed = _changed(failed, mended)
    return [mended.tool, mended.work, changed, [one.work for one in middle]]


def _general_words(form: Form, words: list[str]) -> list[str]:
    return [_general(word, form) for word in words]


def _general(word: str, form: Form) -> str:
    """A word as the skeleton has it."""
    if word == "…":
        return "<text>"
    for kind, value in zip(marks(form.skeleton), form.values, strict=False):
        if value == word:
            return f"<{kind}>"
    return word


def command_words(form: Form) -> list[str]:
    """The words of a command, up to where its output goes; what is not known of it are dots."""
    return _words(_skeleton(form), form.values)


@lru_cache(maxsize=20_000)
def _words(skeleton: str, values: tuple[str, ...]) -> list[str]:
    words = words_of(f"{fill(skeleton, [value or '…' for value in values])}")
    return words[: words.index("|")] if "|" in words else words


def _difference(failed: Form, mended: Form) -> tuple[list[str], list[str]]:
    a, b = command_words(failed), command_words(mended)
    less: list[str] = []
    more: list[str] = []
    for what, i, j, k, n in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if what != "equal":
            less += a[i:j]
            more += b[k:n]
    return less, more


def _changed(failed: Form, mended: Form) -> list[str]:
    before, after = failed.skeleton, mended.skeleton
    return [
        *(f"-{key}" for key in before if key not in after),
        *(f"+{key}" for key in after if key not in before),
        *(f"~{key}" for key in after if key in before and after[key] != before[key]),
    ]


# ── in words


def lesson(failed: Form, steps: Sequence[Step], mended: Form, error_kind: str) -> str:
    """What to do otherwise, in one sentence; empty where nothing is to be learned."""
    first = [_named(step) for step in steps[:-1]]
    if failed.family in ("shell", "code"):
        said = _of_command(failed, mended, first)
    elif failed.family == "edit":
        said = _of_edit(first, error_kind)
    else:
        said = _of_arguments(failed, mended, first)
    return said if len(said) <= LONGEST_LESSON else ""


def _named(step: Step) -> str:
    """A step, as one speaks of it."""
    if kind_of(step.tool).shape in ("shell", "code"):
        command = next((part for part in step.arguments.values() if isinstance(part, str)), "")
        return f"`{command}`"
    path = next(
        (part for part in step.arguments.values() if isinstance(part, str) and "path" in part), ""
    )
    return f"`{step.tool}` {path}".strip()


def _of_command(failed: Form, mended: Form, first: list[str]) -> str:
    less, more = (
        _steady(*one) for one in zip((failed, mended), _difference(failed, mended), strict=True)
    )
    small = len(less) <= MOST_WORDS and len(more) <= MOST_WORDS
    if not less and not more:
        return f"It worked after {' and '.join(first)}." if first else ""
    if small and less and more:
        return f"Instead of `{' '.join(less)}` use `{' '.join(more)}`."
    if small and more:
        return f"Add `{' '.join(more)}`."
    if small and less:
        return f"Leave out `{' '.join(less)}`."
    return ""


def _steady(form: Form, words: list[str]) -> list[str]:
    """Words of a command, without what belongs to one moment."""
    kinds = dict(zip(form.values, marks(form.skeleton), strict=False))
    return [f"<{kinds[word]}>" if kinds.get(word) in FLEETING else word for word in words]


def _of_edit(first: list[str], error_kind: str) -> str:
    if not first:
        return ""
    why = "; the text to replace must be exactly what stands there" if error_kind == "edit" else ""
    return f"When an edit is refused, look at the file again ({', '.join(first)}){why}."


def _of_arguments(failed: Form, mended: Form, first: list[str]) -> str:
    before, after = _plain(failed), _plain(mended)
    parts = [f"leave out `{key}`" for key in before if key not in after]
    parts += [f"give `{key}`" for key in after if key not in before]
    vague: list[str] = []
    for key in after:
        if key in before and _values_of(failed, key) != _values_of(mended, key):
            old, new = _value(before[key]), _value(after[key])
            if old and new and old != new:
                parts.append(f"`{key}` is {new}, not {old}")
            else:
                vague.append(f"`{key}`")
    if first and vague:
        parts.append(f"take {' and '.join(vague)} from there")
    if first:
        parts.insert(0, f"first {', '.join(first)}")
    return f"{parts[0][:1].upper()}{'; '.join(parts)[1:]}." if parts and len(parts) <= 4 else ""


def _plain(form: Form) -> Mapping[str, JSON]:
    """The arguments, without what belongs to one moment."""
    kinds = marks(form.skeleton)
    chosen = [
        None if kind in FLEETING else value for kind, value in zip(kinds, form.values, strict=False)
    ]
    return cast("Mapping[str, JSON]", fill(form.skeleton, chosen))


def _values_of(form: Form, key: str) -> JSON:
    whole = cast("Mapping[str, JSON]", fill(form.skeleton, list(form.values)))
    return whole.get(key)


def _value(value: JSON) -> str:
    shown = f"{value}"
    fits = isinstance(value, (str, int, float)) and 0 < len(shown) <= _SHOWN
    return f"`{shown}`" if fits and not shown.startswith("<") else ""
