"""What the list keeps between requests: prices, the choices of its filters, and slots for searches."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import cached_property

from starlette.applications import Starlette
from starlette.requests import Request

from rekindle.analytics.usage.pricing import PriceList
from rekindle.config.prices import load_price_table
from rekindle.web.context import WebContext

from .filters import ListCursor, ListFilters
from .rows import ListChoices, ListPage, RowLoader, load_choices
from .search import search_sessions

FEW_SESSIONS = 3_000  # up to here, what the filters offer is read for every page, else
CHOICES_SECONDS = 20.0  # at most this often
MAX_SEARCHES = 4  # at a time; the others wait, and are dropped if their reader has typed on
_CHECK_SECONDS = 0.02


class SessionListState:
    """The list of one server."""

    def __init__(self, context: WebContext) -> None:
        self._context = context
        self._choices: ListChoices | None = None
        self._loaded_at = 0.0
        self._loading: asyncio.Task[None] | None = None
        self._slots = asyncio.Semaphore(MAX_SEARCHES)

    @cached_property
    def prices(self) -> PriceList:
        """The shipped prices, and the user's own that go before them."""
        return PriceList(load_price_table()[1], self._context.config.prices)

    async def get_choices(self) -> ListChoices:
        """Return what the filters offer; where that takes long, old values while new ones are read."""
        if self._choices is None or self._choices.sessions < FEW_SESSIONS:
            await self.refresh_choices()
        is_old = time.monotonic() - self._loaded_at > CHOICES_SECONDS
        if is_old and (self._loading is None or self._loading.done()):
            self._loading = asyncio.create_task(self.refresh_choices())
        assert self._choices is not None
        return self._choices

    async def refresh_choices(self) -> None:
        """Read what the filters offer."""
        self._choices = await self._context.run(load_choices, self._context.store)
        self._loaded_at = time.monotonic()

    def create_loader(self) -> RowLoader:
        """Return a loader of rows as of now; this reads the projects."""
        store = self._context.store
        return RowLoader(store, store.load_projects(), self.prices, time.time())

    async def load_page(
        self,
        request: Request,
        filters: ListFilters,
        cursor: ListCursor | None,
        *,
        is_thorough: bool,
    ) -> ListPage:
        """Return a page of the list, or what a search finds."""
        if not filters.q:
            return await self._context.run(lambda: self.create_loader().load_page(filters, cursor))
        async with self._slots, _watch_reader(request) as is_gone:

            def search() -> ListPage:
                loader = self.create_loader()
                where = filters.to_filter(loader.known)
                return search_sessions(loader, filters.q, where, is_gone, is_thorough=is_thorough)

            return ListPage([]) if is_gone() else await self._context.run(search)


@asynccontextmanager
async def _watch_reader(request: Request) -> AsyncGenerator[Callable[[], bool]]:
    """Provide whether a reader still waits for the answer: who types on does not."""
    gone = threading.Event()

    async def watch() -> None:
        while not await request.is_disconnected():
            await asyncio.sleep(_CHECK_SECONDS)
        gone.set()

    if await request.is_disconnected():
        gone.set()
    watching = asyncio.create_task(watch())
    try:
        yield gone.is_set
    finally:
        watching.cancel()


def get_list_state(app: Starlette) -> SessionListState:
    """Return the list of a server."""
    if not hasattr(app.state, "session_list"):
        app.state.session_list = SessionListState(app.state.context)
    return app.state.session_list
