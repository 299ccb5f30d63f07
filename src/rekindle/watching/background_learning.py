"""Learn from sessions imported by reading commands, in a separate process, so that nobody waits.

An import leaves a mark in the home. Whoever reads next starts the learner, at most every half minute;
it removes the mark before it begins, so that what is imported meanwhile is not forgotten.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from .lock import try_lock

if TYPE_CHECKING:
    from rekindle.learning.notes.learner import LearnReport, Progress
    from rekindle.store import Store

MARK_NAME, LOCK_NAME = "learn.pending", "learn.lock"
INTERVAL_SECONDS = 30.0
NICENESS = 10  # what else is running is more urgent
_COMMAND = ("-m", "rekindle.cli", "warm", "learn", "--background")

_children: list[subprocess.Popen[bytes]] = []  # kept, so that nobody waits for them


def mark_pending(home: Path) -> None:
    """Record that there is something to learn from."""
    (home / MARK_NAME).touch(mode=0o600)


def is_learning_pending(home: Path) -> bool:
    """Return whether imported sessions are waiting to be learned from."""
    return os.path.exists(home / MARK_NAME)


def start_learning(home: Path) -> None:
    """Start a learner if one is needed and none was started recently."""
    if not is_learning_pending(home):
        return
    lock = home / LOCK_NAME
    try:
        age = time.time() - lock.stat().st_mtime
    except FileNotFoundError:
        age = INTERVAL_SECONDS
    if 0 <= age < INTERVAL_SECONDS:
        return
    lock.touch(mode=0o600)
    os.utime(lock)
    _children.append(
        subprocess.Popen(
            [sys.executable, *_COMMAND],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    )


def learn_pending(home: Path, store: Store, progress: Progress | None = None) -> LearnReport | None:
    """Learn from everything new; return None if another process is learning."""
    from rekindle.learning.notes.learner import learn_from_sessions
    from rekindle.learning.verdicts.session_outcomes import judge_outcomes

    with try_lock(home / LOCK_NAME) as is_held:
        if not is_held:
            return None
        (home / MARK_NAME).unlink(missing_ok=True)
        try:
            report = learn_from_sessions(store, progress=progress)
            judge_outcomes(store)  # lists show what became of sessions
        except BaseException:
            mark_pending(home)
            raise
        return report
