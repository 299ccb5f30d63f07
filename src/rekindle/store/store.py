"""The store: durable, searchable sessions and messages, on either engine.

This file is the whole API and its guarantees; each subject is implemented in the module of its name.
Everything is synchronous and may be called from many threads. A write is durable when its call
returns; concurrent writers share a transaction (see `group_commit`).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from rekindle.errors import InvalidInput, NotFound
from rekindle.store.core.engine import Engine, Progress, Row, Transaction
from rekindle.store.core.filter import Filter
from rekindle.store.core.group_commit import GroupCommitter, make_done_future
from rekindle.store.core.rows import MESSAGE_COLUMNS, row_to_message
from rekindle.store.core.search_query import SNIPPET_LENGTH
from rekindle.store.core.tables import IMPORTS
from rekindle.store.core.text_encoding import escape_text, unescape_text
from rekindle.store.sessions.list_cache import SessionListCache, select_newest
from rekindle.store.sessions.search import search_messages as find_messages
from rekindle.store.sessions.sessions import get_session_id as _get_id
from rekindle.store.transfer.bulk_import import (
    SessionImport,
    SessionImportResult,
    drop_invalid_messages,
    prepare_import,
    write_imports,
)
from rekindle.store.transfer.jsonl import CopyReport, LoadReport
from rekindle.types import (
    JSON,
    QUARTER_SECONDS,
    Finding,
    Hit,
    JudgedSession,
    Message,
    Rewind,
    Session,
    StoreStats,
    Tokens,
    Usage,
    UsageSum,
    replace_fields,
    validate_message,
)

from .address import StoreAddress
from .learning import outcomes, projects
from .sessions import (
    display_names,
    lineage,
    retention,
    rewind,
    sessions,
    title_search,
    titles,
    usage,
    usage_entries,
)
from .transfer import copy_routes, copy_tables, jsonl

if TYPE_CHECKING:
    from concurrent.futures import Future
    from pathlib import Path
    from types import TracebackType

    from rekindle.projects import KnownProjects
    from rekindle.store.conversations.approvals import Approvals
    from rekindle.store.conversations.gateway_errors import GatewayErrors
    from rekindle.store.conversations.inbox import Inbox
    from rekindle.store.conversations.jobs import Jobs
    from rekindle.store.conversations.links import Links
    from rekindle.store.conversations.memory import Memory
    from rekindle.store.conversations.people import People
    from rekindle.store.conversations.routes import Routes
    from rekindle.store.conversations.session_leases import SessionLeases
    from rekindle.store.excerpts import Excerpts
    from rekindle.store.graphs.checkpoints import GraphCheckpoints
    from rekindle.store.graphs.documents import Documents
    from rekindle.store.learning.call_columns import CallReader
    from rekindle.store.learning.experiments import Experiments
    from rekindle.store.learning.observations import Observations
    from rekindle.store.learning.preludes import Preludes
    from rekindle.store.learning.session_outcomes import SessionOutcomes
    from rekindle.store.learning.template_index import TemplateIndex
    from rekindle.store.tenants.directory import TenantDirectory
    from rekindle.store.tenants.person import PersonalData

T = TypeVar("T")
DAY = 86_400.0
MAX_REMEMBERED = 10_000
STAMP_BATCH_SIZE = 500
_DEFAULT_FILTER = Filter()
_ALL_SESSIONS = Filter(archived=None)
_SAVE_STAMP = IMPORTS.build_upsert("path")

__all__ = ["SNIPPET_LENGTH", "Store"]


class Store:
    """Sessions and messages. Open one with `open_store`; a store is also a context manager."""

    def __init__(
        self,
        engine: Engine,
        *,
        clock: Callable[[], float] = time.time,
        active_seconds: float = DAY,
        undo_seconds: float = 7 * DAY,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._active_seconds = active_seconds
        self._undo_seconds = undo_seconds
        self._committer = GroupCommitter(engine.transact, engine.max_batch)
        self._thread_state = threading.local()  # the current transaction of each thread
        self._unstored_sessions: dict[str, Session] = {}  # begun, but without messages yet
        self._list_cache = SessionListCache()
        self._pending_calls: dict[tuple[int, str], str] = {}  # tools of calls without a result
        self._session_nums: dict[
            str, int
        ] = {}  # row numbers of sessions that this process writes to

    @property
    def location(self) -> str:
        """The location of the sessions: a path, or a URL without its password."""
        return self._engine.location

    @property
    def address(self) -> StoreAddress:
        """The location with its password, to open the store in another process."""
        return StoreAddress(self._engine.target, self._engine.location, self._engine.tenant)

    # -- sessions

    def check_quota(self) -> None:
        """Raise `QuotaExceeded` if nothing more may be stored today; only tenants have a quota."""

    def begin(
        self,
        *,
        id: str | None = None,
        source: str = "local",
        owner: str | None = None,
        user: str | None = None,
        model: str | None = None,
        model_config: Mapping[str, JSON] | None = None,
        title: str | None = None,
        parent: str | None = None,
        cwd: str | None = None,
        git_branch: str | None = None,
        template: str | None = None,
        arm: str | None = None,
        started: float | None = None,
    ) -> Session:
        """Begin a session. Nothing is written until its first message."""
        now = self._clock() if started is None else started
        session = Session(
            id=self._make_id(now) if id is None else id,
            source=source,
            owner=owner,
            user=user,
            model=model,
            model_config=model_config,
            title=title,
            parent=parent,
            cwd=cwd,
            git_branch=git_branch,
            template=template,
            arm=arm,
            started=now,
            last_active=now,
        )
        sessions.check_session(session)
        session = replace_fields(session, title=titles.clean_title(title) if title else None)
        _cache_value(self._unstored_sessions, session.id, session)
        return session

    @staticmethod
    def _make_id(now: float) -> str:
        return f"{time.strftime('%Y%m%d_%H%M%S', time.gmtime(now))}_{os.urandom(4).hex()}"

    def append(
        self,
        session: Session | str,
        *messages: Message | Mapping[str, JSON],
        used: Mapping[str, Tokens] | None = None,
    ) -> list[int]:
        """Append messages to a session and return their positions; durable on return.

        A mapping is a message in OpenAI's format. A message whose `platform_message_id` the session
        already has is not stored again: its existing position is returned. `used` are the tokens
        that these messages took, by model; they are added to the session with the messages.
        """
        valid = [validate_message(message) for message in messages]
        if not valid:
            return []
        session_id = _get_id(session)
        num = self._session_nums.get(session_id)
        try:
            appended = self._write(self._plan_append(session, valid, num, used))
        except NotFound:
            if self._session_nums.pop(session_id, None) is None:
                raise
            # deleted elsewhere, and perhaps recreated
            return self.append(session, *valid, used=used)
        return self._remember_append(session_id, num, appended)

    def submit_append(
        self,
        session: Session | str,
        *messages: Message | Mapping[str, JSON],
        used: Mapping[str, Tokens] | None = None,
    ) -> Future[list[int]]:
        """Queue messages for `append` and return a future of their positions; never blocks.

        They are durable when the future is done. Messages submitted while a commit is under way
        share the next one; they are never part of a `transaction`.
        """
        valid = [validate_message(message) for message in messages]
        if not valid:
            return make_done_future(list[int]())
        session_id = _get_id(session)
        num = self._session_nums.get(session_id)
        return self._committer.submit(
            self._plan_append(session, valid, num, used),
            lambda appended: self._remember_append(session_id, num, appended),
        )

    def _plan_append(
        self,
        session: Session | str,
        messages: Sequence[Message],
        num: int | None,
        used: Mapping[str, Tokens] | None,
    ) -> Callable[[Transaction], sessions.AppendResult]:
        target, now = self._unstored_sessions.get(_get_id(session), session), self._clock()
        plan = sessions.AppendOperation(
            self._engine, target, messages, now, num, self._pending_calls
        )
        if not used:
            return plan

        def append_all(tx: Transaction) -> sessions.AppendResult:
            appended = plan(tx)
            usage.add_tokens(tx, appended.num, used, now)
            return appended

        return append_all

    def _remember_append(
        self, session_id: str, num: int | None, appended: sessions.AppendResult
    ) -> list[int]:
        if num is None:
            stored: dict[str, int] | None = getattr(self._thread_state, "stored", None)
            if stored is None:
                self._remember_stored(session_id, appended.num)
            else:
                stored[session_id] = appended.num
        return appended.positions

    def _remember_stored(self, session_id: str, num: int) -> None:
        _cache_value(self._session_nums, session_id, num)
        self._unstored_sessions.pop(session_id, None)

    def messages(
        self,
        session: Session | str,
        *,
        rewound: bool = False,
        after: int | None = None,
        limit: int | None = None,
        last: int | None = None,
        owner: str | None = None,
    ) -> list[Message]:
        """Return the session's messages in order, starting after position `after`.

        Return at most `limit` of them, or only the `last` ones.
        """
        session_id = _get_id(session)
        _check_page(limit)
        _check_page(last)
        direction = "" if last is None else " DESC"
        most = limit if last is None else last
        if owner is not None:
            self.session(session_id, owner=owner)
        sql = (
            f"SELECT {MESSAGE_COLUMNS} FROM messages m WHERE m.session ="
            " (SELECT num FROM sessions WHERE id = ? AND pruned IS NULL) AND m.position > ?"
            f"{'' if rewound else ' AND m.rewind IS NULL'} ORDER BY m.position{direction}"
        )
        params = (escape_text(session_id), -1 if after is None else after)
        rows: Sequence[Row] = ()
        few = self._engine.max_recent_rows if session_id in self._session_nums else 0
        if few:  # we wrote to it, perhaps just now
            with self._engine.begin_recent_read() as tx:
                rows = tx.run(f"{sql} LIMIT {few if most is None else min(most, few)}", params)
        if len(rows) == few != most or not rows:
            with self._engine.begin_read() as tx:
                rows = tx.run(sql if most is None else f"{sql} LIMIT {int(most)}", params)
                if not rows and not (
                    session_id in self._unstored_sessions and not sessions.is_stored(tx, session_id)
                ):
                    sessions.get_session(tx, session_id)  # raises if the session does not exist
        return [row_to_message(row) for row in (rows if last is None else reversed(rows))]

    def session(self, id: str, *, owner: str | None = None) -> Session:
        """Return the session with exactly this id."""
        begun = self._unstored_sessions.get(id)
        with self._engine.begin_read() as tx:
            if begun and owner in (None, begun.owner) and not sessions.is_stored(tx, id):
                return begun
            num, session = sessions.get_session(tx, id, owner)
        _cache_value(self._session_nums, id, num)  # often read before it is written to
        return session

    def find_sessions(self, ids: Sequence[str]) -> dict[str, Session]:
        """Return those of these sessions that exist, by id."""
        return self._read(lambda tx: sessions.find_sessions(tx, ids))

    def resolve(self, name: str, *, owner: str | None = None) -> Session:
        """Find a session by id, by title (the newest of its series) or by id prefix."""
        return self._read(lambda tx: sessions.resolve_session(tx, name, owner))

    def recent(
        self,
        limit: int = 50,
        *,
        offset: int = 0,
        where: Filter = _DEFAULT_FILTER,
        owner: str | None = None,
        source: str | None = None,
        fold: bool = False,
    ) -> list[Session]:
        """Return sessions by last activity, newest first; with `fold` no sub-agents of others."""
        _check_page(limit, offset)
        where = where.with_(owner=owner, source=source) if owner or source else where
        with self._engine.begin_read() as tx:
            extra = f" AND {lineage.NOT_FOLDED}" if fold else ""
            versions = select_newest(tx, where, self._clock(), limit, offset, extra)
            return self._list_cache.load(tx, versions)

    def search_titles(
        self, text: str, *, limit: int = 50, where: Filter = _DEFAULT_FILTER
    ) -> list[Session]:
        """Return sessions whose titles contain all words of a text, or whose ids begin with it."""
        _check_page(limit)
        with self._engine.begin_read() as tx:
            found = title_search.find_by_title(
                tx, text, where, self._clock(), limit, self._engine.select_titles
            )
            return self._list_cache.load(tx, found)

    def count_sessions(self, where: Filter = _DEFAULT_FILTER, *, fold: bool = False) -> int:
        """Return the number of sessions that match a filter; with `fold` no sub-agents of others."""
        condition, params = where.to_sql(self._clock())
        condition += f" AND {lineage.NOT_FOLDED}" if fold else ""
        sql = f"SELECT count(*) FROM sessions s WHERE {condition}"
        return int(self._read(lambda tx: tx.run(sql, params))[0][0])

    def load_projects(self, *, owner: str | None = None) -> KnownProjects:
        """Return the projects of all sessions, or of an owner's sessions."""
        return self._read(lambda tx: projects.load_projects(tx, owner))

    def count_by_project(self, where: Filter = _DEFAULT_FILTER) -> list[projects.ProjectSessions]:
        """Return the number of sessions and their last activity by project and source."""
        return self._read(lambda tx: projects.count_by_project(tx, where, self._clock()))

    def count_starts(self, since: float) -> list[projects.ProjectStarts]:
        """Return the number of sessions that were started since a time, by project and hour."""
        return self._read(lambda tx: projects.count_starts(tx, since))

    def count_calls(self, since: float) -> list[projects.ProjectCalls]:
        """Return how many judged calls failed in sessions that were active since a time."""
        return self._read(lambda tx: projects.count_calls(tx, since))

    def load_names(self, sessions: Sequence[Session]) -> dict[str, str]:
        """Return what to call each session in a list, by id: its title, or what its user asked for.

        Where many sessions begin with the same words, a name begins where they differ.
        """
        return self._read(lambda tx: display_names.build_names(tx, sessions))

    def find_sub_agents(self, ids: Sequence[str]) -> dict[str, list[Session]]:
        """Return the sub-agents that these sessions started, directly or through others."""
        return self._read(lambda tx: lineage.find_sub_agents(tx, ids))

    def search(
        self,
        query: str,
        *,
        limit: int = 20,
        offset: int = 0,
        where: Filter = _DEFAULT_FILTER,
        owner: str | None = None,
        source: str | None = None,
        session: Session | str | None = None,
        role: str | None = None,
        tool: str | None = None,
        since: float | None = None,
        until: float | None = None,
        rewound: bool = False,
        order: Literal["best", "newest"] = "best",
        context: int = 1,
    ) -> list[Hit]:
        """Return messages that match `query` (see `search_query` for its syntax).

        `where`, `owner` and `source` limit the sessions, the other arguments limit the messages.
        `context` is the number of messages to include before and after a hit. No query is invalid.
        """
        message_filter = {"role": role, "tool": tool, "since": since, "until": until}
        with self._engine.begin_read() as tx:
            return find_messages(
                self._engine,
                tx,
                self._list_cache,
                query,
                where=where.with_(owner=owner, source=source),
                message_filter={
                    **message_filter,
                    "session": None if session is None else _get_id(session),
                },
                rewound=rewound,
                newest=order == "newest",
                limit=limit,
                offset=offset,
                context=context,
                now=self._clock(),
            )

    def rename(self, session: Session | str, title: str | None) -> Session:
        """Set or remove a session's title. Raise `TitleTaken` if another session of its owner has it."""
        return self._write(lambda tx: sessions.rename_session(tx, _get_id(session), title))

    def end(self, session: Session | str, reason: str) -> Session:
        """End a session. The first reason wins; a session without messages is not ended."""
        now, begun = self._clock(), self._unstored_sessions.get(_get_id(session))
        return self._write(
            lambda tx: (
                begun
                if begun and not sessions.is_stored(tx, begun.id)
                else sessions.end_session(tx, _get_id(session), reason, now)
            )
        )

    def reopen(self, session: Session | str) -> Session:
        """Reopen an ended session."""
        return self._write(lambda tx: sessions.reopen_session(tx, _get_id(session)))

    def update(self, session: Session | str, **fields: Any) -> Session:
        """Change user, model, model_config, cwd, git_branch, template or arm."""

        def update_fields(tx: Transaction) -> Session:
            if "model" in fields:
                usage.assign_remainder(tx, _get_id(session))
            return sessions.update_session(tx, _get_id(session), fields)

        return self._write(update_fields)

    def add_usage(
        self,
        session: Session | str,
        tokens: Tokens,
        cost: Decimal = Decimal(0),
        *,
        model: str | None = None,
    ) -> Session:
        """Add tokens and cost to a session and to the model that used them (default: its own)."""
        now = self._clock()
        return self._write(
            lambda tx: usage.add_usage(tx, _get_id(session), Usage(tokens, cost), model, now)
        )

    def usage(self, session: Session | str, *, owner: str | None = None) -> dict[str, Usage]:
        """Return the usage of a session by model; usage without a known model is under ""."""
        return self._read(
            lambda tx: usage.compute_session_usage(
                tx, *sessions.get_session(tx, _get_id(session), owner)
            )
        )

    def sum_usage(
        self,
        get_offset: Callable[[float], int],
        *,
        by: usage_entries.UsageKey | None = None,
        since: float | None = None,
        until: float | None = None,
        owner: str | None = None,
        where: Filter = _ALL_SESSIONS,
        days: Sequence[int] | None = None,
    ) -> list[UsageSum]:
        """Return the usage of all sessions by local day, model and the chosen key.

        `get_offset` returns the distance of local time from UTC at a time, in seconds. `where` and
        `owner` limit the sessions; a model in the filter is the one that used the tokens. With
        `days`, all days from one of these to the next are added up.
        """
        where = where.with_(owner=owner)
        now = self._clock()
        with self._engine.begin_read() as tx:
            offsets = self._find_offsets(tx, get_offset)
            return usage_entries.sum_by_day(
                tx, by, offsets, where=where, now=now, since=since, until=until, days=days
            )

    def sum_session_usage(
        self, ids: Sequence[str], get_offset: Callable[[float], int]
    ) -> list[UsageSum]:
        """Return the usage of some sessions by local day and model; the key is the id."""
        with self._engine.begin_read() as tx:
            offsets = self._find_offsets(tx, get_offset, ids)
            return [*usage_entries.sum_by_session(tx, ids, offsets)]

    def count_active_quarters(self, ids: Sequence[str]) -> dict[str, int]:
        """Return in how many quarters of an hour some sessions used a model, by id."""
        return self._read(lambda tx: usage_entries.count_active_quarters(tx, ids))

    def _find_offsets(
        self,
        tx: Transaction,
        get_offset: Callable[[float], int],
        ids: Sequence[str] | None = None,
    ) -> list[usage_entries.ZoneOffset]:
        first = usage_entries.find_first_quarter(tx, ids)
        last = int(self._clock()) // QUARTER_SECONDS
        return usage_entries.find_offsets(last if first is None else first, last, get_offset)

    # -- lineage

    def fork(
        self,
        session: Session | str,
        *,
        at: int | None = None,
        title: str | None = None,
        source: str | None = None,
        owner: str | None = None,
    ) -> Session:
        """Create a child with the conversation up to and including position `at` (default: all).

        It has the source and owner of its parent unless others are given.
        """
        now = self._clock()
        given = {"title": title, "source": source, "owner": owner}
        fields = {name: value for name, value in given.items() if value}
        return self._write(
            lambda tx: lineage.fork_session(
                self._engine, tx, _get_id(session), at, fields, lambda: self._make_id(now), now
            )
        )

    def link_copy(self, session: Session | str, origin: Session | str) -> Session:
        """Make a session that another agent continues a fork of the one it was copied from."""
        return self._write(lambda tx: lineage.link_copy(tx, _get_id(session), _get_id(origin)))

    def compress(self, session: Session | str, *messages: Message | Mapping[str, JSON]) -> Session:
        """End a session with reason `compression`; continue in a child that starts with `messages`."""
        valid = [validate_message(message) for message in messages]
        now = self._clock()
        return self._write(
            lambda tx: lineage.compress_session(
                self._engine, tx, _get_id(session), valid, lambda: self._make_id(now), now
            )
        )

    def lineage(self, session: Session | str, *, owner: str | None = None) -> list[Session]:
        """Return the ancestors of a session, the session itself and its descendants, oldest first."""
        found = self._read(lambda tx: lineage.list_lineage(tx, _get_id(session)))
        return _filter_by_owner(found, owner)

    def children(self, session: Session | str, *, owner: str | None = None) -> list[Session]:
        """Return the sessions that were started from this one."""
        found = self._read(lambda tx: lineage.list_children(tx, _get_id(session)))
        return _filter_by_owner(found, owner)

    def find_tip(self, session: Session | str, *, owner: str | None = None) -> Session:
        """Return the session in which a conversation continues after all its compressions."""
        found = self._read(lambda tx: lineage.find_tip(tx, _get_id(session)))
        if not _filter_by_owner([found], owner):
            raise NotFound(f"no session {_get_id(session)!r}")
        return found

    def next_title(self, title: str, *, owner: str | None = None) -> str:
        """Return the title for a continuation of `title`: "Plan" gives "Plan #2"."""
        cleaned = titles.clean_title(title)
        if cleaned is None:
            raise InvalidInput("a title needs at least one visible character")
        with self._engine.begin_read() as tx:
            return titles.find_next_title(tx, escape_text(owner or ""), cleaned)[0]

    # -- rewind

    def undo(self, session: Session | str, turns: int = 1) -> Rewind:
        """Remove the last turns, each a user message and everything after it."""
        now = self._clock()
        return self._write(lambda tx: rewind.undo_turns(tx, _get_id(session), turns, now))

    def retry(self, session: Session | str) -> Message:
        """Remove the answer to the last user message and return that message."""
        now = self._clock()
        return self._write(lambda tx: rewind.retry_turn(tx, _get_id(session), now))

    def remove_last(self, session: Session | str) -> Message | None:
        """Remove the last message and return it; None if there is none. `redo` brings it back."""
        now = self._clock()
        return self._write(lambda tx: rewind.remove_last_message(tx, _get_id(session), now))

    def rewrite(
        self, session: Session | str, *messages: Message | Mapping[str, JSON]
    ) -> Rewind | None:
        """Replace the conversation with `messages` in one transaction."""
        valid = [validate_message(message) for message in messages]
        now = self._clock()
        return self._write(
            lambda tx: rewind.rewrite_session(self._engine, tx, _get_id(session), valid, now)
        )

    def redo(self, session: Session | str, rewind_id: int | None = None) -> Rewind:
        """Restore what the last (or given) rewind removed, replacing later messages."""
        now = self._clock()
        return self._write(lambda tx: rewind.redo_rewind(tx, _get_id(session), rewind_id, now))

    def rewinds(self, session: Session | str, *, owner: str | None = None) -> list[Rewind]:
        """Return the rewinds of a session, oldest first."""
        with self._engine.begin_read() as tx:
            sessions.get_session(tx, _get_id(session), owner)
            return rewind.list_rewinds(tx, _get_id(session))

    # -- retention

    def archive(self, where: Filter, *, dry_run: bool = False) -> list[Session]:
        """Hide sessions from lists and searches. Active sessions are skipped."""
        return self._mark_sessions("archived", where, dry_run)

    def archive_session(self, session: Session | str) -> Session:
        """Hide one session from lists and searches, even an active one."""
        now = self._clock()
        return self._write(lambda tx: retention.archive_session(tx, _get_id(session), now))

    def prune(self, where: Filter, *, dry_run: bool = False) -> list[Session]:
        """Delete sessions; they can be restored within the undo window. Active sessions are skipped."""
        marked = self._mark_sessions("pruned", where, dry_run)
        if not dry_run:
            self.purge(older_than=self._undo_seconds)
        return marked

    def prune_session(self, session: Session | str) -> Session:
        """Delete one session; it can be restored within the undo window. Raise if it is active."""
        id, now, active = _get_id(session), self._clock(), self._active_seconds
        pruned = self._write(lambda tx: retention.prune_session(tx, id, active, now))
        self._session_nums.pop(id, None)
        self.purge(older_than=self._undo_seconds)
        return pruned

    def _mark_sessions(self, column: str, where: Filter, dry_run: bool) -> list[Session]:
        now, active = self._clock(), self._active_seconds
        if dry_run:
            with self._engine.begin_read() as tx:
                return [
                    found for _, found in retention.find_inactive_sessions(tx, where, active, now)
                ]
        marked = self._write(lambda tx: retention.mark_sessions(tx, column, where, active, now))
        for session in marked:
            self._session_nums.pop(session.id, None)
        return marked

    def restore(self, *names: str) -> list[Session]:
        """Restore sessions from the archive or from pruning, by id, title or id prefix."""
        return self._write(lambda tx: retention.restore_sessions(tx, names))

    def purge(self, *, older_than: float | None = None) -> int:
        """Permanently delete sessions pruned more than `older_than` seconds ago; return their number."""
        window = self._undo_seconds if older_than is None else older_than
        before = self._clock() - window
        purged = 0
        while self._write(lambda tx: retention.purge_next_session(self._engine, tx, before)):
            purged += 1
        if purged:
            self._write(copy_routes.clear_dead_references)
        return purged

    # -- import and export

    def dump(
        self, sessions: Iterable[Session | str] | None = None, *, owner: str | None = None
    ) -> Iterator[bytes]:
        """Yield lines of JSON that `load` reads without loss, of the given sessions or of all."""
        names = self._list_ids(owner) if sessions is None else map(_get_id, sessions)
        if sessions is not None and owner is not None:
            names = [self.session(name, owner=owner).id for name in names]
        for name in names:
            with self._engine.begin_read() as tx:
                yield from jsonl.dump_session(tx, name)

    def _list_ids(self, owner: str | None = None) -> list[str]:
        scope, params = ("", ()) if owner is None else (" WHERE owner = ?", (escape_text(owner),))
        sql = f"SELECT id FROM sessions{scope} ORDER BY num"
        rows = self._read(lambda tx: tx.run(sql, params))
        return [unescape_text(name) for (name,) in rows]

    def load(
        self, lines: Iterable[bytes], *, progress: Callable[[int], None] | None = None
    ) -> LoadReport:
        """Load the lines of `dump`. What the store already has stays unchanged."""
        skipped: list[str] = []
        loaded = messages = 0
        for session_dump in jsonl.iter_session_dumps(lines, skipped):
            # Bound per iteration: an operation may run twice when a batch is split.
            def load_session(
                tx: Transaction, session_dump: jsonl.SessionDump = session_dump
            ) -> tuple[int, list[str]]:
                rejected: list[str] = []
                return jsonl.load_session(self._engine, tx, session_dump, rejected), rejected

            try:
                new, rejected = self._write(load_session)
            except (InvalidInput, NotFound, ValueError, TypeError, ArithmeticError) as error:
                skipped.append(f"session {session_dump.session.id}: {error}")
                continue
            skipped += rejected
            loaded, messages = loaded + bool(new), messages + new
            if progress:
                progress(messages)
        return LoadReport(loaded, messages, skipped)

    def copy_to(self, other: Store, progress: Progress | None = None) -> CopyReport:
        """Copy everything into another store, not only sessions: see `CopyReport`."""
        with self._engine.begin_read() as tx:
            total = tx.run("SELECT count(*) FROM messages")[0][0]
            import_stamps = tx.run("SELECT path, stamp, imported_at FROM imports")
        report = other.load(self.dump(), progress=progress and (lambda done: progress(done, total)))
        other._write(lambda tx: _write_ledger(tx, import_stamps))
        with self._engine.begin_read() as tx:
            copied = copy_routes.copy_conversations(tx, other._engine, other._write)
            beside = copy_tables.copy_tables(tx, other._write)
        return CopyReport(*report, *copied, *beside)

    def import_batch(
        self,
        items: Sequence[SessionImport],
        stamps: Mapping[str, str] | None = None,
        during_commit: Callable[[], None] | None = None,
    ) -> list[SessionImportResult]:
        """Import sessions and record the stamps of their files, in one transaction.

        What the store already has stays unchanged; invalid messages are rejected one by one. Pruned
        sessions are not restored. `during_commit` runs while the data is indexed and flushed, if the
        engine can; it must not write to the store.
        """
        valid_items = [item if item.prepared else drop_invalid_messages(item) for item in items]
        now = self._clock()
        stamp_rows = [
            (_build_ledger_key(path), escape_text(stamp), now)
            for path, stamp in (stamps or {}).items()
        ]

        def write_items(tx: Transaction) -> list[SessionImportResult]:
            results = write_imports(self._engine, tx, valid_items, now, self._pending_calls)
            _write_ledger(tx, stamp_rows)
            if during_commit:
                tx.run_during_commit(during_commit)
            return results

        return self._write(write_items)

    def prepare_import(self, item: SessionImport) -> SessionImport:
        """Return the item with everything precomputed that an import as a new session needs."""
        return prepare_import(self._engine, drop_invalid_messages(item), self._clock())

    def get_import_stamp(self, path: str) -> str | None:
        """Return the stamp of an imported file, or None."""
        return self.get_import_stamps([path]).get(path)

    def mark_imported(self, path: str, stamp: str) -> None:
        """Record that a file was imported with this stamp."""
        self.import_batch((), {path: stamp})

    def find_imports(self, text: str) -> list[str]:
        """Return the paths of imported files that contain a text."""
        with self._engine.begin_read() as tx:
            rows = tx.run("SELECT path FROM imports ORDER BY path")
        paths = (unescape_text(path) for (path,) in rows)
        return [path for path in paths if text in path]

    def get_import_stamps(self, paths: Iterable[str]) -> dict[str, str]:
        """Return the stamps of those files that were imported."""
        paths_by_key = {_build_ledger_key(path): path for path in paths}
        keys, found = [*paths_by_key], dict[str, str]()
        with self._engine.begin_read() as tx:
            for start in range(0, len(keys), STAMP_BATCH_SIZE):
                batch = keys[start : start + STAMP_BATCH_SIZE]
                placeholders = ", ".join("?" * len(batch))
                rows = tx.run(
                    f"SELECT path, stamp FROM imports WHERE path IN ({placeholders})", batch
                )
                found |= {paths_by_key[path]: unescape_text(stamp) for path, stamp in rows}
        return found

    # -- conversations on platforms

    @cached_property
    def routes(self) -> Routes:
        """The routes: the current session of each conversation."""
        from rekindle.store.conversations.routes import (
            Routes,  # loaded only when used
        )

        return Routes(self._engine, self._write, self._clock, self._make_id)

    @cached_property
    def inbox(self) -> Inbox:
        """The inbox and outbox of platform messages."""
        from rekindle.store.conversations.inbox import Inbox

        return Inbox(self._engine, self._write, self._clock)

    @cached_property
    def people(self) -> People:
        """The people who may talk to the gateway, and those who asked to."""
        from rekindle.store.conversations.people import People

        return People(self._engine, self._write, self._clock)

    @cached_property
    def session_leases(self) -> SessionLeases:
        """The right of one program at a time to write to a session."""
        from rekindle.store.conversations.session_leases import SessionLeases

        return SessionLeases(self._engine, self._write, self._clock)

    @cached_property
    def links(self) -> Links:
        """The identities of one person on several platforms."""
        from rekindle.store.conversations.links import Links

        return Links(self._engine, self._write, self._clock)

    @cached_property
    def approvals(self) -> Approvals:
        """The questions to owners about tool calls that need approval."""
        from rekindle.store.conversations.approvals import Approvals

        return Approvals(self._engine, self._write, self._clock)

    @cached_property
    def gateway_errors(self) -> GatewayErrors:
        """The last errors of gateways."""
        from rekindle.store.conversations.gateway_errors import GatewayErrors

        return GatewayErrors(self._engine, self._write, self._clock)

    @cached_property
    def jobs(self) -> Jobs:
        """The scheduled jobs and their runs."""
        from rekindle.store.conversations.jobs import Jobs

        return Jobs(self._engine, self._write, self._clock)

    @cached_property
    def memory(self) -> Memory:
        """What the agent remembers for each owner."""
        from rekindle.store.conversations.memory import Memory

        return Memory(self._engine, self._write, self._clock)

    @cached_property
    def graph_checkpoints(self) -> GraphCheckpoints:
        """The checkpoints of graph frameworks."""
        from rekindle.store.graphs.checkpoints import GraphCheckpoints

        return GraphCheckpoints(self._engine, self._write, self._clock, self._submit)

    @cached_property
    def documents(self) -> Documents:
        """The documents that frameworks keep beside sessions."""
        from rekindle.store.graphs.documents import Documents

        return Documents(self._engine, self._write, self._clock)

    @cached_property
    def call_columns(self) -> CallReader:
        """The verdicts of all calls in narrow columns."""
        from rekindle.store.learning.call_columns import CallReader

        return CallReader(self._engine, self._write, self._clock)

    @cached_property
    def session_outcomes(self) -> SessionOutcomes:
        """What became of sessions."""
        from rekindle.store.learning.session_outcomes import SessionOutcomes

        return SessionOutcomes(self._engine, self._write, self._clock)

    @cached_property
    def observations(self) -> Observations:
        """The observations of sessions, and the projects and playbooks that follow from them."""
        from rekindle.store.learning.observations import Observations

        return Observations(self._engine, self._write)

    @cached_property
    def template_index(self) -> TemplateIndex:
        """The index of the template files."""
        from rekindle.store.learning.template_index import TemplateIndex

        return TemplateIndex(self._engine, self._write, self._clock)

    @cached_property
    def preludes(self) -> Preludes:
        """The preludes that warm sessions were started with."""
        from rekindle.store.learning.preludes import Preludes

        return Preludes(self._engine, self._write, self._clock)

    @cached_property
    def experiments(self) -> Experiments:
        """The experiments and their assignments."""
        from rekindle.store.learning.experiments import Experiments

        return Experiments(self._engine, self._write, self._clock)

    @cached_property
    def tenants(self) -> TenantDirectory:
        """The directory of tenants, if this store is that of a server for several."""
        from rekindle.store.tenants.directory import TenantDirectory

        return TenantDirectory(self._engine, self._write, self._clock)

    @cached_property
    def personal_data(self) -> PersonalData:
        """What is stored about a person, to export or erase it."""
        from rekindle.store.tenants.person import PersonalData

        return PersonalData(self._engine, self._write, self._clock)

    @cached_property
    def excerpts(self) -> Excerpts:
        """Parts of sessions, for pages that show a long one piece by piece."""
        from rekindle.store.excerpts import Excerpts

        return Excerpts(self._engine)

    def has_any_sessions(self, excluding: Session | str | None = None) -> bool:
        """Return whether any session, except `excluding`, has ever been stored."""
        excluded = "" if excluding is None else escape_text(_get_id(excluding))
        sql = "SELECT 1 FROM sessions WHERE id <> ? LIMIT 1"
        return bool(self._read(lambda tx: tx.run(sql, (excluded,))))

    # -- judged calls

    def find_stale_sessions(
        self,
        rules: str,
        where: Filter = _DEFAULT_FILTER,
        *,
        session: str | None = None,
    ) -> list[outcomes.StaleSession]:
        """Return sessions that these rules have not judged in their current state."""
        with self._engine.begin_read() as tx:
            return outcomes.find_stale_sessions(tx, rules, where, session, self._clock())

    def save_verdicts(self, rules: str, verdicts: Sequence[outcomes.JudgedCalls]) -> None:
        """Save the verdicts of these rules on the calls of sessions."""
        self._write(lambda tx: outcomes.save_verdicts(tx, rules, verdicts))

    def iter_judged_sessions(
        self, where: Filter = _DEFAULT_FILTER, *, session: str | None = None
    ) -> Iterator[JudgedSession]:
        """Yield sessions with their judged calls, in order of their start."""
        with self._engine.begin_read() as tx:
            yield from outcomes.iter_judged_sessions(tx, where, session, self._clock())

    def count_errors(self, ids: Sequence[str]) -> dict[str, int]:
        """Return how many tool calls of sessions failed, by id, as far as they are judged."""
        return self._read(lambda tx: outcomes.count_errors(tx, ids))

    def load_messages_at(self, session: str, positions: Iterable[int]) -> dict[int, Message]:
        """Return the session's messages at these positions, by position."""
        return self._read(lambda tx: outcomes.load_messages_at(tx, session, positions))

    # -- maintenance

    def verify(self, progress: Progress | None = None) -> list[Finding]:
        """Check every count, order, chain, index and foreign key; return the findings."""
        from . import consistency  # it loads all that can be checked

        findings = self._engine.check_index()
        with self._engine.begin_read() as tx:
            return [*findings, *consistency.verify_store(self._engine, tx, progress)]

    def repair(self, progress: Progress | None = None) -> list[str]:
        """Rebuild everything that can be derived, including the search index; return the repairs."""
        from . import consistency

        repairs = self._write(lambda tx: consistency.repair_store(self._engine, tx, progress))
        self._engine.compact()
        return repairs

    def backup(self, path: str | Path, progress: Progress | None = None) -> None:
        """Copy the live store to a SQLite file, completely or not at all."""
        from pathlib import Path

        from rekindle.store.engines.sqlite import SqliteEngine

        target = Path(path)
        if self._engine.backup(target, progress):
            return
        draft = target.with_name(f".{target.name}.draft")
        draft.unlink(missing_ok=True)
        engine = SqliteEngine(str(draft), durability="relaxed", readonly=False, busy_seconds=30.0)
        with Store(engine) as copy:
            self.copy_to(copy, progress)
        draft.replace(target)
        draft.with_name(f"{draft.name}-turns").unlink(missing_ok=True)

    def stats(self, where: Filter | None = None) -> StoreStats:
        """Return the numbers of stored sessions and messages, and their size on disk.

        With `where`, only matching sessions count; the size on disk is that of the whole store.
        """
        condition, params = where.to_sql(self._clock()) if where else ("s.pruned IS NULL", [])
        chosen = f"sessions s WHERE {condition}"
        matching = f"m JOIN sessions s ON s.num = m.session WHERE {condition}" if where else "m"
        with self._engine.begin_read() as tx:
            sessions, archived, first, last = tx.run(
                "SELECT count(*), count(s.archived), min(s.started), max(s.last_active)"
                f" FROM {chosen}",
                params,
            )[0]
            messages, rewound, text = tx.run(
                "SELECT count(*), count(m.rewind), coalesce(sum(octet_length(coalesce(m.content,"
                " '')) + octet_length(coalesce(m.body, ''))), 0) FROM messages " + matching,
                params,
            )[0]
            disk, index = self._engine.measure_sizes(tx)
            return StoreStats(
                engine=self._engine.name,
                location=self.location,
                version=self._engine.version,
                sessions=sessions,
                archived=archived,
                pruned=tx.run("SELECT count(*) FROM sessions WHERE pruned IS NOT NULL")[0][0],
                messages=messages,
                rewound=rewound,
                text_bytes=int(text),
                disk_bytes=disk,
                index_bytes=index,
                by_source=_count_by_source(tx, condition, params),
                by_model=usage.sum_by_model(tx, condition, params),
                first=first,
                last=last,
            )

    def close(self) -> None:
        """Close files and connections. Acknowledged writes do not depend on it."""
        self._committer.close()
        self._engine.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def transaction(self, changes: Callable[[], T]) -> T:
        """Run `changes` in one transaction: all its writes through this store apply, or none.

        `changes` may run again if its batch has to be split. Its reads see the state before the
        transaction.
        """
        # Known only at the end: another session gets the number of one that was rolled back.
        stored: dict[str, int] = {}
        state = self._thread_state

        def run_changes(tx: Transaction) -> T:
            if getattr(state, "transaction", None) is not None:
                return changes()
            stored.clear()
            state.transaction, state.stored = tx, stored
            try:
                return changes()
            finally:
                state.transaction = state.stored = None

        result = self._write(run_changes)
        for session_id, num in stored.items():
            self._remember_stored(session_id, num)
        return result

    def _read(self, query: Callable[[Transaction], T]) -> T:
        with self._engine.begin_read() as tx:
            return query(tx)

    def _write(self, operation: Callable[[Transaction], T]) -> T:
        current: Transaction | None = getattr(self._thread_state, "transaction", None)
        return self._committer.run(operation) if current is None else operation(current)

    def _submit(self, operation: Callable[[Transaction], T]) -> Future[T]:
        """Queue a write and return a future of its result; it is never part of a `transaction`."""
        return self._committer.submit(operation, lambda result: result)


