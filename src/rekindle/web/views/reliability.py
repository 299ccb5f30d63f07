"""Reliability: how often calls fail, where, and the calls behind every figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rekindle.analytics.reliability.summary import CallChoice
from rekindle.errors import InvalidInput
from rekindle.web.context import get_context, render_page
from rekindle.web.reports.call_list import load_call_page
from rekindle.web.reports.reliability import (
    PERIODS,
    VERDICTS,
    IndexedStore,
    ReliabilityPage,
    build_address,
    build_project_names,
    get_now,
    get_reports,
    parse_choice,
)
from rekindle.web.reports.reliability_plots import (
    CALLS,
    MAX_ALL_ROWS,
    MAX_ROWS,
    PAGE,
    Panel,
    describe_rate,
    describe_trend,
    draw_groups,
    draw_positions,
    draw_weeks,
    format_interval,
    format_rate,
)

_GROUPS = ("tool", "command", "project", "model", "agent")
_CHOSEN = ("tool", "command", "week", "position")  # in the address, but not in the form


async def show_reliability(request: Request) -> Response:
    """Show how often calls fail by tool, command, project, model, week and position."""
    fields = dict(request.query_params)
    choice = parse_choice(fields, get_now())
    reports = get_reports(request)
    index = await reports.load_index()
    values: dict[str, Any] = {"fields": fields, "index": index, "page": None, "learning": None}
    if index.value is not None:
        page = await reports.load_page(index, choice)
        values |= {"page": page, **_list_options(index.value)}
        if page.value is not None:
            values["learning"] = await reports.learn(index.value)
            run = get_context(request).run
            values |= await run(_draw_page, index.value, page.value, fields)
    return await render_page(request, "reliability.html", values)


def _list_options(indexed: IndexedStore) -> dict[str, Any]:
    """Return what the fields of the form offer."""
    calls = indexed.calls
    projects = build_project_names(indexed.known, [key for key in calls.projects.names if key])
    return {
        "projects": sorted(projects.items(), key=lambda one: one[1].lower()),
        "agents": sorted(calls.sources.names),
        "models": sorted(calls.models.names),
        "periods": PERIODS,
    }


def _draw_page(
    indexed: IndexedStore, page: ReliabilityPage, fields: Mapping[str, str]
) -> dict[str, Any]:
    summary = page.summary
    limit = MAX_ALL_ROWS if fields.get("rows") == "all" else MAX_ROWS

    names = build_project_names(indexed.known, [one.name for one in summary.groups["project"]])
    panels: list[Panel] = [draw_weeks(summary, fields)] if summary.groups["week"] else []
    panels += [
        draw_groups(name, summary, fields, names if name == "project" else {}, limit)
        for name in _GROUPS
        if any(one.name for one in summary.groups[name]) and not fields.get(name)
    ]
    if summary.groups["position"] and not page.choice.command and page.choice.position is None:
        panels.append(draw_positions(summary, fields))
    calls = indexed.calls
    return {
        "summary": summary,
        "rate_text": format_rate(summary.rate),
        "interval": format_interval(summary.rate),
        "rate_words": describe_rate(summary.rate),
        "trend": describe_trend(summary.trend),
        "panels": panels,
        "mends": page.mends,
        "get_project_name": indexed.known.get_name,
        "failed_calls": build_address(CALLS, fields, verdict="failed"),
        "all_calls": build_address(CALLS, fields, verdict="all"),
        "all_rows": f"{build_address(PAGE, fields)}{'&' if any(fields.values()) else '?'}rows=all",
        "chosen": _list_chosen(indexed, fields, PAGE),
        "refused": calls.refused,
        "unknown": calls.unknown,
        "repeated": calls.repeated,
        "whole": page.choice == CallChoice(),
    }


def _list_chosen(
    indexed: IndexedStore, fields: Mapping[str, str], path: str, names: tuple[str, ...] = _CHOSEN
) -> list[tuple[str, str, str]]:
    """Return what narrows the page: name, text, and the address without it."""
    texts = {name: fields.get(name, "") for name in names}
    if texts.get("project"):
        texts["project"] = indexed.known.get_name(texts["project"])
    more = {"verdict": fields.get("verdict")} if path == CALLS else {}
    return [
        (name, text, build_address(path, fields, **{**more, name: None}))
        for name, text in texts.items()
        if text
    ]


async def show_calls(request: Request) -> Response:
    """List the calls behind a figure, newest first."""
    fields = dict(request.query_params)
    choice = parse_choice(fields, get_now())
    verdict = fields.get("verdict", "failed")
    if verdict not in VERDICTS:
        raise InvalidInput(f"verdict {verdict!r:.80}: expected one of {', '.join(VERDICTS)}")
    context, reports = get_context(request), get_reports(request)
    index = await reports.load_index()
    values: dict[str, Any] = {"fields": fields, "index": index, "found": None, "rate_words": ""}
    listed, after = index.value, fields.get("after", "")[:40]
    calls = None
    if listed is not None:
        calls = await reports.values.get(
            ("calls", choice, verdict, after),
            lambda _: load_call_page(context.store, listed, choice, verdict, after),
            stamp=index.time,
        )
        values["index"] = calls
    if listed is not None and calls is not None and (found := calls.value) is not None:
        page = await reports.load_page(index, choice)
        rate = None if page.value is None else page.value.summary.rate
        names = (*_CHOSEN, "project", "agent", "model", "since")
        values |= {
            "found": found,
            "rate_words": "" if rate is None else describe_rate(rate),
            "chosen": _list_chosen(listed, fields, CALLS, names),
            "tabs": [
                (build_address(CALLS, fields, verdict=one), one.capitalize(), None)
                for one in VERDICTS
            ],
            "tab": build_address(CALLS, fields, verdict=verdict),
            "first": build_address(CALLS, fields, verdict=verdict),
            "older": found.next and build_address(CALLS, fields, verdict=verdict, after=found.next),
            "back": build_address(PAGE, fields),
        }
    return await render_page(request, "reliability_calls.html", values)


ROUTES = [Route(PAGE, show_reliability), Route(CALLS, show_calls)]
