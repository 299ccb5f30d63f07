"""Find the project of a folder, and load its playbook."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from rekindle.knowledge.notes.note import NoteDecisions, create_note
from rekindle.knowledge.notes.observations import OBSERVATION_VERSION
from rekindle.knowledge.notes.playbook import Playbook
from rekindle.projects import (
    FOLDER_PREFIX,
    find_repository,
    has_files,
    list_folders_above,
    normalize_folder,
)
from rekindle.store import Store

_VERSION = f"{OBSERVATION_VERSION}"
_decode_playbook = msgspec.msgpack.Decoder(Playbook).decode


def load_playbook(store: Store, project: str) -> Playbook:
    """Return the playbook of a project; an empty one if nothing was learned there."""
    data = store.observations.load_playbook(project, _VERSION)
    return Playbook() if data is None else _decode_playbook(data)


def save_playbook(store: Store, project: str, playbook: Playbook) -> None:
    """Save the playbook of a project."""
    store.observations.save_playbook(project, _VERSION, msgspec.msgpack.encode(playbook))


def load_decisions(store: Store, project: str) -> NoteDecisions:
    """Return what people decided about the notes of a project."""
    found = store.observations.load_decisions(project)
    return NoteDecisions(
        pinned=frozenset(one.note for one in found if one.state == "pinned"),
        retired=frozenset(one.note for one in found if one.state == "retired"),
        added=tuple(
            create_note(one.text, datetime.fromtimestamp(one.time, UTC).date().isoformat())
            for one in found
            if one.text is not None
        ),
    )


def find_project(store: Store, folder: str) -> str | None:
    """Return the project that a folder belongs to, if it is known or a repository.

    A new folder may say that it is a clone of any repository: of a known one, it must have the files.
    """
    name = normalize_folder(folder)
    above = list_folders_above(name)
    known = store.observations.find_folder_projects([name, *above])
    if name in known:
        return known[name]
    repository = find_repository(folder)
    if repository is not None:
        root, remote = normalize_folder(repository.root), repository.remote
        known = store.observations.find_folder_projects([root])
        if root in known or remote is None:
            return known.get(root)
        playbook = load_playbook(store, remote)
        is_clone = not playbook.sessions or has_files((repository.root, folder), playbook.paths)
        return remote if is_clone else None
    return next((known[one] for one in above if is_repository(known.get(one))), None)


def is_repository(project: str | None) -> bool:
    """Return whether a project is a repository with a known remote."""
    return project is not None and not project.startswith(FOLDER_PREFIX)
