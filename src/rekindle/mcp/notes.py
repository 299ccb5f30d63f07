"""Recall the notes of a project, show its playbook, and take notes that a person has to accept."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import cast

from rekindle.errors import InvalidInput
from rekindle.knowledge.skill import render_sections
from rekindle.learning.notes.playbooks import MAX_WAITING_NOTES, load_told_notes, propose_note
from rekindle.learning.notes.recall import recall_at_failure, recall_at_start
from rekindle.learning.notes.typed_text import clean_typed_text
from rekindle.projects import shorten_project
from rekindle.types import JSON

from .access import Library
from .quoting import NOTES_NOTICE


def recall_notes(library: Library, arguments: Mapping[str, JSON]) -> str:
    """Return what earlier sessions know about a request, or about a call that failed."""
    folder = arguments.get("folder", library.folder)
    library.require_project(folder)
    if "result" in arguments or "arguments" in arguments:
        if not (given := arguments.get("arguments")):
            raise InvalidInput("arguments: expected the arguments of the call that failed")
        values = cast("Mapping[str, JSON]", given)
        tool, result = arguments.get("tool", "Bash"), arguments.get("result", "")
        recall = recall_at_failure(library.store, folder, tool, values, result)
    else:
        recall = recall_at_start(library.store, folder, arguments.get("request", ""))
    if not recall.text:
        return "Nothing is known here that fits."
    return library.quoter.quote([library.quoter.clean(recall.text)], NOTES_NOTICE)


def add_note(library: Library, arguments: Mapping[str, JSON]) -> str:
    """Save a note; no session is told before a person has accepted it."""
    project = library.require_project(arguments.get("folder", library.folder))
    words = clean_typed_text(arguments["text"])
    note = propose_note(library.store, project, library.quoter.clean(words.text), time.time())
    if note is None:
        return (
            "Not saved: there is a note with this text already, or"
            f" {MAX_WAITING_NOTES} notes are waiting for the user."
        )
    saved = (
        f"Saved as note {note.id}. It is quarantined: no session is told before the user runs"
        f" `rekindle warm notes accept {note.id}`."
    )
    return f"{saved} {words.describe_redactions()}".rstrip()


def quote_playbook(library: Library, project: str) -> str:
    """Quote everything that agents may be told about a project."""
    notes = load_told_notes(library.store, project)
    name = library.quoter.clean_line(shorten_project(project), 120)
    lines = [f"What sessions learned in {name}", *render_sections(notes)]
    if not notes:
        lines.append("Nothing yet that several sessions share.")
    return library.quoter.quote([library.quoter.clean("\n".join(lines))], NOTES_NOTICE)
