"""What a first visitor has on this machine: sessions of agents that were not imported yet."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from rekindle.coding_agents.agents import AGENTS
from rekindle.transcripts import FORMATS
from rekindle.transcripts.discovery import find_files, find_session_paths

MAX_FILES = 5_000  # that are counted


class FoundAgent(NamedTuple):
    """An agent whose sessions are on this machine."""

    name: str
    title: str
    places: tuple[str, ...]
    files: int
    is_counted: bool  # False if there are more files
    newest: float | None
    is_installable: bool  # Rekindle can be installed into it


def find_agents(home: Path, env: Mapping[str, str]) -> list[FoundAgent]:
    """Return the agents with sessions on this machine, the most recently used first."""
    found: list[FoundAgent] = []
    for one in FORMATS:
        paths = find_session_paths(home, env, one.name)
        if not paths:
            continue
        files = [*islice(find_files(paths, lambda path, reason: None), MAX_FILES + 1)]
        if files:
            found.append(
                FoundAgent(
                    name=one.name,
                    title=one.title,
                    places=tuple(_shorten_path(path, home) for path in paths),
                    files=min(len(files), MAX_FILES),
                    is_counted=len(files) <= MAX_FILES,
                    newest=max(file.mtime for file in files),
                    is_installable=one.name in AGENTS,
                )
            )
    return sorted(found, key=lambda one: -(one.newest or 0.0))


def _shorten_path(path: Path, home: Path) -> str:
    real = Path(os.path.realpath(home))
    return f"~/{path.relative_to(real)}" if path.is_relative_to(real) else str(path)
