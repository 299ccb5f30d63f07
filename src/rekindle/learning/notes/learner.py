"""Learn from stored sessions: observe what is new, find its projects, and renew their playbooks."""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from rekindle.errors import NotFound
from rekindle.judging.judge import RULES_VERSION as JUDGE_VERSION
from rekindle.judging.outcomes.outcome import judge_session
from rekindle.knowledge.notes.calls import INTERRUPTED, ObservedCall
from rekindle.knowledge.notes.observations import observe_session
from rekindle.knowledge.notes.playbook import MAX_SESSIONS, Playbook, build_playbook, list_paths
from rekindle.knowledge.notes.records import OBSERVATION_VERSION, SessionObservation, hash_words
from rekindle.knowledge.trust.inputs import ModelInput
from rekindle.knowledge.wishes.records import Wish
from rekindle.knowledge.wishes.wishes import UserTurn, Vocabulary, WishSession, collect_wishes
from rekindle.learning.verdicts.judged_sessions import judge_sessions
from rekindle.learning.verdicts.session_readers import (
    LoadedSessions,
    StoreReader,
    WorkReader,
    can_reach_store,
    load_sessions,
)
from rekindle.parallel import SERIAL, ChunkMapper, group_items
from rekindle.projects import (
    FOLDER_PREFIX,
    choose_project,
    find_clone,
    find_repository,
    has_files,
    is_below,
    list_folders_above,
    normalize_folder,
    normalize_remote,
)
from rekindle.store import Filter, Store
from rekindle.store.learning.observations import StoredFolder, UnobservedSession
from rekindle.types import JudgedCall, Message

from .inputs import collect_inputs
from .playbooks import is_repository, load_playbook, save_playbook

Progress = Callable[[int, int], None]

VERSION = f"{JUDGE_VERSION}.{OBSERVATION_VERSION}"
SESSIONS_PER_COMMIT = 50
MIN_OUTCOME_CONFIDENCE = 0.6  # that a session failed
SECONDS_PER_MESSAGE = 150e-6  # roughly, to read a message and to observe it
SECONDS_PER_PLAYBOOK_SESSION = 0.5e-3
LOCAL_REMOTE_WEIGHT = 100  # of a remote that the folder on this machine has
# Texts in the role of the user that no user wrote.
_GENERATED_STARTS = ("<", "Caveat:", "# AGENTS", "[Request interrupted")

_encode = msgspec.msgpack.encode
_decode_observation = msgspec.msgpack.Decoder(SessionObservation).decode


class LearnReport(NamedTuple):
    """What a run of learning did."""

    sessions: int  # observed in this run
    projects: tuple[str, ...]  # whose playbook was renewed


class FolderEvidence(NamedTuple):
    """What sessions say about the repository of their folder: remotes that git named, and files."""

    remotes: Counter[str]
    paths: set[str]


class LoadedSession(NamedTuple):
    """A session as learning sees it: its request, what was said in each turn, and its judged calls."""

    request: str
    turns: Sequence[UserTurn]
    calls: Sequence[ObservedCall]
    answers: Mapping[int, str]  # by the position of the turn
    inputs: Sequence[ModelInput]  # that reached the model in other ways
    has_failed: bool  # by its outcome


class ObservingWork(NamedTuple):
    """Sessions that are to be observed."""

    reader: WorkReader
    sessions: Sequence[UnobservedSession]


class ObservationResult(NamedTuple):
    """The observation of a session, encoded, and what it says about the project of its folder."""

    session: UnobservedSession
    data: bytes
    remotes: Sequence[str]
    paths: Sequence[str]


