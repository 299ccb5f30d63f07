"""One module per page of the navigation; each has its `ROUTES`."""

from starlette.routing import BaseRoute

from . import (
    experiments,
    gateway,
    home,
    processes,
    projects,
    reliability,
    session_actions,
    sessions,
    transcript,
)

ROUTES: list[BaseRoute] = [
    *home.ROUTES,
    *sessions.ROUTES,
    *session_actions.ROUTES,  # before the transcript: ids may hold slashes
    *transcript.ROUTES,
    *projects.ROUTES,
    *reliability.ROUTES,
    *experiments.ROUTES,
    *processes.ROUTES,
    *gateway.ROUTES,
]