def _check_page(limit: int | None, offset: int = 0) -> None:
    if (limit is not None and limit < 0) or offset < 0:
        raise InvalidInput(f"limit and offset: expected 0 or more, got {limit} and {offset}")


def _cache_value(cache: dict[str, T], key: str, value: T) -> None:
    if len(cache) >= MAX_REMEMBERED:
        with suppress(RuntimeError, StopIteration):  # another thread was faster
            cache.pop(next(iter(cache)), None)
    cache[key] = value


def _filter_by_owner(found: list[Session], owner: str | None) -> list[Session]:
    return [session for session in found if owner is None or session.owner == owner]


def _count_by_source(tx: Transaction, condition: str, params: Sequence[Any]) -> dict[str, int]:
    rows = tx.run(
        f"SELECT s.source, count(*) FROM sessions s WHERE {condition}"
        " GROUP BY s.source ORDER BY 2 DESC",
        params,
    )
    return {unescape_text(source): count for source, count in rows}


def _build_ledger_key(path: str) -> str:
    """Return a key for a path that is short enough for an index entry."""
    import hashlib

    return escape_text(
        path
        if len(path) <= 500
        else hashlib.sha256(path.encode("utf-8", "surrogatepass")).hexdigest()
    )


def _write_ledger(tx: Transaction, entries: Sequence[Sequence[Any]]) -> None:
    tx.run_many(_SAVE_STAMP, entries)
