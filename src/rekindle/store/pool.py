"""Connections for readers: as many as are needed at once, up to a size, kept for the next."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Generic, TypeVar

from ..errors import StoreClosed

C = TypeVar("C")


class Pool(Generic[C]):
    """Lends each connection to one thread at a time."""

    def __init__(
        self,
        connect: Callable[[], C],
        close: Callable[[C], None],
        broken: type[Exception],
        size: int,
        alive: Callable[[C], bool] = lambda _: True,
    ) -> None:
        self._connect = connect
        self._close = close
        self._broken = broken
        self._alive = alive
        self._room = threading.Semaphore(size)
        self._idle: list[C] = []
        self._closed = False

    @contextmanager
    def lend(self) -> Generator[C]:
        """A connection; one whose use ends in a database error is not lent again."""
        with self._room:
            if self._closed:
                raise StoreClosed("the store is closed")
            connection = self._take()
            keep = True
            try:
                yield connection
            except self._broken:
                keep = False
                raise
            finally:
                if keep and not self._closed:
                    self._idle.append(connection)
                else:
                    self._close(connection)

    def _take(self) -> C:
        with suppress(IndexError):  # another thread may have taken the last one
            while True:
                connection = self._idle.pop()
                if self._alive(connection):
                    return connection
                self._close(connection)
        return self._connect()

    def close(self) -> None:
        self._closed = True
        self.empty()

    def empty(self) -> None:
        """Drop the idle connections, as after a restart of the server."""
        with suppress(IndexError):
            while True:
                self._close(self._idle.pop())
