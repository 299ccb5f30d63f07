"""`rekindle sessions`: is the store sound, how is it mended, kept, and what does it hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.cli.output import (
    AsJson,
    Column,
    Yes,
    confirm,
    counted,
    encode,
    note,
    printable,
    progress,
    say,
    size_of,
    time_of,
    usage_lines,
    usage_record,
    write_array,
    write_table,
)
from rekindle.cli.store_access import connect, must_exist, reading, settings, writing
from rekindle.config import is_url, masked
from rekindle.errors import StoreDamaged

if TYPE_CHECKING:
    from rekindle.types import Finding, Stats

_BAR = 24


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    for command in (verify, repair, backup, stats):
        app.command()(command)


def verify(json: AsJson = False) -> None:
    """Check every count, order, chain, index and reference.

    Exit code 1 when something is wrong.

    \b
    Examples:
      rekindle sessions verify
    """
    with reading() as store, progress("Checking") as show:
        findings = store.verify(progress=show)
    if json:
        write_array(findings)
    else:
        for finding in findings:
            say(_sentence(finding))
        say(f"{counted(len(findings), 'problem')} found" if findings else "All is well.")
    if any(finding.repairable for finding in findings):
        note("`rekindle sessions repair` mends what can be mended.")
    if findings:
        raise typer.Exit(1)


def _sentence(finding: Finding) -> str:
    extra = "" if finding.repairable else " (cannot be mended)"
    return printable(f"{finding.check}: {finding.where}: {finding.detail}{extra}")


def repair(yes: Yes = False, json: AsJson = False) -> None:
    """Mend what can be mended.

    What is derived is rebuilt. A file that does not open is salvaged into a new one, and kept.

    \b
    Examples:
      rekindle sessions repair
      rekindle --store broken.db sessions repair --yes
    """
    must_exist(settings().store.url)
    mended = _mend(yes)
    if json:
        write_array(mended)
        return
    for line in mended:
        say(printable(line))
    if not mended:
        say("Nothing to mend.")


def _mend(yes: bool) -> list[str]:
    """Mend the store from inside, or salvage its file when it cannot be entered."""
    target = settings().store.url
    try:
        with writing() as store, progress("Mending") as show:
            return store.repair(progress=show)
    except StoreDamaged:
        if is_url(target):
            raise
    confirm(f"{target} does not open. Salvage what is in it into a new file?", yes=yes)
    from rekindle.store import repair_file

    with progress("Salvaging") as show:
        return repair_file(Path(target), progress=show)


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The SQLite file to make.")],
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
    json: AsJson = False,
) -> None:
    """Copy a live store, of either engine, into one SQLite file.

    \b
    Examples:
      rekindle sessions backup sessions-$(date +%F).db
    """
    file = file.expanduser()
    if not file.absolute().parent.is_dir():
        raise typer.BadParameter(f"there is no folder {file.parent}")
    if file.exists() and not force:
        raise typer.BadParameter(f"{file} exists already; --force replaces it")
    if file.exists() and file.samefile(settings().store.url):
        raise typer.BadParameter(f"{file} is the store itself")
    with reading() as store, progress("Copying") as show:
        store.backup(file, progress=show)
    with connect(settings(), str(file), readonly=True) as copy:
        held = copy.stats()
    size = file.stat().st_size
    if json:
        answer = {"file": str(file), "bytes": size, "sessions": held.sessions}
        say(encode(answer).decode())
    else:
        say(f"{counted(held.sessions, 'session')} copied to {file} ({size_of(size)})")


def stats(json: AsJson = False) -> None:
    """Show what the store holds and what it costs on disk.

    \b
    Examples:
      rekindle sessions stats
    """
    with reading() as store:
        held = store.stats()
    if json:
        told = {**held._asdict(), "by_model": usage_record(held.by_model)}
        say(encode(told).decode())
        return
    for label, value in _facts(held):
        say(f"{label:<12}{value}")
    for line in usage_lines(held.by_model):
        say(f"{'tokens':<12}{line}")
    if held.by_source:
        say()
        _plot(held)


def _facts(held: Stats) -> list[tuple[str, str]]:
    per_byte = f", {held.disk_bytes / held.text_bytes:.2f} per byte of text" * bool(held.text_bytes)
    facts = [
        ("store", f"{masked(held.location)} ({held.engine}, version {held.version})"),
        ("sessions", f"{held.sessions:,} ({held.archived:,} archived, {held.pruned:,} pruned)"),
        ("messages", f"{held.messages:,} ({held.rewound:,} undone)"),
        ("text", size_of(held.text_bytes)),
        ("on disk", f"{size_of(held.disk_bytes)} (index {size_of(held.index_bytes)}{per_byte})"),
    ]
    if held.first is not None and held.last is not None:
        facts.append(("from", f"{time_of(held.first)} to {time_of(held.last)}"))
    return facts


def _plot(held: Stats) -> None:
    """Sessions by source, the most first."""
    ordered = sorted(held.by_source.items(), key=lambda pair: -pair[1])
    most = max(1, ordered[0][1])
    rows = [
        (source, "█" * max(1, round(_BAR * count / most)), f"{count:,}")
        for source, count in ordered
    ]
    write_table((Column("source"), Column("sessions", style="cyan"), Column("", right=True)), rows)
