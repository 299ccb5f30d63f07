"""Connections for readers: as many as are needed at once, up to a size, kept for the next."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Generic, TypeVar

from rekindle.errors import StoreClosed

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
        self._room: SimpleQueue[None] = SimpleQueue()  # a semaphore at a tenth of the cost
        for _ in range(size):
            self._room.put(None)
        self._idle: list[C] = []
        self._closed = False
        self._process = os.getpid()

    def take(self) -> C:
        """Borrow a connection; wait for one if all are lent."""
        self.check_process()
        self._room.get()
        try:
            if self._closed:
                raise StoreClosed("the store is closed")
            return self._take()
        except BaseException:
            self._room.put(None)
            raise

    def check_process(self) -> None:
        """A connection that a fork has copied breaks the locks of the one it was copied from."""
        if os.getpid() != self._process:
            raise StoreClosed("this store belongs to the parent process: open one after the fork")

    def give_back(self, connection: C, *, is_broken: bool = False) -> None:
        """Return a borrowed connection; a broken one is not lent again."""
        try:
            if is_broken or self._closed:
                self._close(connection)
            else:
                self._idle.append(connection)
        finally:
            self._room.put(None)

    @contextmanager
    def lend(self) -> Generator[C]:
        """A connection for a while; one whose use ends in a database error is not lent again."""
        connection = self.take()
        is_broken = True
        try:
            yield connection
            is_broken = False
        except Exception as error:
            is_broken = isinstance(error, self._broken)
            raise
        finally:
            self.give_back(connection, is_broken=is_broken)

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
