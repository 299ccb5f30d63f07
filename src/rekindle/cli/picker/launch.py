"""Open the picker on a terminal, or list the latest sessions in a pipe."""

from __future__ import annotations

import os
import sys
import time
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from rekindle.cli.store_access import open_for_reading, refresh_with_notice
from rekindle.cli.terminal.text import escape_control_chars
from rekindle.config import get_home_and_env
from rekindle.errors import RekindleError

from .frame import count_body_lines
from .paint import FramePainter, open_screen
from .reader import SessionReader
from .scope import find_scope
from .state import PickerRow, PickerState

if TYPE_CHECKING:
    from rekindle.store import Store
    from rekindle.types import Session


def open_picker() -> int:
    """Let the user choose a session and resume it; return the exit code."""
    picker: Picker | None = None
    while True:
        # A picker refreshes when it is on the screen.
        with open_for_reading(refresh=not can_show_picker()) as store:
            if not store.has_any_sessions():
                refresh_with_notice(store)  # the first time, there is nothing to show before
            if not store.has_any_sessions():
                from .plain import print_welcome

                print_welcome()
                return 0
            if not can_show_picker():
                from .plain import print_latest

                print_latest(store)
                return 0
            picker = picker or Picker(store)
            row = picker.pick_row(store)
        if row is None:
            return 0
        try:
            _resume_session(row.session)
        except (RekindleError, OSError) as error:  # show it where another session can be chosen
            picker.state.show_status(str(error), is_error=True)
        else:
            return 0


def can_show_picker() -> bool:
    """Return whether standard input and output are a terminal that can show a picker."""
    _, env = get_home_and_env()
    return sys.stdin.isatty() and sys.stdout.isatty() and env.get("TERM", "dumb") != "dumb"


class Picker:
    """A picker that can be shown again after a session could not be resumed."""

    def __init__(self, store: Store) -> None:
        home, _ = get_home_and_env()
        self._scope = find_scope(store, os.getcwd())
        self.state = PickerState(now=time.time(), home=str(home), project=self._scope.name)
        width, height = get_terminal_size()
        reader, count = SessionReader(store), count_body_lines(self.state, width, height)
        rows = reader.list_rows(self._scope.get_filter(is_all=False), 0, count)
        self.state.replace_rows(rows, has_more=len(rows) == count)

    def pick_row(self, store: Store) -> PickerRow | None:
        """Show the picker until the user chooses a session or quits."""
        with open_screen():
            painter = FramePainter()
            sys.stdout.write(painter.render_changes(self.state, *get_terminal_size()))
            sys.stdout.flush()
            # Only now: to load it takes longer than everything before.
            from .actions import SessionActions
            from .screen import PickerScreen

            reader, actions = SessionReader(store), SessionActions(store)
            row = PickerScreen(self.state, self._scope, reader, actions, painter).run()
        if self.state.copied:
            sys.stdout.write(f"{escape_control_chars(self.state.copied)}\n")
            self.state.copied = ""
        return row


def _resume_session(session: Session) -> None:
    """Continue a session in its own agent and folder."""
    from rekindle.cli.sessions.resume import prepare_session, start_session

    start_session(prepare_session(session.id, None, None))
