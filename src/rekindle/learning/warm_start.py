"""Start a new session warm, with examples that fit its first message, or cold.

    first message, tools, folder → the arm (an experiment's, or the share kept cold) → selection from
    the index in the store → rendering → the prelude

The prelude is a value: the caller puts it after the system messages, and stores it in the
transaction of the first message (`store_prelude`), so that every later turn sends the same bytes.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias, TypeVar, cast

from rekindle.config import Config
from rekindle.errors import InvalidInput, NotFound, RekindleError
from rekindle.experiments import experiment as trials
from rekindle.knowledge.examples import Tools, build_example
from rekindle.knowledge.pattern_index import CandidatePattern, WordCounts, weigh_pattern_words
from rekindle.knowledge.render import (
    DEFAULT_TOKENS,
    MAX_CONTEXT_CHARS,
    MAX_PATTERNS,
    PreludeForm,
    RenderedPrelude,
    RenderOptions,
    render_prelude,
)
from rekindle.knowledge.selection import (
    DEFAULT_FLOOR,
    DEFAULT_PATTERNS,
    SelectedPattern,
    Selection,
    SelectionRequest,
    can_use_pattern,
    is_visible_to,
    select_template,
)
from rekindle.knowledge.text_matching import RequestMatcher, extract_terms
from rekindle.store import Store
from rekindle.store.learning.preludes import encode_prelude, hash_prelude
from rekindle.types import Message, Pattern, Session, Template

from .arms import ArmAssignment, draw_assignment, draw_cold_share, hash_to_fraction
from .library import TemplateLibrary, update_index
from .notes.recall import recall_at_start

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
    max_examples: int = DEFAULT_PATTERNS
    max_tokens: int = DEFAULT_TOKENS
    min_score: float = DEFAULT_FLOOR
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
    patterns: tuple[str, ...] = ()
    experiment: trials.Experiment | None = None


class NewSession(NamedTuple):
    """A new session: its first message, its tools and its folder.

    `tools` checks the arguments of a call for each available tool. With an `owner`, nothing from
    sessions of     other owners is used.
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
        settings.max_examples,
        settings.max_tokens,
        settings.min_score,
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
    process, and each is shown only what is known from their own sessions. `shows_calls`: the provider
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
        tools = new_session.tools
        if self._template is not None:
            return self._build_requested(self._template, new_session, tools)
        if not self.config.enabled:
            return Prelude(reason="warm starts are disabled")
        assignment = self._arm_policy(self._store, new_session.session, self.config)
        try:
            prelude = self._build_for_arm(new_session, tools, assignment)
            is_warm = assignment is None or assignment.arm == WARM
            return self._add_notes(prelude, new_session) if is_warm else prelude
        except RECOVERABLE_ERRORS as error:
            # Keep the assignment: dropping sessions from one arm only would bias the experiment.
            logger.warning("session %s starts cold: %s", new_session.session.id, error)
            return _make_cold_prelude(assignment, str(error))

    def _add_notes(self, prelude: Prelude, new_session: NewSession) -> Prelude:
        """Add what is known about the project of the session's folder, unless many people share it."""
        if self._shared or not new_session.folder:
            return prelude
        recall = recall_at_start(self._store, new_session.folder, new_session.text)
        if not recall.notes:
            return prelude
        messages = tuple(build_opening_messages(recall.text, prelude.messages))
        count = len(recall.notes)
        notes = f"{count} {'note' if count == 1 else 'notes'} of the project"
        return prelude._replace(
            messages=messages,
            arm=WARM,
            hash=hash_prelude(encode_prelude(messages)),
            tokens=prelude.tokens + recall.tokens,
            reason=f"{notes}; {prelude.reason}" if prelude.messages else notes,
        )

    def _build_for_arm(
        self, new_session: NewSession, tools: Tools, assignment: ArmAssignment | None
    ) -> Prelude:
        template_id = (
            assignment.experiment.template if assignment and assignment.experiment else None
        )
        if template_id is not None:
            selection = self._select_from(template_id, new_session, tools)
            if selection.template is not None:
                return self._build_from_selection(new_session, tools, assignment, selection)
            assignment = assign_cold_share(
                new_session.session, self.config
            )  # not part of the experiment
        if assignment is not None and assignment.experiment is not None and assignment.arm == COLD:
            return _make_cold_prelude(assignment, COLD_ARM_REASON)
        return self._build_from_selection(
            new_session, tools, assignment, self.select(new_session, tools)
        )

    def _build_from_selection(
        self,
        new_session: NewSession,
        tools: Tools,
        assignment: ArmAssignment | None,
        selection: Selection,
    ) -> Prelude:
        if selection.template is None:
            return _make_cold_prelude(assignment, selection.reason)
        if assignment is not None and assignment.arm == COLD:
            if assignment.experiment is not None:
                return _make_cold_prelude(assignment, COLD_ARM_REASON)
            # Record the selected template, to know which sessions to compare it with.
            reason = f"kept cold for comparison; {selection.reason}"
            return Prelude(arm=COLD, template=selection.template.id, reason=reason)
        renderer = self._make_renderer(selection.template, selection, new_session.owner)
        if assignment is not None and assignment.arm == PLACEBO:
            renderer = self._render_placebo(new_session, tools, renderer)
            prelude = _make_prelude(
                renderer,
                PLACEBO,
                selection,
                "assigned to the placebo arm of an experiment",
                assignment,
            )
            return prelude._replace(template=None, revision=None)  # a placebo is not from it
        return _make_prelude(renderer(tools), WARM, selection, selection.reason, assignment)

    def select(self, new_session: NewSession, tools: Tools) -> Selection:
        """Select what fits this session, with the reason."""
        self._refresh_index()
        found = self._store.template_search.find_candidates(extract_terms(new_session.text))
        return select_template(
            self._build_request(new_session, tools),
            found.candidates,
            found.word_counts,
            self._store.template_search.load_stats,
            patterns=self.config.max_examples,
            floor=self.config.min_score,
        )

    def _select_from(self, template: str, new_session: NewSession, tools: Tools) -> Selection:
        """Select what fits from one template, in use or not; nothing if it no longer exists."""
        try:
            whole = cast("TemplateLibrary", self._templates).read(template)
        except NotFound:
            return Selection(None, (), "the template of the experiment no longer exists")
        head = whole._replace(patterns=(), state="active")
        known = self._store.template_search.find_candidates(
            extract_terms(new_session.text)
        ).word_counts
        return select_template(
            self._build_request(new_session, tools),
            self._store.template_search.add_session_origins(
                [CandidatePattern(head, one) for one in whole.patterns]
            ),
            known,
            patterns=self.config.max_examples,
            floor=self.config.min_score,
        )

    def _build_request(self, new_session: NewSession, tools: Tools) -> SelectionRequest:
        session = new_session.session
        now = session.started or time.time()
        return SelectionRequest(
            new_session.text,
            tools,
            new_session.folder,
            now,
            session.id,
            new_session.owner,
            self._shared,
        )

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

    def _make_renderer(
        self, template: Template, selection: Selection, owner: str | None
    ) -> Callable[[Tools], RenderedPrelude]:
        # Instructions and file names apply only in the project they come from.
        here = any(one.here for one in selection.picked)
        known = {name for one in selection.patterns for name in one.sessions}
        own = not self._shared or owner is None or is_visible_to(owner, template)
        options = self._build_render_options(
            MAX_CONTEXT_CHARS if here and (own or known >= {*template.sources}) else 0
        )
        return lambda tools: render_prelude(template, selection.patterns, tools, options)

    def _build_render_options(self, context: int, patterns: int | None = None) -> RenderOptions:
        config = self.config
        max_patterns = config.max_examples if patterns is None else patterns
        return RenderOptions(
            config.format, config.max_tokens, max_patterns, True, context, self._shows_calls
        )

    def _build_requested(
        self, template: Template, new_session: NewSession, tools: Tools
    ) -> Prelude:
        selection = select_from_template(
            template, self._build_request(new_session, tools), self.config.max_examples
        )
        found = render_prelude(
            template, selection.patterns, tools, self._build_render_options(MAX_CONTEXT_CHARS)
        )
        return _make_prelude(found, REQUESTED, selection, selection.reason, None)

    def _render_placebo(
        self, new_session: NewSession, tools: Tools, renderer: Callable[[Tools], RenderedPrelude]
    ) -> RenderedPrelude:
        """Render unrelated examples, as long as the fitting ones would be."""
        real = renderer(tools)
        start = int(hash_to_fraction(new_session.session.id) * 2**40)
        request, selection_request = (
            RequestMatcher(new_session.text, {}, 0),
            self._build_request(new_session, tools),
        )
        unrelated = [
            one.pattern
            for one in self._store.template_search.sample_patterns(start)
            if request.compute_fit(weigh_pattern_words(one.pattern)) == 0.0
            and build_example(one.pattern, tools)
            and can_use_pattern(selection_request, one)
        ]
        options = self._build_render_options(0, len(real.patterns))._replace(
            tokens=max(real.tokens, 60)
        )
        return render_prelude(Template("placebo", "placebo"), unrelated, tools, options)


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


