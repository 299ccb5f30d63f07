"""A process that writes until it is stopped or killed, and records what the store acknowledged.

    python -m soak.crash.writer TARGET FOLDER SLOT LIFE SEED

A slot is a writer that is restarted after each kill, with the next life number. The new process
continues its sessions and, like a chat platform, redelivers messages without an acknowledgement.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from rekindle import Store, open_store
from rekindle.errors import InvalidInput, StoreUnavailable
from soak.crash import token_messages
from soak.crash.journal import Journal, JournalEntry, read_entries

T = TypeVar("T")
SHARED = "everyone"
SESSIONS = 3
RESTART = 20.0  # seconds a server may take
FORK_BELOW = 60  # a fork copies what is before it


class Writer:
    """One thread of a writing process."""

    def __init__(self, store: Store, journal: Journal, life: tuple[int, int, str], thread: int):
        self._store = store
        self._journal = journal
        self._slot, self._life, seed = life
        self._thread = thread
        self._rng = random.Random(f"{seed}/{self._slot}/{self._life}/{thread}")
        self._said = 0
        self._own = [f"s{self._slot}t{thread}n{number}" for number in range(SESSIONS)]
        self._own.append(f"s{self._slot}t{thread}life{self._life}")

    def take_step(self) -> None:
        """Do one random thing: append, and sometimes undo or fork."""
        rng = self._rng
        session = rng.choice([*self._own, SHARED])
        positions = self._say(
            session,
            count=rng.randint(2, 8) if rng.random() < 0.2 else 1,
            platform=rng.random() < 0.25,
        )
        if session == SHARED:
            return
        if rng.random() < 0.04:
            self._undo(session)
        elif rng.random() < 0.05 and positions[-1] < FORK_BELOW:
            self._fork(session, positions[-1])

    def _say(self, session: str, count: int, platform: bool) -> tuple[int, ...]:
        tokens: list[str] = []
        for _ in range(count):
            self._said += 1
            tokens.append(
                token_messages.make_token(
                    self._slot, self._life, self._thread, self._said, platform=platform
                )
            )
        if platform:
            self._journal.write(JournalEntry("sending", session, tuple(tokens)))
        positions = self.append(session, tuple(tokens))
        if self._rng.random() < 0.05:
            self._look(session, tokens[-1], positions[-1])
        return positions

    def append(
        self, session: str, tokens: tuple[str, ...], what: str = "appended"
    ) -> tuple[int, ...]:
        begun = time.monotonic()
        positions = tuple(
            self._store.append(
                self._store.begin(id=session, source="soak"),
                *(token_messages.make_message(token, session) for token in tokens),
            )
        )
        ended = time.monotonic()
        self._journal.write(JournalEntry(what, session, tokens, positions, begun, ended))
        return positions

    def _look(self, session: str, token: str, position: int) -> None:
        """Check that the last acknowledged message can be read and found."""
        (read,) = retry_while_unavailable(
            lambda: self._store.messages(session, after=position - 1, limit=1)
        )
        if read != token_messages.make_message(token, session):
            raise AssertionError(f"{session} {position}: expected {token}, read {read.text[:80]!r}")
        hits = retry_while_unavailable(lambda: self._store.search(token))
        found = [(hit.session.id, hit.message.position) for hit in hits]
        if found != [(session, position)]:
            raise AssertionError(f"{session} {position}: {token} is found at {found}")

    def _undo(self, session: str) -> None:
        try:
            rewind = self._store.undo(session)
        except InvalidInput:  # only calls of tools are left: no turn to take out
            return
        self._journal.write(JournalEntry("undone", session, number=rewind.id))

    def _fork(self, session: str, at: int) -> None:
        child = self._store.fork(session, at=at)
        self._journal.write(JournalEntry("forked", session, positions=(at,), child=child.id))


def retry_while_unavailable(ask: Callable[[], T]) -> T:
    """Retry a read while a server restarts: an open store retries only writes."""
    deadline = time.monotonic() + RESTART
    while True:
        try:
            return ask()
        except StoreUnavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def redeliver_messages(writer: Writer, folder: Path, slot: int, rng: random.Random) -> None:
    """Redeliver messages that no earlier process saw acknowledged, and one that was."""
    sent: dict[tuple[str, ...], str] = {}
    arrived: dict[tuple[str, ...], str] = {}
    for entry in read_entries(folder, slot):
        if entry.what == "sending":
            sent[entry.tokens] = entry.session
        elif entry.tokens in sent:
            arrived[entry.tokens] = sent.pop(entry.tokens)
    again = list(sent.items()) + rng.sample(sorted(arrived.items()), min(1, len(arrived)))
    for tokens, session in again:
        writer.append(session, tokens, "redelivered")


def main(target: str, folder: str, slot: str, life: str, seed: str) -> int:
    journal = Journal(Path(folder), int(slot), int(life))
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    rng = random.Random(f"{seed}/{slot}/{life}")

    def go_on(writer: Writer) -> None:
        try:
            while not stop.is_set():
                writer.take_step()
        except Exception as error:  # noqa: BLE001  # any error at all is a finding of the soak
            detail = "".join(traceback.format_exception(error))
            journal.write(JournalEntry("error", detail=f"{slot}-{life}: {detail}"))
            os._exit(1)

    try:
        with retry_while_unavailable(lambda: open_store(target)) as store:
            writers = [
                Writer(store, journal, (int(slot), int(life), seed), thread)
                for thread in range(1 + int(slot) % 3)
            ]
            redeliver_messages(writers[0], Path(folder), int(slot), rng)
            threads = [threading.Thread(target=go_on, args=(writer,)) for writer in writers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    except Exception as error:  # noqa: BLE001  # the same
        detail = "".join(traceback.format_exception(error))
        journal.write(JournalEntry("error", detail=f"{slot}-{life}: {detail}"))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
