"""What a session is started with in each arm; only this differs between them.

`warm` and `placebo` are what Rekindle gives by itself, with its usual settings: turns where it can be.
`digest` is told in the system message what `warm` is shown. `naive` is what one would do without
choosing: every example of the past, pasted into the system message.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Literal, NamedTuple

from rekindle import Message, Store
from rekindle.agent.tools.schema_check import build_tool_checks
from rekindle.knowledge import tokens
from rekindle.learning.library import TemplateLibrary
from rekindle.learning.warm_start import (
    ArmAssignment,
    NewSession,
    Prelude,
    WarmStartConfig,
    WarmStarter,
    build_opening_messages,
)
from rekindle.types import Session

from . import agent
from .small import went_well
from .tasks import Task
from .world import World

Arm = Literal["cold", "warm", "digest", "placebo", "naive"]
ARMS: tuple[Arm, ...] = ("cold", "warm", "digest", "placebo", "naive")
NAIVE_HEAD = "Examples from earlier sessions:"
CHAT = Path(__file__).with_name("chat.jinja")
LONGEST_RESULT = 200  # characters


class Given(NamedTuple):
    """What goes before the first message, and what of it came from the past."""

    opening: tuple[Message, ...]
    tokens: int = 0
    patterns: int = 0
    why: str = ""

    @property
    def sign(self) -> str:
        """The same for the same beginning, told to the same agent in the same way."""
        said = [[message.role, message.text] for message in self.opening]
        calls = [[call.name, call.arguments] for m in self.opening for call in m.tool_calls]
        tools = [[name, tool.parameters] for name, tool in agent.TOOLBOX.tools.items()]
        written = CHAT.read_text()
        sent = json.dumps([said, calls, tools, agent.OPTIONS, agent.STEPS, written], sort_keys=True)
        return sha256(sent.encode()).hexdigest()[:16]


class Past(NamedTuple):
    """What is known from the sessions of the training tasks."""

    store: Store
    templates: TemplateLibrary
    pasted: str

    def given(
        self,
        arm: Arm,
        session: Session,
        task: Task,
        folder: Path,
        warming: WarmStartConfig = WarmStartConfig(),  # noqa: B008
    ) -> Given:
        """How a session begins in this arm."""
        if arm == "cold":
            return _given(Prelude())
        if arm == "naive":
            text = f"{agent.SYSTEM}\n\n{self.pasted}"
            count = self.pasted.count("\nUser: ")
            return Given(
                (Message("system", text),), tokens.estimate_text_tokens(self.pasted), count
            )

        if arm == "digest":
            return self.given("warm", session, task, folder, warming._replace(format="digest"))

        def drawn(_: Store, __: Session, ___: WarmStartConfig) -> ArmAssignment:
            return ArmAssignment(arm)

        starter = WarmStarter(self.store, warming, templates=self.templates, arm_policy=drawn)
        # Chance has a part in the placebo: it must be the same one when a run is taken up again.
        named = session._replace(id=f"{task.id}-{arm}")
        definitions = agent.TOOLBOX.build_definitions(agent.context_of(session, World(folder)))
        where = str(World(folder).work)
        return _given(
            starter.build_prelude(
                NewSession(named, task.ask, build_tool_checks(definitions), where)
            )
        )


def _given(prelude: Prelude) -> Given:
    begun = tuple(build_opening_messages(agent.SYSTEM, prelude.messages))
    return Given(begun, prelude.tokens, len(prelude.patterns), prelude.reason)


def pasted(store: Store, recorded: Sequence[tuple[Task, str]]) -> str:
    """Every call that went well in these sessions, with the request that it was made for."""
    parts = [NAIVE_HEAD]
    for task, session in recorded:
        lines = [f"User: {task.ask}"]
        asked: dict[str, str] = {}
        for message in store.messages(session):
            for call in message.tool_calls:
                asked[call.id] = f"Call: {call.name} {_arguments(call.arguments)}"
            if message.tool_call_id in asked and went_well(message):
                lines += [asked[message.tool_call_id], f"Result: {_result(message.text)}"]
        if len(lines) > 1:
            parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _arguments(arguments: object) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _result(text: str) -> str:
    return text if len(text) <= LONGEST_RESULT else f"{text[:LONGEST_RESULT]}…"
