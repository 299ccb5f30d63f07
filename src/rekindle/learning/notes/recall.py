"""Recall what a project's sessions learned: at the start, after a failure, and before a call."""

from __future__ import annotations

import os
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from rekindle.knowledge.notes.note import Recall
from rekindle.knowledge.notes.playbook import IsPresent, Playbook, is_never_missing
from rekindle.knowledge.notes.recall import recall_start
from rekindle.knowledge.notes.records import hash_branch
from rekindle.projects import find_branch, has_files, list_working_tree
from rekindle.store import Store
from rekindle.types import JSON, ToolCall

from .playbooks import find_project, load_decisions, load_playbook


def recall_at_start(
    store: Store,
    folder: str,
    message: str,
    known: AbstractSet[str] = frozenset(),
    branch: str | None = None,
) -> Recall:
    """Return what a session in this folder should be told before it begins; empty if nothing.

    Notes that it was told already are `known` by their ids. The branch is the one that is checked out
    in the folder, if none is given.
    """
    project = find_project(store, folder)
    if project is None:
        return Recall()
    playbook, decisions = load_playbook(store, project), load_decisions(store, project)
    checked_out = hash_branch(branch or find_branch(folder))
    is_present = make_presence_check(playbook, folder)
    return recall_start(playbook, message, decisions, known, checked_out, is_present)


def recall_in_project(
    store: Store,
    project: str,
    message: str,
    known: AbstractSet[str] = frozenset(),
    branch: str | None = None,
) -> Recall:
    """Return what a session in this project, on any machine, should be told before it begins."""
    playbook, decisions = load_playbook(store, project), load_decisions(store, project)
    return recall_start(playbook, message, decisions, known, hash_branch(branch))


def recall_at_failure(
    store: Store, folder: str, tool: str, arguments: Mapping[str, JSON] | str, result: str
) -> Recall:
    """Return how a failure like this one was fixed in this project before; empty if it was not."""
    project = find_project(store, folder)
    if project is None:
        return Recall()
    return recall_failure_in_project(
        store, project, folder, tool, arguments, result, reads_folder=True
    )


def recall_failure_in_project(
    store: Store,
    project: str,
    folder: str,
    tool: str,
    arguments: Mapping[str, JSON] | str,
    result: str,
    *,
    reads_folder: bool = False,
) -> Recall:
    """Return how a failure like this one in a folder of a project was fixed there before.

    With `reads_folder`, the folder is on this machine, and files that are gone are not suggested.
    """
    from rekindle.knowledge.notes.failures import recall_failure  # a start does not need it

    call = ToolCall("", tool, arguments if isinstance(arguments, str) else dict(arguments))
    playbook, decisions = load_playbook(store, project), load_decisions(store, project)
    is_present = make_presence_check(playbook, folder) if reads_folder else is_never_missing
    return recall_failure(playbook, folder, call, result, decisions, is_present)


def recall_before_call(
    store: Store, folder: str, tool: str, arguments: Mapping[str, JSON] | str
) -> Recall:
    """Return what worked in place of a call that is known to fail in this project; empty for others."""
    project = find_project(store, folder)
    if project is None:
        return Recall()
    return recall_call_in_project(store, project, folder, tool, arguments)


def recall_call_in_project(
    store: Store, project: str, folder: str, tool: str, arguments: Mapping[str, JSON] | str
) -> Recall:
    """Return what worked in place of a call that is known to fail in a folder of a project."""
    from rekindle.knowledge.notes.failures import recall_call  # a start does not need it

    call = ToolCall("", tool, arguments if isinstance(arguments, str) else dict(arguments))
    playbook, decisions = load_playbook(store, project), load_decisions(store, project)
    return recall_call(playbook, folder, call, decisions)


def make_presence_check(playbook: Playbook, folder: str) -> IsPresent:
    """Return a check whether a file is still in this folder, or above it in the same repository.

    Where the project's files are elsewhere, on another machine for instance, none is missing.
    """
    roots = list_working_tree(folder)
    if not has_files(roots, playbook.paths):
        return is_never_missing
    return lambda path: any(os.path.lexists(f"{root}/{path}") for root in roots)
