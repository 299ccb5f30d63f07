"""The built-in tools that need nothing outside the agent."""

from __future__ import annotations

from rekindle.agent.tools.tool import Tool

from .execute_code import EXECUTE_CODE
from .patch import PATCH
from .read_file import READ_FILE
from .search_files import SEARCH_FILES
from .session_search import SESSION_SEARCH
from .terminal import TERMINAL
from .todo import TODO
from .write_file import WRITE_FILE

BUILTIN_TOOLS: tuple[Tool, ...] = (
    TERMINAL,
    READ_FILE,
    WRITE_FILE,
    PATCH,
    SEARCH_FILES,
    EXECUTE_CODE,
    SESSION_SEARCH,
    TODO,
)
