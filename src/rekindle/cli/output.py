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

from rekindle.config import allows_color
from rekindle.types import Session, Usage, to_json_value

if TYPE_CHECKING:
    from decimal import Decimal

    from rich.console import Console

ProgressCallback: TypeAlias = "Callable[[int, int], None]"
JsonOption = Annotated[bool, typer.Option("--json", help="Output as JSON.")]
OwnerOption = Annotated[str | None, typer.Option(metavar="NAME", help="Filter by owner.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be done without doing it.")
]

_COLUMN_GAP, _MIN_COLUMN_WIDTH = "  ", 8
_SHORT_ID_LENGTH, _SHORT_UUID_LENGTH = 24, 13
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UNESCAPED_BY_JSON = re.compile(rb"\x7f|\xc2[\x80-\x9f]")  # the control characters it leaves
_CONTROL_CHAR_MAP = {
    **{code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A)},
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
    0x7F: 0x2421,
}


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
    return {**session._asdict(), "tokens": session.tokens._asdict()}


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
    """A table column; a `flexible` one shrinks when the terminal is narrow."""

    title: str
    right: bool = False
    flexible: bool = False
    style: str = ""


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


def escape_control_chars(text: str) -> str:
    """Replace control characters that could manipulate a terminal."""
    return text.replace("\r\n", "\n").translate(_CONTROL_CHAR_MAP)


def create_console() -> Console:
    """Create a rich console for stdout."""
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False, markup=False, emoji=False)


def write_styled(lines: Iterable[Sequence[StyledText]]) -> None:
    """Write lines of styled pieces: wrapped and coloured on a terminal, plain in a pipe."""
    if not sys.stdout.isatty():
        for pieces in lines:
            print_line("".join(piece.text for piece in pieces))
        return
    from rich.text import Text

    terminal = create_console()
    for pieces in lines:
        styled = ((escape_control_chars(piece.text), piece.style) for piece in pieces)
        text = Text.assemble(*styled)
        indent = len(text.plain) - len(text.plain.lstrip(" "))
        for line in text[indent:].wrap(terminal, max(20, terminal.width - indent)):
            line.rstrip()
            terminal.print(Text(" " * indent) + line, soft_wrap=True)


def write_table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
    """Write a table that fits the terminal, or in full width to a pipe or a file."""
    from rich.cells import cell_len, set_cell_size

    is_terminal = sys.stdout.isatty()
    cells = [[" ".join(escape_control_chars(cell).split()) for cell in row] for row in rows]
    lines = [[column.title for column in columns], *cells]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    spare = get_terminal_size().columns - sum(widths) - len(_COLUMN_GAP) * (len(widths) - 1)
    for index, column in enumerate(columns):
        if column.flexible and spare < 0 and is_terminal:
            widths[index] = max(_MIN_COLUMN_WIDTH, widths[index] + spare)
    paint = _create_painter()
    for number, line in enumerate(lines):
        pieces: list[str] = []
        for column, cell, width in zip(columns, line, widths, strict=True):
            if cell_len(cell) > width:
                cell = set_cell_size(cell, width - 1) + "…"
            padding = " " * (width - cell_len(cell))
            text = f"{padding}{cell}" if column.right else f"{cell}{padding}"
            pieces.append(paint(text, "bold" if number == 0 else column.style))
        sys.stdout.write(_COLUMN_GAP.join(pieces).rstrip() + "\n")


def _create_painter() -> Callable[[str, str], str]:
    """Return a function that colours text on a terminal and leaves it plain in a pipe."""
    if not (sys.stdout.isatty() and allows_color()):
        return lambda text, style: text
    codes = {"bold": 1, "dim": 2, "cyan": 36}
    return lambda text, style: f"\x1b[{codes[style]}m{text}\x1b[0m" if style else text


def write_sessions(sessions: Sequence[Session], *, now: float | None = None) -> None:
    """Write a table of sessions that fits into 80 columns of a terminal, or in full to a pipe."""
    moment = time.time() if now is None else now
    columns = (
        Column("id", style="cyan"),
        Column("title", flexible=True),
        Column("source"),
        Column("msgs", right=True),
        Column("active", right=True, style="dim"),
    )
    ids = fit_ids([session.id for session in sessions])
    write_table(
        columns,
        [
            (
                short,
                get_display_name(one),
                fit_name(one.source, 11),
                f"{one.message_count}",
                format_age(one, moment),
            )
            for short, one in zip(ids, sessions, strict=True)
        ],
    )


def fit_name(name: str, max_length: int) -> str:
    """Shorten a name for a column of a terminal; leave it alone in a pipe."""
    return to_one_line(name, max_length) if sys.stdout.isatty() else name


def fit_ids(ids: Sequence[str]) -> list[str]:
    """Shorten ids for a column of a terminal; leave them alone in a pipe."""
    return shorten_ids(ids) if sys.stdout.isatty() else list(ids)


def shorten_ids(ids: Sequence[str]) -> list[str]:
    """Shorten `ids` to prefixes that are still unique and can be passed back to a command."""
    longest = max(map(len, ids), default=0)
    for more in range(0, longest, 5):
        short = [
            one[: (_SHORT_UUID_LENGTH if _UUID.fullmatch(one) else _SHORT_ID_LENGTH) + more]
            for one in ids
        ]
        if len(set(short)) == len(set(ids)):
            return short
    return list(ids)


def get_display_name(session: Session) -> str:
    """Return the title of a session, or else how it begins."""
    return session.title or to_one_line(session.preview or "", 200) or "(untitled)"


def to_one_line(text: str, max_length: int) -> str:
    """Collapse `text` to one line of at most `max_length` characters."""
    line = " ".join(text[: max_length * 4].split())
    return line if len(line) <= max_length else line[: max_length - 1] + "…"


def format_age(session: Session, now: float) -> str:
    """Format how long ago the session was last active."""
    seconds = max(0.0, now - session.last_active)
    for unit, size in (("y", 365 * 86400), ("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return "now"


def format_time(seconds: float) -> str:
    """Format a timestamp as local time, to the minute."""
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
    except (OverflowError, ValueError, OSError):
        return "?"


def format_size(count: int) -> str:
    """Format a number of bytes."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def format_cost(cost: Decimal) -> str:
    """Format an amount of dollars: to the cent, or more exactly if it is less."""
    return f"{cost:,.2f}" if cost >= 1 or not cost else f"{cost:.4f}"


def format_count(number: int, noun: str) -> str:
    """Format a number with its noun: `1 session`, `2 sessions`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


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
