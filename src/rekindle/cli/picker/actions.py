"""What the keys of the picker do to a session. Everything here waits for the store or for files."""

from __future__ import annotations

import json
from base64 import b64encode
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, NamedTuple

from rekindle.cli.terminal.text import format_count, get_display_name, to_one_line
from rekindle.errors import InvalidInput

if TYPE_CHECKING:
    from rekindle.store import Store
    from rekindle.types import Session

_MAX_NAME = 60


class ActionResult(NamedTuple):
    """What an action did: a sentence, and the session as it is now or the new one."""

    sentence: str
    session: Session | None = None
    text: str = ""  # for the clipboard


class SessionActions:
    """The actions on the sessions of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._archived: list[Session] = []

    def fork_session(self, session: Session) -> ActionResult:
        """Copy a session, so that the copy can go on and the original stays."""
        copy = self._store.fork(session)
        return ActionResult(f"Forked {_quote_name(session)}. Enter continues the copy.", copy)

    def rename_session(self, session: Session, title: str) -> ActionResult:
        """Change the title of a session; an empty one removes it."""
        renamed = self._store.rename(session, title.strip() or None)
        said = f"Renamed to {_quote_name(renamed)}." if renamed.title else "Removed the title."
        return ActionResult(said, renamed)

    def archive_session(self, session: Session) -> ActionResult:
        """Hide a session from lists and searches."""
        hidden = self._store.archive_session(session)
        self._archived.append(hidden)
        return ActionResult(f"Archived {_quote_name(session)}. ^Z brings it back.", hidden)

    def undo_archive(self) -> ActionResult:
        """Bring back the session that was archived last."""
        if not self._archived:
            raise InvalidInput("Nothing to undo.")
        (session,) = self._store.restore(self._archived[-1].id)
        self._archived.pop()
        return ActionResult(f"Brought back {_quote_name(session)}.", session)

    def build_command(self, session: Session) -> ActionResult:
        """Return the shell command that resumes a session."""
        from rekindle.coding_agents.resume import build_resume_command

        command = build_resume_command(self._store, session)
        return ActionResult(f"Copied: {command}", text=command)

    def share_session(self, session: Session) -> ActionResult:
        """Write a page of a session without secrets."""
        from rekindle.cli.sessions.share import share_session

        # The command prints; the screen, which has its own output, must not see it.
        said = StringIO()
        with redirect_stdout(said), redirect_stderr(StringIO()):
            share_session(session.id, json=True)
        report = json.loads(said.getvalue())
        removed = format_count(sum(report["removed"].values()), "passage")
        return ActionResult(f"Wrote {report['file']}; removed {removed}. Read it before you share.")


def encode_clipboard(text: str) -> str:
    """Return the escape sequence that lets a terminal copy a text (OSC 52)."""
    return f"\x1b]52;c;{b64encode(text.encode('utf-8', 'replace')).decode()}\x07"


def _quote_name(session: Session) -> str:
    return repr(to_one_line(get_display_name(session), _MAX_NAME))
