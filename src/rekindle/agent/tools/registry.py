"""Which tools there are, which of them a session has, and how a call is carried out.

A call never raises for what the model or a tool did wrong: an unknown name, broken arguments, a
handler that fails or takes too long are all results that the model can act on. Only being
cancelled is passed on.
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
from rekindle.types import JSON, ToolCall

from . import schema_check
from .tool import Answer, Tool, ToolContext, ToolResult, failure
from .truncate import cut, speakable

logger = logging.getLogger(__name__)

EVERYTHING = "all"
# What starts something in the background must come with what looks after it, and never without.
COMPANIONS = {"process": "terminal"}
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what every provider takes
_LISTED = 40  # names shown when nothing is near


class Registry:
    """The tools that this program knows, whatever a session may use of them."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            self.register(tool)

    def register(self, tool: Tool) -> None:
        """Add a tool. A name can be taken once, and must be one that every provider takes."""
        for field, name in (("name", tool.name), ("toolset", tool.toolset)):
            if not _NAME.fullmatch(name):
                allowed = "1 to 64 letters, digits, _ and -"
                raise InvalidInput(f"tool.{field}: {name!r:.80} is not allowed; allowed: {allowed}")
        if tool.name in self._tools:
            raise InvalidInput(f"tool.name: there is already a tool {tool.name!r}")
        if tool.parameters.get("type") != "object":
            raise InvalidInput(f"tool.parameters of {tool.name!r}: the schema must be of an object")
        self._tools[tool.name] = tool

    def unregister(self, name: str) -> None:
        """Forget a tool; sessions that have it keep it."""
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
        on: Iterable[str] = (EVERYTHING,),
        off: Iterable[str] = (),
        *,
        training: bool = False,
    ) -> Toolbox:
        """The tools of a session: toolsets and tools switched on, less those switched off.

        `process` comes with `terminal` and goes with it. In a training run every tool at once is
        hardly ever meant: the toolbox then carries a warning, which is logged too.
        """
        wanted = self._named(on) - self._named(off)
        for companion, leader in COMPANIONS.items():
            if companion in self._tools and leader in self._tools:
                wanted = wanted | {companion} if leader in wanted else wanted - {companion}
        chosen = {name: tool for name, tool in self._tools.items() if name in wanted}
        warnings: tuple[str, ...] = ()
        if training and chosen and len(chosen) == len(self._tools):
            warnings = (
                f"every tool ({len(chosen)}) is switched on for a training run: the model will also"
                " learn from those that act on this machine and on people's sessions;"
                f" name the toolsets you mean: {', '.join(self.toolsets)}",
            )
            logger.warning(warnings[0])
        known = frozenset(self._tools)
        return Toolbox(chosen, known, warnings)

    def _named(self, names: Iterable[str]) -> set[str]:
        found: set[str] = set()
        toolsets = {tool.toolset for tool in self._tools.values()}
        for name in names:
            if name == EVERYTHING:
                found |= set(self._tools)
            elif name in toolsets:
                found |= {tool.name for tool in self._tools.values() if tool.toolset == name}
            elif name in self._tools:
                found.add(name)
            else:
                allowed = ", ".join([EVERYTHING, *sorted(toolsets), *sorted(self._tools)])
                raise InvalidInput(f"no toolset or tool {name!r:.80}; allowed: {allowed}")
        return found


