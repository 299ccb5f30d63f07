"""Start a new session warm, with what is known about its project, or cold.

    first message, tools, folder → the arm (an experiment's, or the share kept cold) → the notes of the
    project, and those of a template that fits → rendering → the prelude

The prelude is a value: the caller puts it after the system messages, and stores it in the
transaction of the first message (`store_prelude`), so that every later turn sends the same bytes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias, TypeVar

from rekindle.config import Config
from rekindle.errors import InvalidInput, NotFound, RekindleError
from rekindle.experiments import experiment as trials
from rekindle.judging.tool_kinds import classify_tool
from rekindle.knowledge.notes.note import Recall
from rekindle.knowledge.placebo import render_placebo
from rekindle.knowledge.render import (
    DEFAULT_NOTES,
    DEFAULT_TOKENS,
    MAX_CONTEXT_CHARS,
    PreludeForm,
    RenderedPrelude,
    RenderOptions,
    Tools,
    render_examples,
    render_prelude,
)
from rekindle.knowledge.template_notes import convert_note
from rekindle.knowledge.tokens import estimate_message_tokens
from rekindle.projects import hash_folder
from rekindle.store import Store
from rekindle.store.learning.preludes import encode_prelude, hash_prelude
from rekindle.types import Message, Session, Template

from .arms import ArmAssignment, draw_assignment, draw_cold_share, hash_to_fraction
from .library import TemplateLibrary, update_index
from .notes.playbooks import find_project
from .notes.recall import recall_at_start
from .selection import (
    Selection,
    SessionScope,
    find_fitting_templates,
    select_notes,
    select_template,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

WARM, COLD, PLACEBO = trials.WARM, trials.COLD, trials.PLACEBO
INDEX_REFRESH_SECONDS = 5.0  # between index refreshes while the folder is unchanged
COLD_ARM_REASON = "assigned to the cold arm of an experiment"
RECOVERABLE_ERRORS = (
    RekindleError,
    OSError,
    ValueError,
)  # none of these may prevent a session from starting
REQUESTED = "given"  # the arm of a session whose template a person chose; not randomized


class WarmStartConfig(NamedTuple):
    """The settings of warm starts."""

    enabled: bool = True
    format: PreludeForm = "both"
    max_notes: int = DEFAULT_NOTES
    max_tokens: int = DEFAULT_TOKENS
    control_share: float = 0.1


# Assigns the arm of a session before selection; None for no assignment.
ArmPolicy: TypeAlias = Callable[[Store, Session, WarmStartConfig], ArmAssignment | None]


class Prelude(NamedTuple):
    """What a session starts with, and why; without messages it starts cold."""

    messages: tuple[Message, ...] = ()
    arm: str | None = None
    template: str | None = None
    revision: int | None = None
    hash: str | None = None
    tokens: int = 0
    reason: str = ""
    notes: tuple[str, ...] = ()  # ids
    experiment: trials.Experiment | None = None


class NewSession(NamedTuple):
    """A new session: its first message, its tools and its folder.

    `tools` checks the arguments of a call for each available tool. With an `owner`, no template of
    other owners' sessions is used.
    """

    session: Session
    text: str
    tools: Tools = MappingProxyType({})
    folder: str | None = None
    owner: str | None = None


def build_warm_start_config(config: Config) -> WarmStartConfig:
    """Build the warm start configuration from the settings."""
    settings = config.warm
    return WarmStartConfig(
        settings.enabled,
        settings.format,
        settings.max_notes,
        settings.max_tokens,
        float(settings.control_share),
    )


def create_warm_starter(
    config: Config,
    store: Store,
    template: str | None = None,
    *,
    shows_calls: bool = True,
    shared: bool = False,
) -> WarmStarter:
    """Create the starter of this home's sessions; `template` names one that all of them start from."""
    templates = TemplateLibrary.from_home(config.home)
    wanted = None if template is None else require_active(templates.find(template))
    return WarmStarter(
        store,
        build_warm_start_config(config),
        templates=templates,
        template=wanted,
        shows_calls=shows_calls,
        shared=shared,
    )


def require_active(template: Template) -> Template:
    """Return the template, or raise an error if it is quarantined or retired."""
    if template.state == "quarantined":
        raise InvalidInput(
            f"“{template.name}” is in quarantine: check it with `rekindle warm show {template.id}`,"
            f" then accept it with `rekindle warm accept {template.id}`"
        )
    if template.state == "retired":
        raise InvalidInput(
            f"“{template.name}” is retired; restore it with `rekindle warm accept {template.id}`"
        )
    return template


def assign_arm(store: Store, session: Session, config: WarmStartConfig) -> ArmAssignment | None:
    """Assign the arm in the running experiment or, for a share of all sessions, cold."""
    return draw_assignment(store, session.id, config.control_share)


def assign_cold_share(session: Session, config: WarmStartConfig) -> ArmAssignment | None:
    """Keep a share of all sessions cold outside of experiments."""
    return draw_cold_share(session.id, config.control_share)


