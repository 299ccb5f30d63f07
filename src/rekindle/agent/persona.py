"""The part of the system prompt that says who the agent is, and where and when it works.

    settings, instruction files of the folder, date, time zone, folder → text, kept with the session

The text is built once, at the first turn of a session, and kept in the store. So every later turn
sends the same bytes, whatever the date is and whatever has become of the files, and prompt caches of
model providers hit. Only a session that continues in another folder gets a new one.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

from rekindle.projects import read_file_start
from rekindle.routing.sanitize import quote_text, strip_hidden_chars
from rekindle.store import Store
from rekindle.types import Session

DEFAULT_PROMPT = (
    "You are a helpful agent. You can use tools; use them instead of guessing. Report briefly and"
    " plainly what you did and what the result was."
)
INSTRUCTION_FILES = ("SOUL.md", "AGENTS.md", "CLAUDE.md")
_MAX_PATH_CHARS = 1000


class PersonaSettings(NamedTuple):
    """The agent's own prompt, the files whose text is added to it, and how much of each."""

    prompt: str = DEFAULT_PROMPT
    files: Sequence[str] = INSTRUCTION_FILES
    max_chars: int = 20_000


class SessionStart(NamedTuple):
    """Where and when a session starts; `notice` informs the agent about its start."""

    folder: Path
    time: float
    time_zone: str = "UTC"
    notice: str = ""


def load_persona(
    store: Store, session: Session, settings: PersonaSettings, start: SessionStart
) -> str:
    """Return the text of a session as it was first built, or build and keep it."""
    text, is_kept = find_persona(store, session, settings, start)
    return text if is_kept else store.preludes.save_prompt(session, text)


def find_persona(
    store: Store, session: Session, settings: PersonaSettings, start: SessionStart
) -> tuple[str, bool]:
    """Return the text of a session, and whether the store has it already."""
    kept = store.preludes.load_prompt(session)
    if kept is not None and _describe_folder(start.folder) in kept:
        return kept, True
    return build_persona(settings, start), False


def build_persona(settings: PersonaSettings, start: SessionStart) -> str:
    """Build the text for a session that starts now; this reads the instruction files."""
    sections = [settings.prompt.strip() or DEFAULT_PROMPT, _describe_environment(start)]
    sections += _iter_instructions(settings, start.folder)
    sections += [start.notice] if start.notice else []
    return "\n\n".join(sections)


def _describe_environment(start: SessionStart) -> str:
    now = datetime.fromtimestamp(start.time, ZoneInfo(start.time_zone))
    return "\n".join(
        [
            "## Your environment",
            "",
            f"- Date when this session started: {now:%A}, {now:%Y-%m-%d}",
            f"- Time zone: {start.time_zone} (UTC{now.isoformat()[-6:]})",
            _describe_folder(start.folder),
            f"- Operating system: {platform.system() or 'unknown'}",
        ]
    )


def _describe_folder(folder: Path) -> str:
    return f"- Working folder: {quote_text(str(folder), _MAX_PATH_CHARS)}"


def _iter_instructions(settings: PersonaSettings, folder: Path) -> Iterator[str]:
    """Yield the text of each instruction file; of files with the same text, the first."""
    seen: set[str] = set()
    for name in settings.files:
        whole = read_file_start(folder / name, settings.max_chars + 1)
        text = strip_hidden_chars(whole[: settings.max_chars]).strip()
        if not text or text in seen:
            continue
        seen.add(text)
        cut = "\n(The rest of the file is left out.)" if len(whole) > settings.max_chars else ""
        yield f"## Instructions in {name} of the working folder\n\n{text}{cut}"
