"""Recall for one of several people who share a process: only what their own sessions learned.

A project's playbook joins the sessions of everybody, so this one is built from the observations of
one owner's sessions. Notes that a person added are left out: they name no owner.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from rekindle.knowledge.notes.failures import recall_call, recall_failure
from rekindle.knowledge.notes.note import NoteDecisions, Recall
from rekindle.knowledge.notes.playbook import MAX_SESSIONS, Playbook, build_playbook
from rekindle.knowledge.notes.recall import recall_start
from rekindle.knowledge.notes.records import SessionObservation, hash_branch
from rekindle.learning.verdicts.session_readers import StoreReader
from rekindle.projects import find_branch
from rekindle.store import Store
from rekindle.types import JSON, ToolCall

from .learner import VERSION, load_wishes
from .playbooks import find_project, load_decisions
from .recall import make_presence_check

_decode_observation = msgspec.msgpack.Decoder(SessionObservation).decode


def recall_for_owner_at_start(store: Store, folder: str, message: str, owner: str | None) -> Recall:
    """Return what a session of this owner should be told before it begins; empty without an owner."""
    project = find_project(store, folder) if owner else None
    if project is None or owner is None:
        return Recall()
    observations = _load_observations(store, project, owner)
    wishes = load_wishes(StoreReader(store), observations)
    playbook = build_playbook(observations, wishes, project)
    decisions = _load_owner_decisions(store, project)
    branch, is_present = hash_branch(find_branch(folder)), make_presence_check(playbook, folder)
    return recall_start(playbook, message, decisions, branch=branch, is_present=is_present)


def recall_for_owner_at_failure(
    store: Store,
    folder: str,
    call: ToolCall,
    result: str,
    owner: str | None,
) -> Recall:
    """Return how this owner's sessions fixed such a failure; empty if they did not."""
    project = find_project(store, folder) if owner else None
    if project is None or owner is None:
        return Recall()
    playbook = load_owner_playbook(store, project, owner)
    decisions = _load_owner_decisions(store, project)
    arguments: str | Mapping[str, JSON] = call.arguments
    plain = ToolCall("", call.name, arguments if isinstance(arguments, str) else dict(arguments))
    is_present = make_presence_check(playbook, folder)
    return recall_failure(playbook, folder, plain, result, decisions, is_present)


def recall_for_owner_before_call(
    store: Store, folder: str, call: ToolCall, owner: str | None
) -> Recall:
    """Return what worked in place of a call that failed in this owner's sessions; empty for others."""
    project = find_project(store, folder) if owner else None
    if project is None or owner is None:
        return Recall()
    playbook = load_owner_playbook(store, project, owner)
    return recall_call(playbook, folder, call, _load_owner_decisions(store, project))


def load_owner_playbook(store: Store, project: str, owner: str) -> Playbook:
    """Build the playbook of a project from one owner's sessions, without their wishes."""
    return build_playbook(_load_observations(store, project, owner), project=project)


def _load_observations(store: Store, project: str, owner: str) -> list[SessionObservation]:
    found = store.observations.load_newest(project, VERSION, MAX_SESSIONS, owner=owner)
    return [*map(_decode_observation, found)]


def _load_owner_decisions(store: Store, project: str) -> NoteDecisions:
    return load_decisions(store, project)._replace(added=(), reworded={})
