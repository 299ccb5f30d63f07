"""Draw the picker: turn its state into lines of styled text that fit a screen.

Titles, messages and paths were written by others. Every one of them passes through `to_safe_line`, so
that no character of theirs can control the terminal or hide what stands beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from rekindle.cli.terminal.text import (
    escape_control_chars,
    fit_to_width,
    format_age,
    format_cost,
    format_count,
    measure_width,
    to_safe_line,
    wrap_to_width,
)
from rekindle.projects import FOLDER_PREFIX, shorten_project

from .keys import FOOTER, HELP

if TYPE_CHECKING:
    from rekindle.types import Session

    from .state import PickerRow, PickerState, Preview

Fragment: TypeAlias = "tuple[str, str]"  # style and text
Line: TypeAlias = "list[Fragment]"

MIN_PREVIEW_COLUMNS = 96
_HEADER_LINES = 3  # with the line of the search itself
_MAX_STATUS_LINES = 4
_SEPARATOR = " │ "
_MAX_REQUEST_LINES, _MAX_TAIL_LINES, _MAX_TEXT = 4, 6, 4_000
_MIN_TITLE, _PROJECT_WIDTH, _AGENT_WIDTH, _AGE_WIDTH = 16, 16, 11, 6
_MIN_HEADING = 22  # columns for the program and a project
_MIN_BOTH = 70  # columns of a list that names project and agent
_ROLE_STYLES = {"user": "user", "assistant": "assistant"}
_MARKED = re.compile(r"(«[^«»]*»)")


def has_preview(width: int) -> bool:
    """Return whether a screen is wide enough for a preview."""
    return width >= MIN_PREVIEW_COLUMNS


def count_footer_lines(state: PickerState, width: int) -> int:
    """Return how many lines at the bottom of a screen are taken."""
    return len(render_footer(state, width))


def count_body_lines(state: PickerState, width: int, height: int) -> int:
    """Return how many lines of a screen are left for the list."""
    return max(1, height - _HEADER_LINES - count_footer_lines(state, width))


# ── header and footer


def render_header(state: PickerState, width: int) -> Line:
    """Return the line at the top: the project, its sessions and their cost this week."""
    is_project = state.project is not None and not state.is_all
    name = to_safe_line(state.project or "", 60) if is_project else "all projects"
    facts = ""
    if state.totals is not None:
        sessions, cost = state.totals
        facts = f"{format_count(sessions, 'session')} · ${format_cost(cost)} this week"
    facts = facts if width >= measure_width(facts) + _MIN_HEADING else ""
    name = fit_to_width(name, width - measure_width(facts) - 12)
    line = [("title", "rekindle"), ("", "  "), ("project", name), ("", "  "), ("dim", facts)]
    return line if width >= _MIN_HEADING else [("title", fit_to_width("rekindle", width))]


def render_field(state: PickerState, width: int) -> tuple[Line, int]:
    """Return the line in which one types, and the column of the cursor."""
    label = "Title: " if state.mode == "rename" else "› "
    before = escape_control_chars(state.typed[: state.cursor].replace("\n", " "))
    room = width - len(label) - 1
    while before and measure_width(before) > room:
        before = before[max(1, len(before) // 8) :]
    after = escape_control_chars(state.typed[state.cursor :].replace("\n", " "))
    after = fit_to_width(after, max(0, room - measure_width(before)))
    line = [("project", label), ("", before + after)]
    return line, len(label) + measure_width(before)


def render_rule(width: int) -> Line:
    """Return the line below the search."""
    return [("dim", "─" * width)]


def render_footer(state: PickerState, width: int) -> list[Line]:
    """Return the last lines: what has just happened, or the keys."""
    if state.status:
        style = "error" if state.is_status_error else "status"
        wrapped = wrap_to_width(state.status, width)[:_MAX_STATUS_LINES]
        return [[(style, line)] for line in wrapped]
    if state.mode == "rename":
        keys = ["Enter renames", "an empty title removes it", "Esc cancels"]
    elif state.project is None:
        keys = [key for key in FOOTER if "{" not in key]
    else:
        keys = [key.format(other="project" if state.is_all else "all") for key in FOOTER]
    while len(keys) > 2 and len(" · ".join(keys)) > width:
        keys.pop(-3)
    return [[("dim", fit_to_width(" · ".join(keys), width))]]


# ── list and preview


def render_body(state: PickerState, width: int, height: int) -> list[Line]:
    """Return the lines of the list and, on a wide screen, of the preview next to it."""
    if state.mode == "help":
        return _extend_lines([[("", f"  {line}")] for line in HELP.splitlines()], height)
    if not has_preview(width):
        return _render_list(state, width, height)
    left = min(max(46, width * 9 // 20), 90)
    right = width - left - len(_SEPARATOR)
    preview = _extend_lines(_render_preview(state, right, height), height)
    lines = _render_list(state, left, height)
    return [
        [*_extend_line(one, left), ("dim", _SEPARATOR), *other]
        for one, other in zip(lines, preview, strict=True)
    ]


def _render_list(state: PickerState, width: int, height: int) -> list[Line]:
    if not state.rows:
        text = "Searching …" if state.is_searching else _describe_nothing(state)
        return _extend_lines([[("dim", fit_to_width(f"  {text}", width))]], height)
    _scroll_to_selection(state, height)
    lines: list[Line] = []
    for index in range(state.top, len(state.rows)):
        lines += _render_row(state, index, width)
        if len(lines) >= height:
            break
    return _extend_lines(lines[:height], height)


def _describe_nothing(state: PickerState) -> str:
    if state.query and state.project and not state.is_all:
        return f"Nothing found in {to_safe_line(state.project, 60)}. Tab searches all projects."
    return "Nothing found." if state.query else "No sessions here."


def _scroll_to_selection(state: PickerState, height: int) -> None:
    state.top = min(state.top, state.selected)
    while sum(map(_count_lines, state.rows[state.top : state.selected + 1])) > height:
        if state.top == state.selected:
            break
        state.top += 1


def _count_lines(row: PickerRow) -> int:
    return 2 if row.snippet else 1


def _render_row(state: PickerState, index: int, width: int) -> list[Line]:
    row = state.rows[index]
    is_selected = index == state.selected
    session = row.session
    shows_project = state.is_all or state.project is None
    columns = [("project", _get_project(session), _PROJECT_WIDTH)] if shows_project else []
    if not shows_project or width >= _MIN_BOTH:
        columns.append(("agent", to_safe_line(session.source, 40), _AGENT_WIDTH))
    used = sum(size + 1 for _, _, size in columns) + _AGE_WIDTH + 3
    if width - used < _MIN_TITLE:
        columns, used = [], _AGE_WIDTH + 3
    title_width = max(4, width - used)
    mark = "❯ " if is_selected else "  "
    line: Line = [("selected" if is_selected else "", mark)]
    line.append(("selected" if is_selected else "", _fit_cell(row.name, title_width)))
    for style, text, size in columns:
        line += [("", " "), (style, _fit_cell(text, size))]
    age = format_age(session, state.now)
    line += [("", " "), ("dim", age.rjust(_AGE_WIDTH))]
    lines = [line]
    if row.snippet:
        lines.append([("", "    "), *_render_snippet(row.snippet, width - 4)])
    return lines


def _get_project(session: Session) -> str:
    key = session.project or session.repository or (session.cwd and FOLDER_PREFIX + session.cwd)
    return shorten_project(key).rpartition("/")[2] if key else ""


def _render_snippet(snippet: str, width: int) -> Iterable[Fragment]:
    """Yield a snippet with its matches highlighted, cut at the width."""
    left = width
    for piece in _MARKED.split(to_safe_line(snippet, 1000)):
        is_match = piece.startswith("«") and piece.endswith("»")
        text = fit_to_width(piece[1:-1] if is_match else piece, left)
        if text:
            yield ("match" if is_match else "dim", text)
        left -= measure_width(text)
        if left <= 0:
            return


def _render_preview(state: PickerState, width: int, height: int) -> list[Line]:
    row = state.row
    if row is None:
        return []
    session = row.session
    preview = state.previews.get(session.id)
    lines = [[("title", line)] for line in wrap_to_width(row.name, width)[:2]]
    facts = [session.source, session.model or "", session.git_branch or ""]
    counts = [format_count(session.message_count, "message"), _format_age(session, state.now)]
    if preview is not None and preview.sub_agents:
        counts.append(format_count(preview.sub_agents, "sub-agent"))
    if preview is not None and preview.cost:
        counts.append(f"${format_cost(preview.cost)}")
    for style, text in (
        ("agent", " · ".join(filter(None, facts))),
        ("project", _shorten_home(session.cwd or "", state)),
        ("dim", " · ".join(counts)),
    ):
        if text:
            lines.append([(style, fit_to_width(to_safe_line(text, 1000), width))])
    if row.snippet:
        lines += [[], [*_render_snippet(row.snippet, width)]]
    if preview is None:
        return lines
    lines += _render_request("First", preview.first_request, width)
    if preview.last_request != preview.first_request:
        lines += _render_request("Last", preview.last_request, width)
    room = height - len(lines) - 2
    tail = _render_tail(preview, width)
    if room > 2 and tail:
        lines += [[], [("dim", "─" * width)], *tail[-room:]]
    return lines


def _format_age(session: Session, now: float) -> str:
    age = format_age(session, now)
    return age if age == "now" else f"{age} ago"


def _shorten_home(path: str, state: PickerState) -> str:
    home = state.home
    return f"~{path[len(home) :]}" if home and f"{path}/".startswith(f"{home}/") else path


def _render_request(label: str, text: str, width: int) -> list[Line]:
    if not text:
        return []
    wrapped = wrap_to_width(f"{label}: {text[:_MAX_TEXT]}", width)
    lines = wrapped[:_MAX_REQUEST_LINES]
    if len(wrapped) > len(lines):
        lines[-1] = fit_to_width(f"{lines[-1]} …", width)
    return [[], *([("", line)] for line in lines)]


def _render_tail(preview: Preview, width: int) -> list[Line]:
    lines: list[Line] = []
    for role, text in preview.tail:
        style = _ROLE_STYLES.get(role, "dim")
        mark = "› " if role == "user" else "  "
        wrapped = wrap_to_width(text[:_MAX_TEXT], width - 2)
        for number, line in enumerate(wrapped[:_MAX_TAIL_LINES]):
            more = " …" if number == _MAX_TAIL_LINES - 1 and len(wrapped) > _MAX_TAIL_LINES else ""
            shown = fit_to_width(line + more, width - 2)
            lines.append([(style, mark if number == 0 else "  "), (style, shown)])
    return lines


def _fit_cell(text: str, width: int) -> str:
    shown = fit_to_width(to_safe_line(text, 400), width)
    return shown + " " * (width - measure_width(shown))


def _extend_line(line: Line, width: int) -> Line:
    used = sum(measure_width(text) for _, text in line)
    return [*line, ("", " " * max(0, width - used))]


def _extend_lines(lines: Sequence[Line], height: int) -> list[Line]:
    return [*lines[:height], *([] for _ in range(height - len(lines)))]
