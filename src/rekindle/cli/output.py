"""Output of commands: JSON for programs, tables and a progress bar for people.

All text goes through here, and none of it can control the terminal: control characters become visible
symbols. Colour and progress are for terminals only; piped output is plain text. `rich` is loaded only
to draw a conversation or a progress bar on a terminal, never for a list or for JSON.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

import typer

from rekindle.config import allows_color, should_force_color
from rekindle.types import Session, Usage, to_json_value

from .terminal.pager import open_pager
from .terminal.text import escape_control_chars as escape_control_chars
from .terminal.text import format_age as format_age
from .terminal.text import format_cost as format_cost
from .terminal.text import format_count as format_count
from .terminal.text import format_elapsed as format_elapsed
from .terminal.text import format_time as format_time
from .terminal.text import get_display_name as get_display_name
from .terminal.text import shorten_ids as shorten_ids
from .terminal.text import to_one_line as to_one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

ProgressCallback: TypeAlias = "Callable[[int, int], None]"
JsonOption = Annotated[bool, typer.Option("--json", help="Output as JSON.")]
OwnerOption = Annotated[str | None, typer.Option(metavar="NAME", help="Filter by owner.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be done without doing it.")
]

_COLUMN_GAP, _MIN_COLUMN_WIDTH, _GOOD_TITLE_WIDTH = "  ", 8, 24
_WIDE_TERMINAL = 120  # columns from which on the last requests stand beside the first
_UNESCAPED_BY_JSON = re.compile(rb"\x7f|\xc2[\x80-\x9f]")  # the control characters it leaves


# ── JSON


def encode_json(value: Any) -> bytes:
    """Encode `value` as JSON, also when it holds text that UTF-8 cannot represent."""
    try:
        return escape_json_control_chars(_dump_json(value, ensure_ascii=False).encode())
    except UnicodeEncodeError:
        return _dump_json(value, ensure_ascii=True).encode()


def escape_json_control_chars(data: bytes) -> bytes:
    """Escape the control characters that JSON may hold as they are."""
    return _UNESCAPED_BY_JSON.sub(lambda found: b"\\u%04x" % ord(found[0].decode()), data)


def _dump_json(value: Any, *, ensure_ascii: bool) -> str:
    return json.dumps(to_json_value(value), ensure_ascii=ensure_ascii, separators=(",", ":"))


def session_to_dict(session: Session) -> dict[str, Any]:
    """Return all fields of a session, including empty ones."""
    fields = {**session._asdict(), "tokens": session.tokens._asdict()}
    return {**fields, "first_request": session.preview}


def usage_to_dict(usage: Mapping[str, Usage]) -> dict[str, Any]:
    """Return the token usage and cost per model."""
    return {
        model: {"tokens": taken.tokens._asdict(), "cost": f"{taken.cost.normalize():f}"}
        for model, taken in usage.items()
    }


def format_usage_lines(usage: Mapping[str, Usage]) -> Iterator[str]:
    """Yield one line of token usage per model."""
    for model, (tokens, cost) in usage.items():
        parts = [f"{tokens.cache_read:,} cached"] if tokens.cache_read else []
        parts += [f"{tokens.cache_write:,} written to the cache"] if tokens.cache_write else []
        cached = f" ({', '.join(parts)})" if parts else ""
        cost_text = f", cost {cost.normalize():f}" if cost else ""
        name = escape_control_chars(model) or "unknown model"
        yield f"{name}: {tokens.input:,} in{cached}, {tokens.output:,} out{cost_text}"


def write_json_array(values: Iterable[Any]) -> None:
    """Write one JSON array, one element per line."""
    out, separator = sys.stdout.buffer, b"["
    for value in values:
        out.write(separator + encode_json(value))
        separator = b",\n"
    out.write(b"]\n" if separator == b",\n" else b"[]\n")


def write_json_lines(values: Iterable[Any]) -> None:
    """Write one JSON object per line."""
    for value in values:
        sys.stdout.buffer.write(encode_json(value) + b"\n")


# ── text


class StyledText(NamedTuple):
    """A piece of text in one style."""

    text: str
    style: str = ""


class Column(NamedTuple):
    """A table column.

    On a narrow terminal, a `flexible` one shrinks, but not its `tails`. Before it is narrower than
    `enough`, `optional` ones are left out.
    """

    title: str
    right: bool = False
    flexible: bool = False
    style: str = ""
    optional: bool = False
    tails: Sequence[str] = ()  # of the cells in its rows
    enough: int = _MIN_COLUMN_WIDTH


def build_number_columns(*titles: str) -> tuple[Column, ...]:
    """Build columns of numbers, aligned to the right."""
    return tuple(Column(title, right=True) for title in titles)


def print_line(text: str = "") -> None:
    """Print a line to stdout."""
    sys.stdout.write(f"{escape_control_chars(text)}\n")


def print_json(value: Any) -> None:
    """Print a value as one line of JSON to stdout."""
    print_line(encode_json(value).decode())


def print_notice(text: str) -> None:
    """Print a line to stderr, apart from the data."""
    sys.stdout.flush()
    sys.stderr.write(f"{escape_control_chars(text)}\n")


def create_console() -> Console:
    """Create a rich console for stdout."""
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False, markup=False, emoji=False)


def write_styled(lines: Iterable[Sequence[StyledText]]) -> None:
    """Write lines of styled pieces: wrapped and coloured on a terminal, plain in a pipe.

    What does not fit a terminal is shown in the user's pager.
    """
    if not sys.stdout.isatty() and not should_force_color():
        for pieces in lines:
            print_line("".join(piece.text for piece in pieces))
        return
    from rich.text import Text

    terminal = create_console()
    with open_pager() as write:
        for pieces in lines:
            styled = ((escape_control_chars(piece.text), piece.style) for piece in pieces)
            with terminal.capture() as captured:
                _print_wrapped(terminal, Text.assemble(*styled))
            write(captured.get())


def _print_wrapped(terminal: Console, text: Text) -> None:
    """Print a line, wrapped at the width of a terminal and with its indent; in a pipe as it is."""
    from rich.text import Text

    if not sys.stdout.isatty():
        terminal.print(text, soft_wrap=True)
        return
    indent = len(text.plain) - len(text.plain.lstrip(" "))
    for line in text[indent:].wrap(terminal, max(20, terminal.width - indent)):
        line.rstrip()
        terminal.print(Text(" " * indent) + line, soft_wrap=True)


def write_table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
    """Write a table that fits the terminal, or in full width to a pipe or a file."""
    from rich.cells import cell_len, set_cell_size

    cells = [[" ".join(escape_control_chars(cell).split()) for cell in row] for row in rows]
    tails = [column.tails or [""] * len(cells) for column in columns]
    cells = [
        [f"{cell}{ends[number]}" for cell, ends in zip(row, tails, strict=True)]
        for number, row in enumerate(cells)
    ]
    lines = [[column.title for column in columns], *cells]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    if sys.stdout.isatty():
        widths = _fit_widths(columns, widths, get_terminal_size().columns)
    paint = _create_painter()
    with open_pager() as write:
        for number, line in enumerate(lines):
            pieces: list[str] = []
            for column, cell, width, ends in zip(columns, line, widths, tails, strict=True):
                if width == 0:
                    continue
                if cell_len(cell) > width:
                    tail = ends[number - 1] if number else ""
                    kept = max(0, width - 1 - cell_len(tail))
                    cell = set_cell_size(set_cell_size(cell, kept) + "…" + tail, width)
                padding = " " * (width - cell_len(cell))
                text = f"{padding}{cell}" if column.right else f"{cell}{padding}"
                pieces.append(paint(text, "bold" if number == 0 else column.style))
            write(_COLUMN_GAP.join(pieces).rstrip() + "\n")


def _fit_widths(columns: Sequence[Column], widths: Sequence[int], available: int) -> list[int]:
    """Return the widths of columns on a terminal; a column that is left out has none."""
    fitted = list(widths)
    least = [
        min(width, column.enough if column.flexible else width)
        for column, width in zip(columns, widths, strict=True)
    ]
    for index in reversed(range(len(columns))):
        if columns[index].optional and _measure_row(least) > available:
            fitted[index] = least[index] = 0
    for index, column in enumerate(columns):
        spare = available - _measure_row(fitted)
        if column.flexible and spare < 0:
            fitted[index] = max(min(least[index], _MIN_COLUMN_WIDTH), fitted[index] + spare)
    return fitted


def _measure_row(widths: Sequence[int]) -> int:
    shown = [width for width in widths if width]
    return sum(shown) + len(_COLUMN_GAP) * max(0, len(shown) - 1)


def _create_painter() -> Callable[[str, str], str]:
    """Return a function that colours text on a terminal and leaves it plain in a pipe."""
    if not (should_force_color() or (sys.stdout.isatty() and allows_color())):
        return lambda text, style: text
    codes = {"bold": 1, "dim": 2, "cyan": 36}
    return lambda text, style: f"\x1b[{codes[style]}m{text}\x1b[0m" if style else text


def write_sessions(
    sessions: Sequence[Session],
    *,
    projects: Sequence[str] | None = None,
    now: float | None = None,
    tails: Mapping[str, str] | None = None,
) -> None:
    """Write a table of sessions that fits into 80 columns of a terminal, or in full to a pipe.

    `projects` has the name of each session's project, for a column of them. `tails` has what stands
    behind the titles of some, by id, and is never cut.
    """
    moment = time.time() if now is None else now
    has_cost = any(one.cost for one in sessions)
    columns = (
        Column("id", style="cyan"),
        *([] if projects is None else [Column("project")]),
        Column(
            "title",
            flexible=True,
            tails=[(tails or {}).get(one.id, "") for one in sessions],
            enough=_GOOD_TITLE_WIDTH,
        ),
        Column("source", optional=True),
        Column("msgs", right=True, optional=True),
        *([Column("cost $", right=True, optional=True)] if has_cost else []),
        Column("active", right=True, style="dim"),
    )
    last_requests = _list_last_requests(sessions)
    columns += (Column("last request", style="dim"),) if any(last_requests) else ()
    ids = fit_ids([session.id for session in sessions])
    write_table(
        columns,
        [
            (
                short,
                *([] if projects is None else [fit_name(projects[index], 14)]),
                get_display_name(one),
                fit_name(one.source, 11),
                f"{one.message_count}",
                *([format_cost(one.cost) if one.cost else ""] if has_cost else []),
                format_age(one, moment),
                *([last] if any(last_requests) else []),
            )
            for index, (short, one, last) in enumerate(
                zip(ids, sessions, last_requests, strict=True)
            )
        ],
    )


def _list_last_requests(sessions: Sequence[Session]) -> list[str]:
    """Return the last request of each session with several, if a terminal has room for them."""
    width = get_terminal_size().columns
    if not sys.stdout.isatty() or width < _WIDE_TERMINAL:
        return ["" for _ in sessions]
    return [
        to_one_line(one.last_request, width // 4)
        if one.last_request and one.last_request != one.preview
        else ""
        for one in sessions
    ]


def fit_name(name: str, max_length: int) -> str:
    """Shorten a name for a column of a terminal; leave it alone in a pipe."""
    return to_one_line(name, max_length) if sys.stdout.isatty() else name


def fit_ids(ids: Sequence[str]) -> list[str]:
    """Shorten ids for a column of a terminal; leave them alone in a pipe."""
    return shorten_ids(ids) if sys.stdout.isatty() else list(ids)


def format_size(count: int) -> str:
    """Format a number of bytes."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


# ── progress and confirmation


@contextmanager
def show_progress(label: str) -> Generator[ProgressCallback]:
    """Show a progress bar on stderr; do nothing when stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Bar(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)


def require_confirmation(question: str, *, yes: bool) -> None:
    """Ask the user to confirm, unless `yes`; abort if they decline."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter("confirmation required: pass --yes (or --dry-run to preview)")
    sys.stdout.flush()
    if not typer.confirm(question, err=True):
        raise typer.Abort
