"""Routes: which session a conversation goes on in. One transaction each, however many there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

from rekindle.errors import InvalidInput, NotFound
from rekindle.routing.source import from_json
from rekindle.store.core.engine import Engine, Row, Transaction
from rekindle.store.core.rows import decode_json, encode_json
from rekindle.store.core.text_encoding import escape, unescape
from rekindle.store.sessions import sessions
from rekindle.types import Route, Session, Source, Tokens, Usage, checked_name, plain, replace

Stale: TypeAlias = Callable[[Route], str | None]  # why a route must start anew, if it must

_NOTHING: Mapping[str, Usage] = {}
COLUMNS = "key, session, origin, display_name, created, updated, previous, reset, tokens, usage"
# To change the row is the lock: on PostgreSQL whoever else wants this key waits here.
_HOLD = f"UPDATE routes SET changes = changes + 1 WHERE key = ? RETURNING {COLUMNS}"


class Routes:
    """The routes of a store. Of several that ask for one key at once, all get the same answer."""

    def __init__(
        self,
        engine: Engine,
        write: Callable[[Callable[[Transaction], Any]], Any],
        new_id: Callable[[float], str],
        clock: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._write = write
        self._new_id = new_id
        self._clock = clock

    def open(
        self, key: str, source: Source, *, name: str = "", stale: Stale | None = None
    ) -> Route:
        """The route of a key, made if there is none, with a new session if `stale` gives a reason."""
        checked_name("route.key", key)
        now = self._clock()

        def work(tx: Transaction) -> Route:
            route = _held(tx, key) or _create(tx, key, source, name, self._new_id(now), now)
            reason = stale(route) if stale else None
            if reason is not None or _is_pruned(tx, route.session):
                _end(tx, route.session, "session_reset", now)
                route = _point(tx, route, self._new_id(now), now, reset=reason)
            return _save(tx, replace(route, origin=source, display_name=name or route.display_name))

        return self._write(work)

    def get(self, key: str) -> Route:
        """The route of a key as it is."""
        with self._engine.reading() as tx:
            rows = tx.run(f"SELECT {COLUMNS} FROM routes WHERE key = ?", (escape(key),))
        if not rows:
            raise NotFound(f"no conversation {key!r}")
        return route_of(rows[0])

    def touch(self, key: str, usage: Mapping[str, Usage] = _NOTHING) -> Route:
        """Something happened in the conversation; count what each model took."""
        now = self._clock()

        def work(tx: Transaction) -> Route:
            route = _need(tx, key)
            sums, tokens = dict(route.usage), route.tokens
            for model, taken in usage.items():
                sums[model] = sums.get(model, Usage()).plus(taken)
                tokens = tokens.plus(taken.tokens)
            updated = max(now, route.updated)
            return _save(tx, replace(route, updated=updated, tokens=tokens, usage=sums))

        return self._write(work)

    def reset(self, key: str) -> Route:
        """Start anew: never the old session. That one ends with `session_reset`."""
        now = self._clock()

        def work(tx: Transaction) -> Route:
            route = _need(tx, key)
            _end(tx, route.session, "session_reset", now)
            return _save(tx, _point(tx, route, self._new_id(now), now))

        return self._write(work)

    def switch(self, key: str, session: Session | str) -> Route:
        """Go on in another session, which is reopened; nothing happens when it is this one already."""
        target, now = session if isinstance(session, str) else session.id, self._clock()

        def work(tx: Transaction) -> Route:
            route = _need(tx, key)
            if route.session == target:
                return route
            sessions.reopen(tx, target)
            _end(tx, route.session, "session_switch", now)
            return _save(tx, _point(tx, route, target, now))

        return self._write(work)

    def follow(self, key: str, old: str, new: str) -> Route:
        """The conversation went on in a child of its session, by compression or fork."""
        now = self._clock()

        def work(tx: Transaction) -> Route:
            route = _need(tx, key)
            if route.session != old:
                raise InvalidInput(f"{key!r} has meanwhile gone on in {route.session}")
            return _save(tx, _point(tx, route, new, now))

        return self._write(work)

    def told(self, key: str) -> str | None:
        """Why the conversation started anew by itself: said once, to the one who asks first."""

        def work(tx: Transaction) -> str | None:
            route = _need(tx, key)
            if route.reset is not None:
                _save(tx, replace(route, reset=None))
            return route.reset

        return self._write(work)

    def list(
        self, *, active_minutes: float | None = None, limit: int = 1000, offset: int = 0
    ) -> list[Route]:
        """Routes by their last activity, newest first."""
        since = -1.0 if active_minutes is None else self._clock() - active_minutes * 60
        with self._engine.reading() as tx:
            rows = tx.run(
                f"SELECT {COLUMNS} FROM routes WHERE updated >= ?"
                " ORDER BY updated DESC, key LIMIT ? OFFSET ?",
                (since, limit, offset),
            )
        return [route_of(row) for row in rows]

    def under(self, beginning: str) -> list[Route]:
        """Routes whose keys begin so, in the order of their keys."""
        first = escape(beginning)
        with self._engine.reading() as tx:
            rows = tx.run(
                f"SELECT {COLUMNS} FROM routes WHERE key >= ? AND key < ? ORDER BY key",
                (first, first[:-1] + chr(ord(first[-1]) + 1)),
            )
        return [route_of(row) for row in rows]

    # -- what was listed, and where home is

    def show(self, key: str, sessions: Sequence[str]) -> None:
        """Remember the sessions that were listed in a conversation; a number picks from them."""
        sql = "UPDATE routes SET shown = ? WHERE key = ?"
        self._write(lambda tx: tx.run(sql, (encode_json([*sessions]), escape(key))))

    def shown(self, key: str) -> list[str]:
        """The sessions that were listed last in a conversation, wherever it was answered."""
        with self._engine.reading() as tx:
            rows = tx.run("SELECT shown FROM routes WHERE key = ?", (escape(key),))
        return decode_json(rows[0][0]) if rows and rows[0][0] is not None else []

    def set_home(self, source: Source) -> Source:
        """Make a chat the home channel of its platform. Who asked for it is no part of it."""
        home = source._replace(user_id=None, user_name=None)
        self._write(
            lambda tx: tx.run(
                "INSERT INTO homes (platform, source) VALUES (?, ?)"
                " ON CONFLICT (platform) DO UPDATE SET source = excluded.source",
                (escape(home.platform), encode_json(plain(home))),
            )
        )
        return home

    def homes(self) -> list[Source]:
        """The home channels, at most one for each platform."""
        with self._engine.reading() as tx:
            rows = tx.run("SELECT source FROM homes ORDER BY platform")
        return [from_json(decode_json(source)) for (source,) in rows]


def _held(tx: Transaction, key: str) -> Route | None:
    rows = tx.run(_HOLD, (escape(key),))
    return route_of(rows[0]) if rows else None


def _need(tx: Transaction, key: str) -> Route:
    route = _held(tx, key)
    if route is None:
        raise NotFound(f"no conversation {key!r}")
    return route


def _create(
    tx: Transaction, key: str, source: Source, name: str, session: str, now: float
) -> Route:
    columns = "key, session, created, updated, origin, display_name, platform, chat_type, tokens"
    values = (escape(key), session, now, now, encode_json(plain(source)), escape(name))
    about = (escape(source.platform), escape(source.chat_type), encode_json(Tokens()))
    tx.run(
        f"INSERT INTO routes ({columns}) VALUES ({', '.join('?' * 9)}) ON CONFLICT (key) DO NOTHING",
        (*values, *about),
    )
    return _need(tx, key)  # mine, or that of who was faster


def _save(tx: Transaction, route: Route) -> Route:
    tx.run(
        "UPDATE routes SET session = ?, previous = ?, updated = ?, reset = ?, tokens = ?, usage = ?,"
        " origin = ?, display_name = ?, platform = ?, chat_type = ? WHERE key = ?",
        (
            escape(route.session),
            None if route.previous is None else escape(route.previous),
            route.updated,
            None if route.reset is None else escape(route.reset),
            encode_json(route.tokens),
            encode_json({name: [*of.tokens, str(of.cost)] for name, of in route.usage.items()}),
            encode_json(plain(route.origin)),
            escape(route.display_name),
            escape(route.origin.platform),
            escape(route.origin.chat_type),
            escape(route.key),
        ),
    )
    return route


def _point(
    tx: Transaction, route: Route, session: str, now: float, reset: str | None = None
) -> Route:
    previous = route.session if sessions.is_stored(tx, route.session) else route.previous
    return replace(route, session=session, previous=previous, updated=now, reset=reset)


def _is_pruned(tx: Transaction, session: str) -> bool:
    sql = "SELECT 1 FROM sessions WHERE id = ? AND pruned IS NOT NULL"
    return bool(tx.run(sql, (escape(session),)))


def _end(tx: Transaction, session: str, reason: str, now: float) -> None:
    if sessions.is_stored(tx, session):  # one without a message has nothing to end
        sessions.end(tx, session, reason, now)


def route_of(row: Row) -> Route:
    key, session, origin, name, created, updated, previous, reset, tokens, usage = row
    return Route(
        key=unescape(key),
        session=unescape(session),
        origin=from_json(decode_json(origin)),
        display_name=unescape(name),
        created=created,
        updated=updated,
        previous=None if previous is None else unescape(previous),
        reset=None if reset is None else unescape(reset),
        tokens=Tokens(*decode_json(tokens)),
        usage={model: _usage(*taken) for model, taken in decode_json(usage).items()},
    )


def _usage(*told: Any) -> Usage:
    *tokens, cost = told
    return Usage(Tokens(*tokens), Decimal(cost))
