"""What can be done with a session, and what a page says when it was done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode

from rekindle.coding_agents.resume import build_resume_command, quote_word
from rekindle.config import Config
from rekindle.errors import InvalidInput, RekindleError
from rekindle.pages.text import get_display_name
from rekindle.store import Store
from rekindle.types import Session
from rekindle.web.addresses import build_session_url

MAX_TITLE_CHARS = 500
_DONE_FIELDS = ("did", "to")
_MAX_NAMED = 60  # sessions in a notice


class SessionMenu(NamedTuple):
    """A session, and which actions on it make sense."""

    session: Session
    name: str
    commands: tuple[str, ...]  # that resume it
    can_delete: bool
    can_undo: bool
    can_redo: bool

    @property
    def url(self) -> str:
        return build_session_url(self.session.id)


def load_menu(store: Store, session: Session, config: Config, now: float) -> SessionMenu:
    """Return the menu of a session."""
    is_active = session.last_active >= now - config.retention.active_hours * 3600
    return SessionMenu(
        session=session,
        name=get_display_name(session, store.load_names([session])),
        commands=build_commands(store, session),
        can_delete=session.ended is not None or not is_active,
        can_undo=session.message_count > 0,
        can_redo=any(one.restored is None for one in store.rewinds(session)),
    )


def build_commands(store: Store, session: Session) -> tuple[str, ...]:
    """Return the commands that resume a session: ours, and its agent's own if that has it."""
    id = quote_word(session.id)
    own = f"rekindle resume {'-- ' if id.startswith('-') else ''}{id}"
    try:
        agent = build_resume_command(store, session)
    except RekindleError:
        return (own,)
    return tuple(dict.fromkeys((own, agent)))


# -- actions


def rename_session(store: Store, id: str, fields: Mapping[str, str]) -> Session:
    """Set the title of a session; an empty one removes it."""
    return store.rename(id, fields.get("title", "").strip()[:MAX_TITLE_CHARS] or None)


def fork_session(store: Store, id: str, fields: Mapping[str, str]) -> Session:
    """Copy a session up to a message, or all of it."""
    at = fields.get("at", "")
    if at and not (at.isascii() and at.isdigit() and len(at) < 16):
        raise InvalidInput(f"{at!r:.40} is not the position of a message")
    return store.fork(id, at=int(at) if at else None)


def undo_turns(store: Store, id: str, fields: Mapping[str, str]) -> Session:
    """Remove the last turn of a session."""
    store.undo(id)
    return store.session(id)


def redo_turns(store: Store, id: str, fields: Mapping[str, str]) -> Session:
    """Bring back what the last undo removed."""
    store.redo(id)
    return store.session(id)


def restore_session(store: Store, id: str, fields: Mapping[str, str]) -> Session:
    """Bring back a session from the archive or the trash."""
    return store.restore(id)[0]


def archive_session(store: Store, id: str, fields: Mapping[str, str]) -> Session:
    """Hide a session from lists and searches."""
    return store.archive_session(id)


def delete_session(store: Store, id: str, fields: Mapping[str, str]) -> Session:
    """Move a session to the trash, from which it is removed after some days."""
    return store.prune_session(id)


def end_session(store: Store, id: str, fields: Mapping[str, str]) -> Session:
    """Mark a session as ended."""
    return store.end(id, "user")


def reopen_session(store: Store, id: str, fields: Mapping[str, str]) -> Session:
    """Remove the end of a session."""
    return store.reopen(id)


class SessionAction(NamedTuple):
    """An action, what it is called when it was done, and the action that takes it back."""

    run: Callable[[Store, str, Mapping[str, str]], Session]
    done: str
    undo: str = ""


ACTIONS: Mapping[str, SessionAction] = {
    "rename": SessionAction(rename_session, "Renamed"),
    "archive": SessionAction(archive_session, "Archived", "restore"),
    "restore": SessionAction(restore_session, "Brought back"),
    "delete": SessionAction(delete_session, "Deleted", "restore"),
    "fork": SessionAction(fork_session, "This is a fork:"),
    "undo": SessionAction(undo_turns, "Undid the last turn of", "redo"),
    "redo": SessionAction(redo_turns, "Brought back the last turn of", "undo"),
    "end": SessionAction(end_session, "Ended", "reopen"),
    "reopen": SessionAction(reopen_session, "Reopened", "end"),
}


# -- notices


class ActionNotice(NamedTuple):
    """What was done with which sessions; `undo` is the action that takes it back, if there is one."""

    text: str
    sessions: tuple[Session, ...]
    undo: str

    @property
    def url(self) -> str:
        """The address of the session, if it is one."""
        return build_session_url(self.sessions[0].id)


def add_notice(address: str, action: str, ids: Sequence[str]) -> str:
    """Return the address of a page with a notice of the action."""
    path, _, query = remove_notice(address).partition("?")
    fields = [*parse_qsl(query), ("did", action), *(("to", id) for id in ids)]
    return f"{path}?{urlencode(fields, errors='replace')}"


def remove_notice(address: str) -> str:
    """Return the address of a page without such a notice."""
    path, _, query = address.partition("#")[0].partition("?")
    fields = [pair for pair in parse_qsl(query) if pair[0] not in _DONE_FIELDS]
    return f"{path}?{urlencode(fields, errors='replace')}" if fields else path


def load_notice(store: Store, action: str, ids: Sequence[str]) -> ActionNotice | None:
    """Return the notice that the address of a page asks for."""
    known = ACTIONS.get(action)
    found = store.find_sessions(ids[:_MAX_NAMED]) if known and ids else {}
    if known is None or not found:
        return None
    sessions = tuple(found.values())
    (first, *others) = sessions
    name = f"{len(sessions)} sessions" if others else f"“{get_display_name(first)}”"
    is_gone = known.undo == "restore" and all(
        one.archived is None and one.pruned is None for one in sessions
    )
    return None if is_gone else ActionNotice(f"{known.done} {name}.", sessions, known.undo)
