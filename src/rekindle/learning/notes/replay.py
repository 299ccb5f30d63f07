"""Replay the history of projects: what would have been recalled, and did it come true?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import msgspec

from rekindle.errors import NotFound
from rekindle.knowledge.notes.note import NoteDecisions
from rekindle.knowledge.notes.playbook import MAX_SESSIONS
from rekindle.knowledge.notes.records import SessionObservation
from rekindle.knowledge.notes.replay import (
    MIN_EARLIER_SESSIONS,
    ReplayResult,
    ReplaySession,
    SessionScore,
    find_common_commands,
    make_recallers,
    replay_session,
)
from rekindle.learning.verdicts.session_readers import (
    StoreReader,
    WorkReader,
    can_reach_store,
    load_sessions,
)
from rekindle.parallel import SERIAL, Chunk, ChunkMapper, group_items
from rekindle.parallel.finished import FinishedChunks, resume_chunks
from rekindle.projects import matches_project
from rekindle.store import Filter, Store
from rekindle.types import Session

from .learner import VERSION, Progress, learn_from_sessions, read_session

UNFINISHED_FOLDER = "unfinished/replay"  # of the home
# Roughly, to replay a session, and to build the playbook from each earlier one.
SECONDS_PER_SESSION, SECONDS_PER_EARLIER_SESSION = 20e-3, 0.5e-3

_decode_observation = msgspec.msgpack.Decoder(SessionObservation).decode
_Scores = list[tuple[str, SessionScore]]


class _History(NamedTuple):
    """The sessions of a project, oldest first, and a digest of everything that is known about them."""

    sessions: Sequence[tuple[str, str]]  # id and folder
    digest: str


class ReplayPlace(NamedTuple):
    """One session to replay: its project and its number among the sessions there."""

    project: str
    number: int


class ReplayWork(NamedTuple):
    """Sessions of a project that are to be replayed, by number, with all that came before them."""

    reader: WorkReader
    project: str
    sessions: Sequence[tuple[str, str]]  # id and folder, oldest first
    first: int
    common: frozenset[str]
    variants: Mapping[str, NoteDecisions] | None = None


def replay_projects(
    store: Store,
    wanted: str | None = None,
    *,
    progress: Progress | None = None,
    mapper: ChunkMapper = SERIAL,
    home: Path | None = None,
    variants: Mapping[str, NoteDecisions] | None = None,
) -> list[ReplayResult]:
    """Replay the history of one project, or of all, and return how each way to answer did.

    With a `home`, a replay that was interrupted goes on where it was. With `variants`, recall as it is
    is compared with recall as it would be with other decisions about notes, by name.
    """
    learn_from_sessions(store, progress=progress, mapper=mapper)
    known: list[list[SessionObservation]] = []
    histories: dict[str, _History] = {}
    families: dict[str, str] = {}
    for project, _, _ in store.observations.list_projects():
        data = _load_data(store, project)
        recent = store.recent(len(data) or 1, where=Filter(project=project))
        decoded = {one.id: _decode_observation(data[one.id]) for one in recent if one.id in data}
        known.append([*decoded.values()])
        histories[project] = _sort_sessions(recent, decoded, data)
        families |= _find_families(recent)
    common = find_common_commands(known)
    chosen = {project: histories[project] for project in choose_projects(histories, wanted)}
    scores: dict[str, list[SessionScore]] = {name: [] for name in make_recallers(variants)}
    done, total = 0, sum(len(one.sessions) for one in chosen.values())
    for found in _replay_histories(store, chosen, common, mapper, home, variants):
        for name, score in found:
            scores[name].append(score)
        done += len(found) // len(scores)
        if progress:
            progress(done, total)
    return [ReplayResult(name, found, families) for name, found in scores.items()]


def _find_families(sessions: Iterable[Session]) -> dict[str, str]:
    """Return the first session of the conversation that each session belongs to."""
    parents = {one.id: one.parent for one in sessions}

    def find_first(session: str) -> str:
        seen = {session}
        while (parent := parents.get(session)) is not None and parent not in seen:
            seen.add(parent)
            session = parent
        return session

    return {session: find_first(session) for session in parents}


def choose_projects(projects: Iterable[str], wanted: str | None) -> list[str]:
    """Return the projects that a person means: exactly this one, or those that it may stand for."""
    found = [*projects]
    if wanted is None or wanted in found:
        return found if wanted is None else [wanted]
    return [project for project in found if matches_project(project, wanted)]


def _load_data(store: Store, project: str) -> dict[str, bytes]:
    newest = store.observations.load_newest(project, VERSION, MAX_SESSIONS)
    return {_decode_observation(data).session: data for data in newest}


def _sort_sessions(
    recent: Iterable[Session],
    decoded: Mapping[str, SessionObservation],
    data: Mapping[str, bytes],
) -> _History:
    """Put the sessions of a project in order, as far as they were observed."""
    sessions = [one for one in recent if one.id in decoded]
    sessions.sort(key=lambda one: (decoded[one.id].started, one.id))
    digest = blake2b(VERSION.encode(), digest_size=16)
    for one in sessions:
        digest.update(data[one.id])
        digest.update(repr((one.id, one.cwd, one.message_count, one.last_active)).encode())
    return _History([(one.id, one.cwd or "") for one in sessions], digest.hexdigest())


def _replay_histories(
    store: Store,
    histories: Mapping[str, _History],
    common: frozenset[str],
    mapper: ChunkMapper,
    home: Path | None,
    variants: Mapping[str, NoteDecisions] | None,
) -> Iterator[_Scores]:
    places = [
        ReplayPlace(project, number)
        for project, history in histories.items()
        for number in range(MIN_EARLIER_SESSIONS, len(history.sessions))
    ]
    reader = StoreReader(store)
    chunks: list[Chunk[ReplayWork]] = []
    keys: list[str] = []
    # The same chunks whatever the number of workers, so that any of them can go on.
    for chunk in group_items(
        places,
        lambda one: SECONDS_PER_SESSION + SECONDS_PER_EARLIER_SESSION * one.number,
        lambda one: f"{one.project}, session {one.number + 1}",
        get_group=lambda one: one.project,
    ):
        first, last = chunk.work[0], chunk.work[-1].number
        history = histories[first.project]
        work = ReplayWork(
            reader=reader,
            project=first.project,
            sessions=history.sessions[: last + 1],
            first=first.number,
            common=common,
            variants=variants,
        )
        chunks.append(Chunk(chunk.name, work, chunk.seconds))
        about = (history.digest, first.number, last, sorted(common), variants)
        keys.append(blake2b(repr(about).encode(), digest_size=16).hexdigest())
    prepare = None if can_reach_store(mapper, store) else _load_work
    if home is None:
        yield from mapper.map_chunks(replay_chunk, chunks, prepare=prepare)
        return
    finished: FinishedChunks[_Scores] = FinishedChunks(home / UNFINISHED_FOLDER, _Scores)
    yield from resume_chunks(mapper, replay_chunk, chunks, keys, finished, prepare=prepare)
    finished.forget_all()


def replay_chunk(work: ReplayWork) -> _Scores:
    """Replay some sessions of a project, each with what was learned from the earlier ones only."""
    ids = [id for id, _ in work.sessions]
    data = work.reader.load_observations(ids, VERSION)
    earlier = [_decode_observation(data[id]) for id in ids[: work.first] if id in data]
    found: _Scores = []
    for id, folder in work.sessions[work.first :]:
        with suppress(NotFound, KeyError):  # deleted meanwhile
            loaded, observation = read_session(work.reader, id), _decode_observation(data[id])
            session = ReplaySession(observation, folder, loaded.request, loaded.calls)
            found += replay_session(session, earlier, work.common, work.variants, work.project)
            earlier.append(observation)
    return found


def _load_work(work: ReplayWork) -> ReplayWork:
    replayed = [(id, 0) for id, _ in work.sessions[work.first :]]
    loaded = load_sessions(work.reader, replayed, with_verdicts=True)
    data = work.reader.load_observations([id for id, _ in work.sessions], VERSION)
    return work._replace(reader=loaded._replace(observations=data))
