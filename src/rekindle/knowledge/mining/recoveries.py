"""Find recoveries: a failed call, the similar call that worked soon after, and the difference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import NamedTuple, cast

from rekindle.judging.tool_kinds import classify_tool
from rekindle.types import JSON, PatternStep

from .call_reader import MinedCall
from .call_signature import CallSignature
from .command_skeleton import INFORMATIVE, split_command
from .slots import FLEETING_KINDS, fill_slots, list_slot_kinds

MAX_CALLS_BETWEEN = 5  # after the failure
MIN_WORD_OVERLAP = 0.5  # of their words, to count as attempts at the same
MAX_CHANGED_WORDS = 5  # between the two attempts
MAX_LESSON_CHARS = 240
_MAX_VALUE_CHARS = 60  # of a value in a lesson


class ErrorRecovery(NamedTuple):
    """A recovery; `call_indexes` has the failed call first, then those that fixed it."""

    key: object
    call_indexes: tuple[int, ...]


def find_recoveries(
    numbered: Sequence[tuple[int, MinedCall]], calls: Sequence[MinedCall]
) -> Iterator[ErrorRecovery]:
    """Yield every error of the agent's own that a later call of its turn fixed."""
    for index, (number, call) in enumerate(numbered):
        if not call.failed or call.blame == "environment" or call.signature.destructive:
            continue
        tool, turn = call.signature.tool, call.turn
        between: list[int] = []
        for later, other in numbered[index + 1 : index + 1 + MAX_CALLS_BETWEEN]:
            if other.turn != turn:
                break
            if not (other.ok or other.failed) or other.signature.destructive:
                continue
            if other.signature.tool == tool and _is_same_attempt(call.signature, other.signature):
                if other.ok:
                    indexes = (number, *_find_needed_calls(calls, call, other, between), later)
                    if (key := _build_recovery_key(calls, indexes)) is not None:
                        yield ErrorRecovery(key, indexes)
                break  # a repeated failure is examined on its own
            if other.ok:
                between.append(later)


def _is_same_attempt(failed: CallSignature, other: CallSignature) -> bool:
    if failed.family not in ("shell", "code"):
        ours, theirs = _get_paths(failed), _get_paths(other)
        return ours == theirs if ours and theirs else failed.work == other.work
    if failed.work != other.work:  # the same with another program, or something else
        rest = _get_command_skeleton(failed).partition(" ")[2]
        return (
            rest != ""
            and rest == _get_command_skeleton(other).partition(" ")[2]
            and (get_command_words(failed)[1:] == get_command_words(other)[1:])
        )
    a, b = set(get_command_words(failed)), set(get_command_words(other))
    return len(a & b) >= MIN_WORD_OVERLAP * min(len(a), len(b))


def _get_command_skeleton(signature: CallSignature) -> str:
    """Return the skeleton of the command line, which is the first argument."""
    for part in signature.skeleton.values():
        return part if isinstance(part, str) else ""
    return ""


def _get_paths(signature: CallSignature) -> set[str]:
    kinds = list_slot_kinds(signature.skeleton)
    return {
        value
        for kind, value in zip(kinds, signature.values, strict=False)
        if kind.startswith("path") and value
    }


def _find_needed_calls(
    calls: Sequence[MinedCall], failed: MinedCall, fixed: MinedCall, between: Sequence[int]
) -> list[int]:
    """Return the calls in between that the second attempt may have needed."""
    paths, family = _get_paths(failed.signature), failed.signature.family
    if family in ("shell", "code"):
        if get_command_words(failed.signature) != get_command_words(fixed.signature):
            return []  # the difference explains it
        return [number for number in between if calls[number].signature.tier == INFORMATIVE][-2:]
    if family == "edit":
        return [n for n in between if paths & _get_paths(calls[n].signature)][-1:]
    return [n for n in between if calls[n].signature.tier == INFORMATIVE][-2:]


def _build_recovery_key(calls: Sequence[MinedCall], indexes: tuple[int, ...]) -> object | None:
    """Build a key that is equal for equal recoveries; return None if nothing is learned."""
    failed, fixed = calls[indexes[0]].signature, calls[indexes[-1]].signature
    middle = [calls[number].signature for number in indexes[1:-1]]
    if failed.family in ("shell", "code"):
        if fixed.tier < INFORMATIVE:
            return None
        removed, added = (
            _generalize_words(*one)
            for one in zip((failed, fixed), _diff_words(failed, fixed), strict=True)
        )
        if not removed and not added:
            return [fixed.tool, fixed.work, [one.digest for one in middle]] if middle else None
        is_small = len(removed) <= MAX_CHANGED_WORDS and len(added) <= MAX_CHANGED_WORDS
        is_informative = any(not word.startswith("<") for word in (*removed, *added))
        return [fixed.tool, fixed.work, removed, added] if is_small and is_informative else None
    if failed.family == "edit":
        reads = [one for one in middle if one.family in ("read", "search", "shell")]
        return [fixed.tool, fixed.work, reads[0].tool] if reads else None
    if failed.exact == fixed.exact and not middle:
        return None  # an identical call: the call was not the problem
    changed = _diff_arguments(failed, fixed)
    return [fixed.tool, fixed.work, changed, [one.work for one in middle]]


def _generalize_words(signature: CallSignature, words: list[str]) -> list[str]:
    return [_generalize_word(word, signature) for word in words]


def _generalize_word(word: str, signature: CallSignature) -> str:
    """Return a word as it appears in the skeleton."""
    if word == "…":
        return "<text>"
    for kind, value in zip(list_slot_kinds(signature.skeleton), signature.values, strict=False):
        if value == word:
            return f"<{kind}>"
    return word


