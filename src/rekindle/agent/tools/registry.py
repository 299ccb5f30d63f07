"""The tool registry: which tools exist, which a session has, and how calls are executed.

A call never raises for a mistake of the model or a tool: an unknown name, invalid arguments, a
handler that fails or times out all become results that the model can act on. Only cancellation
propagates.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import json
import logging
import re
import threading
import time
from collections.abc import Awaitable, Iterable, Mapping
from difflib import get_close_matches
from typing import NamedTuple, cast

from rekindle.errors import InvalidInput, ToolError
from rekindle.pages.text import replace_surrogates
from rekindle.types import JSON, ToolCall

from . import permissions, schema_check
from .tool import ALL_ABILITIES, HandlerResult, Tool, ToolContext, ToolResult, build_failure
from .truncate import truncate_middle

logger = logging.getLogger(__name__)

ALL_TOOLS = "all"
# A tool that starts background processes needs the one that manages them, and vice versa.
COMPANIONS = {"process": "terminal"}
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # valid for every provider
_MAX_LISTED = 40  # names listed when there is no close match


class ToolRegistry:
    """All tools that the program knows, independent of what a session may use."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            self.register(tool)

    def register(self, tool: Tool) -> None:
        """Add a tool. Its name must be unused and valid for every provider."""
        for field, name in (("name", tool.name), ("toolset", tool.toolset)):
            if not _NAME.fullmatch(name):
                allowed = "1 to 64 letters, digits, _ and -"
                raise InvalidInput(f"tool.{field}: {name!r:.80} is invalid; allowed: {allowed}")
        if tool.name in self._tools:
            raise InvalidInput(f"tool.name: a tool named {tool.name!r} already exists")
        if tool.parameters.get("type") != "object":
            raise InvalidInput(f"tool.parameters of {tool.name!r}: its type must be object")
        self._tools[tool.name] = tool

    def unregister(self, name: str) -> None:
        """Remove a tool; sessions that already have it keep it."""
        self._tools.pop(name, None)

    @property
    def tools(self) -> tuple[Tool, ...]:
        return tuple(self._tools.values())

    @property
    def toolsets(self) -> Mapping[str, tuple[str, ...]]:
        """The names of the tools in each toolset, as a session gets them."""
        names = dict.fromkeys(tool.toolset for tool in self._tools.values())
        return {name: tuple(self.select((name,)).tools) for name in names}

    def select(
        self,
        on: Iterable[str] = (ALL_TOOLS,),
        off: Iterable[str] = (),
        *,
        training: bool = False,
    ) -> Toolbox:
        """Return a session's tools: the enabled toolsets and tools, minus the disabled ones.

        `process` is enabled and disabled together with `terminal`. Enabling every tool in a training
        run is rarely intended: the toolbox then has a warning, which is also logged.
        """
        wanted = self._resolve_names(on) - self._resolve_names(off)
        for companion, leader in COMPANIONS.items():
            if companion in self._tools and leader in self._tools:
                wanted = wanted | {companion} if leader in wanted else wanted - {companion}
        chosen = {name: tool for name, tool in self._tools.items() if name in wanted}
        warnings: tuple[str, ...] = ()
        if training and chosen and len(chosen) == len(self._tools):
            warnings = (
                f"all {len(chosen)} tools are enabled for a training run: the model will also learn"
                " from tools that act on this machine and on users' sessions;"
                f" select toolsets instead: {', '.join(self.toolsets)}",
            )
            logger.warning(warnings[0])
        known = frozenset(self._tools)
        return Toolbox(chosen, known, warnings)

    def _resolve_names(self, names: Iterable[str]) -> set[str]:
        found: set[str] = set()
        toolsets = {tool.toolset for tool in self._tools.values()}
        for name in names:
            if name == ALL_TOOLS:
                found |= set(self._tools)
            elif name in toolsets:
                found |= {tool.name for tool in self._tools.values() if tool.toolset == name}
            elif name in self._tools:
                found.add(name)
            else:
                allowed = ", ".join([ALL_TOOLS, *sorted(toolsets), *sorted(self._tools)])
                raise InvalidInput(f"unknown toolset or tool {name!r:.80}; allowed: {allowed}")
        return found


