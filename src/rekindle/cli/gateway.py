"""`rekindle gateway`: run it, see how it is, and list the conversations it knows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rekindle.types import Route, Usage, plain

from .output import (
    AsJson,
    Column,
    counted,
    encode,
    printable,
    say,
    usage_lines,
    usage_record,
    write_array,
    write_table,
)
from .store_access import outlive_connections, reading, settings, writing

if TYPE_CHECKING:
    from rekindle.store.conversations.inbox import Letter, Parcel

group = typer.Typer(
    help="Answer people in chats.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_HEALTH_SECONDS = 3.0
_SHOWN = 5  # of what was given up


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

    from rekindle.gateway import log_format
    from rekindle.gateway.service.service import serve

    outlive_connections()
    log_format.start(logging.WARNING if quiet else logging.INFO)
    with writing(new=True) as store:
        serve(settings(), store)


@group.command("status")
def status(json: AsJson = False) -> None:
    """Show the gateways that run in this home, the mail of the store, and what was given up.

    Exit code 1 when none runs or one is not well.

    \b
    Examples:
      rekindle gateway status
      rekindle gateway status --json
    """
    from rekindle.gateway.service.instance import living
    from rekindle.store.conversations.inbox import Letter

    gateways = [_asked(note) for note in living(settings().home)]
    with reading() as store:
        mail, given_up = store.mail.counts(), store.mail.undeliverable()
        active = store.routes.list(active_minutes=24 * 60, limit=100_000)
    routes, usage = len(active), _summed(active)
    if json:
        told = {"gateways": gateways, "mail": mail._asdict(), "active_routes": routes,
                "usage": usage_record(usage),
                "undeliverable": [_given_up(one) for one in given_up]}  # fmt: skip
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
        for line in usage_lines(usage):
            say(f"  {line} in these conversations so far")
        for one in given_up[:_SHOWN]:
            what = "came in" if isinstance(one, Letter) else "to be sent"
            when = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.time))
            say(printable(f"  {when}, {what}, {one.key}: {one.reason}"))
        if len(given_up) > _SHOWN:
            say(f"  and more: rekindle gateway status --json shows {len(given_up)}")
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
    if not found:
        say("No conversations." if active is None else "None of the conversations is active.")
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


def _given_up(one: Letter | Parcel) -> dict[str, Any]:
    from rekindle.store.conversations.inbox import Letter

    text = one.message.text if isinstance(one, Letter) else one.text
    what = "came in" if isinstance(one, Letter) else "to be sent"
    told = {"key": one.key, "what": what, "reason": one.reason, "time": one.time}
    return {**told, "text": text[:200]}


def _line(one: dict[str, Any]) -> str:
    platforms = ", ".join(one.get("platforms", ())) or "no platform"
    up = _span(one.get("uptime", 0))
    return printable(
        f"{one['runner']}: {one['status']}, {platforms}, up {up}, pid {one['pid']},"
        f" {one.get('conversations', '?')} conversations at work,"
        f" http://127.0.0.1:{one['port']}/health"
    )


def _span(seconds: float) -> str:
    """A stretch of time, for people."""
    for size, unit in ((2 * 86_400, "d"), (2 * 3600, "h"), (2 * 60, "min")):
        if seconds >= size:
            return f"{seconds * 2 / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _record(route: Route) -> dict[str, Any]:
    tokens, usage = route.tokens._asdict(), usage_record(route.usage)
    return {**route._asdict(), "origin": plain(route.origin), "tokens": tokens, "usage": usage}


def _summed(found: list[Route]) -> dict[str, Usage]:
    """What each model took in some conversations."""
    sums: dict[str, Usage] = {}
    for route in found:
        for model, taken in route.usage.items():
            sums[model] = sums.get(model, Usage()).plus(taken)
    return sums


def _row(route: Route, now: float) -> tuple[str, ...]:
    silent = now - route.updated
    age = "now" if silent < 60 else _span(silent)
    name = route.display_name or route.key
    return (name, route.origin.platform, route.session, f"{route.tokens.total:,}", age)
