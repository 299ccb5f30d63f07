"""One module per page of the navigation; each has its `ROUTES`."""

from starlette.routing import BaseRoute

from . import experiments, gateway, home, processes, projects, reliability, sessions, transcript

ROUTES: list[BaseRoute] = [
    *home.ROUTES,
    *sessions.ROUTES,
    *transcript.ROUTES,
    *projects.ROUTES,
    *reliability.ROUTES,
    *experiments.ROUTES,
    *processes.ROUTES,
    *gateway.ROUTES,
]
