"""Import a session of another agent and learn from it, in a separate process.

Nobody waits for it: the agent may be gone already, and its hooks must not wait for this either.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from rekindle.errors import NotFound
from rekindle.learning.notes.learner import learn_from_sessions
from rekindle.store import Store
from rekindle.transcripts.discovery import find_files
from rekindle.transcripts.importer import import_transcripts
from rekindle.types import Message

from .command import HOOKS_FOLDER
from .events import ImportJob
from .home_store import load_hook_settings, open_home_store
from .session_state import SessionState, SessionStates
from .troubles import describe_error, record_trouble

LOCK_FILE = "import.lock"
# An agent may still write to a transcript while its end hook runs.
QUIET_SECONDS = 1.0
MAX_IMPORTS = 5


def run_import(home: str, job: ImportJob) -> None:
    """Do a job, and record any trouble."""
    folder = Path(home)
    try:
        with open_home_store(load_hook_settings(folder, job.settings)) as store:
            _follow_transcript(folder, store, job)
    except Exception as error:  # noqa: BLE001  # nobody watches this process
        record_trouble(folder, f"{job.agent} import", describe_error(error))


def _follow_transcript(home: Path, store: Store, job: ImportJob) -> None:
    """Import a transcript until it no longer changes."""
    state = SessionStates(home).load(job.agent, job.session)
    for _ in range(MAX_IMPORTS):
        stamp = _read_stamp(job.transcript)
        with _take_turn(home):
            import_session(store, job, state)
        os.nice(5)  # what else is running is more urgent from here on
        time.sleep(QUIET_SECONDS)
        if _read_stamp(job.transcript) == stamp:
            return


@contextmanager
def _take_turn(home: Path) -> Generator[None]:
    """Wait for other imports of this home: they would work on the same store."""
    with (home / HOOKS_FOLDER / LOCK_FILE).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _read_stamp(path: str) -> str | None:
    """Return a stamp that changes with the file, or with the write-ahead log of a database."""
    return next((file.stamp for file in find_files([path], lambda path, reason: None)), None)


def import_session(store: Store, job: ImportJob, state: SessionState | None = None) -> None:
    """Import a transcript, record how its session was started, and learn from it."""
    report = import_transcripts(store, [job.transcript])
    if report.failed:
        raise NotFound(f"{report.failed[0].file}: {report.failed[0].reason}")
    try:
        session = store.session(job.session)
    except NotFound:
        return  # it has no messages yet
    if session.cwd is None:
        store.update(session, cwd=job.cwd)
    if state is not None and state.arm is not None:
        store.update(session, arm=state.arm)
        store.preludes.save(session, [Message("system", text) for text in state.said])
    learn_from_sessions(store, only={job.session})
