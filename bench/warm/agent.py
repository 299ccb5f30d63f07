"""One task, done by Rekindle's own agent with its real tools, in a world of its own."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple

from rekindle import Message, Store
from rekindle.agent.model.client import Endpoint, RetryPolicy
from rekindle.agent.tools.builtin.read_file import READ_FILE
from rekindle.agent.tools.builtin.terminal import TERMINAL
from rekindle.agent.tools.registry import ToolRegistry
from rekindle.agent.tools.tool import ToolContext, build_schema
from rekindle.agent.turn import Advisor, TurnContext, TurnEnded, TurnLimits, run_turn
from rekindle.sandbox.detection import open_sandbox
from rekindle.store.store_executor import StoreExecutor
from rekindle.types import Session

from . import sets, world
from .model import NoModel, Served
from .small import SmallModel, is_success
from .tasks import Task

# The real tools; what is said of them is short, since a small model reads slowly.
TOOLBOX = ToolRegistry(
    (
        TERMINAL._replace(
            description="Run a shell command.",
            parameters=build_schema("command", command={"type": "string"}),
        ),
        READ_FILE._replace(
            description="Read a text file.",
            parameters=build_schema("path", path={"type": "string"}),
        ),
    )
).select()
STEPS = 5
OWN_FAULTS = ("it took ", "the model answered with nothing")  # reasons of a turn that count
FIRST_CALLS = 10
OPTIONS = {"temperature": 0.0, "top_k": 1, "max_tokens": 120, "parallel_tool_calls": False}


class Done(NamedTuple):
    """How a task went."""

    success: bool
    answer: str
    stopped: str | None  # why there was no answer of its own
    calls: int
    errors: int  # among the first calls
    first: int  # how many these are
    repeats: int  # calls that an earlier one of the session had made already
    tokens_in: int
    tokens_out: int
    seconds: float


async def run_task(
    store: Store,
    served: Served,
    session: Session,
    task: Task,
    folder: Path,
    opening: Sequence[Message],
    advise: Advisor | None = None,
) -> Done:
    """Let the agent answer what the session holds, in a world made anew."""
    place = await asyncio.to_thread(sets.find_set(task).build, folder, task.id)
    endpoint = Endpoint(served.url, served.name, silence_seconds=600, options=OPTIONS)
    executor, began = StoreExecutor(store, 2), time.monotonic()
    try:
        async with SmallModel(endpoint, retry_policy=RetryPolicy(max_attempts=2)) as model:
            setting = TurnContext(
                model, TOOLBOX, build_context(session, place), opening,
                TurnLimits(iterations=STEPS), advise=advise,
            )  # fmt: skip
            async with aclosing(run_turn(executor, session, setting)) as happenings:
                ended = [event async for event in happenings if isinstance(event, TurnEnded)][-1]
    finally:
        executor.close()
    seconds = time.monotonic() - began
    if ended.reason and not ended.reason.startswith(OWN_FAULTS):
        raise NoModel(f"{task.id}: {ended.reason}")  # the engine's doing says nothing of the arm
    store.append(session, ended.message)
    store.end(session, "completed" if ended.reason is None else "max_steps")
    answer = ended.message.text if ended.reason is None else ""
    return Done(
        await asyncio.to_thread(sets.check, task, place, answer),
        answer,
        ended.reason,
        *count_calls(store.messages(session)),
        ended.tokens.input + ended.tokens.cache_read,
        ended.tokens.output,
        round(seconds, 2),
    )


def build_context(session: Session, place: world.World) -> ToolContext:
    """Build the context of tools: a world of its own, whose books stand beside the folder."""
    return ToolContext(
        session.id, place.work, approval="refuse", environment=place.environment, notes={},
        sandbox=open_sandbox("off"),
    )  # fmt: skip


def count_calls(messages: Sequence[Message]) -> tuple[int, int, int, int]:
    """Count calls, errors among the first of them, these first ones, and calls made again."""
    seen: set[str] = set()
    made = repeats = 0
    for call in (call for message in messages for call in message.tool_calls):
        made += 1
        sign = json.dumps([call.name, _read(call.arguments)], sort_keys=True)
        repeats += sign in seen
        seen.add(sign)
    results = [message for message in messages if message.role == "tool"][:FIRST_CALLS]
    errors = sum(not is_success(message) for message in results)
    return made, errors, len(results), repeats


def _read(arguments: object) -> object:
    """Decode arguments, whether they came as text or not."""
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except json.JSONDecodeError:
        return arguments
