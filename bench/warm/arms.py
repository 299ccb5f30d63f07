"""What a session is started with in each arm; only this differs between them.

`warm` and `placebo` are what Rekindle gives by itself, with its usual settings: the notes of the project
and of its template, or general statements of the same length; after a failed call `warm` also gets what
is known about it. `naive` is what one would do without
choosing: the 12 commonest commands and the 8 commonest files of the past.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Literal, NamedTuple

from rekindle import Message, Store
from rekindle.agent.tools.schema_check import build_tool_checks
from rekindle.agent.turn import Advisor
from rekindle.knowledge.notes.note import Recall
from rekindle.knowledge.notes.playbook import Playbook
from rekindle.knowledge.notes.replay import NaiveRecaller
from rekindle.learning.library import TemplateLibrary
from rekindle.learning.notes.advice import create_project_advisor
from rekindle.learning.notes.playbooks import find_project, load_playbook
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
from .sets import find_set
from .tasks import Task
from .world import World

Arm = Literal["cold", "warm", "placebo", "naive"]
ARMS: tuple[Arm, ...] = ("cold", "warm", "placebo", "naive")
CHAT = Path(__file__).with_name("chat.jinja")


class Given(NamedTuple):
    """What goes before the first message, and what of it came from the past."""

    opening: tuple[Message, ...]
    tokens: int = 0
    notes: int = 0
    why: str = ""
    advise: Advisor | None = None  # what is told at a failure

    @property
    def sign(self) -> str:
        """The same for the same beginning, told to the same agent in the same way."""
        said = [[message.role, message.text] for message in self.opening]
        calls = [[call.name, call.arguments] for m in self.opening for call in m.tool_calls]
        tools = [[name, tool.parameters] for name, tool in agent.TOOLBOX.tools.items()]
        written = CHAT.read_text()
        all_sent = [said, calls, tools, agent.OPTIONS, agent.STEPS, written]
        if self.advise is not None:
            all_sent.append("advised")
        sent = json.dumps(all_sent, sort_keys=True)
        return sha256(sent.encode()).hexdigest()[:16]


class Past(NamedTuple):
    """What is known from the sessions of the training tasks."""

    store: Store
    templates: TemplateLibrary

    def given(self, arm: Arm, session: Session, task: Task, folder: Path) -> Given:
        """Return how a session begins in this arm."""
        system = find_set(task).system
        if arm == "cold":
            return _given(Prelude(), system)
        where = str(World(folder).work)
        if arm == "naive":
            recall = self._list_commonest(where, task.ask)
            text = f"{system}\n\n{recall.text}" if recall.text else system
            return Given((Message("system", text),), recall.tokens, len(recall.notes))

        def assign_arm(_: Store, __: Session, ___: WarmStartConfig) -> ArmAssignment:
            return ArmAssignment(arm)

        starter = WarmStarter(
            self.store, WarmStartConfig(), templates=self.templates, arm_policy=assign_arm
        )
        # Chance has a part in the placebo: it must be the same one when a run is taken up again.
        named = session._replace(id=f"{task.id}-{arm}")
        definitions = agent.TOOLBOX.build_definitions(agent.build_context(session, World(folder)))
        given = _given(
            starter.build_prelude(
                NewSession(named, task.ask, build_tool_checks(definitions), where)
            ),
            system,
        )
        if arm == "warm" and given.notes:
            return given._replace(advise=create_project_advisor(self.store, where))
        return given

    def _list_commonest(self, where: str, ask: str) -> Recall:
        project = find_project(self.store, where)
        playbook = Playbook() if project is None else load_playbook(self.store, project)
        return NaiveRecaller().answer_start(playbook, ask)


def _given(prelude: Prelude, system: str) -> Given:
    begun = tuple(build_opening_messages(system, prelude.messages))
    return Given(begun, prelude.tokens, len(prelude.notes), prelude.reason)
