"""Experiments: what is measured, what is known so far, and what it takes to decide."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from rekindle.errors import InvalidInput, NotFound
from rekindle.learning.library import TemplateLibrary
from rekindle.learning.promotion import stop_experiment
from rekindle.web.context import get_context, get_form, render_page
from rekindle.web.reports.experiments import (
    PAGE_SIZE,
    ExperimentView,
    compute_decision,
    draw_arms,
    draw_contrasts,
    draw_running_interval,
    draw_steps,
    format_contrast,
    get_experiment_reports,
    get_now,
    list_needed_sessions,
    parse_experiment,
)

_VERDICTS = {
    "helps": ("helps", "good"),
    "harms": ("harms", "bad"),
    "unknown": ("not known yet", ""),
}


async def show_experiments(request: Request) -> Response:
    """Show the running experiment, and list the others."""
    context = get_context(request)
    reports = get_experiment_reports(request)
    found = await reports.load_all()
    values: dict[str, Any] = {"found": found, "running": None, "rows": []}
    if found.value is not None:
        running = next((one for one in found.value if one.experiment.ended is None), None)
        if running is not None:
            values |= await context.run(_describe_view, running)
        values |= {"running": running, "rows": [_describe_row(one) for one in found.value]}
    return await render_page(request, "experiments.html", values)


async def show_experiment(request: Request) -> Response:
    """Show one experiment."""
    context = get_context(request)
    found = await get_experiment_reports(request).load_all()
    values: dict[str, Any] = {"found": found, "name": _get_name(request), "running": None}
    if found.value is not None:
        view = _find_view(found.value, values["name"])
        values |= {"running": view, **await context.run(_describe_view, view)}
    return await render_page(request, "experiment.html", values)


async def show_sessions(request: Request) -> Response:
    """List the sessions of an arm."""
    context, reports = get_context(request), get_experiment_reports(request)
    name, arm = _get_name(request), request.query_params.get("arm", "")
    page = _parse_page(request.query_params.get("page", "0"))
    found = await reports.load_all()
    values: dict[str, Any] = {"found": found, "name": name, "arm": arm, "sessions": None}
    if found.value is not None:
        view = _find_view(found.value, name)
        counts = {one.arm: one.assigned for one in view.report.arms}
        total = counts.get(arm, 0) if arm else sum(counts.values())
        tabs = [(_build_address("sessions", name), "All", sum(counts.values()))]
        tabs += [
            (_build_address("sessions", name, arm=one), one, count) for one, count in counts.items()
        ]
        has_more = total > (page + 1) * PAGE_SIZE
        values |= {
            "sessions": await context.run(reports.list_sessions, view, arm, page),
            "calls": view.experiment.calls,
            "tabs": tabs,
            "tab": _build_address("sessions", name, arm=arm),
            "report": _build_address("report", name),
            "newer": _build_address("sessions", name, arm=arm, page=page - 1) if page else "",
            "older": _build_address("sessions", name, arm=arm, page=page + 1) if has_more else "",
        }
    return await render_page(request, "experiment_sessions.html", values)


async def start_experiment(request: Request) -> Response:
    """Start an experiment that a form describes."""
    context, reports = get_context(request), get_experiment_reports(request)
    experiment = parse_experiment(get_form(request), get_now())
    await context.run(context.store.experiments.start, experiment)
    reports.values.mark_old("all")
    return RedirectResponse("/experiments", 303)


async def end_experiment(request: Request) -> Response:
    """Stop an experiment."""
    context, reports = get_context(request), get_experiment_reports(request)
    name = get_form(request).get("name", "")
    library = TemplateLibrary.from_home(context.config.home)
    await context.run(stop_experiment, context.store, library, name, get_now())
    reports.values.mark_old("all")
    return RedirectResponse(_build_address("report", name), 303)


def _get_name(request: Request) -> str:
    return request.query_params.get("name", "")


def _parse_page(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 7):
        raise InvalidInput(f"page {text!r:.40}: expected a number")
    return int(text)


def _find_view(views: list[ExperimentView], name: str) -> ExperimentView:
    for one in views:
        if one.experiment.name == name:
            return one
    raise NotFound(f"no experiment {name!r:.80} among the newest {len(views)}")


def _build_address(place: str, experiment: str, /, **more: object) -> str:
    fields = {"name": experiment, **{key: str(value) for key, value in more.items() if value}}
    return f"/experiments/{place}?{urlencode(fields, errors='replace')}"


def _describe_row(view: ExperimentView) -> dict[str, Any]:
    experiment = view.experiment
    return {
        "name": experiment.name,
        "address": _build_address("report", experiment.name),
        "shares": ", ".join(f"{share:.0%} {arm}" for arm, share in experiment.shares),
        "verdict": _VERDICTS[view.report.verdict],
        "difference": format_contrast(view.report.contrasts[0]),
        "sessions": sum(arm.assigned for arm in view.report.arms),
        "counted": view.counted,
        "started": experiment.started,
        "ended": experiment.ended,
    }


def _describe_view(view: ExperimentView) -> dict[str, Any]:
    name = view.experiment.name
    addresses = {
        arm.arm: _build_address("sessions", name, arm=arm.arm)
        for arm in view.report.arms
        if arm.assigned
    }
    return {
        "view": view,
        "address": _build_address("report", name),
        "all_sessions": _build_address("sessions", name),
        "verdict": _VERDICTS[view.report.verdict],
        "difference": format_contrast(view.report.contrasts[0]),
        "decision": compute_decision(view, get_now()),
        "needed": list_needed_sessions(view),
        "arms_plot": draw_arms(view, addresses),
        "contrasts_plot": draw_contrasts(view, _build_address("sessions", name)),
        "line_plot": draw_running_interval(view),
        "steps_plot": draw_steps(view),
    }


ROUTES = [
    Route("/experiments", show_experiments),
    Route("/experiments/report", show_experiment),
    Route("/experiments/sessions", show_sessions),
    Route("/experiments/start", start_experiment, methods=["POST"]),
    Route("/experiments/stop", end_experiment, methods=["POST"]),
]
