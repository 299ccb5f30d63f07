"""Holds what the writers were promised against what the store has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import msgspec

from rekindle import Message, Store

from . import speech
from .journal import Entry, entries

EVERY = 1_000_000
SEARCHED = 50


class Promises:
    """Everything that the journals say."""

    def __init__(self, folder: Path) -> None:
        self.acknowledged: dict[str, Entry] = {}  # by token, the first time
        self.at: dict[tuple[str, int], str] = {}
        self.sent: dict[str, str] = {}
        self.undone: list[Entry] = []
        self.forked: list[Entry] = []
        self.errors: list[str] = []
        self.moved: list[str] = []
        for entry in entries(folder):
            self._take(entry)

    def _take(self, entry: Entry) -> None:
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
                self._place(token, entry, position)

    def _place(self, token: str, entry: Entry, position: int) -> None:
        first = self.acknowledged.setdefault(token, entry)
        known = first.positions[first.tokens.index(token)]
        if known != position:
            self.moved.append(f"{entry.session}: {token} was at {known}, then at {position}")
        other = self.at.setdefault((entry.session, position), token)
        if other != token:
            self.moved.append(f"{entry.session} {position}: promised to {other} and to {token}")


class Report(msgspec.Struct, kw_only=True):
    """What a soak has to say in the end; empty lists are what it is after."""

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
        """Everything that must not be, each with what it is."""
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

    def summary(self) -> str:
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


def audit(store: Store, folder: Path) -> Report:
    """Check every promise against the store."""
    promises = Promises(folder)
    report = Report(acknowledged=len(promises.acknowledged), errors=promises.errors)
    report.doubled += promises.moved
    stored = _read(store, report)
    report.lost += _lost(promises, stored)
    report.reordered += _reordered(promises)
    report.lost += _lost_changes(store, promises)
    report.unfound += _unfound(store, promises)
    report.findings += [f"{f.check}: {f.where}: {f.detail}" for f in store.verify()]
    return report


def _read(store: Store, report: Report) -> dict[str, dict[int, Message]]:
    """Every message of every session by its position, each checked by itself."""
    stored: dict[str, dict[int, Message]] = {}
    for session in store.recent(EVERY):
        report.sessions += 1
        messages = store.messages(session, rewound=True)
        report.stored += len(messages)
        at: dict[str, int] = {}
        for message in messages:
            position = message.position if message.position is not None else -1
            token, home = speech.token_and_home(message)
            if token in at:
                where = f"at {at[token]} and at {position}"
                report.doubled.append(f"{session.id}: {token} {where}")
            at[token] = position
            if session.parent is None and home != session.id:
                report.doubled.append(f"{session.id}: {token}, which was said in {home}")
            if message != speech.message(token, home):
                report.changed.append(f"{session.id} {position}: {message.text[:80]!r}")
        stored[session.id] = {message.position or 0: message for message in messages}
    return stored


def _lost(promises: Promises, stored: dict[str, dict[int, Message]]) -> Iterator[str]:
    for (session, position), token in promises.at.items():
        message = stored.get(session, {}).get(position)
        if message is None or speech.token_and_home(message)[0] != token:
            there = "nothing" if message is None else message.text[:40]
            yield f"{session} {position}: {token} was acknowledged, there is {there!r}"


def _reordered(promises: Promises) -> Iterator[str]:
    """Check that a message precedes all whose call began after its own returned."""
    by_session: defaultdict[str, list[tuple[int, Entry]]] = defaultdict(list)
    for (session, position), token in promises.at.items():
        by_session[session].append((position, promises.acknowledged[token]))
    for session, placed in by_session.items():
        latest, before = 0.0, -1
        # Delivered again, it keeps the place of a first time that nobody could note.
        for position, entry in sorted(placed, key=lambda one: one[0]):
            if entry.what == "redelivered":
                continue
            if entry.ended < latest:
                yield f"{session}: {position} was acknowledged before {before} was sent"
            if entry.begun > latest:
                latest, before = entry.begun, position


def _lost_changes(store: Store, promises: Promises) -> Iterator[str]:
    for entry in promises.undone:
        if all(rewind.id != entry.number for rewind in store.rewinds(entry.session)):
            yield f"{entry.session}: the undo {entry.number} was acknowledged"
    children = {child.id: child for child in store.recent(EVERY)}
    for entry in promises.forked:
        child = children.get(entry.child)
        if child is None or (child.parent, (child.forked_at,)) != (entry.session, entry.positions):
            yield f"{entry.child}: the fork of {entry.session} was acknowledged, there is {child}"


def _unfound(store: Store, promises: Promises) -> Iterator[str]:
    step = max(len(promises.acknowledged) // SEARCHED, 1)
    for token in list(promises.acknowledged)[::step][:SEARCHED]:
        home = promises.acknowledged[token].session
        if home not in {hit.session.id for hit in store.search(token, rewound=True)}:
            yield f"{token} of {home}"
