"""Where a command does its work on sessions: in processes of this machine, or on a Dask cluster."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.cli.store_access import load_settings

if TYPE_CHECKING:
    from rekindle.parallel import ChunkMapper

JobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "-j",
        min=1,
        max=1024,
        metavar="N",
        help="Number of worker processes.",
        show_default="setting parallel.jobs: all cores",
    ),
]
SchedulerOption = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="URL",
        help="Run on a Dask cluster: tcp://HOST:PORT or tls://HOST:PORT.",
        show_default="setting parallel.scheduler",
    ),
]


@contextmanager
def open_work_mapper(jobs: int | None, scheduler: str | None) -> Generator[ChunkMapper]:
    """Open the place that the options name, or else the settings."""
    from rekindle.parallel.mapper import MIN_POOL_SECONDS, open_mapper

    if jobs is not None and scheduler is not None:
        raise typer.BadParameter("specify --jobs or --scheduler, not both")
    settings = load_settings().parallel
    if jobs is None and scheduler is None:
        scheduler = settings.scheduler
    workers, least = (settings.jobs, MIN_POOL_SECONDS) if jobs is None else (jobs, 0.0)
    with open_mapper(workers, scheduler or "", min_seconds=least) as mapper:
        yield mapper
