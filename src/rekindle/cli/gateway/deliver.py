"""`rekindle deliver`: what was sent to chats, what failed, and sending it again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rekindle.cli.help import create_group
from rekindle.cli.output import (
    Column,
    JsonOption,
    format_count,
    print_line,
    write_json_array,
    write_table,
)
from rekindle.cli.store_access import open_for_reading, open_for_writing
from rekindle.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from rekindle.store.conversations.inbox import OutboundMessage

group = create_group("Inspect and retry what the gateway sends.")


@group.command("list")
def list_deliveries(
    state: Annotated[
        str, typer.Option(help="Only this state: waiting, failed, sent or all.")
    ] = "all",
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Maximum number of messages.")
    ] = 30,
    json: JsonOption = False,
) -> None:
    """List outgoing messages, newest first. A message counts as sent once the platform gave it an id.

    \b
    Examples:
      rekindle deliver list --state failed
      rekindle deliver list --json
    """
    states = ("waiting", "failed", "sent") if state == "all" else (state,)
    if not {*states} <= {"waiting", "failed", "sent"}:
        raise InvalidInput(f"unknown state {state!r:.40}; use waiting, failed, sent or all")
    with open_for_reading(refresh=False) as store:
        found = store.inbox.list_by_state(states, limit)
    if json:
        write_json_array(_to_dict(one) for one in found)
        return
    if not found:
        print_line("Nothing was sent yet." if state == "all" else "None.")
        return
    columns = (
        Column("number", right=True, style="cyan"),
        Column("time"),
        Column("state"),
        Column("to"),
        Column("text", flexible=True),
        Column("reason"),
    )
    write_table(columns, [_format_delivery(one) for one in found])


@group.command("retry")
def retry_deliveries(
    numbers: Annotated[
        list[int] | None,
        typer.Argument(
            metavar="[NUMBER]…", min=1, max=2**62, help="Message number, from `deliver list`."
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All failed messages.")] = False,
) -> None:
    """Send failed messages again, through a running gateway.

    \b
    Examples:
      rekindle deliver retry 17
      rekindle deliver retry --all
    """
    if bool(numbers) == everything:
        raise InvalidInput("give numbers, or --all")
    with open_for_writing() as store:
        count = store.inbox.requeue_failed(numbers or None)
    if not count and numbers:
        raise NotFound("none of these messages failed; see `rekindle deliver list --state failed`")
    print_line(f"{format_count(count, 'message')} queued again.")


def _to_dict(one: OutboundMessage) -> dict[str, Any]:
    from rekindle.routing.source import to_json

    return {
        "number": one.num, "time": one.time, "state": one.state, "key": one.key,
        "target": to_json(one.target), "text": one.text, "attempts": one.attempts,
        "message_id": one.platform_message_id, "reason": one.reason,
    }  # fmt: skip


def _format_delivery(one: OutboundMessage) -> tuple[str, ...]:
    target = f"{one.target.platform}:{one.target.chat_name or one.target.chat_id}"
    moment = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.time))
    text = " ".join(one.text.split())[:60]
    return (f"{one.num}", moment, one.state, target, text, one.reason or "")
