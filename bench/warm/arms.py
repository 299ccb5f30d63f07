"""The start of a session in each arm, which is the only difference between arms.

`warm` and `placebo` use Rekindle's default settings: the notes of the project and of its template, or
general statements of the same length; after a failed call, `warm` also gets the notes about it. `naive`
gets an unselected list: the 12 most common commands and the 8 most common files of the past.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Literal, NamedTuple

from bench.warm.tasks.harbour_tasks import Task
from bench.warm.tasks.harbour_world import World
from bench.warm.tasks.task_sets import find_set
from rekindle import Message, Store
from rekindle.agent.tools.schema_check import build_tool_checks
from rekindle.agent.turn import Advisor
from rekindle.config.schema import WarmSection
from rekindle.knowledge.notes.note import Recall
from rekindle.knowledge.notes.playbook import Playbook
from rekindle.knowledge.notes.replay import NaiveRecaller
from rekindle.learning.advice import NO_ADVICE, create_project_advisor
from rekindle.learning.library import TemplateLibrary
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

Arm = Literal["cold", "warm", "placebo", "naive"]
ARMS: tuple[Arm, ...] = ("cold", "warm", "placebo", "naive")
CHAT = Path(__file__).parent / "model" / "chat.jinja"


class SessionStart(NamedTuple):
    """The messages before the first one, and the number of notes and tokens in them."""

    opening: tuple[Message, ...]
    tokens: int = 0
    notes: int = 0
    why: str = ""
    advisor: Advisor = NO_ADVICE  # advises after a failure

    @property
    def sign(self) -> str:
        """A hash of everything that the start of a session depends on."""
        said = [[message.role, message.text] for message in self.opening]
        calls = [[call.name, call.arguments] for m in self.opening for call in m.tool_calls]
        tools = [[name, tool.parameters] for name, tool in agent.TOOLBOX.tools.items()]
        written = CHAT.read_text()
        all_sent = [said, calls, tools, agent.OPTIONS, agent.STEPS, written]
        if self.advisor.after_call is not None:
            all_sent.append("advised")
        sent = json.dumps(all_sent, sort_keys=True)
        return sha256(sent.encode()).hexdigest()[:16]


class TrainedStore(NamedTuple):
    """The store and the templates that were learned from the training tasks."""

    store: Store
    templates: TemplateLibrary

    def build_start(self, arm: Arm, session: Session, task: Task, folder: Path) -> SessionStart:
        """Return the start of a session in this arm."""
        system = find_set(task).system
        if arm == "cold":
            return _build_start(Prelude(), system)
        where = str(World(folder).work)
        if arm == "naive":
            recall = self._list_commonest(where, task.ask)
            text = f"{system}\n\n{recall.text}" if recall.text else system
            return SessionStart((Message("system", text),), recall.tokens, len(recall.notes))

        def assign_arm(_: Store, __: Session, ___: WarmStartConfig) -> ArmAssignment:
            return ArmAssignment(arm)

        starter = WarmStarter(
            self.store, WarmStartConfig(), templates=self.templates, arm_policy=assign_arm
        )
        # The placebo is drawn at random: a resumed run must get the same one.
        named = session._replace(id=f"{task.id}-{arm}")
        definitions = agent.TOOLBOX.build_definitions(agent.build_context(session, World(folder)))
        given = _build_start(
            starter.build_prelude(
                NewSession(named, task.ask, build_tool_checks(definitions), where)
            ),
            system,
        )
        if arm == "warm" and given.notes:
            advisor = create_project_advisor(WarmSection(), self.store, named, where)
            return given._replace(advisor=advisor)
        return given

    def _list_commonest(self, where: str, ask: str) -> Recall:
        project = find_project(self.store, where)
        playbook = Playbook() if project is None else load_playbook(self.store, project)
        return NaiveRecaller().answer_start(playbook, ask)


def _build_start(prelude: Prelude, system: str) -> SessionStart:
    begun = tuple(build_opening_messages(system, prelude.messages))
    return SessionStart(begun, prelude.tokens, len(prelude.notes), prelude.reason)
