"""Leave out of a playbook whatever looks like a secret to the redactor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from rekindle.knowledge.notes.playbook import Playbook
from rekindle.knowledge.notes.records import Fix, PlaybookItem


def redact_playbook(playbook: Playbook) -> Playbook:
    """Return a playbook without the texts in which the redactor finds something.

    All of them are read at once, because hardly any playbook has such a text.
    """
    flagged = _find_flagged(dict.fromkeys(filter(None, _iter_texts(playbook))))
    if not flagged:
        return playbook

    def are_safe(*texts: str) -> bool:
        return flagged.isdisjoint(texts)

    routine = playbook.routine
    return msgspec.structs.replace(
        playbook,
        commands=tuple(_redact_items(playbook.commands, flagged)),
        files=tuple(_redact_items(playbook.files, flagged)),
        command_files=tuple(_redact_items(playbook.command_files, flagged)),
        red_tests=tuple(_redact_items(playbook.red_tests, flagged)),
        missing_tools=tuple(_redact_items(playbook.missing_tools, flagged)),
        fixes=tuple(one for one in playbook.fixes if are_safe(*_iter_fix_texts(one.fix))),
        paths=tuple(filter(are_safe, playbook.paths)),
        checks=tuple(filter(are_safe, playbook.checks)),
        routine=routine if routine and are_safe(*routine.commands) else None,
        examples=tuple(
            one for one in playbook.examples if are_safe(one.asked, one.command, one.answer)
        ),
        failing=tuple(one for one in playbook.failing if are_safe(one.text, one.folder)),
    )


def _find_flagged(texts: Iterable[str]) -> frozenset[str]:
    """Return the texts in which the redactor finds something."""
    from rekindle.redaction.redactor import Redactor  # a chat need not load it

    redactor, known = Redactor(), list(texts)
    together = "\n".join(known)
    if redactor.redact_text(together) == together:
        return frozenset()
    return frozenset(one for one in known if redactor.redact_text(one) != one)


def _iter_texts(playbook: Playbook) -> Iterator[str]:
    for item in playbook.commands:
        yield item.name
        yield from (form.text for form in item.forms)
        yield from (form.folder for form in item.forms)
        yield from (one.text for one in item.arguments)
    listed = (playbook.files, playbook.command_files, playbook.red_tests, playbook.missing_tools)
    for items in listed:
        yield from (item.name for item in items)
    for known in playbook.fixes:
        yield from _iter_fix_texts(known.fix)
    for example in playbook.examples:
        yield from (example.asked, example.command, example.answer)
    for form in playbook.failing:
        yield from (form.text, form.folder)
    yield from playbook.paths
    yield from playbook.checks
    yield from playbook.routine.commands if playbook.routine else ()


def _iter_fix_texts(fix: Fix) -> Iterator[str]:
    yield from (fix.key, fix.failed_text, fix.failed_folder, fix.fixed_text, fix.fixed_folder)
    yield from fix.steps


def _redact_items(items: Iterable[PlaybookItem], flagged: frozenset[str]) -> Iterator[PlaybookItem]:
    """Yield the items without what is flagged; a command without any form is none."""
    for item in items:
        forms = tuple(one for one in item.forms if flagged.isdisjoint((one.text, one.folder)))
        if item.name in flagged or (item.forms and not forms):
            continue
        arguments = tuple(one for one in item.arguments if one.text not in flagged)
        yield msgspec.structs.replace(item, forms=forms, arguments=arguments)
