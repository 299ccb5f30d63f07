"""Replay the history of projects: what would have been recalled, and did it come true?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rekindle.knowledge.notes.replay import (
    LimitRecaller,
    NaiveRecaller,
    NotesRecaller,
    ReplayResult,
    ReplaySession,
    SessionScore,
    find_own_commands,
    replay_project,
)
from rekindle.projects import matches_project
from rekindle.store import Filter, Store

from .learner import Progress, learn_from_sessions, load_observations, load_session


def replay_projects(
    store: Store, wanted: str | None = None, *, progress: Progress | None = None
) -> list[ReplayResult]:
    """Replay the history of one project, or of all, and return how each way to answer did."""
    learn_from_sessions(store, progress=progress)
    histories = {
        project: list(_iter_replay_sessions(store, project))
        for project, _, _ in store.observations.list_projects()
    }
    is_own = find_own_commands(histories)
    chosen = {project: histories[project] for project in choose_projects(histories, wanted)}
    total, done = sum(map(len, chosen.values())), 0

    def advance() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, total)

    recallers = {"notes": NotesRecaller(), "naive list": NaiveRecaller(), "limit": LimitRecaller()}
    scores: dict[str, list[SessionScore]] = {name: [] for name in recallers}
    for sessions in chosen.values():
        for name, score in replay_project(sessions, recallers, is_own, advance):
            scores[name].append(score)
    return [ReplayResult(name, found) for name, found in scores.items()]


def choose_projects(projects: Iterable[str], wanted: str | None) -> list[str]:
    """Return the projects that a person means: exactly this one, or those that it may stand for."""
    found = [*projects]
    if wanted is None or wanted in found:
        return found if wanted is None else [wanted]
    return [project for project in found if matches_project(project, wanted)]


def _iter_replay_sessions(store: Store, project: str) -> Iterator[ReplaySession]:
    observations = {one.session: one for one in load_observations(store, project)}
    for session in store.recent(len(observations) or 1, where=Filter(project=project)):
        observation = observations.get(session.id)
        if observation is None:
            continue
        loaded = load_session(store, session.id)
        yield ReplaySession(observation, session.cwd or "", loaded.request, loaded.calls)
