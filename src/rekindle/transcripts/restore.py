"""Restore: put a stored session back where an agent resumes it from."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from rekindle.errors import InvalidInput
from rekindle.types import Message, Session

from .writers import WritableSession, convert_session, render_conversation
from .writers.places import UserFolders, find_place

ListImports = Callable[[str], Iterable[str]]


class RestorePlan(NamedTuple):
    """The file to write, and how the agent resumes from it."""

    conversation: WritableSession
    path: Path
    text: str
    is_present: bool  # the file is already there and is the same
    commands: tuple[str, ...]


def plan_restore(
    agent: str,
    session: Session,
    messages: Iterable[Message],
    *,
    folder: str,
    folders: UserFolders,
    list_imports: ListImports,
) -> RestorePlan:
    """Plan what to write for an agent; raise InvalidInput if it still has a file that differs.

    `list_imports` returns the imported paths that contain a text.
    """
    conversation = convert_session(agent, session, messages, folder)
    if not conversation.turns:
        raise InvalidInput(f"Session {session.id} has no messages that {agent} could resume from.")
    place = find_place(conversation, folders, list_imports(conversation.id[:8]))
    text = "".join(render_conversation(agent, conversation))
    is_present = place.existing is not None and _is_same(place.existing, text)
    if place.existing is not None and not is_present:
        raise InvalidInput(
            f"{agent} still has a file of this session, which differs: {place.existing}."
            f" Move it away to restore the stored one, or resume it with: {place.commands[-1]}"
        )
    return RestorePlan(conversation, place.path, text, is_present, place.commands)


def write_restored_file(plan: RestorePlan) -> None:
    """Write the file for this user alone; it appears complete, and replaces nothing."""
    path = plan.path
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    partial.unlink(missing_ok=True)
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(plan.text)
            file.flush()
            os.fsync(file.fileno())
        _rename_without_replacing(partial, path)
    except FileExistsError:
        raise InvalidInput(f"{path} was created meanwhile; it was left as it is.") from None
    finally:
        partial.unlink(missing_ok=True)


def _rename_without_replacing(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError:  # this file system has no hard links
        if target.exists():
            raise FileExistsError from None
        source.rename(target)


def _is_same(path: Path, text: str) -> bool:
    data = text.encode()
    try:
        return path.stat().st_size == len(data) and path.read_bytes() == data
    except OSError:
        return False
