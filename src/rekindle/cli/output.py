"""How a command speaks: JSON for programs, tables and a progress bar for people.

Colour and progress are for terminals alone; what is piped is plain text. `rich` is loaded when a
conversation or a bar is drawn on a terminal, never for a list or for JSON.
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

from rekindle.config import is_colourful
from rekindle.types import Session, Usage, plain

if TYPE_CHECKING:
    from rich.console import Console

Progress: TypeAlias = "Callable[[int, int], None]"
AsJson = Annotated[bool, typer.Option("--json", help="Speak JSON.")]
Owner = Annotated[str | None, typer.Option(metavar="NAME", help="Only what belongs to this owner.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would happen, do nothing.")]

_GAP, _NARROWEST = "  ", 8
_SHORT_ID, _SHORT_UUID = 24, 13
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CONTROLS = {
    **{code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A)},
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
    0x7F: 0x2421,
}


# ── for programs


def encode(value: Any) -> bytes:
    """`value` as JSON, also when it holds text that UTF-8 cannot say."""
    try:
        return _dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return _dumps(value, ensure_ascii=True).encode()


def _dumps(value: Any, *, ensure_ascii: bool) -> str:
    return json.dumps(plain(value), ensure_ascii=ensure_ascii, separators=(",", ":"))


def record(session: Session) -> dict[str, Any]:
    """A session with all its fields, also those that say nothing."""
    return {**session._asdict(), "tokens": session.tokens._asdict()}


def usage_record(usage: Mapping[str, Usage]) -> dict[str, Any]:
    """What each model took, by its name."""
    return {
        model: {"tokens": taken.tokens._asdict(), "cost": f"{taken.cost.normalize():f}"}
        for model, taken in usage.items()
    }


def usage_lines(usage: Mapping[str, Usage]) -> Iterator[str]:
    """What each model took, a line for each."""
    for model, (tokens, cost) in usage.items():
        cached = f" ({tokens.cache_read:,} from the cache)" if tokens.cache_read else ""
        worth = f", cost {cost.normalize():f}" if cost else ""
        name = printable(model) or "unknown model"
        yield f"{name}: {tokens.input:,} in{cached}, {tokens.output:,} out{worth}"


def write_array(values: Iterable[Any]) -> None:
    """Write one JSON array, an element per line."""
    out, before = sys.stdout.buffer, b"["
    for value in values:
        out.write(before + encode(value))
        before = b",\n"
    out.write(b"]\n" if before == b",\n" else b"[]\n")


def write_lines(values: Iterable[Any]) -> None:
    """Write one JSON object per line."""
    for value in values:
        sys.stdout.buffer.write(encode(value) + b"\n")


# ── for people


class Line(NamedTuple):
    """A line of text, or some, in one style."""

    text: str
    style: str = ""


class Column(NamedTuple):
    """A column of a table; the one that is `flexible` gives way when the terminal is narrow."""

    title: str
    right: bool = False
    flexible: bool = False
    style: str = ""


def say(text: str = "") -> None:
    """Write a line for people to stdout."""
    sys.stdout.write(f"{text}\n")


def note(text: str) -> None:
    """Write a line to stderr, beside the data."""
    sys.stdout.flush()
    sys.stderr.write(f"{text}\n")


def printable(text: str) -> str:
    """`text` without the control characters that could play with a terminal."""
    return text.replace("\r\n", "\n").translate(_CONTROLS)


def console() -> Console:
    """The terminal, or the pipe, as rich sees it."""
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False, markup=False, emoji=False)


def write_styled(lines: Iterable[Sequence[Line]]) -> None:
    """Write lines made of styled pieces: wrapped and coloured on a terminal, plain in a pipe."""
    if not sys.stdout.isatty():
        for pieces in lines:
            sys.stdout.write("".join(piece.text for piece in pieces) + "\n")
        return
    from rich.text import Text

    terminal = console()
    for pieces in lines:
        text = Text.assemble(*((piece.text, piece.style) for piece in pieces))
        indent = len(text.plain) - len(text.plain.lstrip(" "))
        for line in text[indent:].wrap(terminal, max(20, terminal.width - indent)):
            line.rstrip()
            terminal.print(Text(" " * indent) + line, soft_wrap=True)


def write_table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
    """Write a table that fits the terminal."""
    from rich.cells import cell_len, set_cell_size

    cells = [[one_line(printable(cell), 1000) for cell in row] for row in rows]
    lines = [[column.title for column in columns], *cells]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    spare = get_terminal_size().columns - sum(widths) - len(_GAP) * (len(widths) - 1)
    for index, column in enumerate(columns):
        if column.flexible and spare < 0:
            widths[index] = max(_NARROWEST, widths[index] + spare)
    paint = _painter()
    for number, line in enumerate(lines):
        pieces: list[str] = []
        for column, cell, width in zip(columns, line, widths, strict=True):
            if cell_len(cell) > width:
                cell = set_cell_size(cell, width - 1) + "…"
            padding = " " * (width - cell_len(cell))
            text = f"{padding}{cell}" if column.right else f"{cell}{padding}"
            pieces.append(paint(text, "bold" if number == 0 else column.style))
        sys.stdout.write(_GAP.join(pieces).rstrip() + "\n")


def _painter() -> Callable[[str, str], str]:
    """Colour for a terminal, nothing for a pipe. Tables need no more of rich than that."""
    if not (sys.stdout.isatty() and is_colourful()):
        return lambda text, style: text
    codes = {"bold": 1, "dim": 2, "cyan": 36}
    return lambda text, style: f"\x1b[{codes[style]}m{text}\x1b[0m" if style else text


def write_sessions(sessions: Sequence[Session], *, now: float | None = None) -> None:
    """Write the table of sessions that fits into 80 columns."""
    moment = time.time() if now is None else now
    columns = (
        Column("id", style="cyan"),
        Column("title", flexible=True),
        Column("source"),
        Column("msgs", right=True),
        Column("active", right=True, style="dim"),
    )
    ids = short_ids([session.id for session in sessions])
    write_table(
        columns,
        [
            (short, name_of(one), one.source[:11], f"{one.message_count}", ago(one, moment))
            for short, one in zip(ids, sessions, strict=True)
        ],
    )


def short_ids(ids: Sequence[str]) -> list[str]:
    """The beginnings of `ids`, long enough to tell them apart and to be pasted back."""
    longest = max(map(len, ids), default=0)
    for more in range(0, longest, 5):
        short = [one[: (_SHORT_UUID if _UUID.fullmatch(one) else _SHORT_ID) + more] for one in ids]
        if len(set(short)) == len(set(ids)):
            return short
    return list(ids)


def name_of(session: Session) -> str:
    """What to call a session: its title, else how it began."""
    return session.title or one_line(session.preview or "", 200) or "(untitled)"


def one_line(text: str, most: int) -> str:
    """`text` on one line, shortened to `most` characters."""
    line = " ".join(text[: most * 4].split())
    return line if len(line) <= most else line[: most - 1] + "…"


def ago(session: Session, now: float) -> str:
    """How long ago the session was last active."""
    seconds = max(0.0, now - session.last_active)
    for unit, size in (("y", 365 * 86400), ("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return "now"


def time_of(seconds: float) -> str:
    """The local time, to the minute."""
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
    except (OverflowError, ValueError, OSError):
        return "?"


def size_of(count: int) -> str:
    """A number of bytes for people."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def counted(number: int, noun: str) -> str:
    """`1 session`, `2 sessions`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


# ── while it takes long, and before it is done


@contextmanager
def progress(label: str) -> Generator[Progress]:
    """A bar on stderr while the work goes on; nothing when stderr is no terminal."""
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


def confirm(question: str, *, yes: bool) -> None:
    """Go on when the user said yes; else refuse."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter("this changes sessions: give --yes, or --dry-run to only look")
    sys.stdout.flush()
    if not typer.confirm(question, err=True):
        raise typer.Abort