class Toolbox(NamedTuple):
    """The tools of one session. `known` are all existing tool names, enabled or not."""

    tools: Mapping[str, Tool]
    known: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()

    def build_definitions(self, context: ToolContext) -> list[dict[str, JSON]]:
        """Return the OpenAI definitions of the tools that are available in this context."""
        return [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                },
            }
            for tool in self.tools.values()
            if _find_missing(tool, context) is None
        ]

    async def run(self, call: ToolCall, context: ToolContext) -> ToolResult:
        """Execute one call. Cancelling it terminates everything that it started."""
        tool = self.tools.get(call.name)
        if tool is None:
            return build_failure(self._explain_unknown(call.name, context))
        if missing := _find_missing(tool, context):
            return build_failure(f"{tool.name} is not available: {missing}")
        began = time.monotonic()
        try:
            parsed = schema_check.parse_arguments(tool.parameters, call.arguments)
            await permissions.require_permission(tool, parsed, context)
            result = await _run_handler(tool, parsed, context)
        except ToolError as error:
            result = build_failure(str(error), **({"refused": True} if error.refused else {}))
        duration = round(time.monotonic() - began, 3)
        content = truncate_middle(replace_surrogates(result.content), tool.characters)
        return ToolResult(content, {**result.meta, "duration": duration})

    def _explain_unknown(self, name: str, context: ToolContext) -> str:
        usable = [one for one, tool in self.tools.items() if _find_missing(tool, context) is None]
        if name in self.known:
            return f"the tool {name} is disabled in this session; use {_format_names(usable)}"
        lowered = {one.lower(): one for one in usable}
        near = [lowered[one] for one in get_close_matches(name.lower(), lowered, n=3, cutoff=0.5)]
        hint = (
            f"did you mean {' or '.join(near)}?" if near else f"available: {_format_names(usable)}"
        )
        return f"unknown tool {name[:80]!r}; {hint}"


def _format_names(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return (", ".join(names[:_MAX_LISTED]) or "none") + more


def _find_missing(tool: Tool, context: ToolContext) -> str | None:
    if not permissions.is_permitted(tool, context):
        return "it is not allowed in this conversation"
    try:
        return tool.missing(context)
    except Exception as error:  # noqa: BLE001  # a check that fails must not end the turn
        logger.warning("%s: its availability check failed: %s", tool.name, error)
        return f"its availability check failed ({type(error).__name__})"


async def _run_handler(tool: Tool, parsed: Mapping[str, JSON], context: ToolContext) -> ToolResult:
    """Run the handler within its time limit and turn its failures into results."""
    stop = threading.Event()
    limit = asyncio.timeout(tool.seconds)
    try:
        async with limit:
            answer = await _call_handler(tool, parsed, context._replace(stop=stop))
        return _to_result(tool, answer)
    except ToolError:
        raise
    except (Exception, SystemExit) as error:  # a failing handler is a result
        if limit.expired():
            return build_failure(f"{tool.name} took longer than {tool.seconds:g} s and was stopped")
        logger.warning("the tool %s failed", tool.name, exc_info=error)
        if not context.abilities >= ALL_ABILITIES:  # the details are for the operator
            return build_failure(f"{tool.name} failed; the operator can see why")
        message = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return build_failure(f"{tool.name} failed: {message}")
    finally:
        stop.set()


async def _call_handler(tool: Tool, parsed: Mapping[str, JSON], context: ToolContext) -> object:
    handler = tool.handler
    call = getattr(handler, "__call__", None)  # noqa: B004  # an object may have an async one
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call):
        return await cast(Awaitable[HandlerResult], handler(context, parsed))
    answer = await _call_in_thread(tool, parsed, context)
    return await answer if inspect.isawaitable(answer) else answer


async def _call_in_thread(tool: Tool, parsed: Mapping[str, JSON], context: ToolContext) -> object:
    """Run a synchronous handler without blocking the loop.

    Use a daemon thread: a handler that never returns must neither occupy a pool nor keep the program
    from exiting.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[object] = loop.create_future()

    def set_outcome(answer: object, error: BaseException | None) -> None:
        if future.done():  # cancelled or timed out
            return
        if error is None:
            future.set_result(answer)
        else:
            future.set_exception(error)

    def run_handler() -> None:
        answer, cause = None, None
        try:
            answer = tool.handler(context, parsed)
        except StopIteration:  # a future cannot hold it
            cause = RuntimeError("StopIteration")
        except BaseException as error:  # noqa: BLE001  # passed on to the waiting call
            cause = error
        try:
            loop.call_soon_threadsafe(set_outcome, answer, cause)
        except RuntimeError:  # the loop is closed
            logger.debug("%s finished after the event loop closed", tool.name)

    run = contextvars.copy_context().run
    threading.Thread(target=run, args=(run_handler,), daemon=True, name=f"tool {tool.name}").start()
    return await future


def _to_result(tool: Tool, answer: object) -> ToolResult:
    if isinstance(answer, ToolResult):
        return answer
    if isinstance(answer, str):
        return ToolResult(answer)
    try:
        return ToolResult(json.dumps(answer, ensure_ascii=False))
    except (TypeError, ValueError):
        kind = type(answer).__name__
        return build_failure(f"{tool.name} failed: its handler returned {kind}, which is not text")
