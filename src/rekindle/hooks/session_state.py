"""What each session of another agent was given: its arm, and the notes that it knows already.

A small file per session, because the helper may be restarted at any time.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from hashlib import blake2b
from pathlib import Path
from threading import Lock

import msgspec

from rekindle.files import write_new_file

from .command import HOOKS_FOLDER

SESSIONS_FOLDER = "sessions"
MAX_FILES = 2_000
MAX_CACHED = 200


class SessionState(msgspec.Struct, omit_defaults=True):
    """What a session was given by hooks."""

    arm: str | None = None
    folder: str = ""  # in which it was when hooks first saw it
    experiment: str | None = None
    said: list[str] = []  # at the start and with the first prompt, byte for byte
    notes: list[str] = []  # the ids of the notes in them
    fixes: list[str] = []  # the ids of the notes that were recalled after failures
    stopped: list[str] = []  # the ids of the notes because of which a call was stopped
    is_prompted: bool = False


class SessionStates:
    """The states of the sessions of a home."""

    def __init__(self, home: Path) -> None:
        self._folder = home / HOOKS_FOLDER / SESSIONS_FOLDER
        self._cached: OrderedDict[str, SessionState] = OrderedDict()
        self._lock = Lock()

    def load(self, agent: str, session: str) -> SessionState | None:
        """Load the state of a session; None if hooks do not know it."""
        name = _make_name(agent, session)
        with self._lock:
            if name in self._cached:
                self._cached.move_to_end(name)
                return self._cached[name]
        try:
            data = (self._folder / name).read_bytes()
            state = msgspec.json.decode(data, type=SessionState)
        except (OSError, msgspec.MsgspecError):
            return None
        self._remember(name, state)
        return state

    def save(self, agent: str, session: str, state: SessionState) -> None:
        """Save the state of a session, in memory even if the disk is full."""
        name = _make_name(agent, session)
        self._remember(name, state)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_new_file(self._folder / name, msgspec.json.encode(state), durable=False)

    def delete_old(self) -> None:
        """Delete the states of all but the latest sessions."""
        try:
            files = [(entry.stat().st_mtime, entry.path) for entry in os.scandir(self._folder)]
        except OSError:
            return
        for _, path in sorted(files)[:-MAX_FILES]:
            Path(path).unlink(missing_ok=True)

    def _remember(self, name: str, state: SessionState) -> None:
        with self._lock:
            self._cached[name] = state
            self._cached.move_to_end(name)
            while len(self._cached) > MAX_CACHED:
                self._cached.popitem(last=False)


def _make_name(agent: str, session: str) -> str:
    """Return the name of a session's file; a foreign id must not name a file itself."""
    identity = f"{agent}\0{session}".encode("utf-8", "surrogatepass")
    return f"{blake2b(identity, digest_size=16).hexdigest()}.json"
