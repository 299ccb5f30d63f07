"""The figures of projects as they were counted last, for all pages that show them."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar, cast

from starlette.requests import Request

from rekindle.projects import KnownProjects
from rekindle.web.computed import ComputedValues
from rekindle.web.context import get_context
from rekindle.web.home.learned import LearnedNotes, find_learned_notes

from .details import ProjectDetails, RecurringFailures, compute_details, compute_failures
from .summary import ProjectList, compute_project_list, load_prices

T = TypeVar("T")

REST_SECONDS = 60.0  # until a value is counted again, at least
PAGE_SECONDS, FRAGMENT_SECONDS = 0.25, 15.0  # that a page, and a part of one, waits at first


class Counted(NamedTuple, Generic[T]):
    """A value, and when it was counted."""

    value: T
    time: float


class News(NamedTuple):
    """What keeps failing, and what was learned."""

    failures: RecurringFailures
    learned: LearnedNotes


async def get_project_list(request: Request) -> tuple[Counted[ProjectList] | None, bool]:
    """Return the list of all projects, if it was counted yet, and whether counting failed."""
    context = get_context(request)

    def compute() -> ProjectList:
        return compute_project_list(context.store, load_prices(context.config), time.time())

    return await _get_counted(request, "projects", compute)


async def get_news(request: Request, projects: ProjectList) -> tuple[Counted[News] | None, bool]:
    """Return what keeps failing and what was learned, if it was computed yet."""
    context = get_context(request)

    def compute() -> News:
        active = [(row.key, row.last_active) for row in projects.rows]
        learned = find_learned_notes(context.store, active, time.time())
        return News(compute_failures(context.store, load_prices(context.config)), learned)

    return await _get_counted(request, "news", compute)


async def get_details(
    request: Request, known: KnownProjects, key: str
) -> tuple[Counted[ProjectDetails | None] | None, bool]:
    """Return the figures of a project, if they were computed yet."""
    context = get_context(request)

    def compute() -> ProjectDetails | None:
        return compute_details(context.store, load_prices(context.config), known, key)

    return await _get_counted(request, ("project", key), compute)


def forget_news(request: Request) -> None:
    """Let what was learned be computed again: somebody decided about a note."""
    _get_values(request).mark_old("news")


async def _get_counted(
    request: Request, key: Hashable, compute: Callable[[], T]
) -> tuple[Counted[T] | None, bool]:
    """Return a value as it is known, and whether counting failed; a part of a page waits longer."""
    wait = FRAGMENT_SECONDS if "x-fragment" in request.headers else PAGE_SECONDS
    found = await _get_values(request).get(key, lambda _: compute(), wait=wait, rest=REST_SECONDS)
    counted = None if found.time is None else Counted(cast(T, found.value), found.time)
    return counted, bool(found.problem)


def _get_values(request: Request) -> ComputedValues:
    state = request.app.state
    if not hasattr(state, "project_values"):
        state.project_values = ComputedValues(get_context(request).executor)
    return cast(ComputedValues, state.project_values)
