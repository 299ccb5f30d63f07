"""Compares the store with what it acknowledged to the writers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import msgspec

from rekindle import Message, Store
from soak.crash import token_messages
from soak.crash.journal import JournalEntry, read_entries

EVERY = 1_000_000
SEARCHED = 50


class Promises:
    """Everything that the store has acknowledged, from the journals."""

    def __init__(self, folder: Path) -> None:
        self.acknowledged: dict[str, JournalEntry] = {}  # by token, the first time
        self.at: dict[tuple[str, int], str] = {}
        self.sent: dict[str, str] = {}
        self.undone: list[JournalEntry] = []
        self.forked: list[JournalEntry] = []
        self.errors: list[str] = []
        self.moved: list[str] = []
        for entry in read_entries(folder):
            self._take_entry(entry)

    def _take_entry(self, entry: JournalEntry) -> None:
        if entry.what == "error":
            self.errors.append(entry.detail)
        elif entry.what == "undone":
            self.undone.append(entry)
        elif entry.what == "forked":
            self.forked.append(entry)
        elif entry.what == "sending":
            self.sent |= dict.fromkeys(entry.tokens, entry.session)
        for token, position in zip(entry.tokens, entry.positions, strict=False):
            if entry.what in ("appended", "redelivered"):
                self._add_place(token, entry, position)

    def _add_place(self, token: str, entry: JournalEntry, position: int) -> None:
        first = self.acknowledged.setdefault(token, entry)
        known = first.positions[first.tokens.index(token)]
        if known != position:
            self.moved.append(f"{entry.session}: {token} was at {known}, then at {position}")
        other = self.at.setdefault((entry.session, position), token)
        if other != token:
            self.moved.append(f"{entry.session} {position}: promised to {other} and to {token}")


class CrashReport(msgspec.Struct, kw_only=True):
    """The result of a crash test; every entry of a list is a broken promise."""

    kills: int = 0
    restarts: int = 0
    seconds: float = 0.0
    acknowledged: int = 0
    stored: int = 0
    sessions: int = 0
    lost: list[str] = []
    doubled: list[str] = []
    reordered: list[str] = []
    changed: list[str] = []
    unfound: list[str] = []
    findings: list[str] = []
    errors: list[str] = []

    @property
    def wrong(self) -> list[str]:
        """All broken promises, each with its kind."""
        return [
            f"{name}: {one}"
            for name in (
                "lost",
                "doubled",
                "reordered",
                "changed",
                "unfound",
                "findings",
                "errors",
            )
            for one in getattr(self, name)
        ]

    def summarize(self) -> str:
        rate = self.acknowledged / self.seconds if self.seconds else 0.0
        return "\n".join(
            [
                f"kills                  {self.kills}",
                f"server restarts        {self.restarts}",
                f"seconds                {self.seconds:.0f}",
                f"sessions               {self.sessions:,}",
                f"messages stored        {self.stored:,}",
                f"messages acknowledged  {self.acknowledged:,} ({rate:,.0f}/s)",
                f"  lost                 {len(self.lost)}",
                f"  doubled              {len(self.doubled)}",
                f"  reordered            {len(self.reordered)}",
                f"  changed              {len(self.changed)}",
                f"  not found by search  {len(self.unfound)} of {SEARCHED} looked for",
                f"verify findings        {len(self.findings)}",
                f"errors in writers      {len(self.errors)}",
            ]
        )


def audit_store(store: Store, folder: Path) -> CrashReport:
    """Check that the store has kept every promise."""
    promises = Promises(folder)
    report = CrashReport(acknowledged=len(promises.acknowledged), errors=promises.errors)
    report.doubled += promises.moved
    stored = _read_messages(store, report)
    report.lost += _find_lost(promises, stored)
    report.reordered += _find_reordered(promises)
    report.lost += _find_lost_changes(store, promises)
    report.unfound += _find_unsearchable(store, promises)
    report.findings += [f"{f.check}: {f.where}: {f.detail}" for f in store.verify()]
    return report


def _read_messages(store: Store, report: CrashReport) -> dict[str, dict[int, Message]]:
    """Read every message of every session by its position, and check each one."""
    stored: dict[str, dict[int, Message]] = {}
    for session in store.recent(EVERY):
        report.sessions += 1
        messages = store.messages(session, rewound=True)
        report.stored += len(messages)
        at: dict[str, int] = {}
        for message in messages:
            position = message.position if message.position is not None else -1
            token, home = token_messages.parse_token(message)
            if token in at:
                where = f"at {at[token]} and at {position}"
                report.doubled.append(f"{session.id}: {token} {where}")
            at[token] = position
            if session.parent is None and home != session.id:
                report.doubled.append(f"{session.id}: {token}, which was said in {home}")
            if message != token_messages.make_message(token, home):
                report.changed.append(f"{session.id} {position}: {message.text[:80]!r}")
        stored[session.id] = {message.position or 0: message for message in messages}
    return stored


def _find_lost(promises: Promises, stored: dict[str, dict[int, Message]]) -> Iterator[str]:
    for (session, position), token in promises.at.items():
        message = stored.get(session, {}).get(position)
        if message is None or token_messages.parse_token(message)[0] != token:
            there = "nothing" if message is None else message.text[:40]
            yield f"{session} {position}: {token} was acknowledged, there is {there!r}"


def _find_reordered(promises: Promises) -> Iterator[str]:
    """Check that a message precedes all whose call began after its own returned."""
    by_session: defaultdict[str, list[tuple[int, JournalEntry]]] = defaultdict(list)
    for (session, position), token in promises.at.items():
        by_session[session].append((position, promises.acknowledged[token]))
    for session, placed in by_session.items():
        latest, before = 0.0, -1
        # A redelivered message keeps the place of an earlier delivery that was not recorded.
        for position, entry in sorted(placed, key=lambda one: one[0]):
            if entry.what == "redelivered":
                continue
            if entry.ended < latest:
                yield f"{session}: {position} was acknowledged before {before} was sent"
            if entry.begun > latest:
                latest, before = entry.begun, position


def _find_lost_changes(store: Store, promises: Promises) -> Iterator[str]:
    for entry in promises.undone:
        if all(rewind.id != entry.number for rewind in store.rewinds(entry.session)):
            yield f"{entry.session}: the undo {entry.number} was acknowledged"
    children = {child.id: child for child in store.recent(EVERY)}
    for entry in promises.forked:
        child = children.get(entry.child)
        if child is None or (child.parent, (child.forked_at,)) != (entry.session, entry.positions):
            yield f"{entry.child}: the fork of {entry.session} was acknowledged, there is {child}"


def _find_unsearchable(store: Store, promises: Promises) -> Iterator[str]:
    step = max(len(promises.acknowledged) // SEARCHED, 1)
    for token in list(promises.acknowledged)[::step][:SEARCHED]:
        home = promises.acknowledged[token].session
        if home not in {hit.session.id for hit in store.search(token, rewound=True)}:
            yield f"{token} of {home}"
