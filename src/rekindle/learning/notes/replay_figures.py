"""Keep the figures of replays in the home, so that they can be shown without replaying again."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import msgspec

from rekindle.analytics.cluster_stats import Rate
from rekindle.files import write_new_file
from rekindle.knowledge.notes.replay import ReplayResult

FOLDER = "replays"  # of the home
METRIC_TITLES = {
    "given": "sessions told anything",
    "came_true": "of what was named came true",
    "commands_told": "of the commands it used: told",
    "files_told": "of the files it used: told",
    "mended": "failures fixed: told how",
    "beside": "answers beside the point",
    "stopped": "calls known to fail: failed",
}


class ReplayFigures(msgspec.Struct, frozen=True):
    """How one way to answer did."""

    name: str
    sessions: int
    rates: dict[str, Rate]
    tokens_per_start: float | None
    tokens_per_failure: float | None


class StoredReplay(msgspec.Struct, frozen=True):
    """The figures of a project's last replay."""

    project: str
    time: float
    results: tuple[ReplayFigures, ...]


def summarize_replay(results: Sequence[ReplayResult]) -> tuple[ReplayFigures, ...]:
    """Return the figures of a replay."""
    return tuple(
        ReplayFigures(
            name=one.name,
            sessions=len(one.scores),
            rates=one.compute_rates(),
            tokens_per_start=one.tokens_per_start,
            tokens_per_failure=one.tokens_per_failure,
        )
        for one in results
    )


def save_replay(home: Path, project: str, results: Sequence[ReplayResult], now: float) -> None:
    """Save the figures of a project's replay, in place of earlier ones."""
    file = _get_file(home, project)
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    stored = StoredReplay(_encode_name(project), now, summarize_replay(results))
    write_new_file(file, msgspec.json.encode(stored))


def load_replay(home: Path, project: str) -> StoredReplay | None:
    """Return the figures of a project's last replay, if there are any."""
    try:
        found = msgspec.json.decode(_get_file(home, project).read_bytes(), type=StoredReplay)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return found if found.project == _encode_name(project) else None


def _get_file(home: Path, project: str) -> Path:
    name = blake2b(_encode_name(project).encode(), digest_size=16).hexdigest()
    return home / FOLDER / f"{name}.json"


def _encode_name(project: str) -> str:
    return project.encode("utf-8", "backslashreplace").decode()
