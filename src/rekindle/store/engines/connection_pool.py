"""A pool of reader connections, opened on demand up to a maximum and reused."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Generic, TypeVar

from rekindle.errors import StoreClosed

C = TypeVar("C")


class ConnectionPool(Generic[C]):
    """Lends each connection to one thread at a time."""

    def __init__(
        self,
        connect: Callable[[], C],
        close: Callable[[C], None],
        error_type: type[Exception],
        size: int,
        is_alive: Callable[[C], bool] = lambda _: True,
    ) -> None:
        self._connect = connect
        self._close = close
        self._error_type = error_type
        self._is_alive = is_alive
        self._slots: SimpleQueue[None] = SimpleQueue()  # a semaphore at a tenth of the cost
        for _ in range(size):
            self._slots.put(None)
        self._idle: list[C] = []
        self._closed = False
        self._pid = os.getpid()

    def acquire(self) -> C:
        """Acquire a connection; wait if all are in use."""
        self.check_process()
        self._slots.get()
        try:
            if self._closed:
                raise StoreClosed("the store is closed")
            return self._reuse_or_connect()
        except BaseException:
            self._slots.put(None)
            raise

    def check_process(self) -> None:
        """Raise `StoreClosed` after a fork: a copied connection would break the original's locks."""
        if os.getpid() != self._pid:
            raise StoreClosed("this store was opened before the fork: open it in the child process")

    def release(self, connection: C, *, is_broken: bool = False) -> None:
        """Return a connection to the pool; a broken one is closed instead."""
        try:
            if is_broken or self._closed:
                self._close(connection)
            else:
                self._idle.append(connection)
        finally:
            self._slots.put(None)

    @contextmanager
    def borrow(self) -> Generator[C]:
        """Borrow a connection; one whose use ends in a database error is not reused."""
        connection = self.acquire()
        is_broken = True
        try:
            yield connection
            is_broken = False
        except Exception as error:
            is_broken = isinstance(error, self._error_type)
            raise
        finally:
            self.release(connection, is_broken=is_broken)

    def _reuse_or_connect(self) -> C:
        connection = self.take_idle()
        return self._connect() if connection is None else connection

    def take_idle(self) -> C | None:
        """Take an idle connection, for a thread that waits in `connect` while no new one can be had."""
        with suppress(IndexError):  # another thread may have taken the last idle one
            while True:
                connection = self._idle.pop()
                if self._is_alive(connection):
                    return connection
                self._close(connection)
        return None

    def close(self) -> None:
        """Close the pool and its idle connections."""
        self._closed = True
        self.clear()

    def clear(self) -> None:
        """Close the idle connections, for example after a server restart."""
        with suppress(IndexError):
            while True:
                self._close(self._idle.pop())