class WarmStarter:
    """Builds the prelude of new sessions.

    `templates` is the library that the index is kept in sync with. `template` is one requested by a
    person, whatever fits; `arm_policy` decides who starts cold. `shared`: many people use this
    process, and each is told only what is known from their own sessions. `shows_calls`: the provider
    accepts tool calls that its model did not make.
    """

    def __init__(
        self,
        store: Store,
        config: WarmStartConfig,
        *,
        templates: TemplateLibrary | None = None,
        template: Template | None = None,
        shows_calls: bool = True,
        arm_policy: ArmPolicy = assign_arm,
        shared: bool = False,
    ) -> None:
        self.config = config
        self._store = store
        self._templates = templates
        self._last_refresh = (-1, 0.0)  # the folder's mtime, and when its files were read
        self._template = template
        self._shows_calls = shows_calls
        self._arm_policy = arm_policy
        self._shared = shared

    def build_prelude(self, new_session: NewSession) -> Prelude:
        """Build the prelude of a session."""
        if self._template is not None:
            return self._build_requested(self._template, new_session)
        if not self.config.enabled:
            return Prelude(reason="warm starts are disabled")
        assignment = self._arm_policy(self._store, new_session.session, self.config)
        try:
            return self._build_for_arm(new_session, assignment)
        except RECOVERABLE_ERRORS as error:
            # Keep the assignment: dropping sessions from one arm only would bias the experiment.
            logger.warning("session %s starts cold: %s", new_session.session.id, error)
            return _make_cold_prelude(assignment, str(error))

    def select(self, new_session: NewSession) -> Selection:
        """Select the template that fits this session and some of its notes, with the reason."""
        if self._templates is None:
            return Selection(None, (), "no template fits")
        self._refresh_index()
        scope = self._describe_scope(new_session)
        fitting = find_fitting_templates(self._store, self._templates, scope)
        return select_template(self._store, fitting, scope, new_session.text, new_session.tools)

    def recall_notes(self, new_session: NewSession) -> Recall:
        """Recall what is known about the project of the session.

        Where many people share the process: from sessions of the same owner only, and only if the
        speaker may run commands.
        """
        if not new_session.folder:
            return Recall()
        if self._shared:
            shapes = {classify_tool(name).shape for name in new_session.tools}
            owner = new_session.owner if "shell" in shapes else None
            from .notes.owners import recall_for_owner_at_start  # it loads what judges calls

            return recall_for_owner_at_start(
                self._store, new_session.folder, new_session.text, owner
            )
        return recall_at_start(self._store, new_session.folder, new_session.text)

    def _build_for_arm(self, new_session: NewSession, assignment: ArmAssignment | None) -> Prelude:
        tested = assignment.experiment.template if assignment and assignment.experiment else None
        if tested is not None:
            selection = self._select_tested(tested, new_session)
            if selection.template is not None:
                return self._build_from_selection(new_session, assignment, selection)
            assignment = assign_cold_share(new_session.session, self.config)  # takes no part
        if assignment is not None and assignment.experiment is not None and assignment.arm == COLD:
            return _make_cold_prelude(assignment, COLD_ARM_REASON)
        return self._build_from_selection(new_session, assignment, self.select(new_session))

    def _build_from_selection(
        self, new_session: NewSession, assignment: ArmAssignment | None, selection: Selection
    ) -> Prelude:
        if assignment is not None and assignment.experiment is not None and assignment.arm == COLD:
            return _make_cold_prelude(assignment, COLD_ARM_REASON)
        recall = self.recall_notes(new_session)
        if recall.notes:
            selection = selection.drop_known(recall.notes)
        prelude = self._make_prelude(new_session, recall, selection, WARM)
        if not prelude.messages:
            return _make_cold_prelude(assignment, selection.reason)
        if assignment is not None and assignment.arm == COLD:
            # Record the template, to know which sessions to compare it with.
            reason = f"kept cold for comparison; {prelude.reason}"
            return Prelude(arm=COLD, template=prelude.template, reason=reason)
        experiment = assignment.experiment if assignment else None
        if assignment is not None and assignment.arm == PLACEBO:
            return _make_placebo(prelude, new_session.session, experiment)
        return prelude._replace(experiment=experiment)

    def _select_tested(self, template: str, new_session: NewSession) -> Selection:
        """Select from the template of an experiment, in use or not, if it fits this session."""
        try:
            whole = self._templates.read(template) if self._templates is not None else None
        except NotFound:
            whole = None
        if whole is None:
            return Selection(None, (), "the template of the experiment no longer exists")
        scope = self._describe_scope(new_session)
        fitting = find_fitting_templates(self._store, self._templates, scope, [whole])
        return select_template(self._store, fitting, scope, new_session.text, new_session.tools)

    def _describe_scope(self, new_session: NewSession) -> SessionScope:
        project = find_project(self._store, new_session.folder) if new_session.folder else None
        return SessionScope(hash_folder(project), new_session.owner, self._shared)

    def _refresh_index(self) -> None:
        """Sync the index with the files if the folder changed, and periodically."""
        if self._templates is None:
            return
        try:
            changed = self._templates.folder.stat().st_mtime_ns
        except FileNotFoundError:
            changed = 0
        refresh = (changed, time.monotonic())
        if (
            refresh[0] == self._last_refresh[0]
            and refresh[1] - self._last_refresh[1] < INDEX_REFRESH_SECONDS
        ):
            return
        update_index(self._store, self._templates, on_error=logger.warning)
        self._last_refresh = refresh

    def _render(
        self, selection: Selection, new_session: NewSession, recall: Recall
    ) -> RenderedPrelude:
        if selection.template is None:
            return RenderedPrelude()
        options = RenderOptions(
            self.config.format,
            max(self.config.max_tokens - recall.tokens, 0),
            self.config.max_notes,
            True,
            MAX_CONTEXT_CHARS if selection.is_own else 0,
            self._shows_calls,
        )
        return render_prelude(selection.template, selection.notes, new_session.tools, options)

    def _build_requested(self, template: Template, new_session: NewSession) -> Prelude:
        recall = self.recall_notes(new_session)
        notes = select_notes(template, new_session.text, new_session.tools)
        reason = f"“{template.name}” was requested"
        selection = Selection(template, notes, reason, True).drop_known(recall.notes)
        return self._make_prelude(new_session, recall, selection, REQUESTED)

    def _make_prelude(
        self, new_session: NewSession, recall: Recall, selection: Selection, arm: str
    ) -> Prelude:
        rendered = self._render(selection, new_session, recall)
        examples = [convert_note(note) for note in recall.notes if note.kind == "example"]
        options = RenderOptions(self.config.format, calls=self._shows_calls)
        turns = render_examples(examples, new_session.tools, options)
        tokens = rendered.tokens + estimate_message_tokens(turns)
        rendered = rendered._replace(messages=(*rendered.messages, *turns), tokens=tokens)
        return _make_prelude(recall, rendered, arm, selection)