class Toolbox(NamedTuple):
    """The tools of one session. `known` are the names that exist, switched on or not."""

    tools: Mapping[str, Tool]
    known: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()

    def definitions(self, context: ToolContext) -> list[dict[str, JSON]]:
        """What the model is told, in the OpenAI shape: the tools that can work in this context."""
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
            if _missing(tool, context) is None
        ]

    async def run(self, call: ToolCall, context: ToolContext) -> ToolResult:
        """Carry out one call. Cancel it to interrupt: what it started is then ended."""
        tool = self.tools.get(call.name)
        if tool is None:
            return failure(self._unknown(call.name, context))
        if missing := _missing(tool, context):
            return failure(f"{tool.name} cannot be used here: {missing}")
        began = time.monotonic()
        try:
            given = schema_check.read(tool.parameters, call.arguments)
            result = await _answered(tool, given, context)
        except ToolError as error:
            result = failure(str(error), **({"refused": True} if error.refused else {}))
        duration = round(time.monotonic() - began, 3)
        content = cut(speakable(result.content), tool.characters)
        return ToolResult(content, {**result.meta, "duration": duration})

    def _unknown(self, name: str, context: ToolContext) -> str:
        usable = [one for one, tool in self.tools.items() if _missing(tool, context) is None]
        if name in self.known:
            return f"the tool {name} is switched off in this session; use {_listing(usable)}"
        lowered = {one.lower(): one for one in usable}
        near = [lowered[one] for one in get_close_matches(name.lower(), lowered, n=3, cutoff=0.5)]
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {_listing(usable)}"
        return f"there is no tool {name[:80]!r}; {hint}"


def _listing(names: list[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return (", ".join(names[:_LISTED]) or "none") + more


def _missing(tool: Tool, context: ToolContext) -> str | None:
    try:
        return tool.missing(context)
    except Exception as error:  # noqa: BLE001  # a check that fails must not end the turn
        logger.warning("%s: its availability check failed: %s", tool.name, error)
        return f"its availability check failed ({type(error).__name__})"


async def _answered(tool: Tool, given: Mapping[str, JSON], context: ToolContext) -> ToolResult:
    """What the handler says, in time; its failures as results."""
    stop = threading.Event()
    limit = asyncio.timeout(tool.seconds)
    try:
        async with limit:
            answer = await _handled(tool, given, context._replace(stop=stop))
        return _result(tool, answer)
    except ToolError:
        raise
    except (Exception, SystemExit) as error:  # a failing handler is a result
        if limit.expired():
            return failure(f"{tool.name} took longer than {tool.seconds:g} s and was stopped")
        logger.warning("the tool %s failed", tool.name, exc_info=error)
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return failure(f"{tool.name} failed: {said}")
    finally:
        stop.set()


async def _handled(tool: Tool, given: Mapping[str, JSON], context: ToolContext) -> object:
    handler = tool.handler
    call = getattr(handler, "__call__", None)  # noqa: B004  # an object may have an async one
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call):
        return await cast(Awaitable[Answer], handler(context, given))
    answer = await _in_thread(tool, given, context)
    return await answer if inspect.isawaitable(answer) else answer


async def _in_thread(tool: Tool, given: Mapping[str, JSON], context: ToolContext) -> object:
    """Run a plain function without stopping the loop.

    In a thread of its own that ends with the program: a handler that never returns must neither
    take a place in a pool nor keep the program from ending.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[object] = loop.create_future()

    def settle(answer: object, error: BaseException | None) -> None:
        if future.done():  # cancelled, or out of time: nobody waits any more
            return
        if error is None:
            future.set_result(answer)
        else:
            future.set_exception(error)

    def work() -> None:
        answer, failed = None, None
        try:
            answer = tool.handler(context, given)
        except StopIteration:  # a future cannot hold it
            failed = RuntimeError("StopIteration")
        except BaseException as error:  # noqa: BLE001  # whatever it is, the waiting call gets it
            failed = error
        try:
            loop.call_soon_threadsafe(settle, answer, failed)
        except RuntimeError:  # the loop is closed: nobody waits any more
            logger.debug("%s ended after its program", tool.name)

    run = contextvars.copy_context().run
    threading.Thread(target=run, args=(work,), daemon=True, name=f"tool {tool.name}").start()
    return await future


def _result(tool: Tool, answer: object) -> ToolResult:
    if isinstance(answer, ToolResult):
        return answer
    if isinstance(answer, str):
        return ToolResult(answer)
    try:
        return ToolResult(json.dumps(answer, ensure_ascii=False))
    except (TypeError, ValueError):
        kind = type(answer).__name__
        return failure(f"{tool.name} failed: it answered with {kind}, which is no text")
