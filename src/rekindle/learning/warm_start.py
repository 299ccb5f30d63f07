"""How a new session starts: warm, with what fits its first message, or cold.

    first message, tools, folder → the arm (an experiment's, or a share kept cold) → `warm.choose` over
    the index in the store → `warm.render` → the prelude

The prelude is a value: whoever runs the turn puts it behind the system messages, and keeps it in the
transaction of the first message (`keep`), so that every later turn sends the same bytes.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple, TypeAlias, TypeVar, cast

from rekindle.agent.model.providers import RULES, Provider
from rekindle.agent.tools.schema_check import read
from rekindle.config import Config
from rekindle.errors import InvalidInput, NotFound, RekindleError, ToolError
from rekindle.experiments import experiment as trials
from rekindle.knowledge.examples import Tools, example
from rekindle.knowledge.render import CONTEXT, MOST_PATTERNS, TOKENS, Form, Manner, Rendered, render
from rekindle.knowledge.selection import (
    FLOOR,
    PATTERNS,
    Ask,
    Candidate,
    Choice,
    Known,
    Picked,
    choose,
    is_for,
    may_use,
    words_of,
)
from rekindle.knowledge.text_matching import Request, terms
from rekindle.store import Store
from rekindle.store.learning.preludes import hash_of, packed
from rekindle.types import JSON, Message, Pattern, Session, Template

from .library import Templates, index

logger = logging.getLogger(__name__)

T = TypeVar("T")

WARM, COLD, PLACEBO = trials.WARM, trials.COLD, trials.PLACEBO
LOOK_SECONDS = 5.0  # between two looks at files in a folder that nothing came into or left
KEPT_COLD = "an experiment keeps it cold"
TROUBLE = (RekindleError, OSError, ValueError)  # whatever of it comes, a session starts
GIVEN = "given"  # the arm of a session whose template a person chose: chance had no part in it


class Warming(NamedTuple):
    """How sessions are warmed, as the settings want it."""

    enabled: bool = True
    form: Form = "both"
    patterns: int = PATTERNS
    tokens: int = TOKENS
    floor: float = FLOOR
    share_cold: float = 0.1


class Draw(NamedTuple):
    """The arm that chance gave a session, and the experiment that it takes part in, if any."""

    arm: str
    trial: trials.Trial | None = None


# Decides the arm of a session before anything is chosen for it; None where nothing decides.
Arm: TypeAlias = Callable[[Store, Session, Warming], Draw | None]


class Prelude(NamedTuple):
    """What a session is started with, and why; without messages it starts cold."""

    messages: tuple[Message, ...] = ()
    arm: str | None = None
    template: str | None = None
    revision: int | None = None
    hash: str | None = None
    tokens: int = 0
    why: str = ""
    patterns: tuple[str, ...] = ()
    trial: trials.Trial | None = None


class Newcomer(NamedTuple):
    """A session that begins: its first message, the tools it has, where it works.

    `tools` are definitions as the model gets them. With an `owner` it is told nothing that is known
    from sessions of others.
    """

    session: Session
    text: str
    tools: Sequence[Mapping[str, JSON]] = ()
    folder: str | None = None
    owner: str | None = None


def warming_of(config: Config) -> Warming:
    """How sessions are warmed, as the settings want it."""
    one = config.warm
    return Warming(
        one.enabled, one.form, one.patterns, one.tokens, one.floor, float(one.share_cold)
    )


def starter_of(
    config: Config,
    store: Store,
    provider: Provider = "openai",
    template: str | None = None,
    *,
    shared: bool = False,
) -> Starter:
    """What starts the sessions of this home; `template` names the one that all are to start from."""
    templates = Templates.of_home(config.home)
    wanted = None if template is None else accepted(templates.find(template))
    return Starter(
        store,
        warming_of(config),
        templates=templates,
        template=wanted,
        provider=provider,
        shared=shared,
    )


def accepted(template: Template) -> Template:
    """The template, or a refusal if it waits for somebody to look at it, or is out of use."""
    if template.state == "quarantined":
        raise InvalidInput(
            f"“{template.name}” is in quarantine: look at it with `rekindle warm show {template.id}`,"
            f" then accept it with `rekindle warm accept {template.id}`"
        )
    if template.state == "retired":
        raise InvalidInput(
            f"“{template.name}” is retired: `rekindle warm accept {template.id}` brings it back"
        )
    return template


def tools_of(definitions: Iterable[Mapping[str, JSON]]) -> Tools:
    """The tools at hand, from what the model is told about them."""
    found: dict[str, Callable[[Mapping[str, JSON]], bool]] = {}
    for one in definitions:
        about = cast("Mapping[str, JSON]", one.get("function", one))
        found[str(about.get("name"))] = _taking(cast("Mapping[str, JSON]", about["parameters"]))
    return found


def _taking(schema: Mapping[str, JSON]) -> Callable[[Mapping[str, JSON]], bool]:
    def takes(arguments: Mapping[str, JSON]) -> bool:
        try:
            read(schema, arguments)
        except ToolError:
            return False
        return True

    return takes


def drawn(store: Store, session: Session, warming: Warming) -> Draw | None:
    """The arm in the running experiment; else, for a share of all sessions, cold."""
    running = store.trials.running()
    if running is not None:
        return Draw(trials.assign(running, session.id), running)
    return everyday(session, warming)


def everyday(session: Session, warming: Warming) -> Draw | None:
    """Without an experiment a share of all sessions is kept cold."""
    return Draw(COLD) if _chance(session.id) < warming.share_cold else None


def _chance(name: str) -> float:
    """A number from 0 to 1 that is always the same for the same name."""
    digest = blake2b(name.encode("utf-8", "replace"), digest_size=8, person=b"cold").digest()
    return int.from_bytes(digest) / 2**64


class Starter:
    """Starts sessions: give it the newcomer, it gives the prelude.

    `templates` are the files that the index is held against each time. `template` is what a person
    wants to start from, whatever fits; `arm` decides who starts cold. `shared`: many people talk to
    this program, and each is told only what is known from sessions of their own.
    """

    def __init__(
        self,
        store: Store,
        warming: Warming,
        *,
        templates: Templates | None = None,
        template: Template | None = None,
        provider: Provider = "openai",
        arm: Arm = drawn,
        shared: bool = False,
    ) -> None:
        self.warming = warming
        self._store = store
        self._templates = templates
        self._looked = (-1, 0.0)  # the folder's time of change, and when we looked at its files
        self._template = template
        self._calls = not RULES[provider].signed
        self._arm = arm
        self._shared = shared

    def prelude(self, newcomer: Newcomer) -> Prelude:
        """What this session is started with."""
        tools = tools_of(newcomer.tools)
        if self._template is not None:
            return self._given(self._template, newcomer, tools)
        if not self.warming.enabled:
            return Prelude(why="warm starts are switched off")
        draw = self._arm(self._store, newcomer.session, self.warming)
        try:
            return self._drawn(newcomer, tools, draw)
        except TROUBLE as error:
            # Drawn is drawn: a session that was lost from one arm alone would tilt the experiment.
            logger.warning("session %s starts cold: %s", newcomer.session.id, error)
            return _empty(draw, str(error))

    def _drawn(self, newcomer: Newcomer, tools: Tools, draw: Draw | None) -> Prelude:
        about = draw.trial.template if draw and draw.trial else None
        if about is not None:
            choice = self._choose_of(about, newcomer, tools)
            if choice.template is not None:
                return self._made(newcomer, tools, draw, choice)
            draw = everyday(newcomer.session, self.warming)  # it takes no part
        if draw is not None and draw.trial is not None and draw.arm == COLD:
            return _empty(draw, KEPT_COLD)
        return self._made(newcomer, tools, draw, self.choose(newcomer, tools))

    def _made(self, newcomer: Newcomer, tools: Tools, draw: Draw | None, choice: Choice) -> Prelude:
        if choice.template is None:
            return _empty(draw, choice.why)
        if draw is not None and draw.arm == COLD:
            if draw.trial is not None:
                return _empty(draw, KEPT_COLD)
            # What was chosen for it says whom to compare it with.
            kept = f"kept cold to compare with; {choice.why}"
            return Prelude(arm=COLD, template=choice.template.id, why=kept)
        found = self._rendered(choice.template, choice, newcomer.owner)
        if draw is not None and draw.arm == PLACEBO:
            found = self._placebo(newcomer, tools, found)
            made = _prelude(
                found, PLACEBO, choice, "an experiment gives it what does not fit", draw
            )
            return made._replace(template=None, revision=None)  # what it is given is not from there
        return _prelude(found(tools), WARM, choice, choice.why, draw)

    def choose(self, newcomer: Newcomer, tools: Tools) -> Choice:
        """What would be chosen for this session, and why."""
        self._look_at_files()
        found = self._store.choosing.candidates(terms(newcomer.text))
        return choose(
            self._ask(newcomer, tools),
            found.candidates,
            found.known,
            self._store.choosing.records,
            patterns=self.warming.patterns,
            floor=self.warming.floor,
        )

    def _choose_of(self, template: str, newcomer: Newcomer, tools: Tools) -> Choice:
        """What fits of one template, in use or not; nothing, if it is gone."""
        try:
            whole = cast("Templates", self._templates).read(template)
        except NotFound:
            return Choice(None, (), "the template of the experiment is gone")
        head = whole._replace(patterns=(), state="active")
        known = self._store.choosing.candidates(terms(newcomer.text)).known
        return choose(
            self._ask(newcomer, tools),
            self._store.choosing.placed([Candidate(head, one) for one in whole.patterns]),
            known,
            patterns=self.warming.patterns,
            floor=self.warming.floor,
        )

    def _ask(self, newcomer: Newcomer, tools: Tools) -> Ask:
        session = newcomer.session
        now = session.started or time.time()
        return Ask(
            newcomer.text, tools, newcomer.folder, now, session.id, newcomer.owner, self._shared
        )

    def _look_at_files(self) -> None:
        """Hold the index against the files: when one came or went, and now and then anyway."""
        if self._templates is None:
            return
        try:
            changed = self._templates.folder.stat().st_mtime_ns
        except FileNotFoundError:
            changed = 0
        looked = (changed, time.monotonic())
        if looked[0] == self._looked[0] and looked[1] - self._looked[1] < LOOK_SECONDS:
            return
        index(self._store, self._templates, tell=logger.warning)
        self._looked = looked

    def _rendered(
        self, template: Template, choice: Choice, owner: str | None
    ) -> Callable[[Tools], Rendered]:
        # What was said of files and wishes holds where it was said, and is in the way elsewhere.
        here = any(one.here for one in choice.picked)
        known = {name for one in choice.patterns for name in one.sessions}
        own = not self._shared or owner is None or is_for(owner, template)
        manner = self._manner(CONTEXT if here and (own or known >= {*template.sources}) else 0)
        return lambda tools: render(template, choice.patterns, tools, manner)

    def _manner(self, context: int, patterns: int | None = None) -> Manner:
        one = self.warming
        most = one.patterns if patterns is None else patterns
        return Manner(one.form, one.tokens, most, True, context, self._calls)

    def _given(self, template: Template, newcomer: Newcomer, tools: Tools) -> Prelude:
        choice = chosen_of(template, self._ask(newcomer, tools), self.warming.patterns)
        found = render(template, choice.patterns, tools, self._manner(CONTEXT))
        return _prelude(found, GIVEN, choice, choice.why, None)

    def _placebo(
        self, newcomer: Newcomer, tools: Tools, wanted: Callable[[Tools], Rendered]
    ) -> Rendered:
        """As much as the right examples would take, of what has nothing to do with the request."""
        real = wanted(tools)
        start = int(_chance(newcomer.session.id) * 2**40)
        request, ask = Request(newcomer.text, {}, 0), self._ask(newcomer, tools)
        strange = [
            one.pattern
            for one in self._store.choosing.others(start)
            if request.fit(words_of(one.pattern)) == 0.0
            and example(one.pattern, tools)
            and may_use(ask, one)
        ]
        manner = self._manner(0, len(real.patterns))._replace(tokens=max(real.tokens, 60))
        return render(Template("placebo", "placebo"), strange, tools, manner)


def begin(
    store: Store, starter: Starter, newcomer: Newcomer, first: Callable[[Session], T]
) -> tuple[Session, T]:
    """Start a session: `first` stores its first message, and with it goes what it is started with.

    Whatever is wrong with templates or their index, the session starts: cold, and the log says why.
    """
    try:
        prelude = starter.prelude(newcomer)
    except TROUBLE as error:
        logger.warning("session %s starts cold: %s", newcomer.session.id, error)
        prelude = Prelude(why=str(error))
    session = newcomer.session._replace(arm=prelude.arm, template=prelude.template)

    def work() -> T:
        done = first(session)
        keep(store, session, prelude)
        return done

    return session, store.together(work)


def opening(system: str, prelude: Sequence[Message]) -> list[Message]:
    """What goes before the first message: one system message, since some models know no second."""
    if prelude and prelude[0].role == "system":
        return [Message("system", f"{system}\n\n{prelude[0].text}"), *prelude[1:]]
    return [Message("system", system), *prelude]


def keep(store: Store, session: Session, prelude: Prelude) -> None:
    """Remember how a session was started. Do it in the transaction of its first message."""
    store.preludes.keep(session, prelude.messages, revision=prelude.revision)
    if prelude.trial is not None and prelude.arm is not None:
        store.trials.record(prelude.trial, session.id, session.owner, prelude.arm)


def chosen_of(template: Template, ask: Ask, most: int = PATTERNS) -> Choice:
    """The patterns of one template that fit best; where none fits, those worth most."""
    head = template._replace(patterns=(), state="active")
    candidates = [Candidate(head, pattern) for pattern in template.patterns]
    counts = Counter(word for one in template.patterns for word in words_of(one).words)
    known = Known(counts, len(template.patterns))
    found = choose(ask, candidates, known, patterns=most, floor=0.01)
    if found.template is not None:
        return found._replace(template=template)
    usable = sorted(
        (one for one in template.patterns if _is_safe(one) and example(one, ask.tools)),
        key=lambda one: (-one.score, one.id),
    )[: min(most, MOST_PATTERNS)]
    picked = tuple(Picked(one, 0.0) for one in usable)
    why = f"“{template.name}” was asked for; nothing in it is about this, so its best is shown"
    return Choice(template, picked, why if picked else "its tools are not here")


def _is_safe(pattern: Pattern) -> bool:
    return not pattern.tainted


def _empty(draw: Draw | None, why: str) -> Prelude:
    """Nothing to start with; in an experiment the session counts in its arm all the same."""
    if draw is None or draw.trial is None:
        return Prelude(why=why)
    return Prelude(arm=draw.arm, why=why, trial=draw.trial)


def _prelude(found: Rendered, arm: str, choice: Choice, why: str, draw: Draw | None) -> Prelude:
    template = choice.template
    if not found.messages or template is None:
        return _empty(draw, f"nothing can be shown; {why}")
    return Prelude(
        found.messages,
        arm,
        template.id,
        template.revision,
        hash_of(packed(found.messages)),
        found.tokens,
        why,
        found.patterns,
        draw.trial if draw else None,
    )