def select_from_template(
    template: Template, request: SelectionRequest, max_patterns: int = DEFAULT_PATTERNS
) -> Selection:
    """Select the patterns of one template that fit best or, if none fits, the highest scored."""
    head = template._replace(patterns=(), state="active")
    candidates = [CandidatePattern(head, pattern) for pattern in template.patterns]
    counts = Counter(word for one in template.patterns for word in weigh_pattern_words(one).words)
    known = WordCounts(counts, len(template.patterns))
    found = select_template(request, candidates, known, patterns=max_patterns, floor=0.01)
    if found.template is not None:
        return found._replace(template=template)
    usable = sorted(
        (one for one in template.patterns if _is_safe(one) and build_example(one, request.tools)),
        key=lambda one: (-one.score, one.id),
    )[: min(max_patterns, MAX_PATTERNS)]
    picked = tuple(SelectedPattern(one, 0.0) for one in usable)
    reason = f"“{template.name}” was requested; nothing in it fits, so its best examples are shown"
    return Selection(template, picked, reason if picked else "its tools are not available")


def _is_safe(pattern: Pattern) -> bool:
    return not pattern.tainted


def _make_cold_prelude(assignment: ArmAssignment | None, reason: str) -> Prelude:
    """Make an empty prelude; in an experiment the session still counts in its arm."""
    if assignment is None or assignment.experiment is None:
        return Prelude(reason=reason)
    return Prelude(arm=assignment.arm, reason=reason, experiment=assignment.experiment)


def _make_prelude(
    rendered: RenderedPrelude,
    arm: str,
    selection: Selection,
    reason: str,
    assignment: ArmAssignment | None,
) -> Prelude:
    template = selection.template
    if not rendered.messages or template is None:
        return _make_cold_prelude(assignment, f"nothing to show; {reason}")
    return Prelude(
        rendered.messages,
        arm,
        template.id,
        template.revision,
        hash_prelude(encode_prelude(rendered.messages)),
        rendered.tokens,
        reason,
        rendered.patterns,
        assignment.experiment if assignment else None,
    )
