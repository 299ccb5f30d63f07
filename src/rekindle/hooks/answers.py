"""Answer hooks at the start of a session, with its first prompt, before a call and after a failure."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from rekindle.experiments.experiment import COLD, PLACEBO, WARM, Experiment
from rekindle.knowledge.notes.note import Recall
from rekindle.learning.arms import ArmAssignment, draw_assignment, draw_cold_share
from rekindle.store import Store

from .context_text import (
    CALL_HEADING,
    FAILURE_HEADING,
    HEADING,
    STOPPED,
    encode_answer,
    encode_refusal,
    render_context,
)
from .events import HookInput, HookRequest, ImportJob, PlannedCall, move_call, parse_input
from .home_store import HomeStore, HookSettings
from .note_sources import NoteProvider, find_note_source
from .session_state import SessionState, SessionStates
from .troubles import describe_error, record_trouble

# A session that goes on, or a copy of one, has in its messages what it was told at its start.
_CONTINUED_SOURCES = ("resume", "fork")
_COMPACTED = "compact"
# These do not store what hooks say, and have to be told again.
_FORGETFUL_AGENTS = ("gemini",)

# After trouble before a call: a slow server must not delay every command of an agent.
PAUSE_SECONDS = 60.0

NOTHING = b""


class HookAnswerer:
    """Answers the hooks of one home; never raises, so that no agent ever sees an error.

    `write_later` runs what need not be done before the answer; `start_import` starts a job.
    """

    def __init__(
        self,
        home: Path,
        *,
        write_later: Callable[[Callable[[], None]], None],
        start_import: Callable[[ImportJob], None],
    ) -> None:
        self._home = home
        self._stores = HomeStore(home)
        self._states = SessionStates(home)
        self._write_later = write_later
        self._start_import = start_import
        self._stopping = Lock()
        self._paused_until = 0.0

    def answer(self, request: HookRequest) -> bytes:
        """Return what the hook prints: JSON or nothing."""
        try:
            return self._answer(parse_input(request), request)
        except Exception as error:  # noqa: BLE001  # whatever it is, the agent must go on
            self._stores.forget()
            hook = f"{request.agent[:40]} {request.event[:40]}"
            record_trouble(self._home, hook, describe_error(error))
            return NOTHING

    def _answer(self, given: HookInput, request: HookRequest) -> bytes:
        if given.event in ("end", "compact"):
            if given.transcript is not None:
                self._start_import(
                    ImportJob(
                        agent=given.agent,
                        session=given.session,
                        transcript=given.transcript,
                        cwd=given.cwd,
                        settings=request.settings,
                    )
                )
            return NOTHING
        if given.event == "failure" and given.failure is None:
            return NOTHING  # it did not fail
        settings, store = self._stores.get(request.settings)
        if given.event == "call" and (given.call is None or not settings.before_call):
            return NOTHING
        if given.event == "failure" and not settings.at_failure:
            return NOTHING
        source = find_note_source(settings, store)
        if source is None or not settings.is_warm:
            return NOTHING
        state = self._states.load(given.agent, given.session)
        is_known = state is not None
        if state is None:
            state = self._begin_session(settings, store, given)
        if given.event == "start":
            return self._answer_start(source, given, state, is_known)
        if given.event == "prompt":
            return self._answer_prompt(source, given, state)
        if given.event == "call":
            return self._answer_call(source, given, state)
        return self._answer_failure(source, given, state)

    # ── arms

    def _begin_session(
        self, settings: HookSettings, store: Store | None, given: HookInput
    ) -> SessionState:
        """Assign the arm of a session that hooks see for the first time."""
        assignment = self._draw_arm(settings, store, given)
        state = SessionState(folder=given.cwd)
        if assignment is not None:
            state.arm = assignment.arm
            if (experiment := assignment.experiment) is not None and store is not None:
                state.experiment = experiment.name
                self._write_later(
                    lambda: store.experiments.record_assignment(
                        experiment, given.session, None, assignment.arm
                    )
                )
        return state

    def _draw_arm(
        self, settings: HookSettings, store: Store | None, given: HookInput
    ) -> ArmAssignment | None:
        share = settings.control_share
        if store is None:
            return draw_cold_share(given.session, share)
        assignment = draw_assignment(store, given.session, share)
        if assignment is None or assignment.experiment is None:
            return assignment
        # Its first requests were made before it could be assigned: it cannot take part.
        is_late = given.event != "start" or given.source in (*_CONTINUED_SOURCES, _COMPACTED)
        if is_late or not _can_take_part(assignment.experiment):
            return draw_cold_share(given.session, share)
        return assignment

    # ── events

    def _answer_start(
        self, source: NoteProvider, given: HookInput, state: SessionState, is_known: bool
    ) -> bytes:
        if given.source == "resume" and given.agent in _FORGETFUL_AGENTS and state.said:
            return encode_answer(given.name, state.said[0])
        is_repeated = is_known and given.source != _COMPACTED
        if is_repeated or given.source in _CONTINUED_SOURCES or state.arm == COLD:
            self._save(given, state)
            return NOTHING
        recall = source.recall_start(given.cwd, "", frozenset())
        context = render_context(HEADING, recall.text) if recall.notes else ""
        if given.source == _COMPACTED:
            state.notes, state.fixes = [], []  # the model has forgotten them
        self._add_notes(state, context, [note.id for note in recall.notes])
        self._save(given, state)
        return encode_answer(given.name, context)

    def _answer_prompt(self, source: NoteProvider, given: HookInput, state: SessionState) -> bytes:
        if state.is_prompted:
            return NOTHING
        state.is_prompted = True
        context = ""
        if state.arm != COLD and given.prompt:
            recall = source.recall_start(given.cwd, given.prompt, frozenset(state.notes))
            context = render_context(HEADING, recall.text) if recall.notes else ""
            self._add_notes(state, context, [note.id for note in recall.notes])
        self._save(given, state)
        return encode_answer(given.name, context)

    def _answer_failure(self, source: NoteProvider, given: HookInput, state: SessionState) -> bytes:
        call = given.failure
        if call is None or state.arm == COLD or STOPPED in call.result:
            return NOTHING
        recall = source.recall_failure(given.cwd, call.tool, call.arguments, call.result)
        new = [note.id for note in recall.notes if note.id not in state.fixes]
        if not new:
            return NOTHING
        state.fixes = [*state.fixes, *new]
        self._save(given, state)
        return encode_answer(given.name, render_context(FAILURE_HEADING, recall.text))

    def _answer_call(self, source: NoteProvider, given: HookInput, state: SessionState) -> bytes:
        """Stop a call that is known to fail, unless the session knows the note about it."""
        if state.arm == COLD or time.monotonic() < self._paused_until:
            return NOTHING
        assert given.call is not None
        call = move_call(given.call, state.folder or given.cwd)
        if call is None:
            return NOTHING
        recall = self._recall_call(source, call)
        if not recall.notes or not self._add_stopped(given, state, recall):
            return NOTHING
        context = render_context(CALL_HEADING, recall.text)
        return encode_refusal(given.agent, given.name, context)

    def _recall_call(self, source: NoteProvider, call: PlannedCall) -> Recall:
        try:
            return source.recall_call(call.folder, call.tool, call.arguments)
        except Exception:
            self._paused_until = time.monotonic() + PAUSE_SECONDS
            raise

    def _add_stopped(self, given: HookInput, state: SessionState, recall: Recall) -> bool:
        """Save that the notes stop a call; return whether they may.

        What cannot be saved must not stop a call: it would be stopped again and again.
        """
        with self._stopping:  # an agent may make several calls at once
            state = self._states.load(given.agent, given.session) or state
            known = {*state.stopped, *state.fixes}
            new = [note.id for note in recall.notes if note.id not in known]
            if not new:
                return False
            state.stopped = [*state.stopped, *new]
            state.fixes = [*state.fixes, *new]  # a failure need not tell it again
            self._states.save(given.agent, given.session, state)
            return True

    @staticmethod
    def _add_notes(state: SessionState, context: str, notes: list[str]) -> None:
        if context:
            state.arm = state.arm or WARM
            state.said = [*state.said, context]
            state.notes = [*state.notes, *notes]

    def _save(self, given: HookInput, state: SessionState) -> None:
        """Save the state; an answer does not depend on it."""
        try:
            self._states.save(given.agent, given.session, state)
        except OSError as error:
            record_trouble(self._home, f"{given.agent} {given.event}", str(error))

    def delete_old_states(self) -> None:
        """Delete the states of sessions that ended long ago."""
        self._states.delete_old()


def _can_take_part(experiment: Experiment) -> bool:
    """Return whether hooks can do what an experiment asks for: notes or nothing."""
    arms = {share.arm for share in experiment.shares}
    return experiment.template is None and PLACEBO not in arms
