"""Find the project of a folder that is on a client's machine, without looking at our own files."""

from __future__ import annotations

from rekindle.learning.notes.playbooks import is_repository
from rekindle.projects import list_folders_above, normalize_folder
from rekindle.store import Store
from rekindle.types import MAX_NAME_CHARS

MAX_FOLDER_CHARS = 4_000
MAX_FOLDERS_ABOVE = 100


def find_client_project(store: Store, folder: str, remote: str | None) -> str | None:
    """Return the project of a folder, by what sessions said of it, or by its remote.

    `remote` is the key of the repository that contains the folder (`host/owner/name`).
    """
    if len(folder) > MAX_FOLDER_CHARS:
        return None
    name = normalize_folder(folder)
    above = list_folders_above(name)[:MAX_FOLDERS_ABOVE]
    known = store.observations.find_folder_projects([name, *above])
    if name in known:
        return known[name]
    if remote is not None:
        return remote.lower()[:MAX_NAME_CHARS]
    return next((known[one] for one in above if is_repository(known.get(one))), None)
