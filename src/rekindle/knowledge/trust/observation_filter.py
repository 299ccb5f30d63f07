"""Filter what was observed in sessions: echoes of strangers, bypasses and values are no advice."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import msgspec

from rekindle.knowledge.notes.command_forms import hide_word, list_doubtful_words
from rekindle.knowledge.notes.programs import get_program
from rekindle.knowledge.notes.records import (
    CommandUse,
    Fix,
    SessionObservation,
    drop_shapes,
    join_folder,
)
from rekindle.shell.bypasses import find_bypass

MIN_WORD_SESSIONS = 2  # with different requests, for a word that may be a value


def filter_observations(observations: Sequence[SessionObservation]) -> list[SessionObservation]:
    """Return the observations of a project without what a note must not say."""
    return _hide_rare_words(_drop_echoes(_drop_bypasses(_drop_failed_work(observations))))


def _drop_failed_work(observations: Sequence[SessionObservation]) -> list[SessionObservation]:
    """Drop what only sessions that failed did: fixes, examples and checks before a commit."""
    shared = {_identify_fix(fix) for one in observations if not one.has_failed for fix in one.fixes}
    return [
        msgspec.structs.replace(
            one,
            fixes=tuple(fix for fix in one.fixes if _identify_fix(fix) in shared),
            examples=(),
            checks=None,
        )
        if one.has_failed
        else one
        for one in observations
    ]


def _identify_fix(fix: Fix) -> tuple[object, ...]:
    texts = (fix.failed_text, fix.fixed_text, *fix.steps)
    return *map(drop_shapes, texts), fix.failed_folder, fix.fixed_folder


def _drop_bypasses(observations: Sequence[SessionObservation]) -> list[SessionObservation]:
    """Drop what skips a check, such as the hooks of a commit: that it worked is no advice."""
    found: list[SessionObservation] = []
    for one in observations:
        fixing = (text for fix in one.fixes for text in (fix.fixed_text, *fix.steps))
        texts = {*fixing, *(use.text for use in one.commands)}
        dropped = {drop_shapes(text) for text in texts if find_bypass(text.split(" "))}
        found.append(_leave_out_forms(one, dropped) if dropped else one)
    return found


def _drop_echoes(observations: Sequence[SessionObservation]) -> list[SessionObservation]:
    """Drop what only follows texts of strangers: no session ran it without having read its name."""
    vouched: set[str] = set()
    for one in observations:
        for use in one.commands:
            text = drop_shapes(use.text)
            names = {text, join_folder(text, use.folder)}
            if text not in one.echoes:
                vouched |= names.difference(one.echoes)
    dropped = {text for one in observations for text in one.echoes} - vouched
    return [_leave_out_forms(one, dropped) if one.echoes else one for one in observations]


def _leave_out_forms(observation: SessionObservation, dropped: set[str]) -> SessionObservation:
    commands = tuple(
        use for use in observation.commands if not _is_in(dropped, use.text, use.folder)
    )
    keys = {use.key for use in commands}
    fixes = (
        one
        for one in observation.fixes
        if not _is_in(dropped, one.fixed_text, one.fixed_folder)
        and not _is_in(dropped, one.failed_text, one.failed_folder)
        and dropped.isdisjoint(map(drop_shapes, one.steps))
    )
    checks = observation.checks
    examples = (one for one in observation.examples if drop_shapes(one.form) not in dropped)
    return msgspec.structs.replace(
        observation,
        examples=tuple(examples),
        commands=commands,
        fixes=tuple(fixes),
        checks=None if checks is None else tuple(key for key in checks if key in keys),
    )


def _is_in(dropped: AbstractSet[str], text: str, folder: str) -> bool:
    plain = drop_shapes(text)
    return plain in dropped or join_folder(plain, folder) in dropped


# ── words of a project's own programs that nobody knows


def _hide_rare_words(observations: Sequence[SessionObservation]) -> list[SessionObservation]:
    """Put slots for what may be a value and was not said by several independent sessions.

    Those are subcommands of a project's own programs that are no common words, and the constants of
    its options. Sessions with the same request are not independent: a fork repeats its parent.
    """
    users: dict[tuple[str, str], set[tuple[int, ...]]] = {}
    for one in observations:
        for use in one.commands:
            for word in list_doubtful_words(use.key, use.text):
                users.setdefault((get_program(use.key), word), set()).add(one.words)
    rare = {word for word, requests in users.items() if len(requests) < MIN_WORD_SESSIONS}
    return [_hide_words(one, rare) for one in observations]


def _hide_words(
    observation: SessionObservation, rare: AbstractSet[tuple[str, str]]
) -> SessionObservation:
    texts: dict[str, str] = {}
    keys: dict[str, str] = {}
    for use in observation.commands:
        program = get_program(use.key)
        for word in list_doubtful_words(use.key, use.text):
            if (program, word) in rare:
                texts[use.text] = hide_word(texts.get(use.text, use.text), program, word)
                keys.update({use.key: program} if word[0] == " " else {})
    if not texts:
        return observation
    examples = (one for one in observation.examples if one.form not in texts)
    commands: dict[tuple[str, str, str], CommandUse] = {}
    for use in observation.commands:
        key, text = keys.get(use.key, use.key), texts.get(use.text, use.text)
        same = commands.get((key, text, use.folder))
        worked, failed = (same.worked, same.failed) if same else (0, 0)
        commands[key, text, use.folder] = CommandUse(
            key, text, use.folder, worked + use.worked, failed + use.failed
        )
    fixes = [
        msgspec.structs.replace(
            one,
            key=keys.get(one.key, one.key),
            failed_text=texts.get(one.failed_text, one.failed_text),
            fixed_text=texts.get(one.fixed_text, one.fixed_text),
            steps=tuple(texts.get(step, step) for step in one.steps),
        )
        for one in observation.fixes
    ]
    checks = observation.checks
    if checks is not None:
        checks = tuple(dict.fromkeys(keys.get(key, key) for key in checks))
    return msgspec.structs.replace(
        observation,
        commands=tuple(commands.values()),
        fixes=tuple(fixes),
        checks=checks,
        examples=tuple(examples),
    )
