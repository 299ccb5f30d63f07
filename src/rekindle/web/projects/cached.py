"""The figures of projects as they were counted last, for all pages that show them."""

from __future__ import annotations

import time
from typing import NamedTuple

from starlette.requests import Request

from rekindle.projects import KnownProjects
from rekindle.web.background import Computed, get_cached_values, get_patience
from rekindle.web.context import get_context
from rekindle.web.home.learned import LearnedNotes, find_learned_notes

from .details import ProjectDetails, RecurringFailures, compute_details, compute_failures
from .summary import ProjectList, compute_project_list, load_prices


class News(NamedTuple):
    """What keeps failing, and what was learned."""

    failures: RecurringFailures
    learned: LearnedNotes


async def get_project_list(request: Request) -> tuple[Computed[ProjectList] | None, bool]:
    """Return the list of all projects, if it was counted yet, and whether counting failed."""
    context, value = get_context(request), get_cached_values(request).find("projects")

    def compute() -> ProjectList:
        return compute_project_list(context.store, load_prices(context.config), time.time())

    return await value.get(compute, get_patience(request)), value.has_failed


async def get_news(request: Request, projects: ProjectList) -> tuple[Computed[News] | None, bool]:
    """Return what keeps failing and what was learned, if it was computed yet."""
    context, value = get_context(request), get_cached_values(request).find("news")

    def compute() -> News:
        active = [(row.key, row.last_active) for row in projects.rows]
        learned = find_learned_notes(context.store, active, time.time())
        return News(compute_failures(context.store, load_prices(context.config)), learned)

    return await value.get(compute, get_patience(request)), value.has_failed


async def get_details(
    request: Request, known: KnownProjects, key: str
) -> tuple[Computed[ProjectDetails | None] | None, bool]:
    """Return the figures of a project, if they were computed yet."""
    context, value = get_context(request), get_cached_values(request).find(f"project:{key}")

    def compute() -> ProjectDetails | None:
        return compute_details(context.store, load_prices(context.config), known, key)

    return await value.get(compute, get_patience(request)), value.has_failed


def forget_news(request: Request) -> None:
    """Let what was learned be computed again: somebody decided about a note."""
    get_cached_values(request).find("news").reset()
