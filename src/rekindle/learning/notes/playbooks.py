"""Find the project of a folder, and load its playbook."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache

import msgspec

from rekindle.knowledge.notes.note import (
    NoteDecisions,
    NoteOrigin,
    RecalledNote,
    ShareOrigin,
    create_note,
    list_notes,
    make_note_id,
)
from rekindle.knowledge.notes.playbook import Playbook
from rekindle.knowledge.notes.records import OBSERVATION_VERSION
from rekindle.knowledge.trust.redact_playbook import redact_playbook
from rekindle.projects import (
    FOLDER_PREFIX,
    find_repository,
    has_files,
    list_folders_above,
    normalize_folder,
    shorten_project,
)
from rekindle.store import Store
from rekindle.store.learning.observations import NoteDecision

from .typed_text import clean_typed_text, redact_note_text

SHARED = "*"  # in place of a project: notes that are told in all
QUARANTINED = "quarantined"  # the state of a note that an agent proposed
MAX_WAITING_NOTES = 50  # per project
_VERSION = f"{OBSERVATION_VERSION}"
_decode_origin = msgspec.json.Decoder(NoteOrigin).decode
_decode_share = msgspec.json.Decoder(ShareOrigin).decode
_decode_playbook = lru_cache(maxsize=4)(msgspec.msgpack.Decoder(Playbook).decode)


def load_playbook(store: Store, project: str) -> Playbook:
    """Return the playbook of a project; an empty one if nothing was learned there."""
    data = store.observations.load_playbook(project, _VERSION)
    return Playbook() if data is None else _decode_playbook(data)


def save_playbook(store: Store, project: str, playbook: Playbook) -> None:
    """Save the playbook of a project, without what the redactor takes for a secret."""
    data = msgspec.msgpack.encode(redact_playbook(playbook))
    store.observations.save_playbook(project, _VERSION, data)


def load_decisions(store: Store, project: str) -> NoteDecisions:
    """Return what people decided about the notes of a project."""
    found = store.observations.load_decisions(project)
    origins = {one.note: origin for one in found if (origin := _read_origin(one))}
    added = [*_iter_own_notes(found, "added")]
    shares = [(one, _read_share(one, project)) for one in store.observations.load_decisions(SHARED)]
    rewords = {note.id: origins[note.id].note for note in added if note.id in origins}
    return NoteDecisions(
        pinned=frozenset(one.note for one in found if one.state == "pinned"),
        retired=frozenset(one.note for one in found if one.state == "retired"),
        added=tuple(note for note in added if not rewords.get(note.id)),
        waiting=tuple(_iter_own_notes(found, QUARANTINED)),
        shared=tuple(
            _build_shared_note(one, share) for one, share in shares if share.project != project
        ),
        told_elsewhere=frozenset(share.shared for _, share in shares if share.project == project),
        reworded={rewords[note.id]: note for note in added if rewords.get(note.id)},
        origins=origins,
    )


def _read_origin(decision: NoteDecision) -> NoteOrigin | None:
    with suppress(msgspec.MsgspecError):  # recall must not fail because of it
        return None if decision.origin is None else _decode_origin(decision.origin)
    return None


def _read_share(decision: NoteDecision, project: str) -> ShareOrigin:
    """Return where a shared note comes from, this project or another one."""
    with suppress(msgspec.MsgspecError):
        if decision.origin is not None:
            return _decode_share(decision.origin)
    # Shared before origins were kept: only its text says from where.
    is_own = (decision.text or "").endswith(_format_origin(project))
    return ShareOrigin(project if is_own else "", decision.note, "wish")


def _build_shared_note(decision: NoteDecision, share: ShareOrigin) -> RecalledNote:
    day = datetime.fromtimestamp(decision.time, UTC).date().isoformat()
    text = decision.text or ""
    return RecalledNote(decision.note, share.kind, text, sessions=share.sessions, last=day)


def share_note(store: Store, project: str, note: RecalledNote, now: float) -> None:
    """Let sessions of all other projects be told a note, with the project that it comes from."""
    text = redact_note_text(note.text).text + _format_origin(project)
    share = ShareOrigin(project, note.id, note.kind, note.sessions)
    origin = msgspec.json.encode(share).decode()
    decision = NoteDecision(_make_share_id(project, note.id), "added", text, now, origin)
    store.observations.save_decision(SHARED, decision)


def delete_share(store: Store, project: str, note: RecalledNote) -> None:
    """Tell a note of this project, or one that another project shared, in no other project."""
    for id in (_make_share_id(project, note.id), note.id):
        store.observations.delete_decision(SHARED, id)


def _make_share_id(project: str, note: str) -> str:
    return make_note_id("shared", project, note)


def _format_origin(project: str) -> str:
    return f" (shared from {shorten_project(project)})"


def _iter_own_notes(decisions: Iterable[NoteDecision], state: str) -> Iterator[RecalledNote]:
    for one in decisions:
        if one.text is not None and one.state == state:
            origin, day = _read_origin(one), datetime.fromtimestamp(one.time, UTC).date()
            kind = origin.kind if origin else "wish"
            yield RecalledNote(one.note, kind, one.text, last=day.isoformat())


def load_told_notes(store: Store, project: str) -> list[RecalledNote]:
    """Return the notes of a project that an agent may be told, without the retired ones."""
    decisions = load_decisions(store, project)
    learned = list_notes(load_playbook(store, project))
    return [
        *decisions.added,
        *(note for note in decisions.shared if note.id not in decisions.retired),
        *(
            decisions.reword(note)
            for note in learned
            if note.id in decisions.pinned
            or not (note.id in decisions.retired or note.mostly_fails)
        ),
    ]


def propose_note(
    store: Store, project: str, text: str, now: float, origin: NoteOrigin | None = None
) -> RecalledNote | None:
    """Save a note that an agent or a model wrote; it is told only after a person has accepted it.

    Return None if nothing was saved: a note with this text exists, or too many are waiting.
    """
    words = clean_typed_text(text).text
    note = create_note(words, datetime.fromtimestamp(now, UTC).date().isoformat())
    if origin and origin.note:
        id = make_note_id("rewording", origin.note, note.text)
        note = msgspec.structs.replace(note, id=id, kind=origin.kind)
    decision = NoteDecision(note.id, QUARANTINED, note.text, now, encode_origin(origin))
    saved = store.observations.propose_decision(project, decision, MAX_WAITING_NOTES)
    return note if saved else None


def encode_origin(origin: NoteOrigin | None) -> str | None:
    """Encode the origin of a note for the decision about it."""
    return None if origin is None else msgspec.json.encode(origin).decode()


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