def learn_from_sessions(
    store: Store,
    *,
    limit: int | None = None,
    only: Collection[str] | None = None,
    progress: Progress | None = None,
    mapper: ChunkMapper = SERIAL,
    reads_folders: bool = True,
    keeps_projects: bool = False,
) -> LearnReport:
    """Observe sessions that are new or have changed, and renew the playbooks of their projects.

    With a `limit`, only that many of the newest are observed; with `only`, those with these ids. What
    an earlier run observed and did not finish is finished. Without `reads_folders`, nothing is looked
    up in the folders of sessions: they are on other machines. With `keeps_projects`, only sessions
    without a project are assigned to one.
    """
    unfinished, leftover = store.observations.load_unfinished(VERSION)
    waiting = store.observations.find_stale(VERSION)
    if only is not None:
        waiting = [one for one in waiting if one.id in only]
    if limit is not None:
        waiting = waiting[-limit:]
    if limit is None and only is None:
        judge_sessions(store, Filter(archived=None), mapper=mapper)
    else:
        for one in waiting:
            judge_sessions(store, session=one.id)
    folders: dict[str, FolderEvidence] = {}
    touched: set[str] = set()
    for session, data in leftover:
        _add_evidence(folders, _read_observation(session, data))
        if session.project:
            touched.add(session.project)
    batch: list[tuple[UnobservedSession, bytes]] = []
    done = 0
    for observed in _observe_all(store, waiting, mapper):
        for one in observed:
            batch.append((one.session, one.data))
            if not (keeps_projects and one.session.project):
                _add_evidence(folders, one)
            if one.session.project:
                touched.add(one.session.project)
        if len(batch) >= SESSIONS_PER_COMMIT:
            unfinished.append(_save_batch(store, batch))
            batch = []
        done += len(observed)
        if progress:
            progress(done, len(waiting))
    if batch:
        unfinished.append(_save_batch(store, batch))
    touched |= _assign_projects(store, folders, reads_folders=reads_folders)
    _renew_playbooks(store, touched, mapper)
    store.observations.finish(unfinished)
    return LearnReport(len(waiting), tuple(sorted(touched)))


def _save_batch(store: Store, batch: Sequence[tuple[UnobservedSession, bytes]]) -> str:
    name = secrets.token_hex(8)
    store.observations.save(VERSION, batch, unfinished=name)
    return name


def _read_observation(session: UnobservedSession, data: bytes) -> ObservationResult:
    observation = _decode_observation(data)
    paths = tuple(list_paths(observation)) if session.cwd else ()
    return ObservationResult(session, data, observation.remotes, paths)


def _add_evidence(folders: dict[str, FolderEvidence], one: ObservationResult) -> None:
    session = one.session
    if session.cwd:
        # Readers store the key of a remote, which is no longer an address.
        named = session.repository and (normalize_remote(session.repository) or session.repository)
        remotes = [named, *map(str.lower, one.remotes)]
        evidence = folders.setdefault(session.cwd, FolderEvidence(Counter(), set()))
        evidence.remotes.update(key for key in remotes if key)
        evidence.paths.update(one.paths)


class PlaybookWork(NamedTuple):
    """Projects whose playbooks are to be built."""

    reader: WorkReader
    projects: Sequence[str]


def _renew_playbooks(store: Store, projects: Collection[str], mapper: ChunkMapper) -> None:
    """Build the playbooks of projects from the observations of their newest sessions."""
    if not projects:
        return
    counts = {project: count for project, count, _ in store.observations.list_projects()}
    reader = StoreReader(store)
    chunks = [
        chunk.replace_work(PlaybookWork(reader, chunk.work))
        for chunk in group_items(
            sorted(projects),
            lambda one: SECONDS_PER_PLAYBOOK_SESSION * min(counts.get(one, 0) + 1, MAX_SESSIONS),
            lambda one: f"project {one}",
            workers=mapper.workers,
            chunk_seconds=mapper.chunk_seconds,
        )
    ]
    prepare = None if can_reach_store(mapper, store) else _load_playbook_work
    for built in mapper.map_chunks(build_playbook_chunk, chunks, prepare=prepare):
        for project, playbook in built:
            save_playbook(store, project, playbook)


def build_playbook_chunk(work: PlaybookWork) -> list[tuple[str, Playbook]]:
    """Build the playbooks of some projects."""
    found: list[tuple[str, Playbook]] = []
    for project in work.projects:
        observations = _read_newest(work.reader, project)
        wishes = load_wishes(work.reader, observations)
        found.append((project, build_playbook(observations, wishes, project)))
    return found


def _load_playbook_work(work: PlaybookWork) -> PlaybookWork:
    newest: dict[str, list[bytes]] = {}
    texts: dict[tuple[str, int], str] = {}
    for project in work.projects:
        newest[project] = work.reader.load_newest(project, VERSION, MAX_SESSIONS)
        for one in map(_decode_observation, newest[project]):
            for wish in one.wishes:
                texts[one.session, wish.position] = work.reader.load_text(
                    one.session, wish.position
                )
    return work._replace(reader=LoadedSessions(newest=newest, texts=texts))


def load_wishes(reader: WorkReader, observations: Sequence[SessionObservation]) -> list[Wish]:
    """Return what the users of these sessions asked for, as far as it may be repeated."""
    sessions = [
        WishSession(one.session, one.started, one.words, one.wishes)
        for one in observations
        if one.wishes
    ]
    if not sessions:
        return []
    from rekindle.redaction.redactor import Redactor  # a chat without wishes need not load it

    return collect_wishes(sessions, build_vocabulary(observations), Redactor(), reader.load_text)


