"""The store: durable, searchable sessions and messages, on either engine.

This file is the whole API and says what is promised; each subject is carried out in the file of its
name. Everything is synchronous and may be called from many threads. A write is durable when its call
returns; writers that come together share a transaction (see `commit`).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from rekindle.errors import InvalidInput, NotFound
from rekindle.store.core.engine import Engine, Progress, Transaction
from rekindle.store.core.filter import Filter
from rekindle.store.core.group_commit import GroupCommit
from rekindle.store.core.rows import MESSAGE_COLUMNS, message_of
from rekindle.store.core.search_query import SNIPPET
from rekindle.store.core.text_encoding import escape, unescape
from rekindle.store.sessions.list_cache import Listed
from rekindle.store.sessions.search import search as find_messages
from rekindle.store.transfer.bulk_import import Arrival, Arrived, arrive, ready, sound
from rekindle.store.transfer.jsonl import CopyReport, LoadReport
from rekindle.types import (
    JSON,
    Finding,
    Hit,
    Judged,
    Message,
    Rewind,
    Session,
    Stats,
    Tokens,
    Usage,
    checked,
    replace,
)

from . import consistency
from .learning import outcomes
from .sessions import lineage, retention, rewind, sessions, titles, usage
from .transfer import copy_routes, jsonl

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from rekindle.store.conversations.inbox import Mail
    from rekindle.store.conversations.routes import Routes
    from rekindle.store.learning.experiments import Trials
    from rekindle.store.learning.mining_results import Mined
    from rekindle.store.learning.preludes import Preludes
    from rekindle.store.learning.template_index import Patterns
    from rekindle.store.learning.template_search import Choosing

T = TypeVar("T")
DAY = 86_400.0
REMEMBERED = 10_000
LOAD_TOGETHER = 500
_EVERYTHING = Filter()

__all__ = ["SNIPPET", "Store"]


class Store:
    """Sessions and messages. Use `open_store`; a store is also a context manager."""

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
        self._commits = GroupCommit(engine.transact)
        self._inside = threading.local()  # the transaction that this thread is in
        self._begun: dict[str, Session] = {}  # begun, but without a message yet
        self._listed = Listed()
        self._called: dict[tuple[int, str], str] = {}  # tools whose results are awaited
        self._numbers: dict[str, int] = {}  # of sessions that this process writes to

    @property
    def location(self) -> str:
        """Where the sessions are: a path, or a URL without its password."""
        return self._engine.location

    # -- sessions

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
        """Open a session. Nothing is written until its first message."""
        now = self._clock() if started is None else started
        session = Session(
            id=self._new_id(now) if id is None else id,
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
        sessions.checked_session(session)
        session = replace(session, title=titles.clean(title) if title else None)
        _remember(self._begun, session.id, session)
        return session

    @staticmethod
    def _new_id(now: float) -> str:
        return f"{time.strftime('%Y%m%d_%H%M%S', time.gmtime(now))}_{os.urandom(4).hex()}"

    def append(self, session: Session | str, *messages: Message) -> list[int]:
        """Add messages to a session and return their positions; durable when it returns.

        A message whose `platform_message_id` the session already has is not stored again: its old
        position is returned.
        """
        for message in messages:
            checked(message)
        session_id = _id(session)
        target = self._begun.get(session_id, session)
        if not messages:
            return []
        now, num = self._clock(), self._numbers.get(session_id)
        try:
            appended = self._write(
                lambda tx: sessions.append(
                    self._engine, tx, target, messages, now, num, self._called
                )
            )
        except NotFound:
            if self._numbers.pop(session_id, None) is None:
                raise
            return self.append(session, *messages)  # deleted, and perhaps begun anew, elsewhere
        if num is None:
            _remember(self._numbers, session_id, appended.num)
            self._begun.pop(session_id, None)
        return appended.positions

    def messages(
        self,
        session: Session | str,
        *,
        rewound: bool = False,
        after: int | None = None,
        limit: int | None = None,
        owner: str | None = None,
    ) -> list[Message]:
        """The messages of a session in order, from behind position `after` on."""
        session_id = _id(session)
        _checked_page(limit)
        if owner is not None:
            self.session(session_id, owner=owner)
        with self._engine.reading() as tx:
            rows = tx.run(
                f"SELECT {MESSAGE_COLUMNS} FROM messages m WHERE m.session ="
                " (SELECT num FROM sessions WHERE id = ? AND pruned IS NULL) AND m.position > ?"
                f"{'' if rewound else ' AND m.rewind IS NULL'} ORDER BY m.position"
                f"{'' if limit is None else f' LIMIT {int(limit)}'}",
                (escape(session_id), -1 if after is None else after),
            )
            if not rows and not (
                session_id in self._begun and not sessions.is_stored(tx, session_id)
            ):
                sessions.by_id(tx, session_id)  # empty, or not there at all?
        return [message_of(row) for row in rows]

    def session(self, id: str, *, owner: str | None = None) -> Session:
        """The session with exactly this id."""
        begun = self._begun.get(id)
        with self._engine.reading() as tx:
            if begun and owner in (None, begun.owner) and not sessions.is_stored(tx, id):
                return begun
            return sessions.by_id(tx, id, owner)[1]

    def resolve(self, name: str, *, owner: str | None = None) -> Session:
        """The session with this id, this title (the newest of its line), or this beginning of an id."""
        with self._engine.reading() as tx:
            return sessions.by_name(tx, name, owner)

    def recent(
        self,
        limit: int = 50,
        *,
        offset: int = 0,
        where: Filter = _EVERYTHING,
        owner: str | None = None,
        source: str | None = None,
    ) -> list[Session]:
        """Sessions by their last activity, newest first."""
        _checked_page(limit, offset)
        where = where.with_(owner=owner, source=source) if owner or source else where
        condition, params = where.sql(self._clock())
        with self._engine.reading() as tx:
            listed = tx.run(
                f"SELECT s.num, s.changes FROM sessions s WHERE {condition}"
                " ORDER BY s.last_active DESC, s.source DESC, s.num DESC LIMIT ? OFFSET ?",
                (*params, limit, offset),
            )
            return self._listed.sessions(tx, listed)

    def search(
        self,
        query: str,
        *,
        limit: int = 20,
        offset: int = 0,
        where: Filter = _EVERYTHING,
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
        """Messages with the words of `query` (see `query` for what may stand in it).

        `where`, `owner` and `source` limit the sessions, the rest limits the messages. `context` is
        how many messages around a hit come with it. No query is an error.
        """
        limits = {"role": role, "tool": tool, "since": since, "until": until}
        with self._engine.reading() as tx:
            return find_messages(
                self._engine,
                tx,
                self._listed,
                query,
                where=where.with_(owner=owner, source=source),
                message={**limits, "session": None if session is None else _id(session)},
                rewound=rewound,
                newest=order == "newest",
                limit=limit,
                offset=offset,
                context=context,
                now=self._clock(),
            )

    def rename(self, session: Session | str, title: str | None) -> Session:
        """Give a session a title, or take it away. `TitleTaken` if another of its owner has it."""
        return self._write(lambda tx: sessions.rename(tx, _id(session), title))

    def end(self, session: Session | str, reason: str) -> Session:
        """End a session. The first reason wins; a session without a message has nothing to end."""
        now, begun = self._clock(), self._begun.get(_id(session))
        return self._write(
            lambda tx: (
                begun
                if begun and not sessions.is_stored(tx, begun.id)
                else sessions.end(tx, _id(session), reason, now)
            )
        )

    def reopen(self, session: Session | str) -> Session:
        """Take the end of a session back."""
        return self._write(lambda tx: sessions.reopen(tx, _id(session)))

    def update(self, session: Session | str, **fields: Any) -> Session:
        """Change user, model, model_config, cwd, git_branch, template or arm."""

        def work(tx: Transaction) -> Session:
            if "model" in fields:
                usage.settle(tx, _id(session))
            return sessions.update(tx, _id(session), fields)

        return self._write(work)

    def add_usage(
        self,
        session: Session | str,
        tokens: Tokens,
        cost: Decimal = Decimal(0),
        *,
        model: str | None = None,
    ) -> Session:
        """Count tokens and cost towards a session and the model that took them (default: its own)."""
        return self._write(lambda tx: usage.add(tx, _id(session), Usage(tokens, cost), model))

    def usage(self, session: Session | str, *, owner: str | None = None) -> dict[str, Usage]:
        """What each model took of a session; under "" what no model is known for."""
        with self._engine.reading() as tx:
            return usage.of_session(tx, *sessions.by_id(tx, _id(session), owner))

    # -- lineage

    def fork(
        self, session: Session | str, *, at: int | None = None, title: str | None = None
    ) -> Session:
        """Start a child with the conversation up to and including position `at` (default: all)."""
        now = self._clock()
        return self._write(
            lambda tx: lineage.fork(
                self._engine, tx, _id(session), at, title, lambda: self._new_id(now), now
            )
        )

    def compress(self, session: Session | str, *messages: Message) -> Session:
        """End a session with reason `compression`; the child that starts with `messages` goes on."""
        for message in messages:
            checked(message)
        now = self._clock()
        return self._write(
            lambda tx: lineage.compress(
                self._engine, tx, _id(session), messages, lambda: self._new_id(now), now
            )
        )

    def lineage(self, session: Session | str, *, owner: str | None = None) -> list[Session]:
        """What a session descends from, itself, and what descends from it; oldest first."""
        with self._engine.reading() as tx:
            return _owned(lineage.lineage(tx, _id(session)), owner)

    def children(self, session: Session | str, *, owner: str | None = None) -> list[Session]:
        """The sessions that were started from this one."""
        with self._engine.reading() as tx:
            return _owned(lineage.children(tx, _id(session)), owner)

    def tip(self, session: Session | str, *, owner: str | None = None) -> Session:
        """Where a conversation goes on after all its compressions."""
        with self._engine.reading() as tx:
            found = lineage.tip(tx, _id(session))
        if not _owned([found], owner):
            raise NotFound(f"no session {_id(session)!r}")
        return found

    def next_title(self, title: str, *, owner: str | None = None) -> str:
        """The title for a continuation of `title`: "Plan" gives "Plan #2"."""
        cleaned = titles.clean(title)
        if cleaned is None:
            raise InvalidInput("a title needs at least one visible character")
        with self._engine.reading() as tx:
            return titles.following(tx, escape(owner or ""), cleaned)[0]

    # -- rewind

    def undo(self, session: Session | str, turns: int = 1) -> Rewind:
        """Take out the last turns, each a user message and all that followed it."""
        now = self._clock()
        return self._write(lambda tx: rewind.undo(tx, _id(session), turns, now))

    def retry(self, session: Session | str) -> Message:
        """Take out the answer to the last user message; return that message."""
        now = self._clock()
        return self._write(lambda tx: rewind.retry(tx, _id(session), now))

    def rewrite(self, session: Session | str, *messages: Message) -> Rewind | None:
        """Put `messages` in place of the conversation, in one transaction."""
        for message in messages:
            checked(message)
        now = self._clock()
        return self._write(lambda tx: rewind.rewrite(self._engine, tx, _id(session), messages, now))

    def redo(self, session: Session | str, rewind_id: int | None = None) -> Rewind:
        """Bring back what the last (or that) rewind took out, in place of what came since."""
        now = self._clock()
        return self._write(lambda tx: rewind.redo(tx, _id(session), rewind_id, now))

    def rewinds(self, session: Session | str, *, owner: str | None = None) -> list[Rewind]:
        """Every rewind of a session, oldest first."""
        with self._engine.reading() as tx:
            sessions.by_id(tx, _id(session), owner)
            return rewind.rewinds(tx, _id(session))

    # -- retention

    def archive(self, where: Filter, *, dry_run: bool = False) -> list[Session]:
        """Put sessions out of the way of lists and searches. Active ones are left alone."""
        return self._mark("archived", where, dry_run)

    def prune(self, where: Filter, *, dry_run: bool = False) -> list[Session]:
        """Delete sessions, with a way back until the undo window ends. Active ones are left alone."""
        marked = self._mark("pruned", where, dry_run)
        if not dry_run:
            self.purge(older_than=self._undo_seconds)
        return marked

    def _mark(self, column: str, where: Filter, dry_run: bool) -> list[Session]:
        now, active = self._clock(), self._active_seconds
        if dry_run:
            with self._engine.reading() as tx:
                return [found for _, found in retention.affected(tx, where, active, now)]
        marked = self._write(lambda tx: retention.mark(tx, column, where, active, now))
        for session in marked:
            self._numbers.pop(session.id, None)
        return marked

    def restore(self, *session_ids: str) -> list[Session]:
        """Bring sessions back from the archive, or from pruning inside the undo window."""
        return self._write(lambda tx: retention.restore(tx, session_ids))

    def purge(self, *, older_than: float | None = None) -> int:
        """Really delete what was pruned more than `older_than` seconds ago; how many sessions."""
        window = self._undo_seconds if older_than is None else older_than
        before = self._clock() - window
        purged = 0
        while self._write(lambda tx: retention.purge_one(self._engine, tx, before)):
            purged += 1
        if purged:
            self._write(copy_routes.forget)
        return purged

    # -- coming and going

    def dump(
        self, sessions: Iterable[Session | str] | None = None, *, owner: str | None = None
    ) -> Iterator[bytes]:
        """Lines of JSON that `load` reads without loss; without `sessions`, of everything."""
        names = self._all_ids() if sessions is None else map(_id, sessions)
        if owner is not None:
            names = [name for name in names if self.session(name, owner=owner)]
        for name in names:
            with self._engine.reading() as tx:
                yield from jsonl.dump_one(tx, name)

    def _all_ids(self) -> list[str]:
        with self._engine.reading() as tx:
            return [unescape(name) for (name,) in tx.run("SELECT id FROM sessions ORDER BY num")]

    def load(
        self, lines: Iterable[bytes], *, progress: Callable[[int], None] | None = None
    ) -> LoadReport:
        """Read the lines of `dump`. What the store already has changes nothing."""
        skipped: list[str] = []
        loaded = messages = 0
        for parcel in jsonl.parcels(lines, skipped):
            # Bound to this round: a work may run twice when a batch has to be taken apart.
            def bring_in(tx: Transaction, parcel: jsonl.Parcel = parcel) -> tuple[int, list[str]]:
                refused: list[str] = []
                return jsonl.load_one(self._engine, tx, parcel, refused), refused

            try:
                new, refused = self._write(bring_in)
            except (InvalidInput, NotFound, ValueError, TypeError, ArithmeticError) as error:
                skipped.append(f"session {parcel.session.id}: {error}")
                continue
            skipped += refused
            loaded, messages = loaded + bool(new), messages + new
            if progress:
                progress(messages)
        return LoadReport(loaded, messages, skipped)

    def copy_to(self, other: Store, progress: Progress | None = None) -> CopyReport:
        """Copy everything, routes and mail too, into another store, of either engine, without loss."""
        with self._engine.reading() as tx:
            total = tx.run("SELECT count(*) FROM messages")[0][0]
            ledger = tx.run("SELECT path, stamp, time FROM imports")
        report = other.load(self.dump(), progress=progress and (lambda done: progress(done, total)))
        other._write(lambda tx: _copy_ledger(tx, ledger))
        with self._engine.reading() as tx:
            moved = copy_routes.copy(tx, other._engine, other._write)
        return CopyReport(*report, *moved)

    def take_in(
        self,
        arrivals: Sequence[Arrival],
        files: Mapping[str, str] | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> list[Arrived]:
        """Add what an import brings, and remember its files by their stamps, in one transaction.

        What the store has already changes nothing; a message that cannot be stored is refused by
        itself. A session that was pruned does not come back by this. `meanwhile` is done, where the
        engine can, while all this is indexed and flushed; it must not write to the store.
        """
        good = [one if one.ready else sound(one) for one in arrivals]
        now = self._clock()
        marks = [(_ledger_name(path), escape(stamp), now) for path, stamp in (files or {}).items()]

        def work(tx: Transaction) -> list[Arrived]:
            arrived = arrive(self._engine, tx, good, now, self._called)
            _copy_ledger(tx, marks)
            if meanwhile:
                tx.meanwhile(meanwhile)
            return arrived

        return self._write(work)

    def ready(self, arrival: Arrival) -> Arrival:
        """An arrival with all that can be done for it before it is taken in, as a new session."""
        return ready(self._engine, sound(arrival), self._clock())

    def imported(self, path: str) -> str | None:
        """The stamp under which a file was taken in, if it was."""
        return self.stamps([path]).get(path)

    def mark_imported(self, path: str, stamp: str) -> None:
        """Remember that a file was taken in as it was under this stamp."""
        self.take_in((), {path: stamp})

    def stamps(self, paths: Iterable[str]) -> dict[str, str]:
        """Of the files that were taken in, the stamps."""
        names = {_ledger_name(path): path for path in paths}
        asked, found = [*names], dict[str, str]()
        with self._engine.reading() as tx:
            for start in range(0, len(asked), LOAD_TOGETHER):
                some = asked[start : start + LOAD_TOGETHER]
                marks = ", ".join("?" * len(some))
                rows = tx.run(f"SELECT path, stamp FROM imports WHERE path IN ({marks})", some)
                found |= {names[path]: unescape(stamp) for path, stamp in rows}
        return found

    # -- conversations on platforms

    @cached_property
    def routes(self) -> Routes:
        """Which session a conversation goes on in."""
        from rekindle.store.conversations.routes import (
            Routes,  # a store without a gateway need not load it
        )

        return Routes(self._engine, self._write, self._new_id, self._clock)

    @cached_property
    def mail(self) -> Mail:
        """What came in from platforms, and what has to go out to them."""
        from rekindle.store.conversations.inbox import Mail

        return Mail(self._engine, self._write, self._clock)

    @cached_property
    def mined(self) -> Mined:
        """What was found in sessions that could be patterns."""
        from rekindle.store.learning.mining_results import Mined

        return Mined(self._engine, self._write, self._clock)

    @cached_property
    def patterns(self) -> Patterns:
        """The index of templates and their patterns, for choosing."""
        from rekindle.store.learning.template_index import Patterns

        return Patterns(self._engine, self._write)

    @cached_property
    def choosing(self) -> Choosing:
        """The index of patterns, as choosing asks it."""
        from rekindle.store.learning.template_search import Choosing

        return Choosing(self._engine)

    @cached_property
    def preludes(self) -> Preludes:
        """What warm sessions were started with."""
        from rekindle.store.learning.preludes import Preludes

        return Preludes(self._engine, self._write, self._clock)

    @cached_property
    def trials(self) -> Trials:
        """Experiments, and who was assigned what in them."""
        from rekindle.store.learning.experiments import Trials

        return Trials(self._engine, self._write, self._clock)

    def has_any_sessions(self, besides: Session | str | None = None) -> bool:
        """Has another session ever been stored?"""
        with self._engine.reading() as tx:
            sql = "SELECT 1 FROM sessions WHERE id <> ? LIMIT 1"
            return bool(tx.run(sql, ("" if besides is None else escape(_id(besides)),)))

    # -- what became of the calls

    def due(
        self,
        rules: str,
        where: Filter = _EVERYTHING,
        *,
        session: str | None = None,
        nums: Sequence[int] | None = None,
    ) -> list[outcomes.Due]:
        """Sessions that these rules have not judged as they are now; only `nums`, if given."""
        with self._engine.reading() as tx:
            return outcomes.due(tx, rules, where, session, nums, self._clock())

    def keep_verdicts(self, rules: str, verdicts: Sequence[outcomes.Verdicts]) -> None:
        """Keep what these rules made of the calls of some sessions."""
        self._write(lambda tx: outcomes.keep(tx, rules, verdicts))

    def judged(
        self, where: Filter = _EVERYTHING, *, session: str | None = None
    ) -> Iterator[Judged]:
        """Sessions with what is kept about their calls, in the order of their start."""
        with self._engine.reading() as tx:
            yield from outcomes.judged(tx, where, session, self._clock())

    # -- upkeep

    def verify(self, progress: Progress | None = None) -> list[Finding]:
        """Check every count, order, chain, index and foreign key. Nothing found is an empty list."""
        found = self._engine.check_index()
        with self._engine.reading() as tx:
            return [*found, *consistency.verify(self._engine, tx, progress)]

    def repair(self, progress: Progress | None = None) -> list[str]:
        """Rebuild what can be derived, the search index included; what was mended."""
        mended = self._write(lambda tx: consistency.repair(self._engine, tx, progress))
        self._engine.compact()
        return mended

    def backup(self, path: str | Path, progress: Progress | None = None) -> None:
        """Copy the live store to a SQLite file, complete or not at all."""
        from pathlib import Path

        from . import open_store

        target = Path(path)
        if self._engine.backup(target, progress):
            return
        draft = target.with_name(f".{target.name}.draft")
        draft.unlink(missing_ok=True)
        with open_store(draft, durability="relaxed") as copy:
            self.copy_to(copy, progress)
        draft.replace(target)
        draft.with_name(f"{draft.name}-turns").unlink(missing_ok=True)

    def stats(self) -> Stats:
        """What is stored, and what it takes on disk."""
        with self._engine.reading() as tx:
            kept = "pruned IS NULL"
            sessions, archived = tx.run(
                f"SELECT count(*), count(archived) FROM sessions WHERE {kept}"
            )[0]
            first, last = tx.run(
                f"SELECT min(started), max(last_active) FROM sessions WHERE {kept}"
            )[0]
            messages, rewound, text = tx.run(
                "SELECT count(*), count(rewind), coalesce(sum(octet_length(coalesce(content, ''))"
                " + octet_length(coalesce(body, ''))), 0) FROM messages"
            )[0]
            disk, index = self._engine.sizes(tx)
            return Stats(
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
                by_source=_by_source(tx),
                by_model=usage.by_model(tx),
                first=first,
                last=last,
            )

    def close(self) -> None:
        """Let go of files and connections. Nothing that was acknowledged depends on it."""
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

    def together(self, work: Callable[[], T]) -> T:
        """Make several changes one: all that `work` changes through this store, or nothing of it.

        `work` may be run again when others have to be taken apart from it. What it reads is how
        things were before.
        """

        def joined(tx: Transaction) -> T:
            before = getattr(self._inside, "transaction", None)
            self._inside.transaction = tx
            try:
                return work()
            finally:
                self._inside.transaction = before

        return self._write(joined)

    def _write(self, work: Callable[[Transaction], T]) -> T:
        inside: Transaction | None = getattr(self._inside, "transaction", None)
        return self._commits.run(work) if inside is None else work(inside)


def _id(session: Session | str) -> str:
    return session if isinstance(session, str) else session.id


def _checked_page(limit: int | None, offset: int = 0) -> None:
    if (limit is not None and limit < 0) or offset < 0:
        raise InvalidInput(f"limit and offset: expected 0 or more, got {limit} and {offset}")


def _remember(memory: dict[str, T], name: str, value: T) -> None:
    if len(memory) >= REMEMBERED:
        memory.pop(next(iter(memory)), None)
    memory[name] = value


def _owned(found: list[Session], owner: str | None) -> list[Session]:
    return [session for session in found if owner is None or session.owner == owner]


def _by_source(tx: Transaction) -> dict[str, int]:
    rows = tx.run(
        "SELECT source, count(*) FROM sessions WHERE pruned IS NULL GROUP BY source ORDER BY 2 DESC"
    )
    return {unescape(source): count for source, count in rows}


def _ledger_name(path: str) -> str:
    """A path that an index entry holds, however deep."""
    import hashlib

    return escape(
        path
        if len(path) <= 500
        else hashlib.sha256(path.encode("utf-8", "surrogatepass")).hexdigest()
    )


def _copy_ledger(tx: Transaction, entries: Sequence[Sequence[Any]]) -> None:
    tx.many(
        "INSERT INTO imports (path, stamp, time) VALUES (?, ?, ?)"
        " ON CONFLICT (path) DO UPDATE SET stamp = excluded.stamp, time = excluded.time",
        entries,
    )
