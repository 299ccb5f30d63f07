"""Builds the sections of RESULTS.md about the store and its growth."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from bench.peers import PEERS, ROSTER
from bench.report import format_cell, format_number
from bench.runner import Figures

Check = Callable[[Figures, Figures], bool]


class StoreLine(NamedTuple):
    """A line of the table: one figure of a row, and the target for Rekindle."""

    row: str
    key: str
    work: str
    must: str = ""
    holds: Check | None = None
    floor: str = "floor"


def limit_ratio(key: str, times: float) -> Check:
    return lambda ours, floor: ours[key] <= times * floor[key]


def require_ratio(key: str, times: float) -> Check:
    return lambda ours, floor: ours[key] >= times * floor[key]


def limit_value(key: str, limit: float) -> Check:
    return lambda ours, _: ours[key] <= limit


def has_no_stalls(ours: Figures, _: Figures) -> bool:
    return ours["errors"] == 0 and ours["beyond_flush"] == 0


APPEND = "durable append, one writer"
EIGHT = "durable append, 8 sessions at once"
FOUR = "4 processes on one file"
LINES = (
    StoreLine(
        "append", "cpu_us", f"{APPEND}: CPU µs per message", "≤ 1.3 ×", limit_ratio("cpu_us", 1.3)
    ),
    StoreLine("append", "cpu_us", "the same, against the floor without an index", floor="plain"),
    StoreLine(
        "traffic",
        "flushes_per_message",
        f"{APPEND}: flushes per message",
        "≤ 1.05",
        limit_value("flushes_per_message", 1.05),
    ),
    StoreLine(
        "traffic",
        "bytes_per_byte",
        f"{APPEND}: bytes written per byte of text",
        "≤ 0.8 ×",
        limit_ratio("bytes_per_byte", 0.8),
    ),
    StoreLine("traffic", "bytes_per_byte", "the same, floor without an index", floor="plain"),
    StoreLine(
        "together",
        "per_s",
        f"{EIGHT}: messages/s (floor: writer thread with shared commits, full text)",
        "≥ 0.8 ×",
        require_ratio("per_s", 0.8),
        floor="shared",
    ),
    StoreLine(
        "together", "per_s", "the same, shared commits without an index", floor="shared_plain"
    ),
    StoreLine("together", "per_s", "the same, one flush per message", floor="floor"),
    StoreLine(
        "together",
        "flushes_per_message",
        f"{EIGHT}: flushes per message",
        "≤ 0.2",
        limit_value("flushes_per_message", 0.2),
        floor="shared",
    ),
    StoreLine(
        "processes", "per_s", f"{FOUR}: messages/s in total", "≥ 0.8 ×", require_ratio("per_s", 0.8)
    ),
    StoreLine("processes", "worst_s", f"{FOUR}: worst stall, s"),
    StoreLine(
        "processes", "over_1s", f"{FOUR}: stalls over 1 s", "≤ raw flush, no error", has_no_stalls
    ),
    StoreLine("processes", "errors", f"{FOUR}: errors", "0", limit_value("errors", 0)),
    StoreLine("processes", "flush_worst_s", "worst raw flush in the same run, s"),
    StoreLine(
        "load", "p50", "load a 40-message session, p50 ms", "≤ 1.3 ×", limit_ratio("p50", 1.3)
    ),
    StoreLine(
        "recent", "p50", "50 most recent of 1,000 sessions, p50 ms", "≤ 2 ×", limit_ratio("p50", 2)
    ),
    StoreLine(
        "recent_wide",
        "p50",
        "50 most recent of 10,000 sessions, p50 ms",
        "≤ 2 ×",
        limit_ratio("p50", 2),
    ),
    StoreLine("recent_first", "p50", "the same, the first time after opening, p50 ms"),
    StoreLine(
        "search",
        "p50",
        "two-word search with the messages around each hit, p50 ms",
        "≤ 1.5 ×",
        limit_ratio("p50", 1.5),
    ),
    StoreLine("search", "p95", "the same, p95 ms", "≤ 1.5 ×", limit_ratio("p95", 1.5)),
    StoreLine(
        "search_bare", "p50", "the same without them, p50 ms", "≤ 1.5 ×", limit_ratio("p50", 1.5)
    ),
    StoreLine(
        "search_bare", "p95", "the same without them, p95 ms", "≤ 1.5 ×", limit_ratio("p95", 1.5)
    ),
    StoreLine("newest", "p50", "the same, newest first, p50 ms (floor: by row, not by time)"),
    StoreLine("newest", "p95", "the same, newest first, p95 ms (floor: by row, not by time)"),
    StoreLine(
        "disk",
        "ratio",
        "bytes on disk per byte of text, index included",
        "≤ 2.2",
        limit_value("ratio", 2.2),
    ),
    StoreLine(
        "fresh",
        "ms",
        "fresh process: import, open, first durable write, ms",
        "≤ 3 ×",
        limit_ratio("ms", 3),
    ),
)


def judge_line(line: StoreLine, taken: dict[str, Figures]) -> tuple[str, str]:
    """Return the ratio to the floor and the verdict as table cells."""
    ours, floor = taken.get("rekindle"), taken.get(line.floor)
    if not ours or not floor or "error" in ours or "error" in floor:
        return "–", "not measured" if line.holds else ""
    base, value = floor.get(line.key), ours.get(line.key)
    ratio = f"{value / base:.2f}" if base and value is not None else "–"
    if line.holds is None:
        return ratio, ""
    try:
        return ratio, "yes" if line.holds(ours, floor) else "**no**"
    except (KeyError, TypeError):  # a figure is missing, such as one that needs strace
        return ratio, "not measured"


def _build_store_table(kept: Figures, peers: list[str]) -> list[str]:
    titles = [f"{ROSTER[peer].title} {kept['versions'].get(peer, '')}".strip() for peer in peers]
    head = ["work", "floor", "Rekindle", "ratio", "must reach", "reached", *titles]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for line in LINES:
        taken = kept["rows"].get(line.row)
        if not taken:
            continue
        ratio, verdict = judge_line(line, taken)
        figures = [format_cell(taken.get(name), line.key) for name in (line.floor, "rekindle")]
        beside = [format_cell(taken.get(peer), line.key) for peer in peers]
        cells = [line.work, *figures, ratio, line.must, verdict, *beside]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _build_amounts(kept: Figures, peers: list[str]) -> list[str]:
    """Build the table of message counts: peers get a time limit, not the whole workload."""
    names = ["floor", "rekindle", *peers]
    head = ["messages measured", *(ROSTER[name].title for name in names)]
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
            cells = [row, *(format_cell(taken.get(name), "messages") for name in names)]
            lines.append("| " + " | ".join(cells) + " |")
    return lines


def _list_failures(kept: Figures) -> list[str]:
    """List the failures: each reason once, with the rows in which it occurred."""
    met: dict[tuple[str, str], list[str]] = {}
    for row, taken in kept["rows"].items():
        for name, figures in taken.items():
            title = ROSTER[name].title if name in ROSTER else name
            reason = figures.get("error") or figures.get("example") or _find_doubt(figures, taken)
            if reason:
                met.setdefault((title, reason), []).append(row)
    missing = [
        f"- {ROSTER[name].title}: not installed ({why})" for name, why in kept["missing"].items()
    ]
    return missing + [f"- {title}, {', '.join(rows)}: {why}" for (title, why), rows in met.items()]


def _find_doubt(figures: Figures, taken: dict[str, Figures]) -> str | None:
    """Return why fast answers are not comparable, if they are incomplete."""
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


def _build_start_table(kept: Figures) -> list[str]:
    taken = {k: v for k, v in (kept["rows"].get("start") or {}).items() if "error" not in v}
    if "floor" not in taken:
        return []
    bare = taken["floor"]["ms"]
    lines = ["| start of the command | ms | ratio | modules imported |", "|---|---|---|---|"]
    for name, label in COMMANDS.items():
        if name in taken:
            ms, modules = taken[name]["ms"], taken[name]["modules"]
            lines.append(f"| {label} | {format_number(ms)} | {ms / bare:.2f} | {modules} |")
    return lines


def render_store(kept: Figures) -> str:
    measured = {name for taken in kept["rows"].values() for name in taken}
    peers = [peer for peer in PEERS if peer in measured or peer in kept["missing"]]
    older = {row: date for row, date in kept["dates"].items() if date[:10] != kept["date"][:10]}
    parts = [
        "## Store",
        f"`{kept['command']}` on {kept['machine']}, {kept['date']}. Ratios come from one run "
        "that alternates between the floor and Rekindle; figures are medians.",
        "\n".join(_build_store_table(kept, peers)),
        "\n".join(_build_start_table(kept)),
        "\n".join(_build_amounts(kept, peers)),
        NOTES,
        "\n".join(_list_failures(kept)),
        "".join(f"- {row} was measured on {date}\n" for row, date in older.items()),
        f"- The peers were measured on {kept['peers']['date']}." if "peers" in kept else "",
    ]
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


NOTES = """Every store runs in its own process through its public API with default settings, and keeps
the same generated conversations (`workload.py`); the floors are in `store/floors.py`. CPU is user and
system time of the whole process, including closing the store. Flushes and bytes are counted with
strace in a separate run. "–" means that a peer lacks the feature: only Hermes Agent has search;
Google ADK lists sessions without counts or preview. Strands never flushes, so its messages do not
survive a power loss. LangGraph stores the whole state again with each message. Agno stores whole
runs, so each message is a run. The 10,000 sessions have 4 messages each."""

PROBES = {
    "open": "open",
    "append": "durable append",
    "messages": "load 40 messages",
    "recent": "50 most recent",
    "search": "two-word search, best first",
    "newest": "two-word search, newest first",
}


def render_growth(kept: Figures) -> str:
    """Render one column per size, and the ratio of the largest to the smallest."""
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
        lines.append(
            "| " + " | ".join([name, *(format_cell(row, key) for row in rows), ratio]) + " |"
        )
    intro = (
        f"`{kept['command']}` on {kept['machine']}, {kept['date']}. Built in bulk with "
        "relaxed durability; measured in a new process with the default settings."
    )
    failures = [f"- {size}: {row['error']}" for size, row in kept["rows"].items() if "error" in row]
    parts = ["## Growth", intro, "\n".join(lines), "\n".join(failures)]
    return "\n\n".join(filter(None, parts)) + "\n"
