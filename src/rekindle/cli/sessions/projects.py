"""`rekindle projects`: the projects that sessions worked in."""

from __future__ import annotations

import sys
import time
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rekindle.cli.insights.usage import get_offset, join_projects, load_price_list
from rekindle.cli.output import (
    Column,
    JsonOption,
    OwnerOption,
    build_number_columns,
    fit_name,
    format_cost,
    format_elapsed,
    print_notice,
    write_json_array,
    write_table,
)
from rekindle.cli.session_choice import FilterArgument, parse_filter, select_sessions
from rekindle.cli.store_access import open_for_reading

if TYPE_CHECKING:
    from rekindle.projects import KnownProjects
    from rekindle.store import Filter, Store

_NO_PROJECT = "(none)"


def list_projects(
    where: FilterArgument = None, owner: OwnerOption = None, json: JsonOption = False
) -> None:
    """List projects with their sessions, agents, last activity and cost, the latest first.

    A project is a repository, or the folder of sessions that worked outside of any. Filter terms
    select the sessions that count; archived ones do not, by default.

    \b
    Examples:
      rekindle projects
      rekindle projects since=7d
      rekindle projects source=codex --json
    """
    chosen = parse_filter(where, owner)
    with open_for_reading(from_replica=True) as store:
        selection = select_sessions(store, chosen)
        rows = _summarize_projects(store, selection.where, selection.known)
    if json:
        write_json_array(rows)
    elif rows:
        _write_rows(rows)
    else:
        print_notice(
            "No matching sessions."
            if where or owner
            else "No sessions yet. Import some with `rekindle start`."
        )


def _summarize_projects(store: Store, where: Filter, known: KnownProjects) -> list[dict[str, Any]]:
    """Return the facts about each project, the most recently active first."""
    from rekindle.analytics.usage.report import UsageTotal, compute_totals_by_key, to_day
    from rekindle.projects import shorten_project

    prices = load_price_list()
    days = [to_day(day) for day in prices.list_changes()]
    sums = store.sum_usage(get_offset, by="project", where=where, days=days)
    totals = compute_totals_by_key(join_projects(sums, known), prices)
    agents: dict[str, Counter[str]] = {}
    last: dict[str, float] = {}
    for one in store.count_by_project(where):
        project = known.get_project(one.key) if one.key else ""
        agents.setdefault(project, Counter())[one.source] += one.sessions
        last[project] = max(last.get(project, 0.0), one.last_active)
    return [
        {
            "project": project or None,
            "name": shorten_project(project) if project else None,
            "sessions": agents[project].total(),
            "agents": dict(agents[project].most_common()),
            "last_active": last[project],
            "cost": f"{totals.get(project, UsageTotal()).cost.normalize():f}",
            "is_cost_complete": not any(totals.get(project, UsageTotal()).unpriced),
        }
        for project in sorted(agents, key=lambda project: -last[project])
    ]


def _write_rows(rows: list[dict[str, Any]]) -> None:
    columns = (
        Column("project", style="cyan", flexible=True),
        *build_number_columns("sessions"),
        Column("agents"),
        Column("active", right=True, style="dim"),
        *build_number_columns("cost $"),
    )
    now, home = time.time(), str(Path.home())
    write_table(
        columns,
        [
            (
                _format_project(row["project"], home),
                f"{row['sessions']:,}" if sys.stdout.isatty() else f"{row['sessions']}",
                fit_name(", ".join(row["agents"]), 28),
                format_elapsed(now - row["last_active"]),
                _format_cost(row),
            )
            for row in rows
        ],
    )
    if not all(row["is_cost_complete"] for row in rows):
        print_notice("* Without the cost of models that have no known price. See `rekindle usage`.")


def _format_cost(row: dict[str, Any]) -> str:
    mark = "" if row["is_cost_complete"] else "*"
    cost = Decimal(row["cost"])
    return f"{format_cost(cost)}{mark}" if cost else mark


def _format_project(project: str | None, home: str) -> str:
    """Return the name of a repository, or the path of a folder."""
    from rekindle.projects import FOLDER_PREFIX, is_below, shorten_project

    if project is None:
        return _NO_PROJECT
    if not project.startswith(FOLDER_PREFIX):
        return shorten_project(project)
    path = project.removeprefix(FOLDER_PREFIX)
    return f"~{path.removeprefix(home)}" if is_below(path, home) else path
