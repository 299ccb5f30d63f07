"""Turns kept figures into the tables of RESULTS.md."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from typing import NamedTuple

from .contestants import PEERS, ROSTER
from .envs import ROOT, python
from .runner import Figures

RESULTS = ROOT / "bench" / "RESULTS.md"
TITLE = "# Measurements\n\nEvery section is rewritten by the command that stands in it.\n"

Check = Callable[[Figures, Figures], bool]


class Line(NamedTuple):
    """One line of the table: a figure of a row, and what Rekindle must reach."""

    row: str
    key: str
    work: str
    must: str = ""
    holds: Check | None = None
    floor: str = "floor"


def at_most(key: str, times: float) -> Check:
    return lambda ours, floor: ours[key] <= times * floor[key]


def at_least(key: str, times: float) -> Check:
    return lambda ours, floor: ours[key] >= times * floor[key]


def within(key: str, limit: float) -> Check:
    return lambda ours, _: ours[key] <= limit


def calm(ours: Figures, _: Figures) -> bool:
    return ours["errors"] == 0 and ours["beyond_flush"] == 0


APPEND = "durable append, one writer"
EIGHT = "durable append, 8 sessions at once"
FOUR = "4 processes on one file"
LINES = (
    Line("append", "cpu_us", f"{APPEND}: CPU µs per message", "≤ 1.3 ×", at_most("cpu_us", 1.3)),
    Line("append", "cpu_us", "the same, against the floor without an index", floor="plain"),
    Line(
        "traffic",
        "flushes_per_message",
        f"{APPEND}: flushes per message",
        "≤ 1.05",
        within("flushes_per_message", 1.05),
    ),
    Line(
        "traffic",
        "bytes_per_byte",
        f"{APPEND}: bytes written per byte of text",
        "≤ 0.8 ×",
        at_most("bytes_per_byte", 0.8),
    ),
    Line("traffic", "bytes_per_byte", "the same, floor without an index", floor="plain"),
    Line(
        "together",
        "per_s",
        f"{EIGHT}: messages/s (floor: writer thread with shared commits, full text)",
        "≥ 0.8 ×",
        at_least("per_s", 0.8),
        floor="shared",
    ),
    Line("together", "per_s", "the same, shared commits without an index", floor="shared_plain"),
    Line("together", "per_s", "the same, one flush per message", floor="floor"),
    Line(
        "together",
        "flushes_per_message",
        f"{EIGHT}: flushes per message",
        "≤ 0.2",
        within("flushes_per_message", 0.2),
        floor="shared",
    ),
    Line("processes", "per_s", f"{FOUR}: messages/s in total", "≥ 0.8 ×", at_least("per_s", 0.8)),
    Line("processes", "worst_s", f"{FOUR}: worst stall, s"),
    Line("processes", "over_1s", f"{FOUR}: stalls over 1 s", "≤ raw flush, no error", calm),
    Line("processes", "errors", f"{FOUR}: errors", "0", within("errors", 0)),
    Line("processes", "flush_worst_s", "worst raw flush beside it in that run, s"),
    Line("load", "p50", "load a 40-message session, p50 ms", "≤ 1.3 ×", at_most("p50", 1.3)),
    Line("recent", "p50", "50 most recent of 1,000 sessions, p50 ms", "≤ 2 ×", at_most("p50", 2)),
    Line(
        "recent_wide",
        "p50",
        "50 most recent of 10,000 sessions, p50 ms",
        "≤ 2 ×",
        at_most("p50", 2),
    ),
    Line("recent_first", "p50", "the same, first time in a store just opened, p50 ms"),
    Line(
        "search",
        "p50",
        "two-word search with the messages around each hit, p50 ms",
        "≤ 1.5 ×",
        at_most("p50", 1.5),
    ),
    Line("search", "p95", "the same, p95 ms", "≤ 1.5 ×", at_most("p95", 1.5)),
    Line("search_bare", "p50", "the same without those, p50 ms", "≤ 1.5 ×", at_most("p50", 1.5)),
    Line("search_bare", "p95", "the same without those, p95 ms", "≤ 1.5 ×", at_most("p95", 1.5)),
    Line("newest", "p50", "the same, newest first, p50 ms (floor: by row, not by time)"),
    Line("newest", "p95", "the same, newest first, p95 ms (floor: by row, not by time)"),
    Line(
        "disk",
        "ratio",
        "bytes on disk per byte of text, index included",
        "≤ 2.2",
        within("ratio", 2.2),
    ),
    Line(
        "fresh",
        "ms",
        "fresh process: import, open, first durable write, ms",
        "≤ 3 ×",
        at_most("ms", 3),
    ),
)


def machine() -> str:
    asked = "import apsw, sys; print(sys.version.split()[0], apsw.sqlite_lib_version())"
    own = python("rekindle")  # where there is none, the work was done right here
    interpreter = own if own.exists() else sys.executable
    done = subprocess.run([interpreter, "-c", asked], capture_output=True, text=True)
    ours, sqlite = [*done.stdout.split(), "?", "?"][:2]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"{cores} cores, {platform.system()} {platform.machine()}, Python {ours}, SQLite {sqlite}"
    )


def number(value: float | None) -> str:
    if value is None:
        return "–"
    if value == 0 or (isinstance(value, int) and value < 1e4):
        return str(value)
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def cell(figures: Figures | None, key: str) -> str:
    if not figures:
        return "–"
    return "failed" if "error" in figures else number(figures.get(key))


def judged(line: Line, taken: dict[str, Figures]) -> tuple[str, str]:
    """The ratio to the floor and the verdict, as the table shows them."""
    ours, floor = taken.get("rekindle"), taken.get(line.floor)
    if not ours or not floor or "error" in ours or "error" in floor:
        return "–", "not measured" if line.holds else ""
    base, value = floor.get(line.key), ours.get(line.key)
    ratio = f"{value / base:.2f}" if base and value is not None else "–"
    if line.holds is None:
        return ratio, ""
    try:
        return ratio, "yes" if line.holds(ours, floor) else "**no**"
    except (KeyError, TypeError):  # a figure that could not be taken, such as one without strace
        return ratio, "not measured"


def _table(kept: Figures, peers: list[str]) -> list[str]:
    titles = [f"{ROSTER[peer].title} {kept['versions'].get(peer, '')}".strip() for peer in peers]
    head = ["work", "floor", "Rekindle", "ratio", "must reach", "reached", *titles]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for line in LINES:
        taken = kept["rows"].get(line.row)
        if not taken:
            continue
        ratio, verdict = judged(line, taken)
        figures = [cell(taken.get(name), line.key) for name in (line.floor, "rekindle")]
        beside = [cell(taken.get(peer), line.key) for peer in peers]
        cells = [line.work, *figures, ratio, line.must, verdict, *beside]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _amounts(kept: Figures, peers: list[str]) -> list[str]:
    """How many messages each figure rests on: peers get a time limit, not the whole workload."""
    names = ["floor", "rekindle", *peers]
    head = ["messages it was measured on", *(ROSTER[name].title for name in names)]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for row in (
        "append",
        "traffic",
        "together",
        "processes",
        "load",
        "recent",
        "recent_wide",
        "search",
    ):
        taken = kept["rows"].get(row)
        if taken:
            cells = [row, *(cell(taken.get(name), "messages") for name in names)]
            lines.append("| " + " | ".join(cells) + " |")
    return lines


def _failures(kept: Figures) -> list[str]:
    """What did not work, each reason once, with the rows that met it."""
    met: dict[tuple[str, str], list[str]] = {}
    for row, taken in kept["rows"].items():
        for name, figures in taken.items():
            title = ROSTER[name].title if name in ROSTER else name
            reason = figures.get("error") or figures.get("example") or _doubt(figures, taken)
            if reason:
                met.setdefault((title, reason), []).append(row)
    missing = [
        f"- {ROSTER[name].title}: not installed ({why})" for name, why in kept["missing"].items()
    ]
    return missing + [f"- {title}, {', '.join(rows)}: {why}" for (title, why), rows in met.items()]


def _doubt(figures: Figures, taken: dict[str, Figures]) -> str | None:
    """An answer that is fast because it is poor is told."""
    if figures.get("at_once", 1) < 1:
        return f"found only {figures['at_once']:.0%} of new messages at once"
    floor = taken.get("floor", {})
    same = figures.get("sessions") == floor.get("sessions")
    if same and figures.get("found", 0) < 0.95 * floor.get("found", 0):
        few, enough = figures["found"], floor["found"]
        return f"answered with {few:.3g} results on average, the floor with {enough:.3g}"
    return None


COMMANDS = {
    "floor": "`python -c pass`",
    "version": "`rekindle --version`",
    "list": "`rekindle sessions list`",
}


def _start(kept: Figures) -> list[str]:
    taken = {k: v for k, v in (kept["rows"].get("start") or {}).items() if "error" not in v}
    if "floor" not in taken:
        return []
    bare = taken["floor"]["ms"]
    lines = ["| start of the command | ms | ratio | modules imported |", "|---|---|---|---|"]
    for name, label in COMMANDS.items():
        if name in taken:
            ms, modules = taken[name]["ms"], taken[name]["modules"]
            lines.append(f"| {label} | {number(ms)} | {ms / bare:.2f} | {modules} |")
    return lines


def store(kept: Figures) -> str:
    measured = {name for taken in kept["rows"].values() for name in taken}
    peers = [peer for peer in PEERS if peer in measured or peer in kept["missing"]]
    older = {row: date for row, date in kept["dates"].items() if date[:10] != kept["date"][:10]}
    parts = [
        "## Store",
        f"`{kept['command']}` on {kept['machine']}, {kept['date']}. Ratios come from one run; "
        "floor and Rekindle were measured by turns, and the median counts.",
        "\n".join(_table(kept, peers)),
        "\n".join(_start(kept)),
        "\n".join(_amounts(kept, peers)),
        NOTES,
        "\n".join(_failures(kept)),
        "".join(f"- {row} was taken on {date}\n" for row, date in older.items()),
        f"- The peers were measured on {kept['peers']['date']}." if "peers" in kept else "",
    ]
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


NOTES = """Every contestant runs in its own process at its public API with its default settings, and
stores the same generated conversations (`workload.py`); the floors are in `floor.py`. CPU is user
and system time of the whole process, closing the store included. Flushes and bytes are counted with
strace in a run of their own. "–" means that a peer does not have it: only Hermes Agent searches;
Google ADK lists sessions without counts or preview; Strands never flushes, so its messages do not
survive a power loss. LangGraph stores the whole state again with each message. Agno's unit is a
run, so each message is a run of its own. The 10,000 sessions are of 4 messages each."""

PROBES = {
    "open": "open",
    "append": "durable append",
    "messages": "load 40 messages",
    "recent": "50 most recent",
    "search": "two-word search, best first",
    "newest": "two-word search, newest first",
}


def growth(kept: Figures) -> str:
    """The curve: one column per size, and how much the largest costs against the smallest."""
    rows = [kept["rows"][size] for size in sorted(kept["rows"], key=int)]
    head = ["", *(f"{int(size):,} sessions" for size in sorted(kept["rows"], key=int))]
    head.append("last ÷ first")
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    keys = {"messages": "messages", "build_s": "build, s", "disk_bytes": "bytes on disk"}
    for key, name in PROBES.items():
        keys |= {f"{key}_p50": f"{name}, p50 ms", f"{key}_p95": f"{name}, p95 ms"}
    for key, name in keys.items():
        first, last = rows[0].get(key), rows[-1].get(key)
        ratio = f"{last / first:.2f}" if first and last and len(rows) > 1 else "–"
        lines.append("| " + " | ".join([name, *(cell(row, key) for row in rows), ratio]) + " |")
    intro = (
        f"`{kept['command']}` on {kept['machine']}, {kept['date']}. Built in bulk with "
        "relaxed durability; measured in a new process with the default settings."
    )
    failures = [f"- {size}: {row['error']}" for size, row in kept["rows"].items() if "error" in row]
    parts = ["## Growth", intro, "\n".join(lines), "\n".join(failures)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _import_lines(rows: Figures) -> list[str]:
    titles = {
        "made": "made transcripts of Claude Code and Codex",
        "large": "real transcripts of Claude Code and Codex",
        "corpus": "real transcripts, all formats",
    }
    head = ["work", "floor", "Rekindle", "ratio", "must reach", "reached"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for row, title in titles.items():
        floor, ours = (rows.get(row, {}).get(name) for name in ("floor", "rekindle"))
        for key, unit in (("wall_s", "s"), ("cpu_s", "CPU s")):
            if not floor or not ours:
                continue
            what = f"{title}, {ours.get('bytes', 0) / 1e6:,.0f} MB, "
            what += f"{ours.get('sessions', 0):,} sessions, {ours.get('messages', 0):,} messages: {unit}"
            ratio = "–" if "error" in {**floor, **ours} else f"{ours[key] / floor[key]:.2f}"
            reached = "not measured" if ratio == "–" else "yes" if float(ratio) <= 2 else "**no**"
            cells = [what, cell(floor, key), cell(ours, key), ratio, "≤ 2 ×", reached]
            lines.append("| " + " | ".join(cells) + " |")
    return lines


def _import_memory(taken: Figures) -> list[str]:
    lines = ["| one file | MB | messages | peak memory, MB | s |", "|---" * 5 + "|"]
    shapes = {"lines": "Claude Code, a message per line", "document": "one JSON document"}
    for row in taken.values():
        size = f"{row['size'] / 1e6:,.0f}"
        figures = [cell(row, key) for key in ("messages", "peak_mb", "wall_s")]
        lines.append("| " + " | ".join([shapes[row["shape"]], size, *figures]) + " |")
    return lines


def _import_again(taken: Figures) -> list[str]:
    lines = ["| import of 10,000 files | s | files read | passed over | files opened |"]
    lines.append("|---" * 5 + "|")
    for name, title in (("first", "first"), ("second", "second, nothing changed")):
        row = taken[name]
        figures = [cell(row, key) for key in ("wall_s", "files", "unchanged", "opens")]
        lines.append("| " + " | ".join([title, *figures]) + " |")
    lines.append(f"| floor: `os.walk` and `os.stat` | {cell(taken['floor'], 'wall_s')} | | | |")
    return lines


def importing(kept: Figures) -> str:
    """An import against its floor, its memory, and the second one."""
    rows = kept["rows"]
    floor = rows["made"]["floor"]
    parts = [
        "## Import",
        f"`{kept['command']}` on {kept['machine']}, {kept['date']}. The floor parses the same bytes"
        f" with the faster JSON library (here {floor.get('parser')}: orjson"
        f" {cell(floor, 'orjson_s')} s, msgspec {cell(floor, 'msgspec_s')} s) and writes the same rows"
        " in durable batches of 1,000 with one full-text index (`import_floor.py`); Rekindle's figure"
        " is the whole `take_in`: finding, detecting, reading, mapping, checking, storing. They took"
        " turns in processes of their own, and the median counts.",
        "\n".join(_import_lines(rows)),
        f"The whole command, start of Python included: {rows['made']['command']['wall_s']:.1f} s for"
        f" the {rows['made']['command']['files']:,} made files.",
        "\n".join(_import_memory(rows["memory"])),
        "\n".join(_import_again(rows["again"])),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def write(section: str, text: str) -> None:
    """Replace one section of RESULTS.md, or add it at the end."""
    begin, end = f"<!-- {section}: begin -->", f"<!-- {section}: end -->"
    page = RESULTS.read_text() if RESULTS.exists() else TITLE
    block = f"{begin}\n{text}{end}"
    found = re.search(re.escape(begin) + ".*?" + re.escape(end), page, re.DOTALL)
    page = page.replace(found[0], block) if found else f"{page}\n{block}\n"
    RESULTS.write_text(page)
