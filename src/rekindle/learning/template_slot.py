"""Where a new template is written: its name and id, and what it keeps from the one it replaces.

A build replaces only a template of the same name, and keeps what a person decided about it: the
state, the dropped notes, and the description and tags unless new ones are given.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias

from rekindle.errors import InvalidInput
from rekindle.knowledge import file_format
from rekindle.knowledge.redact_template import redact_template
from rekindle.redaction.redactor import Redactor
from rekindle.types import JSON, Template, TemplateState, replace_fields

from . import library
from .library import TemplateLibrary

_GENERATED_DESCRIPTION = re.compile(
    r"(?s)Learned from [\d,]+ sessions? of .*\.|Extracted from one session: .*"
)

# Returns why an existing template must not be replaced; "" if it may be.
OverwriteCheck: TypeAlias = Callable[[Template], str]


class TemplateSlot:
    """The slot that a template is written to, and what it keeps from an existing one."""

    def __init__(
        self,
        template_library: TemplateLibrary,
        redactor: Redactor,
        name: str,
        description: str | None,
        tags: Sequence[str],
        overwrite_check: OverwriteCheck,
    ) -> None:
        self.name = validate_new_name(name, redactor)
        self.id = template_library.resolve_id(self.name)
        self.kept: dict[str, JSON] = {}
        self._template_library = template_library
        self._redactor = redactor
        self._description = (
            None if description is None else library.validate_description(description)
        )
        self._tags = library.validate_tags(tags)
        self._overwrite_check = overwrite_check
        # Check before learning, and again on write, since others may write meanwhile.
        existing = (
            template_library.read(self.id) if template_library.get_path(self.id).exists() else None
        )
        self._dropped = (
            ()
            if existing is None
            else file_format.get_dropped_notes(self._require_replaceable(existing))
        )

    def _require_replaceable(self, old: Template) -> Template:
        # Check access first, so as not to reveal the name of a hidden template.
        reason = self._overwrite_check(old)
        if reason:
            raise InvalidInput(f"template {self.id!r}: {reason}")
        if not library.has_name(old, self.name):
            raise InvalidInput(
                f"the name {self.name!r} gives the id {old.id!r}, but template {old.id!r} is"
                f" “{old.name}”; choose another name"
            )
        return old

    def write(self, template: Template, max_notes: int) -> Template:
        """Write the template with at most `max_notes`, as the next revision if one exists."""
        if self._description is not None:
            template = replace_fields(template, description=self._description)
        enough = template.notes[: max_notes + len(self._dropped)]
        template = replace_fields(template, notes=enough)
        template = redact_template(replace_fields(template, tags=self._tags), self._redactor)

        def replace_existing(old: Template) -> Template:
            return redact_template(
                self._merge_onto(self._require_replaceable(old), template, max_notes),
                self._redactor,
            )

        return self._template_library.create(
            replace_fields(template, notes=template.notes[:max_notes]),
            on_existing=replace_existing,
        )

    def _merge_onto(self, old: Template, new: Template, max_notes: int) -> Template:
        dropped = file_format.get_dropped_notes(old)
        notes = tuple(one for one in new.notes if one.id not in dropped)[:max_notes]
        kept: dict[str, JSON] = {}
        if self._description is None and not _GENERATED_DESCRIPTION.fullmatch(old.description):
            kept["description"] = old.description
        if old.tags and not self._tags:
            kept["tags"] = list(old.tags)
        state = _resolve_state(old, replace_fields(new, notes=notes))
        if state != new.state:
            kept["state"] = state
        if dropped:
            kept["dropped"] = len(dropped)
        self.kept = kept
        return replace_fields(
            new,
            name=old.name,
            description=kept.get("description", new.description),
            tags=self._tags or old.tags,
            notes=notes,
            state=state,
            scan={**new.scan, **({file_format.DROPPED_KEY: list(dropped)} if dropped else {})},
        )


def _resolve_state(old: Template, new: Template) -> TemplateState:
    """Keep the state that a person gave the template.

    An accepted automatic template is quarantined again if it has new content, which nobody has
    reviewed.
    """
    if (
        new.made == "automatic"
        and old.state == "active"
        and not _collect_content(new) <= _collect_content(old)
    ):
        return "quarantined"
    return old.state


def _collect_content(template: Template) -> set[str]:
    return {one.id for one in template.notes}


def validate_new_name(name: str, redactor: Redactor) -> str:
    """Validate the name of a new template, which becomes a file name and so cannot be redacted."""
    known = Counter(redactor.report)
    if redactor.redact_text(name, "name") != name:
        kinds = sorted({kind for kind, _ in redactor.report - known})
        raise InvalidInput(
            f"name contains sensitive data ({', '.join(kinds)}); choose another name"
        )
    return library.validate_template_name(name)