def build_vocabulary(observations: Sequence[SessionObservation]) -> Vocabulary:
    """Build the vocabulary of a project: its files, and the words in their names."""
    paths = {path for one in observations for path in list_paths(one)}
    # A word that two sessions said may still be a password; one in the name of a file is not.
    names = {word for path in paths for word in hash_words(path)}

    def is_shared(word: str) -> bool:
        hashed = hash_words(word)
        return bool(hashed) and hashed <= names

    return Vocabulary(is_shared, paths)


def load_observations(store: Store, project: str) -> list[SessionObservation]:
    """Return the observations of a project's newest sessions."""
    return _read_newest(StoreReader(store), project)


def _read_newest(reader: WorkReader, project: str) -> list[SessionObservation]:
    return list(map(_decode_observation, reader.load_newest(project, VERSION, MAX_SESSIONS)))


def decode_observations(
    store: Store, sessions: Sequence[str]
) -> dict[str, tuple[str | None, SessionObservation]]:
    """Return the projects and observations of those sessions that were observed."""
    found = store.observations.load_sessions(sessions, VERSION)
    return {id: (one.project, _decode_observation(one.data)) for id, one in found.items()}


# ── observing


def _observe_all(
    store: Store, waiting: Sequence[UnobservedSession], mapper: ChunkMapper
) -> Iterator[list[ObservationResult]]:
    reader = StoreReader(store)
    chunks = [
        chunk.replace_work(ObservingWork(reader, chunk.work))
        for chunk in group_items(
            waiting,
            lambda one: SECONDS_PER_MESSAGE * (one.messages + 1),
            lambda one: f"session {one.id}",
            workers=mapper.workers,
            chunk_seconds=mapper.chunk_seconds,
        )
    ]
    prepare = None if can_reach_store(mapper, store) else _load_work
    return mapper.map_chunks(observe_chunk, chunks, prepare=prepare)


def observe_chunk(work: ObservingWork) -> list[ObservationResult]:
    """Observe some sessions whose calls are judged; those deleted meanwhile are left out."""
    found: list[ObservationResult] = []
    for one in work.sessions:
        with suppress(NotFound):
            loaded = read_session(work.reader, one.id)
            observation = observe_session(
                one.id,
                one.started,
                one.cwd or "",
                loaded.request,
                loaded.calls,
                loaded.turns,
                one.git_branch,
                loaded.answers,
                loaded.inputs,
            )
            observation = replace(observation, has_failed=loaded.has_failed)
            paths = tuple(list_paths(observation)) if one.cwd else ()
            found.append(ObservationResult(one, _encode(observation), observation.remotes, paths))
    return found


def _load_work(work: ObservingWork) -> ObservingWork:
    wanted = [(one.id, 0) for one in work.sessions]
    return work._replace(reader=load_sessions(work.reader, wanted, with_verdicts=True))


def load_session(store: Store, id: str) -> LoadedSession:
    """Load a session's request and its calls with their verdicts and results."""
    judge_sessions(store, session=id)
    return read_session(StoreReader(store), id)


def read_session(reader: WorkReader, id: str) -> LoadedSession:
    """Read a session's request and its calls with their stored verdicts and results."""
    messages = list(reader.iter_messages(id))
    said = [UserTurn(one.position or 0, one.text) for one in messages if is_said(one)]
    judged = reader.load_judged(id)
    verdicts = {(one.position, one.number): one for one in judged.calls}
    results = {message.position: message.text for message in messages if message.role == "tool"}
    calls = list(_iter_calls(messages, verdicts, results))
    request = said[0].text if said else ""
    # In a session below another one it is an agent that asks, or the same user again.
    turns = () if judged.session.parent else said
    inputs = collect_inputs(messages, judged.calls, is_independent=not judged.session.parent)
    outcome = judge_session(judged.session, messages, judged.calls)
    return LoadedSession(
        request=request,
        turns=turns,
        calls=calls,
        answers=_collect_answers(messages),
        inputs=inputs,
        has_failed=outcome.verdict == "failed" and outcome.confidence >= MIN_OUTCOME_CONFIDENCE,
    )


def _collect_answers(messages: Iterable[Message]) -> dict[int, str]:
    """Return the texts with which the agent ended its turns, by their positions."""
    turn, answers = -1, dict[int, str]()
    for message in messages:
        if message.role == "user":
            turn = message.position or 0
        elif message.role == "assistant":
            answers[turn] = "" if message.tool_calls else message.text
        else:
            answers.pop(turn, None)
    return {turn: text for turn, text in answers.items() if text}


