"""Routes: the current session of each conversation. Each change is one transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal, TypeAlias

from rekindle.errors import InvalidInput, NotFound
from rekindle.store.core.engine import Engine, Operation, StorePart, Transaction
from rekindle.store.core.rows import ValueRows, decode_json, encode_json
from rekindle.store.core.tables import HOME_CHATS, ROUTES
from rekindle.store.core.text_encoding import escape_text, unescape_text
from rekindle.store.sessions import sessions, usage
from rekindle.types import (
    Route,
    Session,
    Source,
    Tokens,
    Usage,
    replace_fields,
    to_json_value,
    validate_name,
)

from .message_rows import decode_source, escape_optional

ResetCheck: TypeAlias = Callable[[Route], str | None]  # reason to reset a route, if any


def _decode_usage(text: str) -> dict[str, Usage]:
    return {
        model: Usage(Tokens(*tokens), Decimal(cost))
        for model, (*tokens, cost) in decode_json(text).items()
    }


ROUTE_ROWS = ValueRows(
    ROUTES,
    Route,
    origin=decode_source,
    tokens=lambda text: Tokens(*decode_json(text)),
    usage=_decode_usage,
)
# Updating the row locks it: on PostgreSQL other writers of this key wait here.
_LOCK_ROUTE = f"UPDATE routes SET changes = changes + 1 WHERE key = ? RETURNING {ROUTE_ROWS.select}"


class Routes(StorePart):
    """The routes of a store. Concurrent requests for one key get the same answer."""

    def __init__(
        self,
        engine: Engine,
        write: Callable[[Operation], Any],
        clock: Callable[[], float],
        make_id: Callable[[float], str],
    ) -> None:
        super().__init__(engine, write, clock)
        self._make_id = make_id

    def open(
        self,
        key: str,
        source: Source,
        *,
        name: str = "",
        owner: str | None = None,
        get_reset_reason: ResetCheck | None = None,
    ) -> Route:
        """Return the route of a key, creating it if missing.

        A new session starts if `get_reset_reason` returns a reason. `owner` owns the sessions if it is
        not the one that the key stands for. Nothing is written if nothing changes, as in most turns.
        """
        validate_name("route.key", key)
        now = self._clock()

        def update(route: Route) -> Route:
            name_now, owner_now = name or route.display_name, owner or route.owner
            return replace_fields(route, origin=source, display_name=name_now, owner=owner_now)

        def find_reason(tx: Transaction, route: Route) -> tuple[str | None, bool]:
            reason = get_reset_reason(route) if get_reset_reason else None
            return reason, reason is not None or _is_pruned(tx, route.session)

        def open_route(tx: Transaction) -> Route:
            route = _lock_route(tx, key) or _create_route(
                tx, key, source, name, self._make_id(now), now
            )
            reason, is_over = find_reason(tx, route)
            if is_over:
                _end_session(tx, route.session, "session_reset", now)
                route = _redirect_route(tx, route, self._make_id(now), now, reset=reason)
            return _save_route(tx, update(route))

        with self._engine.begin_read() as tx:
            for route in ROUTE_ROWS.find(tx, "WHERE key = ?", (escape_text(key),)):
                if update(route) == route and not find_reason(tx, route)[1]:
                    return route
        return self._write(open_route)

    def get(self, key: str) -> Route:
        """Return the route of a key."""
        with self._engine.begin_read() as tx:
            found = ROUTE_ROWS.find(tx, "WHERE key = ?", (escape_text(key),))
        if not found:
            raise NotFound(f"no conversation {key!r}")
        return found[0]

    def touch(self, key: str) -> Route:
        """Record activity in a conversation."""
        now = self._clock()

        def update_route(tx: Transaction) -> Route:
            route = _require_route(tx, key)
            return _save_route(tx, replace_fields(route, updated=max(now, route.updated)))

        return self._write(update_route)

    def add_usage(self, key: str, session: Session | str, added: Usage, model: str) -> Route:
        """Add usage to a session and to its conversation, so that one is the sum of the other.

        This is not activity.
        """
        id, now = session if isinstance(session, str) else session.id, self._clock()

        def add_to_both(tx: Transaction) -> Route:
            route = _save_route(tx, _add_usage(_require_route(tx, key), {model: added}))
            usage.add_usage(tx, id, added, model, now)
            return route

        return self._write(add_to_both)

    def reset(self, key: str) -> Route:
        """Start a new session; the old one ends with `session_reset`."""
        now = self._clock()

        def reset_route(tx: Transaction) -> Route:
            route = _require_route(tx, key)
            _end_session(tx, route.session, "session_reset", now)
            return _save_route(tx, _redirect_route(tx, route, self._make_id(now), now))

        return self._write(reset_route)

    def switch(self, key: str, session: Session | str) -> Route:
        """Continue in another session, which is reopened; do nothing if it is the current one."""
        target, now = session if isinstance(session, str) else session.id, self._clock()

        def switch_route(tx: Transaction) -> Route:
            route = _require_route(tx, key)
            if route.session == target:
                return route
            sessions.reopen_session(tx, target)
            _end_session(tx, route.session, "session_switch", now)
            return _save_route(tx, _redirect_route(tx, route, target, now))

        return self._write(switch_route)

    def follow(self, key: str, old: str, new: str) -> Route:
        """Point the route to a child of its session, after a compression or fork."""
        now = self._clock()

        def follow_route(tx: Transaction) -> Route:
            route = _require_route(tx, key)
            if route.session != old:
                raise InvalidInput(f"{key!r} has already moved to session {route.session}")
            return _save_route(tx, _redirect_route(tx, route, new, now))

        return self._write(follow_route)

    def pop_reset_reason(self, key: str) -> str | None:
        """Return why the conversation was reset automatically, once; then clear the reason."""

        def clear_reason(tx: Transaction) -> str | None:
            route = _require_route(tx, key)
            if route.reset is not None:
                _save_route(tx, replace_fields(route, reset=None))
            return route.reset

        return self._write(clear_reason)

    def list(
        self,
        *,
        active_minutes: float | None = None,
        chat_type: str | None = None,
        limit: int = 1000,
        offset: int = 0,
    ) -> list[Route]:
        """Return routes by last activity, newest first."""
        since = -1.0 if active_minutes is None else self._clock() - active_minutes * 60
        condition, types = "", list[str]()
        if chat_type is not None:
            condition, types = " AND chat_type = ?", [escape_text(chat_type)]
        with self._engine.begin_read() as tx:
            rest = f"WHERE updated >= ?{condition} ORDER BY updated DESC, key LIMIT ? OFFSET ?"
            return ROUTE_ROWS.find(tx, rest, (since, *types, limit, offset))

    def list_by_prefix(self, prefix: str) -> list[Route]:
        """Return the routes whose keys start with `prefix`, ordered by key."""
        first = escape_text(prefix)
        with self._engine.begin_read() as tx:
            rest = "WHERE key >= ? AND key < ? ORDER BY key"
            return ROUTE_ROWS.find(tx, rest, (first, first[:-1] + chr(ord(first[-1]) + 1)))

    def restore(self, route: Route) -> Literal["new", "known", "no session"]:
        """Store a route of another gateway with its times, unless its key or no session is known."""
        validate_name("route.key", route.key)

        def insert_route(tx: Transaction) -> Literal["new", "known", "no session"]:
            if _lock_route(tx, route.key) is not None:
                return "known"
            if not sessions.is_stored(tx, route.session):
                return "no session"
            sessions.reopen_session(tx, route.session)
            _create_route(
                tx, route.key, route.origin, route.display_name, route.session, route.created
            )
            _save_route(tx, route)
            return "new"

        return self._write(insert_route)

    # -- listed sessions and home channels

    def save_listed_sessions(self, key: str, sessions: Sequence[str]) -> None:
        """Save the sessions last listed in a conversation, so that a number can select one."""
        sql = "UPDATE routes SET listed_sessions = ? WHERE key = ?"
        self._write(lambda tx: tx.run(sql, (encode_json([*sessions]), escape_text(key))))

    def load_listed_sessions(self, key: str) -> list[str]:
        """Load the sessions last listed in a conversation, by whichever gateway."""
        rows = self._select("SELECT listed_sessions FROM routes WHERE key = ?", (escape_text(key),))
        return decode_json(rows[0][0]) if rows and rows[0][0] is not None else []

    def set_home(self, source: Source) -> Source:
        """Make a chat the home channel of its platform, without the user who requested it."""
        home = source._replace(user_id=None, user_name=None)
        self._write(
            lambda tx: tx.run(
                HOME_CHATS.build_upsert("platform"),
                (escape_text(home.platform), encode_json(to_json_value(home))),
            )
        )
        return home

    def list_platforms(self) -> list[str]:
        """Return the platforms that have conversations."""
        rows = self._select("SELECT DISTINCT platform FROM routes WHERE platform <> 'local'")
        return [unescape_text(platform) for (platform,) in rows]

    def list_homes(self) -> list[Source]:
        """Return the home channels, at most one per platform."""
        rows = self._select("SELECT source FROM home_chats ORDER BY platform")
        return [decode_source(source) for (source,) in rows]


def _lock_route(tx: Transaction, key: str) -> Route | None:
    rows = tx.run(_LOCK_ROUTE, (escape_text(key),))
    return ROUTE_ROWS.read(rows[0]) if rows else None


def _require_route(tx: Transaction, key: str) -> Route:
    route = _lock_route(tx, key)
    if route is None:
        raise NotFound(f"no conversation {key!r}")
    return route


def _add_usage(route: Route, usage: Mapping[str, Usage]) -> Route:
    sums, tokens = dict(route.usage), route.tokens
    for model, used in usage.items():
        sums[model] = sums.get(model, Usage()).add(used)
        tokens = tokens.add(used.tokens)
    return replace_fields(route, tokens=tokens, usage=sums)


def _create_route(
    tx: Transaction, key: str, source: Source, name: str, session: str, now: float
) -> Route:
    columns = "key, session, created, updated, origin, display_name, platform, chat_type, tokens"
    values = (
        escape_text(key),
        session,
        now,
        now,
        encode_json(to_json_value(source)),
        escape_text(name),
    )
    about = (escape_text(source.platform), escape_text(source.chat_type), encode_json(Tokens()))
    tx.run(
        f"INSERT INTO routes ({columns}) VALUES ({', '.join('?' * 9)}) ON CONFLICT (key) DO NOTHING",
        (*values, *about),
    )
    return _require_route(tx, key)  # ours, or that of a faster writer


def _save_route(tx: Transaction, route: Route) -> Route:
    tx.run(
        "UPDATE routes SET session = ?, previous = ?, updated = ?, reset = ?, tokens = ?, usage = ?,"
        " origin = ?, display_name = ?, platform = ?, chat_type = ?, owner = ? WHERE key = ?",
        (
            escape_text(route.session),
            escape_optional(route.previous),
            route.updated,
            escape_optional(route.reset),
            encode_json(route.tokens),
            encode_json(
                {
                    name: [*model_usage.tokens, str(model_usage.cost)]
                    for name, model_usage in route.usage.items()
                }
            ),
            encode_json(to_json_value(route.origin)),
            escape_text(route.display_name),
            escape_text(route.origin.platform),
            escape_text(route.origin.chat_type),
            escape_optional(route.owner),
            escape_text(route.key),
        ),
    )
    return route


def _redirect_route(
    tx: Transaction, route: Route, session: str, now: float, reset: str | None = None
) -> Route:
    previous = route.session if sessions.is_stored(tx, route.session) else route.previous
    if previous == session:  # from an empty conversation back to the one before it
        previous = None
    return replace_fields(route, session=session, previous=previous, updated=now, reset=reset)


def _is_pruned(tx: Transaction, session: str) -> bool:
    sql = "SELECT 1 FROM sessions WHERE id = ? AND pruned IS NOT NULL"
    return bool(tx.run(sql, (escape_text(session),)))


def _end_session(tx: Transaction, session: str, reason: str, now: float) -> None:
    if sessions.is_stored(tx, session):  # a session without messages has nothing to end
        sessions.end_session(tx, session, reason, now)