def get_command_words(signature: CallSignature) -> list[str]:
    """Return the words of a command up to its first pipe; unknown values are dots."""
    return _fill_and_split(_get_command_skeleton(signature), signature.values)


@lru_cache(maxsize=20_000)
def _fill_and_split(skeleton: str, values: tuple[str, ...]) -> list[str]:
    words = split_command(f"{fill_slots(skeleton, [value or '…' for value in values])}")
    return words[: words.index("|")] if "|" in words else words


def _diff_words(failed: CallSignature, fixed: CallSignature) -> tuple[list[str], list[str]]:
    a, b = get_command_words(failed), get_command_words(fixed)
    removed: list[str] = []
    added: list[str] = []
    for what, i, j, k, n in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if what != "equal":
            removed += a[i:j]
            added += b[k:n]
    return removed, added


def _diff_arguments(failed: CallSignature, fixed: CallSignature) -> list[str]:
    before, after = failed.skeleton, fixed.skeleton
    return [
        *(f"-{key}" for key in before if key not in after),
        *(f"+{key}" for key in after if key not in before),
        *(f"~{key}" for key in after if key in before and after[key] != before[key]),
    ]


# ── lessons


def write_lesson(
    failed: CallSignature, steps: Sequence[PatternStep], fixed: CallSignature, error_kind: str
) -> str:
    """Write in one sentence what to do differently; return nothing if there is no lesson."""
    preparations = [_describe_step(step) for step in steps[:-1]]
    if failed.family in ("shell", "code"):
        text = _describe_command_change(failed, fixed, preparations)
    elif failed.family == "edit":
        text = _describe_edit_change(preparations, error_kind)
    else:
        text = _describe_argument_change(failed, fixed, preparations)
    return text if len(text) <= MAX_LESSON_CHARS else ""


def _describe_step(step: PatternStep) -> str:
    """Describe a step in a few words."""
    if classify_tool(step.tool).shape in ("shell", "code"):
        command = next((part for part in step.arguments.values() if isinstance(part, str)), "")
        return f"`{command}`"
    path = next(
        (part for part in step.arguments.values() if isinstance(part, str) and "path" in part), ""
    )
    return f"`{step.tool}` {path}".strip()


def _describe_command_change(
    failed: CallSignature, fixed: CallSignature, preparations: list[str]
) -> str:
    removed, added = (
        _mask_fleeting_words(*one)
        for one in zip((failed, fixed), _diff_words(failed, fixed), strict=True)
    )
    small = len(removed) <= MAX_CHANGED_WORDS and len(added) <= MAX_CHANGED_WORDS
    if not removed and not added:
        return f"It worked after {' and '.join(preparations)}." if preparations else ""
    if small and removed and added:
        return f"Instead of `{' '.join(removed)}` use `{' '.join(added)}`."
    if small and added:
        return f"Add `{' '.join(added)}`."
    if small and removed:
        return f"Leave out `{' '.join(removed)}`."
    return ""


def _mask_fleeting_words(signature: CallSignature, words: list[str]) -> list[str]:
    """Replace words that belong to one moment by their slots."""
    kinds = dict(zip(signature.values, list_slot_kinds(signature.skeleton), strict=False))
    return [f"<{kinds[word]}>" if kinds.get(word) in FLEETING_KINDS else word for word in words]


def _describe_edit_change(preparations: list[str], error_kind: str) -> str:
    if not preparations:
        return ""
    why = "; the text to replace must be exactly what stands there" if error_kind == "edit" else ""
    return f"When an edit is refused, look at the file again ({', '.join(preparations)}){why}."


def _describe_argument_change(
    failed: CallSignature, fixed: CallSignature, preparations: list[str]
) -> str:
    before, after = _get_stable_arguments(failed), _get_stable_arguments(fixed)
    parts = [f"leave out `{key}`" for key in before if key not in after]
    parts += [f"give `{key}`" for key in after if key not in before]
    vague: list[str] = []
    for key in after:
        if key in before and _get_argument_value(failed, key) != _get_argument_value(fixed, key):
            old, new = _format_value(before[key]), _format_value(after[key])
            if old and new and old != new:
                parts.append(f"`{key}` is {new}, not {old}")
            else:
                vague.append(f"`{key}`")
    if preparations and vague:
        parts.append(f"take {' and '.join(vague)} from there")
    if preparations:
        parts.insert(0, f"first {', '.join(preparations)}")
    return f"{parts[0][:1].upper()}{'; '.join(parts)[1:]}." if parts and len(parts) <= 4 else ""


def _get_stable_arguments(signature: CallSignature) -> Mapping[str, JSON]:
    """Return the arguments without values that belong to one moment."""
    kinds = list_slot_kinds(signature.skeleton)
    chosen = [
        None if kind in FLEETING_KINDS else value
        for kind, value in zip(kinds, signature.values, strict=False)
    ]
    return cast("Mapping[str, JSON]", fill_slots(signature.skeleton, chosen))


def _get_argument_value(signature: CallSignature, key: str) -> JSON:
    whole = cast("Mapping[str, JSON]", fill_slots(signature.skeleton, list(signature.values)))
    return whole.get(key)


def _format_value(value: JSON) -> str:
    shown = f"{value}"
    fits = isinstance(value, (str, int, float)) and 0 < len(shown) <= _MAX_VALUE_CHARS
    return f"`{shown}`" if fits and not shown.startswith("<") else ""
