"""`rekindle sessions verify`, `repair`, `backup` and `stats`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.cli.output import (
    Column,
    JsonOption,
    YesOption,
    escape_control_chars,
    format_count,
    format_size,
    format_time,
    format_usage_lines,
    print_json,
    print_line,
    print_notice,
    require_confirmation,
    show_progress,
    usage_to_dict,
    write_json_array,
    write_table,
)
from rekindle.cli.session_choice import FilterArgument, parse_filter, select_sessions
from rekindle.cli.store_access import (
    connect_store,
    is_of_tenant,
    load_settings,
    open_for_reading,
    open_for_writing,
    require_store_file,
)
from rekindle.config import is_url, mask_secrets
from rekindle.errors import StoreDamaged

if TYPE_CHECKING:
    from rekindle.types import Finding, StoreStats

_BAR_WIDTH, _MAX_PROJECTS = 24, 10


def verify(json: JsonOption = False) -> None:
    """Check the store: counts, order, chains, indexes and references.

    Exit with code 1 if problems are found.

    \b
    Examples:
      rekindle sessions verify
    """
    with open_for_reading(refresh=False) as store, show_progress("Checking") as show:
        findings = store.verify(progress=show)
    if json:
        write_json_array(findings)
    else:
        for finding in findings:
            print_line(_format_finding(finding))
        print_line(
            f"{format_count(len(findings), 'problem')} found" if findings else "No problems found."
        )
    if any(finding.repairable for finding in findings):
        print_notice("Run `rekindle sessions repair` to fix what can be repaired.")
    if findings:
        raise typer.Exit(1)


def _format_finding(finding: Finding) -> str:
    extra = "" if finding.repairable else " (cannot be repaired)"
    return escape_control_chars(f"{finding.check}: {finding.where}: {finding.detail}{extra}")


def repair(yes: YesOption = False, json: JsonOption = False) -> None:
    """Repair the store.

    Derived data is rebuilt. A file that cannot be opened is recovered into a new one; the damaged
    file is kept.

    \b
    Examples:
      rekindle sessions repair
      rekindle --store broken.db sessions repair --yes
    """
    require_store_file(load_settings().store.url)
    repaired = _repair_store(yes)
    if json:
        write_json_array(repaired)
        return
    for line in repaired:
        print_line(escape_control_chars(line))
    if not repaired:
        print_line("Nothing to repair.")


def _repair_store(yes: bool) -> list[str]:
    """Repair the store in place, or recover its file if it cannot be opened."""
    config = load_settings()
    target = config.store.url
    try:
        with open_for_writing() as store, show_progress("Repairing") as show:
            return store.repair(progress=show)
    except StoreDamaged:
        if is_url(target) or is_of_tenant(config):
            raise
    require_confirmation(f"Cannot open {target}. Recover its contents into a new file?", yes=yes)
    from rekindle.store import repair_file

    with show_progress("Recovering") as show:
        return repair_file(Path(target), progress=show)


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="SQLite file to create.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    json: JsonOption = False,
) -> None:
    """Copy a live store, SQLite or PostgreSQL, into one SQLite file.

    \b
    Examples:
      rekindle sessions backup sessions-$(date +%F).db
    """
    file = file.expanduser()
    if not file.absolute().parent.is_dir():
        raise typer.BadParameter(f"folder not found: {file.parent}")
    if file.exists() and not force:
        raise typer.BadParameter(f"{file} already exists; pass --force to overwrite it")
    if file.exists() and file.samefile(load_settings().store.url):
        raise typer.BadParameter(f"{file} is the store itself")
    with open_for_reading(refresh=False) as store, show_progress("Copying") as show:
        store.backup(file, progress=show)
    with connect_store(load_settings(), str(file), readonly=True) as copy:
        stats_of_copy = copy.stats()
    size = file.stat().st_size
    if json:
        print_json({"file": str(file), "bytes": size, "sessions": stats_of_copy.sessions})
    else:
        print_line(
            f"{format_count(stats_of_copy.sessions, 'session')} copied to {file} ({format_size(size)})"
        )


def stats(where: FilterArgument = None, json: JsonOption = False) -> None:
    """Show what the store holds, by source and project, and how much disk space it uses.

    Without filter terms, this is about the whole store, whatever the current folder.

    \b
    Examples:
      rekindle sessions stats
      rekindle sessions stats project=api since=7d
    """
    from rekindle.projects import shorten_project

    terms = parse_filter(where if where else ["archived=any"])
    with open_for_reading() as store:
        chosen = select_sessions(store, terms)
        held = store.stats(chosen.where if where else None)
        by_project: Counter[str] = Counter()
        for one in store.count_by_project(chosen.where):
            by_project[chosen.known.get_project(one.key) if one.key else ""] += one.sessions
    if json:
        projects = dict(by_project.most_common())
        models = usage_to_dict(held.by_model)
        print_json({**held._asdict(), "by_model": models, "by_project": projects})
        return
    for label, value in _format_stats(held, is_whole=not where):
        print_line(f"{label:<12}{value}")
    for line in format_usage_lines(held.by_model):
        print_line(f"{'tokens':<12}{line}")
    _print_counts("source", Counter(held.by_source))
    if any(by_project):
        names = {key: shorten_project(key) if key else "(none)" for key in by_project}
        totals: Counter[str] = Counter()
        for key, count in by_project.most_common(_MAX_PROJECTS):
            totals[names[key]] += count
        _print_counts("project", totals)
        if len(by_project) > _MAX_PROJECTS:
            print_notice("More: `rekindle projects` lists every project.")


def _format_stats(held: StoreStats, *, is_whole: bool) -> list[tuple[str, str]]:
    per_byte = ""
    if held.text_bytes:
        per_byte = f", {held.disk_bytes / held.text_bytes:.2f} per byte of text"
    pruned = f", {held.pruned:,} pruned" if is_whole else ""
    facts = [
        ("store", f"{mask_secrets(held.location)} ({held.engine}, version {held.version})"),
        ("sessions", f"{held.sessions:,} ({held.archived:,} archived{pruned})"),
        ("messages", f"{held.messages:,} ({held.rewound:,} undone)"),
        ("text", format_size(held.text_bytes)),
    ]
    if is_whole:
        size = f"{format_size(held.disk_bytes)} (index {format_size(held.index_bytes)}{per_byte})"
        facts.append(("on disk", size))
    if held.first is not None and held.last is not None:
        facts.append(("period", f"{format_time(held.first)} to {format_time(held.last)}"))
    return facts


def _print_counts(title: str, counts: Counter[str]) -> None:
    """Print the number of sessions per source or project, largest first."""
    if not counts:
        return
    ordered = counts.most_common()
    most = max(1, ordered[0][1])
    rows = [
        (name, "█" * max(1, round(_BAR_WIDTH * count / most)), f"{count:,}")
        for name, count in ordered
    ]
    print_line()
    write_table((Column(title), Column("sessions", style="cyan"), Column("", right=True)), rows)
