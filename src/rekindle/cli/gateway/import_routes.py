"""Import the conversations of an older gateway, as part of `rekindle import`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rekindle.cli.output import escape_control_chars, format_count, print_line, print_notice
from rekindle.cli.store_access import load_settings

if TYPE_CHECKING:
    from rekindle.store import Store
    from rekindle.transcripts.route_import import RouteImportReport
    from rekindle.types import Source

_MAX_PROBLEMS_SHOWN = 20


def import_conversations(store: Store, paths: Sequence[Path]) -> RouteImportReport:
    """Make routes of the conversations in folders of an older gateway, with keys by our settings."""
    from rekindle.errors import InvalidInput
    from rekindle.gateway.access.gate import Gate
    from rekindle.gateway.access.rules import AccessRules, parse_allowed
    from rekindle.routing.key import build_key, get_key_rule, parse_key
    from rekindle.transcripts.route_import import import_routes

    config = load_settings()
    gate = Gate(store.people, AccessRules(parse_allowed(config.gateway.allow)), store.links)

    def make_key(source: Source, old_key: str) -> str:
        rule = get_key_rule(config.key_rules, source)
        role = gate.find_role(source)
        try:
            had_own_chat = parse_key(old_key).chat is not None
        except InvalidInput:
            had_own_chat = True
        # Only owners share the one conversation of direct messages. Who may talk may be decided later.
        if role not in ("owner", None) or (role is None and had_own_chat):
            rule = rule._replace(direct="shared")
        return build_key(source, rule)

    return import_routes(store, paths, make_key)


def print_routes(report: RouteImportReport) -> None:
    """Print how many conversations can go on, and what was left out."""
    if report.made:
        print_line(
            f"{format_count(report.made, 'conversation')} will go on in the gateway; see"
            " `rekindle gateway routes`."
        )
    if report.empty:
        print_line(f"{format_count(report.empty, 'conversation')} without messages left out.")
    for problem in report.problems[:_MAX_PROBLEMS_SHOWN]:
        print_notice(escape_control_chars(f"left out: {problem.file}: {problem.what}"))
    if len(report.problems) > _MAX_PROBLEMS_SHOWN:
        count = len(report.problems) - _MAX_PROBLEMS_SHOWN
        print_notice(f"… and {count:,} more; use `rekindle import --json` to see all")
