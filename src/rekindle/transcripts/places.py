"""Where agents keep their sessions on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

# A few invented sessions, for a machine that has none.
SAMPLE = Path(__file__).parent / "sample"


def find(home: Path, env: Mapping[str, str]) -> list[Path]:
    """The folders with sessions that exist, for the user whose home and environment these are."""
    found: dict[Path, None] = {}
    for place in (*_claude_code(home, env), *_codex(home, env)):
        if place.is_dir():
            found[place.resolve()] = None
    return list(found)


def _claude_code(home: Path, env: Mapping[str, str]) -> Iterator[Path]:
    # The variable replaces the usual folders, as it does for Claude Code itself.
    if chosen := env.get("CLAUDE_CONFIG_DIR"):
        for root in chosen.split(","):
            yield _expand(root.strip(), home) / "projects"
    else:
        yield home / ".claude" / "projects"
        yield home / ".config" / "claude" / "projects"


def _codex(home: Path, env: Mapping[str, str]) -> Iterator[Path]:
    chosen = env.get("CODEX_HOME")
    root = _expand(chosen, home) if chosen else home / ".codex"
    yield root / "sessions"
    yield root / "archived_sessions"


def _expand(path: str, home: Path) -> Path:
    return home / path[2:] if path.startswith("~/") else Path(path)
