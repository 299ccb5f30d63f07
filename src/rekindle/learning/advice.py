"""Advise an agent about calls: how failures were fixed before, and what is known to fail."""

from __future__ import annotations

import logging
from collections.abc import Callable

from rekindle.agent.tools.tool import ToolResult
from rekindle.agent.turn import Advisor
from rekindle.config.schema import WarmSection
from rekindle.errors import RekindleError
from rekindle.experiments.experiment import COLD, PLACEBO
from rekindle.knowledge.notes.note import Recall
from rekindle.store import Store
from rekindle.types import Session, ToolCall

from .notes.recall import recall_at_failure, recall_before_call

logger = logging.getLogger(__name__)

NO_ADVICE = Advisor()


def create_project_advisor(
    settings: WarmSection, store: Store, session: Session, folder: str
) -> Advisor:
    """Create what advises a session on calls, with what anybody's sessions learned in the project."""

    def recall_failure(call: ToolCall, result: str) -> Recall:
        return recall_at_failure(store, folder, call.name, call.arguments, result)

    def recall_call(call: ToolCall) -> Recall:
        return recall_before_call(store, folder, call.name, call.arguments)

    return _create_advisor(settings, session, recall_failure, recall_call)


def create_owner_advisor(
    settings: WarmSection, store: Store, session: Session, folder: str
) -> Advisor:
    """Create what advises a session on calls, with what the sessions of its owner learned."""

    def recall_failure(call: ToolCall, result: str) -> Recall:
        from .notes.owners import (
            recall_for_owner_at_failure,  # the same: it loads what judges calls
        )

        return recall_for_owner_at_failure(store, folder, call, result, session.owner)

    def recall_call(call: ToolCall) -> Recall:
        from .notes.owners import recall_for_owner_before_call

        return recall_for_owner_before_call(store, folder, call, session.owner)

    return _create_advisor(settings, session, recall_failure, recall_call)


def _create_advisor(
    settings: WarmSection,
    session: Session,
    recall_failure: Callable[[ToolCall, str], Recall],
    recall_call: Callable[[ToolCall], Recall],
) -> Advisor:
    """Create an advisor with what the settings ask for; the cold and placebo arms get no advice."""
    if not settings.enabled or session.arm in (COLD, PLACEBO):
        return NO_ADVICE

    def advise_after_call(call: ToolCall, result: ToolResult) -> str:
        from rekindle.judging.judge import judge_call  # a chat that never fails need not load it

        if not judge_call(call, result.to_message(call)).failed:
            return ""
        return _get_text(lambda: recall_failure(call, result.content))

    def advise_before_call(call: ToolCall) -> str:
        return _get_text(lambda: recall_call(call))

    return Advisor(
        after_call=advise_after_call if settings.at_failure else None,
        before_call=advise_before_call if settings.before_call else None,
    )


def _get_text(recall: Callable[[], Recall]) -> str:
    try:
        return recall().text
    except (RekindleError, OSError, ValueError) as error:  # advice must never end a turn
        logger.warning("no advice about a call: %s", error)
        return ""
