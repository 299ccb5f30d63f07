"""Runs one task with Rekindle's agent and its real tools, in a separate world."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple

from bench.warm.model.model_server import ModelError, ServedModel
from bench.warm.model.small_model import SmallModel, is_success
from bench.warm.tasks import harbour_world, task_sets
from bench.warm.tasks.harbour_tasks import Task
from rekindle import Message, Store
from rekindle.agent.model.client import Endpoint, RetryPolicy
from rekindle.agent.tools.builtin.read_file import READ_FILE
from rekindle.agent.tools.builtin.terminal import TERMINAL
from rekindle.agent.tools.registry import ToolRegistry
from rekindle.agent.tools.tool import ToolContext, build_schema
from rekindle.agent.turn import Advisor, TurnContext, TurnEnded, TurnLimits, run_turn
from rekindle.learning.advice import NO_ADVICE
from rekindle.sandbox.detection import open_sandbox
from rekindle.store.store_executor import StoreExecutor
from rekindle.types import Session

# The real tools; their descriptions are short, since a small model reads slowly.
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


class TaskResult(NamedTuple):
    """The result of a task."""

    success: bool
    answer: str
    stopped: str | None  # the reason, if the model gave no answer
    calls: int
    errors: int  # among the first calls
    first: int  # the number of these first calls
    repeats: int  # calls that the session had already made
    tokens_in: int
    tokens_out: int
    seconds: float


async def run_task(
    store: Store,
    served: ServedModel,
    session: Session,
    task: Task,
    folder: Path,
    opening: Sequence[Message],
    advisor: Advisor = NO_ADVICE,
) -> TaskResult:
    """Let the agent answer the session's message in a new world."""
    place = await asyncio.to_thread(task_sets.find_set(task).build, folder, task.id)
    endpoint = Endpoint(served.url, served.name, silence_seconds=600, options=OPTIONS)
    executor, began = StoreExecutor(store, 2), time.monotonic()
    try:
        async with SmallModel(endpoint, retry_policy=RetryPolicy(max_attempts=2)) as model:
            setting = TurnContext(
                model, TOOLBOX, build_context(session, place), opening,
                TurnLimits(iterations=STEPS), advisor=advisor,
            )  # fmt: skip
            async with aclosing(run_turn(executor, session, setting)) as happenings:
                ended = [event async for event in happenings if isinstance(event, TurnEnded)][-1]
    finally:
        executor.close()
    seconds = time.monotonic() - began
    if ended.reason and not ended.reason.startswith(OWN_FAULTS):
        raise ModelError(
            f"{task.id}: {ended.reason}"
        )  # an error of the engine, not an effect of the arm
    store.append(session, ended.message)
    store.end(session, "completed" if ended.reason is None else "max_steps")
    answer = ended.message.text if ended.reason is None else ""
    return TaskResult(
        await asyncio.to_thread(task_sets.check_task, task, place, answer),
        answer,
        ended.reason,
        *count_calls(store.messages(session)),
        ended.tokens.input + ended.tokens.cache_read,
        ended.tokens.output,
        round(seconds, 2),
    )


def build_context(session: Session, place: harbour_world.World) -> ToolContext:
    """Build the context of the tools in a world, whose books are outside the work folder."""
    return ToolContext(
        session.id, place.work, approval="refuse", environment=place.environment, notes={},
        sandbox=open_sandbox("off"),
    )  # fmt: skip


def count_calls(messages: Sequence[Message]) -> tuple[int, int, int, int]:
    """Count all calls, the errors among the first ones, these first ones, and repeated calls."""
    seen: set[str] = set()
    made = repeats = 0
    for call in (call for message in messages for call in message.tool_calls):
        made += 1
        sign = json.dumps([call.name, _decode_arguments(call.arguments)], sort_keys=True)
        repeats += sign in seen
        seen.add(sign)
    results = [message for message in messages if message.role == "tool"][:FIRST_CALLS]
    errors = sum(not is_success(message) for message in results)
    return made, errors, len(results), repeats


def _decode_arguments(arguments: object) -> object:
    """Decode arguments that may be JSON text."""
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except json.JSONDecodeError:
        return arguments
