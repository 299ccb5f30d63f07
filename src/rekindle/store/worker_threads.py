"""Threads that run calls in order of arrival.

`ThreadPoolExecutor` can do the same, but each call passes a semaphore, a future and several locks that
are written in Python: they take longer than a short call to SQLite.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from queue import SimpleQueue
from typing import Protocol, TypeAlias


class ThreadCall(Protocol):
    """A call and what follows it. Neither may raise."""

    def run(self) -> None: ...

    def finish(self) -> None:
        """Tell whoever waits; the thread is free for their next call already."""
        ...


Calls: TypeAlias = "SimpleQueue[ThreadCall | None]"


class WorkerThreads:
    """Up to `size` threads, started when they are needed. Queued calls still run at exit."""

    def __init__(self, name: str, size: int) -> None:
        self._name = name
        self._size = size
        self._state = _State()
        _pools.add(self)
        # The threads do not refer to this object: without it, they have nothing left to wait for.
        weakref.finalize(self, self._state.end_threads).atexit = False

    def submit(self, call: ThreadCall) -> None:
        """Queue a call; raise `RuntimeError` after `close`."""
        state = self._state
        with state.mutex:
            if state.is_closed:
                raise RuntimeError("these threads have ended; open the store again")
            state.unfinished += 1
            if len(state.threads) < min(state.unfinished, self._size):
                self._start_thread()
            state.calls.put(call)

    def close(self) -> None:
        """Run what is queued, and wait for its end."""
        state = self._state
        with state.mutex:
            if not state.is_closed:
                state.is_closed = True
                state.end_threads()
        for thread in state.threads:
            if thread is not threading.current_thread():
                thread.join()

    def _start_thread(self) -> None:
        state = self._state
        name = f"{self._name}_{len(state.threads)}"
        # A daemon, because Python waits for other threads before it calls what ends these ones.
        thread = threading.Thread(target=state.serve, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            if not state.threads:
                state.unfinished -= 1
                raise
            return  # the system has no more threads for us: those there are do
        state.threads.append(thread)


class _State:
    """What the threads share with the object that started them."""

    def __init__(self) -> None:
        self.calls: Calls = SimpleQueue()
        self.mutex = threading.Lock()
        self.threads: list[threading.Thread] = []
        self.unfinished = 0
        self.is_closed = False

    def serve(self) -> None:
        get, mutex = self.calls.get, self.mutex
        while (call := get()) is not None:
            call.run()
            with mutex:
                self.unfinished -= 1
            call.finish()
            del call  # what it holds must not wait for the next one

    def end_threads(self) -> None:
        """Let each thread end after what is queued."""
        for _ in self.threads:
            self.calls.put(None)


_pools: weakref.WeakSet[WorkerThreads] = weakref.WeakSet()


@atexit.register
def _close_pools() -> None:
    for pool in list(_pools):
        pool.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pools.clear)  # their threads are in the parent
