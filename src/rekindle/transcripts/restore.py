"""Restore: put a stored session back where an agent resumes it from."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rekindle.errors import InvalidInput
from rekindle.store.transfer.bulk_import import SessionImport
from rekindle.types import Message, Session, replace_fields

from . import FORMATS
from .events import SessionUpdated
from .writers import WritableSession, convert_session, render_conversation
from .writers.places import UserFolders, find_place

if TYPE_CHECKING:
    from rekindle.store import Store

ListImports = Callable[[str], Iterable[str]]


class RestorePlan(NamedTuple):
    """The file to write, and how the agent resumes from it."""

    conversation: WritableSession
    path: Path
    text: str
    is_present: bool  # the file is already there and is the same
    commands: tuple[str, ...]
    is_staged: bool = False  # the agent has to import the file, which is ours to replace


def plan_restore(
    agent: str,
    session: Session,
    messages: Iterable[Message],
    *,
    folder: str,
    folders: UserFolders,
    list_imports: ListImports,
    title: str | None = None,
) -> RestorePlan:
    """Plan what to write for an agent; raise InvalidInput if it still has a file that differs.

    `list_imports` returns the imported paths that contain a text; `title` is what the agent shows.
    """
    conversation = convert_session(agent, session, messages, folder, title)
    if not conversation.turns:
        raise InvalidInput(f"Session {session.id} has no messages that {agent} could resume from.")
    place = find_place(conversation, folders, list_imports(conversation.id[:8]))
    text = "".join(render_conversation(agent, conversation))
    is_present = place.existing is not None and _is_same(place.existing, text)
    if place.existing is not None and not (is_present or place.is_staged):
        raise InvalidInput(
            f"{agent} still has a file of this session, which differs: {place.existing}."
            f" Move it away to restore the stored one, or resume it with: {place.commands[-1]}"
        )
    return RestorePlan(conversation, place.path, text, is_present, place.commands, place.is_staged)


def write_restored_file(plan: RestorePlan) -> None:
    """Write the file for this user alone; it appears complete, and replaces none of the agent's."""
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
        if plan.is_staged:
            partial.replace(path)
        else:
            _rename_without_replacing(partial, path)
    except FileExistsError:
        raise InvalidInput(f"{path} was created meanwhile; it was left as it is.") from None
    finally:
        partial.unlink(missing_ok=True)


def record_copy(store: Store, plan: RestorePlan) -> None:
    """Store a session that was written for another agent as a fork of the one it was copied from.

    It is stored as it will be read from the agent, so that importing it adds only what is new.
    """
    conversation = plan.conversation
    if conversation.id == conversation.session.id:
        return
    format = next(one for one in FORMATS if one.name == conversation.agent)
    messages: list[Message] = []
    session = Session(conversation.id, source=conversation.agent)
    for event in format.read(plan.path):
        if isinstance(event, Message):
            messages.append(event)
        elif isinstance(event, SessionUpdated):
            session = event.session
    known = replace_fields(
        session,
        id=conversation.id,
        title=conversation.title,
        cwd=conversation.folder or None,
        parent=None,
    )
    store.import_batch([SessionImport(known, messages, is_complete=True)])
    store.link_copy(conversation.id, conversation.session)


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
