"""`rekindle gateway`: run the gateway, show its status, list its conversations."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rekindle.cli.help import create_group
from rekindle.cli.output import (
    Column,
    JsonOption,
    escape_control_chars,
    format_count,
    format_usage_lines,
    print_json,
    print_line,
    usage_to_dict,
    write_json_array,
    write_table,
)
from rekindle.cli.store_access import (
    ignore_sigpipe,
    load_settings,
    open_for_reading,
    open_for_writing,
)
from rekindle.types import Route, Usage, to_json_value

if TYPE_CHECKING:
    from rekindle.store.conversations.inbox import InboundMessage, OutboundMessage

group = create_group("Run and inspect the chat gateway.")

_MAX_UNDELIVERABLE_SHOWN = 5
_MAX_ERRORS_SHOWN = 5


@group.command("run")
def run_gateway(
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Log warnings only.")] = False,
) -> None:
    """Run the gateway until it is stopped with Ctrl-C or SIGTERM.

    Connects the configured platforms and answers messages. On shutdown running turns get time to
    finish; unfinished work resumes at the next start. Logs go to stderr: plain lines on a terminal,
    JSON otherwise.

    \b
    Examples:
      rekindle gateway run
    """
    import logging

    from rekindle.gateway import log_format
    from rekindle.gateway.service.service import run_service

    ignore_sigpipe()
    log_format.configure_logging(logging.WARNING if quiet else logging.INFO)
    with open_for_writing(may_create=True) as store:
        run_service(load_settings(), store)


@group.command("status")
def show_status(json: JsonOption = False) -> None:
    """Show running gateways, message queues, undeliverable messages and the last errors.

    Exit with code 1 if no gateway is running or one is unhealthy.

    \b
    Examples:
      rekindle gateway status
      rekindle gateway status --json
    """
    from rekindle.gateway.service.status import merge_errors, query_gateways
    from rekindle.store.conversations.inbox import InboundMessage

    gateways = query_gateways(load_settings().home)
    with open_for_reading(refresh=False) as store:
        counts, undeliverable = store.inbox.get_counts(), store.inbox.list_undeliverable()
        active = store.routes.list(active_minutes=24 * 60, limit=100_000)
        errors = store.gateway_errors.list()
    active_count, usage = len(active), _sum_usage(active)
    errors = merge_errors(gateways, errors)
    if json:
        result = {"gateways": gateways, "messages": counts._asdict(), "active_routes": active_count,
                "usage": usage_to_dict(usage),
                "undeliverable": [_undeliverable_to_dict(one) for one in undeliverable],
                "errors": errors}  # fmt: skip
        print_json(result)
    else:
        for one in gateways:
            print_line(_format_gateway(one))
            for name, failure in one.get("failures", {}).items():
                print_line(escape_control_chars(f"  {name}: {failure}"))
        if not gateways:
            print_line("No gateway is running.")
        print_line(
            f"{format_count(active_count, 'conversation')} active today; {counts.waiting} waiting,"
            f" {counts.running} running, {counts.unsent} unsent,"
            f" {counts.undeliverable} undeliverable"
        )
        for line in format_usage_lines(usage):
            print_line(f"  {line} in active conversations")
        for one in undeliverable[:_MAX_UNDELIVERABLE_SHOWN]:
            direction = "inbound" if isinstance(one, InboundMessage) else "outbound"
            when = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.time))
            print_line(escape_control_chars(f"  {when}, {direction}, {one.key}: {one.reason}"))
        if len(undeliverable) > _MAX_UNDELIVERABLE_SHOWN:
            print_line(f"  … see all {len(undeliverable)} with `rekindle gateway status --json`")
        if errors:
            print_line("Last errors:")
        for one in errors[:_MAX_ERRORS_SHOWN]:
            print_line(escape_control_chars(f"  {_format_error(one)}"))
    if not gateways or any(one["status"] != "ok" for one in gateways):
        raise typer.Exit(1)


@group.command("routes")
def list_routes(
    active: Annotated[
        float | None,
        typer.Option(
            metavar="MINUTES", min=0, help="Only conversations active in the last N minutes."
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of conversations.")] = 50,
    json: JsonOption = False,
) -> None:
    """List conversations and their current sessions, most recent first.

    \b
    Examples:
      rekindle gateway routes
      rekindle gateway routes --active 60 --json
    """
    with open_for_reading(refresh=False) as store:
        found = store.routes.list(active_minutes=active, limit=limit)
    if json:
        write_json_array(_route_to_dict(route) for route in found)
        return
    if not found:
        print_line("No conversations yet." if active is None else "No active conversations.")
        return
    columns = (
        Column("conversation", flexible=True),
        Column("platform"),
        Column("session", style="cyan"),
        Column("tokens", right=True),
        Column("active", right=True, style="dim"),
    )
    write_table(columns, [_format_route(route, time.time()) for route in found])


def _undeliverable_to_dict(one: InboundMessage | OutboundMessage) -> dict[str, Any]:
    from rekindle.store.conversations.inbox import InboundMessage

    text = one.message.text if isinstance(one, InboundMessage) else one.text
    direction = "inbound" if isinstance(one, InboundMessage) else "outbound"
    result = {"key": one.key, "direction": direction, "reason": one.reason, "time": one.time}
    return {**result, "text": text[:200]}


def _format_error(error: dict[str, Any]) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(error["time"]))
    place = f", {error['key']}" if error["key"] else ""
    times = f" ({error['times']} times)" if error["times"] > 1 else ""
    return f"{when}{place}: {error['cause']}{times}"


def _format_gateway(one: dict[str, Any]) -> str:
    platforms = ", ".join(one.get("platforms", ())) or "no platforms"
    up = _format_duration(one.get("uptime", 0))
    return escape_control_chars(
        f"{one['instance']}: {one['status']}, {platforms}, up {up}, pid {one['pid']},"
        f" {one.get('conversations', '?')} active conversations,"
        f" http://127.0.0.1:{one['port']}/health"
    )


def _format_duration(seconds: float) -> str:
    """Format a duration."""
    for size, unit in ((2 * 86_400, "d"), (2 * 3600, "h"), (2 * 60, "min")):
        if seconds >= size:
            return f"{seconds * 2 / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _route_to_dict(route: Route) -> dict[str, Any]:
    tokens, usage = route.tokens._asdict(), usage_to_dict(route.usage)
    return {
        **route._asdict(),
        "origin": to_json_value(route.origin),
        "tokens": tokens,
        "usage": usage,
    }


def _sum_usage(found: list[Route]) -> dict[str, Usage]:
    """Sum up the usage per model over conversations."""
    sums: dict[str, Usage] = {}
    for route in found:
        for model, taken in route.usage.items():
            sums[model] = sums.get(model, Usage()).add(taken)
    return sums


def _format_route(route: Route, now: float) -> tuple[str, ...]:
    idle_seconds = now - route.updated
    age = "now" if idle_seconds < 60 else _format_duration(idle_seconds)
    name = route.display_name or route.key
    return (name, route.origin.platform, route.session, f"{route.tokens.total:,}", age)
