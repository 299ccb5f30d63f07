"""Where a new template goes: its name and id, and what stays of the one that is there already.

A build replaces only a template of the same name, and what a person decided about that one stays: its
state, the patterns that were dropped, and its description and tags unless they are given anew.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias

from rekindle.errors import InvalidInput
from rekindle.knowledge import file_format
from rekindle.knowledge.redact_template import rescanned
from rekindle.redaction.redactor import Redactor
from rekindle.types import JSON, Template, TemplateState, replace

from . import library
from .library import Templates

_OUR_WORDS = re.compile(r"(?s)Learned from [\d,]+ sessions? of .*\.|Extracted from one session: .*")

# Why a template that is there must not be replaced; "" when it may be.
Guard: TypeAlias = Callable[[Template], str]


class Place:
    """Where a template is to be written, and what stays of the one that may be there."""

    def __init__(
        self,
        folder: Templates,
        redactor: Redactor,
        name: str,
        description: str | None,
        tags: Sequence[str],
        guard: Guard,
    ) -> None:
        self.name = new_name(name, redactor)
        self.id = folder.id_for(self.name)
        self.kept: dict[str, JSON] = {}
        self._folder = folder
        self._redactor = redactor
        self._description = (
            None if description is None else library.checked_description(description)
        )
        self._tags = library.checked_tags(tags)
        self._guard = guard
        # Refused before anything is learned; and again when it is written, for others write too.
        there = folder.read(self.id) if folder.path(self.id).exists() else None
        self.dropped = () if there is None else file_format.dropped_of(self._free(there))

    def _free(self, old: Template) -> Template:
        # The guard first: what somebody must not see has no name for them.
        why = self._guard(old)
        if why:
            raise InvalidInput(f"template {self.id!r}: {why}")
        if not library.is_called(old, self.name):
            raise InvalidInput(
                f"the name {self.name!r} makes the id {old.id!r}, and template {old.id!r} is"
                f" “{old.name}”: take another name"
            )
        return old

    def put(self, template: Template, most: int) -> Template:
        """Write the template with so many patterns at most, perhaps as the next of one that is there."""
        if self._description is not None:
            template = replace(template, description=self._description)
        template = rescanned(replace(template, tags=self._tags), self._redactor)

        def over(old: Template) -> Template:
            return rescanned(self._onto(self._free(old), template, most), self._redactor)

        return self._folder.create(replace(template, patterns=template.patterns[:most]), over=over)

    def _onto(self, old: Template, new: Template, most: int) -> Template:
        dropped = file_format.dropped_of(old)
        patterns = tuple(one for one in new.patterns if one.id not in dropped)[:most]
        kept: dict[str, JSON] = {}
        if self._description is None and not _OUR_WORDS.fullmatch(old.description):
            kept["description"] = old.description
        if old.tags and not self._tags:
            kept["tags"] = list(old.tags)
        state = _state_after(old, replace(new, patterns=patterns))
        if state != new.state:
            kept["state"] = state
        if dropped:
            kept["dropped"] = len(dropped)
        self.kept = kept
        return replace(
            new,
            name=old.name,
            description=kept.get("description", new.description),
            tags=self._tags or old.tags,
            patterns=patterns,
            state=state,
            scan={**new.scan, **({file_format.DROPPED: list(dropped)} if dropped else {})},
        )


def _state_after(old: Template, new: Template) -> TemplateState:
    """A template stays in the state that a person gave it.

    But what made itself and was accepted waits again as soon as it says something new: nobody has
    looked at that.
    """
    if new.made == "automatic" and old.state == "active" and not _said(new) <= _said(old):
        return "quarantined"
    return old.state


def _said(template: Template) -> set[str]:
    return {repr((one.id, one.steps, one.before, one.lesson)) for one in template.patterns}


def new_name(name: str, redactor: Redactor) -> str:
    """A name that a new template can have: it makes a file name, which cannot be redacted."""
    known = Counter(redactor.report)
    if redactor.text(name, "name") != name:
        kinds = sorted({kind for kind, _ in redactor.report - known})
        raise InvalidInput(
            f"name: it holds what must not be in a template ({', '.join(kinds)}): take another name"
        )
    return library.checked_name(name)
