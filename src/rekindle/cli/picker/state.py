"""The state of the picker: its rows and its selection. Nothing here reads or waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from rekindle.cli.terminal.text import get_display_name

if TYPE_CHECKING:
    from decimal import Decimal

    from rekindle.types import Session

Mode: TypeAlias = Literal["list", "rename", "help"]


class PickerRow(NamedTuple):
    """A session in the list by its name, and the part of a message that matched, if one did."""

    session: Session
    name: str
    snippet: str = ""


class TailEntry(NamedTuple):
    """A message of the conversation as the preview shows it."""

    role: str
    text: str


class Preview(NamedTuple):
    """What the right side shows of a session."""

    cost: Decimal
    first_request: str
    last_request: str
    tail: Sequence[TailEntry]
    sub_agents: int = 0


class ScopeTotals(NamedTuple):
    """How many sessions a scope has, and what they cost this week."""

    sessions: int
    week_cost: Decimal


@dataclass
class PickerState:
    """Everything that a frame is drawn from."""

    now: float
    home: str = ""  # the user's, to shorten paths
    project: str | None = None  # its short name, if the current folder belongs to one
    is_all: bool = False  # all projects rather than this one
    query: str = ""  # what the rows are found by
    typed: str = ""  # what stands where one types
    cursor: int = 0  # in what is typed
    rows: list[PickerRow] = field(default_factory=list["PickerRow"])
    has_more: bool = False
    is_searching: bool = False
    selected: int = 0
    top: int = 0
    totals: ScopeTotals | None = None
    previews: dict[str, Preview] = field(default_factory=dict[str, "Preview"])
    mode: Mode = "list"
    status: str = ""
    is_status_error: bool = False
    copied: str = ""  # the last command that went to the clipboard

    @property
    def row(self) -> PickerRow | None:
        """The selected row."""
        return self.rows[self.selected] if self.selected < len(self.rows) else None

    def move_selection(self, by: int) -> None:
        """Move the selection within the rows."""
        self.selected = max(0, min(len(self.rows) - 1, self.selected + by))

    def replace_rows(self, rows: Sequence[PickerRow], *, has_more: bool) -> None:
        """Show other rows, from the first one on."""
        self.rows, self.has_more = list(rows), has_more
        self.selected = self.top = 0

    def replace_session(self, session: Session) -> None:
        """Show the changed fields of a session."""
        name = get_display_name(session)
        self.rows = [
            row._replace(session=session, name=name) if row.session.id == session.id else row
            for row in self.rows
        ]

    def insert_session(self, session: Session) -> None:
        """Show a new session above the selected one, and select it."""
        self.rows.insert(self.selected, PickerRow(session, get_display_name(session)))

    def remove_session(self, id: str) -> None:
        """Show a session no longer."""
        self.rows = [row for row in self.rows if row.session.id != id]
        self.move_selection(0)

    def show_status(self, text: str, *, is_error: bool = False) -> None:
        """Show a sentence below the list until the next key."""
        self.status, self.is_status_error = text, is_error
