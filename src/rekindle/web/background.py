"""Values that take long to compute: computed by a thread beside the requests, shown with their age."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeVar, cast

from starlette.requests import Request

T = TypeVar("T")

FRESH_SECONDS = 60.0
MAX_SHARE = 0.05  # of the time, for computing a value again and again
OUTDATED_SECONDS = 600.0  # then a reader waits a little for a new one
PAGE_SECONDS, FRAGMENT_SECONDS = 0.25, 15.0  # that a page, and a part of one, waits at first
MAX_VALUES = 60
_log = logging.getLogger(__name__)


class Computed(NamedTuple, Generic[T]):
    """A value, and when its computation began."""

    value: T
    time: float


class CachedValue(Generic[T]):
    """A value that is computed when somebody asks for it and it is older than a minute."""

    def __init__(self, pool: ThreadPoolExecutor, clock: Callable[[], float] = time.time) -> None:
        self._pool = pool
        self._clock = clock
        self._lock = threading.Lock()
        self._running: Future[None] | None = None
        self._computed: Computed[T] | None = None
        self._next = 0.0  # time of the next computation, if somebody asks
        self.has_failed = False

    async def get(self, compute: Callable[[], T], patience: float) -> Computed[T] | None:
        """Return the value as it is known; wait for a first one, or instead of a very old one."""
        running, known = self._start(compute)
        if running and (known is None or self._clock() - known.time > OUTDATED_SECONDS):
            await _wait_for(running, patience)
        return self._computed

    def reset(self) -> None:
        """Let the next reader's question start a computation."""
        self._next = 0.0

    def _start(self, compute: Callable[[], T]) -> tuple[Future[None] | None, Computed[T] | None]:
        with self._lock:
            now = self._clock()
            is_set_back = self._next > now + 3600  # the clock was
            if self._running is None and (now >= self._next or is_set_back):
                self._running = self._pool.submit(self._run, compute, now)
            return self._running, self._computed

    def _run(self, compute: Callable[[], T], now: float) -> None:
        start = time.monotonic()
        computed = None
        try:
            computed = Computed(compute(), now)
        except Exception as error:  # noqa: BLE001  # the page says so, and shows the rest
            _log.warning("could not be computed: %s: %s", type(error).__name__, error)
        duration = time.monotonic() - start
        with self._lock:
            self._computed = computed or self._computed
            self.has_failed = computed is None
            self._next = self._clock() + max(FRESH_SECONDS, duration / MAX_SHARE)
            self._running = None


class CachedValues:
    """The values of an application by name; those that nobody asked for lately are dropped."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="background")
        self._values: dict[str, CachedValue[Any]] = {}

    def find(self, name: str) -> CachedValue[Any]:
        """Return the value with this name."""
        value = self._values.pop(name, None) or CachedValue[Any](self._pool)
        self._values[name] = value
        while len(self._values) > MAX_VALUES:
            self._values.pop(next(iter(self._values)))
        return value


def get_cached_values(request: Request) -> CachedValues:
    """Return the values of the application that answers a request."""
    state = request.app.state
    if not hasattr(state, "cached_values"):
        state.cached_values = CachedValues()
    return cast(CachedValues, state.cached_values)


def get_patience(request: Request) -> float:
    """Return how long a request may wait: a part of a page longer, because the page is there."""
    return FRAGMENT_SECONDS if "x-fragment" in request.headers else PAGE_SECONDS


async def _wait_for(running: Future[None], seconds: float) -> None:
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def wake(_: Future[None]) -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(done.set)

    running.add_done_callback(wake)
    with suppress(TimeoutError):
        await asyncio.wait_for(done.wait(), seconds)
