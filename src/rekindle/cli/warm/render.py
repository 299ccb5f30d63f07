"""Render templates on a terminal: each note with the evidence for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from rekindle.cli.output import (
    Column,
    StyledText,
    format_count,
    format_time,
    print_line,
    to_one_line,
    write_styled,
    write_table,
)
from rekindle.knowledge.file_format import CONVERTED_KEY, ORIGIN_KEY, get_dropped_notes
from rekindle.projects import FOLDER_PREFIX, shorten_project

if TYPE_CHECKING:
    from rekindle.learning.build import BuildResult, RedactionCounts, TemplateUsage
    from rekindle.types import Template, TemplateNote

_KIND_HEADINGS: Mapping[str, str] = {
    "wish": "What people want",
    "command": "Commands that work",
    "workflow": "Commands that follow each other",
    "pitfall": "What failed, and what worked instead",
    "baseline": "What fails anyway",
    "example": "What was asked, and what was done",
    "place": "Files that sessions used",
}
_MAX_TEXT_LENGTH = 160
_GOOD_NAME_WIDTH = 16


def write_build_result(result: BuildResult, removed: RedactionCounts) -> None:
    """Print the sessions scanned, the resulting template and what was kept of its last revision."""
    template, scan, kept = result
    skipped = ", ".join(f"{count:,} {reason}" for reason, count in scan.skipped.items())
    print_line(
        f"Scanned {format_count(scan.scanned, 'session')}, {scan.looked_through:,} of them new;"
        f" {scan.qualified:,} qualified{f' (skipped: {skipped})' if skipped else ''}."
    )
    if scan.sources:
        print_line(
            "Sources: " + ", ".join(f"{name} {count}" for name, count in scan.sources.items()) + "."
        )
    if scan.avg_proficiency_gain is not None:
        gain = 100 * scan.avg_proficiency_gain
        print_line(f"Error rate, last fifth of calls minus first: {gain:+.1f} points on average.")
    write_redactions(removed)
    print_line()
    kinds = ", ".join(f"{kind} {count}" for kind, count in _count_kinds(template.notes).items())
    what = "revision" if template.revision > 1 else "new,"
    number = f" {template.revision}," if template.revision > 1 else ""
    print_line(
        f"Template {template.id!r} ({what}{number} {template.state}):"
        f" {format_count(len(template.notes), 'note')} ({kinds})."
    )
    if kept:
        print_line(f"Kept from the previous revision: {', '.join(_describe_kept(kept))}.")
    write_inactive_notice(template)
    print_line(f"View it with: rekindle warm show {template.id}")


def write_redactions(removed: RedactionCounts) -> None:
    """Print the redactions of this run. Text learned earlier was redacted then."""
    print_line(f"Redacted: {format_redactions(removed) or 'nothing'}.")


def format_redactions(removed: RedactionCounts) -> str:
    """Format redaction counts by kind and location: `mail 3 (arguments 2, results 1)`."""
    return ", ".join(
        f"{kind} {sum(locations.values())} ({', '.join(_format_locations(locations))})"
        for kind, locations in removed.items()
    )


def _format_locations(locations: Mapping[str, int]) -> Iterator[str]:
    for where, count in locations.items():
        yield where if len(locations) == 1 else f"{where} {count}"


def _describe_kept(kept: Mapping[str, Any]) -> Iterator[str]:
    if "description" in kept:
        yield "the description"
    if "tags" in kept:
        yield f"the tags {' '.join(kept['tags'])}"
    if "state" in kept:
        yield f"the state ({kept['state']})"
    if "dropped" in kept:
        yield f"the removal of {format_count(kept['dropped'], 'note')}"


def write_inactive_notice(template: Template) -> None:
    """Print how to activate a template that is not active."""
    if template.state != "active":
        state = "quarantined" if template.state == "quarantined" else template.state
        print_line(
            f"It is {state}. To use it in new sessions: `rekindle warm accept {template.id}`."
        )


def _count_kinds(notes: Sequence[TemplateNote]) -> dict[str, int]:
    return {
        kind: count for kind in _KIND_HEADINGS if (count := sum(one.kind == kind for one in notes))
    }


def write_template_list(rows: Iterable[tuple[Template, TemplateUsage]]) -> None:
    """Print a table of templates."""
    columns = (
        Column("id", style="cyan"),
        Column("name", flexible=True, enough=_GOOD_NAME_WIDTH),
        Column("type", optional=True),
        Column("notes", right=True),
        *(Column(one, right=True, optional=True) for one in ("sessions", "used", "success")),
        Column("state"),
    )
    write_table(columns, (_format_row(*row) for row in rows))


def _format_row(one: Template, use: TemplateUsage) -> Sequence[str]:
    success = "–" if use.success_rate is None else f"{use.success_rate:.0%}"
    return (
        one.id, one.name, one.task_type, f"{len(one.notes)}", f"{len(one.sources)}",
        f"{use.sessions}", success, one.state,
    )  # fmt: skip


def write_template(template: Template, use: TemplateUsage) -> None:
    """Print a whole template."""
    write_styled([StyledText(line)] for line in _iter_template_lines(template, use))


def _iter_template_lines(template: Template, use: TemplateUsage) -> Iterator[str]:
    yield f"{template.name}  ({template.id}, revision {template.revision})"
    if template.description:
        yield template.description
    yield ""
    for label, value in _iter_facts(template, use):
        yield f"{label:<9}{value}"
    yield from _iter_seed_lines(template)
    for kind, head in _KIND_HEADINGS.items():
        notes = [one for one in template.notes if one.kind == kind]
        if notes:
            yield ""
            yield f"{head}:"
            for one in notes:
                yield f"  • {to_one_line(one.text, 200)}"
                yield f"    {_format_evidence(one)}"


def _iter_facts(template: Template, use: TemplateUsage) -> Iterator[tuple[str, str]]:
    tags = f"; tags: {', '.join(template.tags)}" if template.tags else ""
    yield "type", f"{template.task_type}{tags}"
    yield "state", _format_state(template)
    made = [template.made, *([format_time(template.updated)] if template.updated else [])]
    yield "created", f"{', '.join(made)}, from {format_count(len(template.sources), 'session')}"
    origin = cast("Mapping[str, Any]", template.scan.get(ORIGIN_KEY) or {})
    if origin:
        yield "origin", _format_import_origin(origin)
    if template.project and not template.project.startswith(FOLDER_PREFIX):
        yield "project", shorten_project(template.project)
    converted = cast("Mapping[str, Any]", template.scan.get(CONVERTED_KEY) or {})
    if converted:
        yield (
            "format",
            f"{converted.get('kept')} of {format_count(converted.get('patterns', 0), 'pattern')} of"
            " an older format became notes; the others name values that are not known to be harmless",
        )
    dropped = get_dropped_notes(template)
    if dropped:
        yield "dropped", f"{format_count(len(dropped), 'note')}, also when it is rebuilt"
    if not use.sessions:
        yield "used", "never"
        return
    success = (
        "" if use.success_rate is None else f"; {use.success_rate:.0%} of their calls succeeded"
    )
    yield "used", f"by {format_count(use.sessions, 'session')}{success}"


def _format_import_origin(origin: Mapping[str, Any]) -> str:
    parts = [str(origin.get("program") or "an unknown program")]
    if "exported" in origin:
        parts.append(f"exported {format_time(origin['exported'])}")
    if "made" in origin:
        parts.append(f"{origin['made']} there")
    if "sessions" in origin:
        parts.append(f"from {format_count(origin['sessions'], 'session')}")
    return ", ".join(parts)


def _format_state(template: Template) -> str:
    if template.state == "quarantined":
        return f"quarantined; activate it with `rekindle warm accept {template.id}`"
    return template.state


def _iter_seed_lines(template: Template) -> Iterator[str]:
    seed = template.seed
    if seed.style.messages:
        style = seed.style
        yield (
            f"user     {style.preferred}: {format_count(style.messages, 'message')} of"
            f" {style.mean_length:.0f} characters, {style.questions:.0%} questions,"
            f" {style.commands:.0%} commands"
        )
    if seed.system:
        yield f"context  {to_one_line(seed.system, _MAX_TEXT_LENGTH)}"
    for text in seed.instructions:
        yield f"asked    {to_one_line(text, 200)}"
    if seed.markers:
        yield f"files    {to_one_line(', '.join(seed.markers), _MAX_TEXT_LENGTH)}"


def _format_evidence(one: TemplateNote) -> str:
    parts = [f"seen in {format_count(one.sessions, 'session')}"] if one.sessions else []
    if one.failed:
        parts.append(f"failed {one.failed} of {one.worked + one.failed} times")
    if one.last:
        parts.append(f"last on {one.last}")
    return f"[{one.id[:6]}] " + "; ".join(parts or ["written by a person"])
