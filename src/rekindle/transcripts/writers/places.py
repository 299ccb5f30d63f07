"""Where each agent looks for a session, and the command that resumes it there."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from rekindle.errors import InvalidInput
from rekindle.json_fields import as_object, get_text
from rekindle.transcripts.discovery import list_locations

from .turns import WritableSession, derive_hex, format_iso_time

_UNSAFE = re.compile(r"[^A-Za-z0-9]")
_SEPARATORS = re.compile(r"[/\\:\x00]")
_MAX_FOLDER_NAME = 200


class SessionPlace(NamedTuple):
    """Where an agent finds a session.

    `existing` is the file in which the agent still has it. `commands` are to be run in this order.
    `is_staged` if the agent has to import the file, which is ours.
    """

    path: Path
    existing: Path | None
    commands: tuple[str, ...]
    is_staged: bool = False


class UserFolders(NamedTuple):
    """The user's home and environment, and a folder for files that an agent has to import."""

    home: Path
    env: Mapping[str, str]
    staging: Path


def find_place(
    conversation: WritableSession, folders: UserFolders, imported: Iterable[str]
) -> SessionPlace:
    """Find the place of a session, which is where it was imported from if the agent looks there.

    `imported` lists paths of imported files; those of other sessions are ignored.
    """
    agent, id = conversation.agent, conversation.id
    if agent == "opencode":
        return _find_opencode_place(conversation, folders)
    roots, ending = _list_roots(agent, folders), _build_ending(agent, id)
    existing = next(_iter_matches(roots, _PATTERNS[agent], ending), None)
    original = next(
        (
            Path(path)
            for path in imported
            if path.endswith(ending)
            and any(Path(path).is_relative_to(root.resolve()) for root in roots)
        ),
        None,
    )
    path = existing or original or _BUILDERS[agent](conversation, roots[0], ending)
    return SessionPlace(path, existing, (_build_command(conversation),))


def find_session_file(agent: str, id: str, folders: UserFolders) -> Path | None:
    """Return the file or database in which an agent has the session with this id."""
    if agent != "opencode":
        matches = _iter_matches(
            _list_roots(agent, folders), _PATTERNS[agent], _build_ending(agent, id)
        )
        return next(matches, None)
    locations = list_locations(agent, folders.home, folders.env)
    paths = (path for location in locations for path in location.list_existing())
    return next((path for path in paths if _contains_opencode_session(path, id)), None)


def _contains_opencode_session(path: Path, id: str) -> bool:
    if path.is_dir():  # before it had a database
        return next(path.rglob(f"{id}.json"), None) is not None
    from rekindle.transcripts.readers.sqlite_file import has_row

    return has_row(path, "SELECT 1 FROM session WHERE id = ?", id)


def _list_roots(agent: str, folders: UserFolders) -> list[Path]:
    return [location.root for location in list_locations(agent, folders.home, folders.env)]


def _build_ending(agent: str, id: str) -> str:
    return _ENDINGS[agent].format(id=id, short=id[:8])


def _iter_matches(roots: Iterable[Path], pattern: str, ending: str) -> Iterator[Path]:
    for root in roots:
        for path in root.glob(pattern):
            if path.name.endswith(ending.lstrip("/")):
                yield path


def build_resume_words(agent: str, id: str) -> tuple[str, ...]:
    """Return the words of the command with which an agent resumes its own session."""
    return (*_RESUME_WORDS[agent], id)


def _build_command(conversation: WritableSession) -> str:
    command = shlex.join(build_resume_words(conversation.agent, conversation.id))
    if conversation.agent == "opencode" and conversation.provider is None:
        command += " --model PROVIDER/MODEL"  # it would ask for the one of the last prompt
    folder = conversation.folder
    return f"cd {shlex.quote(folder)} && {command}" if folder else command


# -- the names of files ---------------------------------------------------------------------------


def _build_claude_code_path(conversation: WritableSession, root: Path, ending: str) -> Path:
    name = _UNSAFE.sub("-", conversation.folder)
    if len(name) > _MAX_FOLDER_NAME:
        digits = derive_hex("claude-code", conversation.folder, "folder")[:8]
        name = f"{name[:_MAX_FOLDER_NAME]}-{digits}"
    return root / name / ending.lstrip("/")


def _build_codex_path(conversation: WritableSession, root: Path, ending: str) -> Path:
    time = format_iso_time(conversation.session.started)[:19]
    day = time[:10].split("-")
    return root.joinpath(*day, f"rollout-{time.replace(':', '-')}{ending}")


def _build_pi_path(conversation: WritableSession, root: Path, ending: str) -> Path:
    time = _UNSAFE.sub("-", format_iso_time(conversation.session.started)[:-1])
    time = f"{time}Z"
    folder = _SEPARATORS.sub("-", conversation.folder.lstrip("/\\"))
    return root / f"--{folder[:_MAX_FOLDER_NAME]}--" / f"{time}{ending}"


def _build_gemini_path(conversation: WritableSession, root: Path, ending: str) -> Path:
    name = _read_gemini_project(root / "projects.json", conversation.folder)
    if name is None:
        raise InvalidInput(
            f"Gemini CLI does not know the folder {conversation.folder}. Start it there once, then"
            " restore the session again."
        )
    minute = format_iso_time(conversation.session.started)[:16].replace(":", "-")
    return root / "tmp" / name / "chats" / f"session-{minute}{ending}"


def _read_gemini_project(file: Path, folder: str) -> str | None:
    """Return the name under which Gemini CLI keeps the files of a folder."""
    try:
        value = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    name = get_text(as_object(as_object(value).get("projects")), folder)
    return name if name and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) else None


def _find_opencode_place(conversation: WritableSession, folders: UserFolders) -> SessionPlace:
    path = folders.staging / f"opencode-{conversation.id}.json"
    existing = path if path.exists() else None
    # OpenCode keeps sessions in a database of its own, so it has to import them itself.
    commands = (f"opencode import {shlex.quote(str(path))}", _build_command(conversation))
    return SessionPlace(path, existing, commands, is_staged=True)


_ENDINGS = {
    "claude-code": "/{id}.jsonl",
    "codex": "-{id}.jsonl",
    "pi": "_{id}.jsonl",
    "gemini": "-{short}.jsonl",
}
_PATTERNS = {
    "claude-code": "*/*.jsonl",
    "codex": "**/*.jsonl",
    "pi": "*/*.jsonl",
    "gemini": "tmp/*/chats/*.jsonl",
}
_BUILDERS = {
    "claude-code": _build_claude_code_path,
    "codex": _build_codex_path,
    "pi": _build_pi_path,
    "gemini": _build_gemini_path,
}
_RESUME_WORDS = {
    "claude-code": ("claude", "--resume"),
    "codex": ("codex", "resume"),
    "opencode": ("opencode", "--session"),
    "pi": ("pi", "--session"),
    "gemini": ("gemini", "--resume"),
}