def is_said(message: Message) -> bool:
    """Return whether a user wrote the message, and not a program in their name."""
    text = message.text.lstrip() if message.role == "user" else ""
    return bool(text) and not text.startswith(_GENERATED_STARTS)


def _iter_calls(
    messages: Iterable[Message],
    verdicts: dict[tuple[int, int], JudgedCall],
    results: dict[int | None, str],
) -> Iterator[ObservedCall]:
    turn = -1
    for message in messages:
        if message.role == "user":
            turn = message.position or 0
        for number, call in enumerate(message.tool_calls):
            verdict = verdicts.get((message.position or 0, number))
            if verdict is not None:
                result = results.get(verdict.result_position, "")
                kind = verdict.error_kind or ""
                failed = None if kind == INTERRUPTED else verdict.failed
                yield ObservedCall(call, result, failed, kind, turn)


# ── projects


def _assign_projects(
    store: Store, folders: dict[str, FolderEvidence], *, reads_folders: bool
) -> set[str]:
    """Assign the sessions of folders to their projects; return the projects that gained or lost."""
    known = store.observations.load_folders()
    names = {cwd: normalize_folder(cwd) for cwd in folders}
    remotes = {name: Counter(known[name].remotes) for name in names.values() if name in known}
    paths: dict[str, set[str]] = {}
    for cwd, name in names.items():
        if name not in remotes:
            remotes[name] = _read_local_remote(cwd) if reads_folders else Counter()
        remotes[name].update(folders[cwd].remotes)
        paths.setdefault(name, set()).update(folders[cwd].paths)
    projects = {name: one.project for name, one in known.items()}
    for name in (*remotes, *remotes):  # again, because a project may be known only after the first
        projects[name] = _choose_project(name, remotes[name], projects)
    _join_clones(store, projects, paths)
    if reads_folders:
        _reject_false_clones(store, projects, known, {cwd: folders[cwd].paths for cwd in folders})
    touched = {projects[name] for name in names.values()}
    if remotes:
        store.observations.save_folders(
            {name: StoredFolder(projects[name], remotes[name]) for name in remotes}
        )
    for cwd, name in names.items():
        touched.update(one for one in store.observations.assign_project(cwd, projects[name]) if one)
    return touched


def _join_clones(store: Store, projects: dict[str, str], paths: dict[str, set[str]]) -> None:
    """Join folders without a remote to the repository whose files they use, if they are named alike."""
    files: dict[str, set[str]] = {}
    for name, used in paths.items():
        files.setdefault(projects[name], set()).update(used)
    lonely = [name for name in paths if not is_repository(projects[name]) and len(paths[name]) > 1]
    known = {one for one in projects.values() if is_repository(one)} if lonely else set[str]()
    for project in known:
        files.setdefault(project, set()).update(load_playbook(store, project).paths)
    for name in lonely:
        project = find_clone(name, paths[name], {one: files[one] for one in known})
        if project is not None:
            projects[name] = project


def _reject_false_clones(
    store: Store,
    projects: dict[str, str],
    known: Mapping[str, StoredFolder],
    paths: Mapping[str, set[str]],
) -> None:
    """Let folders be projects of their own that say they are clones but have not the files.

    Whoever made a folder chose its name and the remotes in it: both may name any repository.
    """
    accepted: dict[str, dict[str, set[str]]] = {}  # the folders of each project, and their files
    for name, one in known.items():
        accepted.setdefault(one.project, {})[name] = set()
    for cwd in sorted(paths, key=lambda cwd: -len(paths[cwd])):
        name = normalize_folder(cwd)
        project = projects[name]
        clones = accepted.setdefault(project, {})
        if is_repository(project) and name not in clones and os.path.isdir(cwd):
            root = _find_root(cwd)
            others = {one: clones[one] for one in clones if not is_below(one, root)}
            files = [*load_playbook(store, project).paths, *set[str]().union(*others.values())]
            if others and not has_files((root, cwd), files):
                projects[name] = FOLDER_PREFIX + name
                continue
        clones[name] = paths[cwd]


def _find_root(cwd: str) -> str:
    repository = find_repository(cwd)
    return normalize_folder(repository.root if repository else cwd)


def _read_local_remote(cwd: str) -> Counter[str]:
    repository = find_repository(cwd)
    remote = repository.remote if repository else None
    return Counter({remote: LOCAL_REMOTE_WEIGHT} if remote else {})


def _choose_project(name: str, remotes: Counter[str], projects: dict[str, str]) -> str:
    for above in list_folders_above(name):
        if not remotes and is_repository(projects.get(above)):
            return projects[above]
    return choose_project(name, remotes, filter(is_repository, set(projects.values())))
