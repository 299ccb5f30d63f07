"""`rekindle gateway`: run it, see how it is, and list the conversations it knows."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from ..types import Route, plain
from .opening import outlive_connections, reading, settings, writing
from .output import AsJson, Column, counted, encode, printable, say, write_array, write_table

group = typer.Typer(
    help="Answer people in chats.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_HEALTH_SECONDS = 3.0


@group.command("run")
def run(
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Log warnings only.")] = False,
) -> None:
    """Connect the platforms of the settings and answer, until stopped (Ctrl-C or SIGTERM).

    Turns that run are given time to end; what is not done by then goes on at the next start. Logs
    go to stderr: lines on a terminal, else JSON.

    \b
    Examples:
      rekindle gateway run
    """
    import logging

    from ..gateway import log
    from ..gateway.program import serve

    outlive_connections()
    log.start(logging.WARNING if quiet else logging.INFO)
    with writing(new=True) as store:
        serve(settings(), store)


@group.command("status")
def status(json: AsJson = False) -> None:
    """Show the gateways that run in this home, and the mail of the store.

    Exit code 1 when none runs or one is not well.

    \b
    Examples:
      rekindle gateway status
      rekindle gateway status --json
    """
    from ..gateway.runner import living

    gateways = [_asked(note) for note in living(settings().home)]
    with reading() as store:
        mail = store.mail.counts()
        routes = len(store.routes.list(active_minutes=24 * 60, limit=100_000))
    if json:
        told = {"gateways": gateways, "mail": mail._asdict(), "active_routes": routes}
        say(encode(told).decode())
    else:
        for one in gateways:
            say(_line(one))
        if not gateways:
            say("No gateway runs in this home.")
        say(
            f"{counted(routes, 'conversation')} active today; {mail.waiting} waiting,"
            f" {mail.running} being answered, {mail.unsent} to be sent,"
            f" {mail.undeliverable} undeliverable"
        )
    if not gateways or any(one["status"] != "ok" for one in gateways):
        raise typer.Exit(1)


@group.command("routes")
def routes(
    active: Annotated[
        float | None,
        typer.Option(metavar="MINUTES", min=0, help="Only those active within so many minutes."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 50,
    json: AsJson = False,
) -> None:
    """List conversations and the session each goes on in, the most recent first.

    \b
    Examples:
      rekindle gateway routes
      rekindle gateway routes --active 60 --json
    """
    with reading() as store:
        found = store.routes.list(active_minutes=active, limit=limit)
    if json:
        write_array(_record(route) for route in found)
        return
    columns = (
        Column("conversation", flexible=True),
        Column("platform"),
        Column("session", style="cyan"),
        Column("tokens", right=True),
        Column("active", right=True, style="dim"),
    )
    write_table(columns, [_row(route, time.time()) for route in found])


def _asked(note: dict[str, object]) -> dict[str, Any]:
    """What a gateway says about itself, or that it does not answer."""
    import json
    from urllib.error import URLError
    from urllib.request import urlopen

    try:
        with urlopen(f"http://127.0.0.1:{note['port']}/health", timeout=_HEALTH_SECONDS) as page:
            return {**note, **json.load(page)}
    except (OSError, URLError, ValueError) as error:
        return {**note, "status": "silent", "error": str(error)}


def _line(one: dict[str, Any]) -> str:
    hours = one.get("uptime", 0) / 3600
    platforms = ", ".join(one.get("platforms", ())) or "no platform"
    return printable(
        f"{one['runner']}: {one['status']}, {platforms}, up {hours:.1f} h, pid {one['pid']},"
        f" {one.get('conversations', '?')} conversations at work,"
        f" http://127.0.0.1:{one['port']}/health"
    )


def _record(route: Route) -> dict[str, Any]:
    return {**route._asdict(), "origin": plain(route.origin), "tokens": route.tokens._asdict()}


def _row(route: Route, now: float) -> tuple[str, ...]:
    minutes = max(0.0, now - route.updated) / 60
    age = (
        "now" if minutes < 1 else f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.0f} h"
    )
    name = route.display_name or route.key
    return (name, route.origin.platform, route.session, f"{route.tokens.total:,}", age)
