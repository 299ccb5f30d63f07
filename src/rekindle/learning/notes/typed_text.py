"""Clean what people and agents type as a note: on one line, and without secrets."""

from __future__ import annotations

from typing import NamedTuple

from rekindle.config import get_home_and_env
from rekindle.knowledge.notes.note import clean_note_text

_PERSONAL_KINDS = frozenset(("mail", "phone", "card", "user"))
_HARMLESS_KINDS = frozenset(("home",))  # `~` for a home folder is no news


class TypedText(NamedTuple):
    """A text without secrets, and how many secrets and personal details it had."""

    text: str
    secrets: int = 0
    details: int = 0

    def describe_redactions(self) -> str:
        """Say what was replaced, as one or two sentences; nothing if nothing was."""
        counts = ((self.secrets, "secret"), (self.details, "personal detail"))
        return " ".join(
            f"{count} {what}{' was' if count == 1 else 's were'} replaced."
            for count, what in counts
            if count
        )


def clean_typed_text(text: str) -> TypedText:
    """Return the text of a note that somebody typed; raise `InvalidInput` as `clean_note_text`."""
    return redact_note_text(clean_note_text(text))


def redact_note_text(text: str) -> TypedText:
    """Return the text of a note, or several, with a mask in place of each secret."""
    from rekindle.redaction.redactor import Redactor  # commands that only read need not load it

    redactor = Redactor.from_environment(*get_home_and_env())
    redacted = redactor.redact_text(text)
    kinds = [kind for kind, _ in redactor.report.elements() if kind not in _HARMLESS_KINDS]
    details = sum(kind in _PERSONAL_KINDS for kind in kinds)
    return TypedText(redacted, len(kinds) - details, details)