def begin_session(
    store: Store, starter: WarmStarter, new_session: NewSession, store_first: Callable[[Session], T]
) -> tuple[Session, T]:
    """Begin a session: `store_first` stores its first message, in one transaction with its prelude.

    If templates or their index fail, the session starts cold, and the log says why.
    """
    try:
        prelude = starter.build_prelude(new_session)
    except RECOVERABLE_ERRORS as error:
        logger.warning("session %s starts cold: %s", new_session.session.id, error)
        prelude = Prelude(reason=str(error))
    session = new_session.session._replace(arm=prelude.arm, template=prelude.template)

    def store_session() -> T:
        result = store_first(session)
        store_prelude(store, session, prelude)
        return result

    return session, store.transaction(store_session)


def build_opening_messages(system: str, prelude: Sequence[Message]) -> list[Message]:
    """Build the messages before the first one, with one system message: some models allow no more."""
    if prelude and prelude[0].role == "system":
        return [Message("system", f"{system}\n\n{prelude[0].text}"), *prelude[1:]]
    return [Message("system", system), *prelude]


def store_prelude(store: Store, session: Session, prelude: Prelude) -> None:
    """Store how a session was started. Call it in the transaction of its first message."""
    store.preludes.save(session, prelude.messages, revision=prelude.revision)
    if prelude.experiment is not None and prelude.arm is not None:
        store.experiments.record_assignment(
            prelude.experiment, session.id, session.owner, prelude.arm
        )


def _make_cold_prelude(assignment: ArmAssignment | None, reason: str) -> Prelude:
    """Make an empty prelude; in an experiment the session still counts in its arm."""
    if assignment is None or assignment.experiment is None:
        return Prelude(reason=reason)
    return Prelude(arm=assignment.arm, reason=reason, experiment=assignment.experiment)


def _make_prelude(
    recall: Recall, rendered: RenderedPrelude, arm: str, selection: Selection
) -> Prelude:
    """Put together what is known about the project and what the template says."""
    messages = rendered.messages
    reasons: list[str] = []
    if recall.notes:
        messages = tuple(build_opening_messages(recall.text, messages))
        count = len(recall.notes)
        reasons.append(f"{count} {'note' if count == 1 else 'notes'} of the project")
    template = selection.template if rendered.messages else None
    if template is not None:
        reasons.append(selection.reason)
    if not messages:
        return Prelude(reason=f"nothing to tell; {selection.reason}")
    return Prelude(
        messages,
        arm,
        template.id if template else None,
        template.revision if template else None,
        hash_prelude(encode_prelude(messages)),
        recall.tokens + rendered.tokens,
        "; ".join(reasons),
        (*(note.id for note in recall.notes), *rendered.notes),
    )


def _make_placebo(real: Prelude, session: Session, experiment: trials.Experiment | None) -> Prelude:
    """Make a prelude of general statements, as long as the real one."""
    start = int(hash_to_fraction(session.id) * 2**40)
    messages = (Message("system", render_placebo(real.tokens, start)),)
    return Prelude(
        messages,
        PLACEBO,
        hash=hash_prelude(encode_prelude(messages)),
        tokens=estimate_message_tokens(messages),
        reason="assigned to the placebo arm of an experiment",
        experiment=experiment,
    )
