"""Advise an agent about a call that failed: how such failures were fixed before."""

from __future__ import annotations

import logging
from collections.abc import Callable

from rekindle.agent.tools.tool import ToolResult
from rekindle.agent.turn import Advisor
from rekindle.errors import RekindleError
from rekindle.store import Store
from rekindle.types import ToolCall

from .recall import recall_at_failure

logger = logging.getLogger(__name__)


def create_project_advisor(store: Store, folder: str) -> Advisor:
    """Create what recalls how failures were fixed in a folder's project, by anybody's sessions."""

    def recall(call: ToolCall, result: str) -> str:
        return recall_at_failure(store, folder, call.name, call.arguments, result).text

    return _advise_after_failures(recall)


def create_owner_advisor(store: Store, folder: str, owner: str | None) -> Advisor:
    """Create what recalls how failures were fixed in a folder's project by one owner's sessions."""

    def recall(call: ToolCall, result: str) -> str:
        from .owners import recall_for_owner_at_failure  # the same: it loads what judges calls

        return recall_for_owner_at_failure(store, folder, call, result, owner).text

    return _advise_after_failures(recall)


def _advise_after_failures(recall: Callable[[ToolCall, str], str]) -> Advisor:
    def advise(call: ToolCall, result: ToolResult) -> str:
        from rekindle.judging.judge import judge_call  # a chat that never fails need not load it

        if not judge_call(call, result.to_message(call)).failed:
            return ""
        try:
            return recall(call, result.content)
        except (RekindleError, OSError, ValueError) as error:  # advice must never end a turn
            logger.warning("no advice about a failed call: %s", error)
            return ""

    return advise
