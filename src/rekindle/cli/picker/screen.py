"""The picker on a terminal: keys change its state, and background jobs fill it."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition, Filter
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import Layout, Window
from prompt_toolkit.layout.controls import BufferControl
from prompt_toolkit.output import Output, create_output
from prompt_toolkit.renderer import Renderer
from prompt_toolkit.styles import DummyStyle

from .actions import ActionResult, SessionActions, encode_clipboard
from .frame import has_preview
from .jobs import LatestJob
from .paint import FramePainter
from .state import PickerRow, PickerState, Preview, ScopeTotals

if TYPE_CHECKING:
    from .reader import SessionReader
    from .scope import PickerScope

PAGE_SIZE = 200  # rows read at once while scrolling
_MAX_PREVIEWS = 500
_ESCAPE_SECONDS = 0.05  # that an Esc may be the beginning of another key


class FrameRenderer(Renderer):
    """Draws the frames of a picker in place of a layout, on a screen that has been entered already."""

    def __init__(self, draw: Callable[[], str], forget: Callable[[], None], output: Output) -> None:
        super().__init__(DummyStyle(), output, full_screen=True)
        self._draw = draw
        self._forget = forget

    def render(self, app: Application[Any], layout: Layout, is_done: bool = False) -> None:
        """Write what has changed since the last frame."""
        if not self._bracketed_paste_enabled:
            self.output.enable_bracketed_paste()
            self._bracketed_paste_enabled = True
        if not is_done:
            self.output.write_raw(self._draw())
            self.output.flush()

    def erase(self, leave_alternate_screen: bool = True) -> None:
        """Forget the last frame: the terminal has another size."""
        self.output.write_raw("\x1b[2J")
        self._forget()


class PickerScreen:
    """The running picker; `run` returns the session to resume, or None."""

    def __init__(
        self,
        state: PickerState,
        scope: PickerScope,
        reader: SessionReader,
        actions: SessionActions,
        painter: FramePainter,
    ) -> None:
        self._state = state
        self._scope = scope
        self._reader = reader
        self._actions = actions
        self._painter = painter
        self._search_job: LatestJob[list[PickerRow]] = self._create_job()
        self._preview_job: LatestJob[Preview] = self._create_job()
        self._totals_job: LatestJob[ScopeTotals] = self._create_job()
        self._refresh_job: LatestJob[list[str]] = self._create_job()
        self._action_job: LatestJob[ActionResult] = self._create_job()
        self._is_page_requested = False
        self._chooses_found = False
        self._query = Buffer(on_text_changed=self._on_text_changed, multiline=False)
        self._app: Application[PickerRow | None] = self._create_application()

    def run(self) -> PickerRow | None:
        """Show the picker until the user chooses a session or quits."""
        if self._query.text != self._state.query:
            self._query.text = self._state.query
            self._query.cursor_position = len(self._query.text)
        return self._app.run(pre_run=self._start_jobs)

    def _start_jobs(self) -> None:
        self._fetch_preview()
        self._fetch_totals()
        self._refresh_job.submit(lambda is_stale: self._reader.refresh_store(), self._show_new)

    def _create_job(self) -> LatestJob[Any]:
        return LatestJob(self._deliver, partial(self._show_status, is_error=True))

    def _deliver(self, action: Callable[[], None]) -> None:
        loop = self._app.loop
        if loop is not None and self._app.is_running:
            loop.call_soon_threadsafe(action)

    # -- drawing

    def _create_application(self) -> Application[PickerRow | None]:
        output = create_output()
        app: Application[PickerRow | None] = Application(
            layout=Layout(Window(BufferControl(self._query))),
            key_bindings=self._create_bindings(),
            full_screen=True,
            output=output,
        )
        app.renderer = FrameRenderer(self._draw_frame, self._painter.clear, output)
        app.ttimeoutlen = app.timeoutlen = _ESCAPE_SECONDS
        return app

    def _draw_frame(self) -> str:
        self._state.now = time.time()
        self._state.typed = self._query.text
        self._state.cursor = self._query.cursor_position
        size = self._app.output.get_size()
        return self._painter.render_changes(self._state, size.columns, size.rows)

    def _get_width(self) -> int:
        return self._app.output.get_size().columns

    def _show_status(self, text: str, *, is_error: bool = False) -> None:
        self._state.show_status(text, is_error=is_error)
        self._app.invalidate()

    # -- what is shown

    def _on_text_changed(self, buffer: Buffer) -> None:
        if self._state.mode == "list" and buffer.text != self._state.query:
            self._state.query = buffer.text
            self._state.show_status("")
            self._chooses_found = False
            self._fetch_rows()

    def _fetch_rows(self) -> None:
        """Search for the typed text, or list all sessions of the scope."""
        text, where = self._state.query, self._scope.get_filter(is_all=self._state.is_all)
        self._state.is_searching = True
        self._is_page_requested = False
        if text.strip():
            self._search_job.submit(
                lambda is_stale: self._reader.search_rows(text, where, is_stale),
                lambda rows: self._show_rows(rows, has_more=False),
            )
        else:
            self._search_job.submit(
                lambda is_stale: self._reader.list_rows(where, 0, PAGE_SIZE),
                lambda rows: self._show_rows(rows, has_more=len(rows) == PAGE_SIZE),
            )

    def _show_rows(self, rows: list[PickerRow], *, has_more: bool) -> None:
        self._state.is_searching = False
        self._state.replace_rows(rows, has_more=has_more)
        self._on_selection()
        if self._chooses_found:
            self._choose()

    def _on_selection(self) -> None:
        self._fetch_preview()
        if self._state.has_more and self._state.selected + PAGE_SIZE // 2 > len(self._state.rows):
            self._fetch_page()
        self._app.invalidate()

    def _fetch_page(self) -> None:
        if self._is_page_requested:
            return
        self._is_page_requested = True
        offset = len(self._state.rows)
        where = self._scope.get_filter(is_all=self._state.is_all)
        self._search_job.submit(
            lambda is_stale: self._reader.list_rows(where, offset, PAGE_SIZE), self._add_page
        )

    def _add_page(self, rows: list[PickerRow]) -> None:
        self._is_page_requested = False
        known = {row.session.id for row in self._state.rows}
        self._state.rows += [row for row in rows if row.session.id not in known]
        self._state.has_more = len(rows) == PAGE_SIZE
        self._app.invalidate()

    def _fetch_preview(self) -> None:
        row = self._state.row
        if row is None or not has_preview(self._get_width()):
            return
        if row.session.id not in self._state.previews:
            self._preview_job.submit(
                lambda is_stale: self._reader.load_preview(row.session),
                partial(self._keep_preview, row.session.id),
            )

    def _keep_preview(self, id: str, preview: Preview) -> None:
        if len(self._state.previews) >= _MAX_PREVIEWS:
            self._state.previews.clear()
        self._state.previews[id] = preview
        self._app.invalidate()

    def _fetch_totals(self) -> None:
        where = self._scope.get_filter(is_all=self._state.is_all)
        self._totals_job.submit(lambda is_stale: self._reader.sum_scope(where), self._show_totals)

    def _show_totals(self, totals: ScopeTotals) -> None:
        self._state.totals = totals
        self._app.invalidate()

    def _show_new(self, lines: list[str]) -> None:
        """Show new sessions after a refresh, unless that would move the selection."""
        if not lines:
            return
        self._show_status(" ".join(lines))
        self._fetch_totals()
        if self._state.selected == 0 and not self._state.is_searching:
            self._fetch_rows()

    # -- keys

    def _create_bindings(self) -> KeyBindings:
        bindings = KeyBindings()
        in_list = Condition(lambda: self._state.mode == "list")
        in_help = Condition(lambda: self._state.mode == "help")
        in_rename = Condition(lambda: self._state.mode == "rename")
        is_empty = Condition(lambda: not self._query.text)

        def bind(*keys: str, when: Filter, do: Callable[[], None]) -> None:
            def handle(event: KeyPressEvent) -> None:
                self._state.show_status("")
                self._chooses_found = False
                do()

            for key in keys:
                bindings.add(key, filter=when, eager=True)(handle)

        state = self._state
        for keys, rows in (
            (("up", "c-p"), -1),
            (("down", "c-n"), 1),
            (("pageup",), -15),
            (("pagedown",), 15),
            (("c-home",), -(10**9)),
            (("c-end",), 10**9),
        ):
            bind(*keys, when=in_list, do=partial(self._move, rows))
        bind("enter", when=in_list, do=self._choose)
        bind("tab", "c-a", when=in_list, do=self._switch_scope)
        for key, action in (
            ("c-f", self._actions.fork_session),
            ("c-s", self._actions.share_session),
            ("c-y", self._actions.build_command),
            ("c-x", self._actions.archive_session),
            ("c-d", self._actions.archive_session),
        ):
            bind(key, when=in_list, do=partial(self._run_on_selected, action))
        bind("c-z", when=in_list, do=lambda: self._run_action(self._actions.undo_archive))
        bind("c-r", when=in_list, do=self._begin_rename)
        bind("f1", when=in_list, do=partial(setattr, state, "mode", "help"))
        bind("?", when=in_list & is_empty, do=partial(setattr, state, "mode", "help"))
        bind("escape", when=in_list, do=self._clear_or_quit)
        bind(
            "<any>",
            "escape",
            "enter",
            "c-c",
            when=in_help,
            do=partial(setattr, state, "mode", "list"),
        )
        bind("enter", when=in_rename, do=self._finish_rename)
        bind("escape", "c-c", when=in_rename, do=self._end_rename)
        bind("c-c", when=in_list, do=lambda: self._app.exit(result=None))
        return bindings

    def _move(self, rows: int) -> None:
        self._state.move_selection(rows)
        self._on_selection()

    def _choose(self) -> None:
        self._chooses_found = self._state.is_searching  # then as soon as something is found
        if not self._chooses_found and self._state.row is not None:
            self._app.exit(result=self._state.row)

    def _switch_scope(self) -> None:
        if self._scope.keys:
            self._state.is_all = not self._state.is_all
            self._state.totals = None
            self._fetch_rows()
            self._fetch_totals()

    def _clear_or_quit(self) -> None:
        if self._query.text:
            self._query.reset()
            self._on_text_changed(self._query)
        else:
            self._app.exit(result=None)

    # -- actions

    def _run_on_selected(self, action: Callable[[Any], ActionResult]) -> None:
        row = self._state.row
        if row is not None:
            self._run_action(partial(action, row.session))

    def _run_action(self, action: Callable[[], ActionResult]) -> None:
        self._action_job.submit(lambda is_stale: action(), self._show_result)

    def _show_result(self, result: ActionResult) -> None:
        self._show_status(result.sentence)
        if result.text:
            self._app.output.write_raw(encode_clipboard(result.text))
            self._app.output.flush()
            self._state.copied = result.text
        session = result.session
        if session is None:
            return
        self._state.previews.pop(session.id, None)
        if session.archived is not None:
            self._state.remove_session(session.id)
        elif any(row.session.id == session.id for row in self._state.rows):
            self._state.replace_session(session)
        else:
            self._state.insert_session(session)
        self._on_selection()
        self._fetch_totals()

    def _begin_rename(self) -> None:
        row = self._state.row
        if row is not None:
            self._state.mode = "rename"
            self._query.text = row.session.title or ""
            self._query.cursor_position = len(self._query.text)

    def _finish_rename(self) -> None:
        row, title = self._state.row, self._query.text
        self._end_rename()
        if row is not None and title.strip() != (row.session.title or ""):
            self._run_action(partial(self._actions.rename_session, row.session, title))

    def _end_rename(self) -> None:
        self._query.text = self._state.query
        self._query.cursor_position = len(self._query.text)
        self._state.mode = "list"
