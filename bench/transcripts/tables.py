"""Builds the section of RESULTS.md about imports."""

from __future__ import annotations

from bench.report import format_cell
from bench.runner import Figures


def _build_import_table(rows: Figures) -> list[str]:
    titles = {
        "made": "synthetic transcripts of Claude Code and Codex",
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
            cells = [what, format_cell(floor, key), format_cell(ours, key), ratio, "≤ 2 ×", reached]
            lines.append("| " + " | ".join(cells) + " |")
    return lines


def _build_memory_table(taken: Figures) -> list[str]:
    lines = ["| one file | MB | messages | peak memory, MB | s |", "|---" * 5 + "|"]
    shapes = {"lines": "Claude Code, a message per line", "document": "one JSON document"}
    for row in taken.values():
        size = f"{row['size'] / 1e6:,.0f}"
        figures = [format_cell(row, key) for key in ("messages", "peak_mb", "wall_s")]
        lines.append("| " + " | ".join([shapes[row["shape"]], size, *figures]) + " |")
    return lines


def _build_second_table(taken: Figures) -> list[str]:
    lines = ["| import of 10,000 files | s | files read | skipped | files opened |"]
    lines.append("|---" * 5 + "|")
    for name, title in (("first", "first"), ("second", "second, nothing changed")):
        row = taken[name]
        figures = [format_cell(row, key) for key in ("wall_s", "files", "unchanged", "opens")]
        lines.append("| " + " | ".join([title, *figures]) + " |")
    lines.append(
        f"| floor: `os.walk` and `os.stat` | {format_cell(taken['floor'], 'wall_s')} | | | |"
    )
    return lines


def render_import(kept: Figures) -> str:
    """Render an import against its floor, its memory, and a second import."""
    rows = kept["rows"]
    floor = rows["made"]["floor"]
    parts = [
        "## Import",
        f"`{kept['command']}` on {kept['machine']}, {kept['date']}. The floor parses the same bytes"
        f" with the faster JSON library (here {floor.get('parser')}: orjson"
        f" {format_cell(floor, 'orjson_s')} s, msgspec {format_cell(floor, 'msgspec_s')} s) and writes"
        " the same rows in durable batches of 1,000 with one full-text index (`import_floor.py`);"
        " Rekindle's figure covers the whole import: discovery, detection, reading, mapping, checks and"
        " storage. Both alternate in separate processes; figures are medians.",
        "\n".join(_build_import_table(rows)),
        f"The whole command, including the start of Python:"
        f" {rows['made']['command']['wall_s']:.1f} s for the"
        f" {rows['made']['command']['files']:,} synthetic files.",
        "\n".join(_build_memory_table(rows["memory"])),
        "\n".join(_build_second_table(rows["again"])),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"
