"""List background processes of a project and read their output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rekindle.errors import NotFound
from rekindle.learning.notes.playbooks import find_project
from rekindle.processes.operations import Processes
from rekindle.processes.types import LogResult, Process
from rekindle.types import JSON

from .access import Library
from .quoting import MAX_RESULT_CHARS, Quoter
from .sessions import format_moment
from .tools import DEFAULT_LINES

MAX_PROCESSES = 50


def find_visible_processes(library: Library, processes: Sequence[Process]) -> list[Process]:
    """Return the processes that run in the project's folders, or were started by its sessions."""
    return [
        one for one in processes if library.project is None or _belongs_to_project(library, one)
    ]


def _belongs_to_project(library: Library, process: Process) -> bool:
    if process.session:
        try:
            return library.store.session(process.session).project == library.project
        except NotFound:
            pass
    if process.backend != "local" or not process.cwd:
        return False
    return find_project(library.store, process.cwd) == library.project


def quote_processes(quoter: Quoter, processes: Sequence[Process]) -> str:
    """Quote a list of processes, newest first."""
    if not processes:
        return "No background processes."
    shown = sorted(processes, key=lambda one: -one.started)
    lines = [_format_process(one, quoter) for one in shown[:MAX_PROCESSES]]
    if len(shown) > MAX_PROCESSES:
        lines.append(f"[{len(shown) - MAX_PROCESSES} older processes left out]")
    return quoter.quote(lines)


def _format_process(process: Process, quoter: Quoter) -> str:
    code = "" if process.exit_code is None else f", exit code {process.exit_code}"
    command = quoter.clean_line(process.command, 300)
    return f"- {process.id}: {process.state}{code}, {format_moment(process.started)}: {command}"


async def read_process_log(
    processes: Processes, id: str, arguments: Mapping[str, JSON]
) -> LogResult:
    """Read the output of a process that is known to be visible."""
    since = arguments.get("since")
    if since is not None:
        return await processes.read_log(id, since=since)
    return await processes.read_log(id, tail=arguments.get("lines", DEFAULT_LINES))


def quote_log(quoter: Quoter, log: LogResult) -> str:
    """Quote the output of a process, its end if it is long."""
    text = quoter.clean(log.output)
    room = MAX_RESULT_CHARS - 1_000
    lines = [_format_process(log.process, quoter)]
    if log.dropped:
        lines.append(f"[{log.dropped:,} bytes are no longer kept]")
    if len(text) > room:
        lines.append(f"[{len(text) - room:,} characters left out]")
    lines += [text[-room:], f"[output up to byte {log.end}: read on with since={log.end}]"]
    return quoter.quote(lines)


def require_process(processes: Sequence[Process], id: str, quoter: Quoter) -> Process:
    """Return the visible process with this id."""
    found = next((one for one in processes if one.id == id), None)
    if found is None:
        name = quoter.clean_line(id, 40)
        raise NotFound(f"Process not found: {name}. List processes with list_processes.")
    return found
