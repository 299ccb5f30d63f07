"""Answer the requests of clients, whatever the transport; knows nothing of the protocol."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from rekindle.agent.tools.schema_check import parse_arguments
from rekindle.errors import NotFound, RekindleError
from rekindle.processes.operations import Processes
from rekindle.types import JSON

from .access import Library, Scope, StoreOpener, open_library
from .notes import add_note, recall_notes
from .processes import (
    find_visible_processes,
    quote_log,
    quote_processes,
    read_process_log,
    require_process,
)
from .quoting import Quoter
from .resources import ResourcePage, list_resources, read_resource
from .sessions import read_session, search_sessions
from .tools import ADD_NOTE, LIST_PROCESSES, READ_SESSION, RECALL_NOTES, SEARCH_SESSIONS, TOOLS

MAX_ERROR_CHARS = 1_000
# The tools that work on the library alone; those for processes are in the service.
_HANDLERS: Mapping[str, Callable[[Library, Mapping[str, JSON]], str]] = {
    SEARCH_SESSIONS.name: search_sessions,
    READ_SESSION.name: read_session,
    RECALL_NOTES.name: recall_notes,
    ADD_NOTE.name: add_note,
}

logger = logging.getLogger(__name__)


class ToolAnswer(NamedTuple):
    """The text that a tool returns, and whether it failed."""

    text: str
    failed: bool = False


class SessionService:
    """The tools and resources over one store; may be used from several threads.

    `client_folders` are the folders that a client works in; see `open_library`.
    """

    def __init__(
        self,
        opener: StoreOpener,
        scope: Scope,
        quoter: Quoter,
        connect_processes: Callable[[], Processes],
    ) -> None:
        self._opener = opener
        self._scope = scope
        self._quoter = quoter
        self._connect_processes = connect_processes

    def call_tool(
        self, name: str, arguments: Mapping[str, JSON], client_folders: Sequence[str] = ()
    ) -> ToolAnswer:
        """Run a tool; a failure is an answer that says what to do."""
        try:
            return ToolAnswer(self._run_tool(name, arguments, client_folders))
        except (RekindleError, OSError) as error:
            return ToolAnswer(self.describe_error(error), failed=True)
        except Exception:  # one request must not end the server for the others
            logger.exception("tool %s failed", name if name in TOOLS else "unknown")
            return ToolAnswer("The tool failed unexpectedly. Try something else.", failed=True)

    def _run_tool(
        self, name: str, arguments: Mapping[str, JSON], client_folders: Sequence[str]
    ) -> str:
        tool = TOOLS.get(name)
        if tool is None:
            raise NotFound(f"There is no tool {self._quoter.clean_line(name, 80)}.")
        given = parse_arguments(tool.parameters, arguments)
        handler = _HANDLERS.get(name)
        with self._open_library(client_folders, writing=tool.writes) as library:
            if handler is not None:
                return handler(library, given)
            return asyncio.run(self._use_processes(library, name, given))

    async def _use_processes(
        self, library: Library, name: str, arguments: Mapping[str, JSON]
    ) -> str:
        processes = self._connect_processes()
        try:
            is_list = name == LIST_PROCESSES.name
            listed = await processes.list(live=is_list and arguments.get("live", False))
            visible = find_visible_processes(library, listed)
            if is_list:
                return quote_processes(self._quoter, visible)
            found = require_process(visible, arguments["process"], self._quoter)
            return quote_log(self._quoter, await read_process_log(processes, found.id, arguments))
        finally:
            await processes.aclose()

    def list_resources(
        self, cursor: str | None, client_folders: Sequence[str] = ()
    ) -> ResourcePage:
        """Return a page of the resources that the client may read."""
        with self._open_library(client_folders) as library:
            return list_resources(library, cursor)

    def read_resource(self, uri: str, client_folders: Sequence[str] = ()) -> str:
        """Return the text of a resource."""
        with self._open_library(client_folders) as library:
            return read_resource(library, uri)

    def describe_error(self, error: Exception) -> str:
        """Return the message of an error, without secrets."""
        message = str(error) if isinstance(error, RekindleError) else f"The disk failed: {error}"
        return self._quoter.clean(message)[:MAX_ERROR_CHARS]

    @contextmanager
    def _open_library(
        self, client_folders: Sequence[str], *, writing: bool = False
    ) -> Generator[Library]:
        with self._opener.open(writing=writing) as store:
            yield open_library(store, self._scope, self._quoter, client_folders)
