"""The sub-agents of a session, and which call started which."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import NamedTuple

from rekindle.judging.rules.evidence import Evidence
from rekindle.types import Message, Session, ToolCall

from .common import format_title, replace_surrogates

_NO_RESULT = Message("tool")
_COMPARED_CHARS = 60  # of a prompt; the preview of a session is short


class AgentRun(NamedTuple):
    """A sub-agent: its session, and how to load its messages."""

    session: Session
    load_messages: Callable[[], Iterable[Message]]


class AgentLinks:
    """Finds the sub-agent that a call started: by its id, or by what it was asked."""

    def __init__(self, runs: Sequence[AgentRun]) -> None:
        self.runs = runs
        self._open = {number: run.session for number, run in enumerate(runs, 1)}

    def render_link(self, call: ToolCall, result: Message | None) -> str:
        """Return the HTML of a link to the sub-agent; empty if the call started none."""
        if not self._open:
            return ""
        evidence = Evidence(call, _NO_RESULT)
        if evidence.shape != "agent":
            return ""
        number = self._find_number(evidence, result)
        if number is None:
            return ""
        title = escape(replace_surrogates(format_title(self._open.pop(number))))
        return f'<p class="started">Sub-agent: <a href="#a{number}">{title}</a></p>\n'

    def _find_number(self, evidence: Evidence, result: Message | None) -> int | None:
        told = f"{result.text[-4_000:]} {result.meta}" if result else ""
        asked = [
            _normalize_words(text) for text in evidence.arguments.values() if isinstance(text, str)
        ]
        for number, session in self._open.items():
            name = session.id.partition("@")[0].removeprefix("agent-")
            if len(name) >= 6 and name in told:
                return number
        for number, session in self._open.items():
            if any(
                _normalize_words(text) in asked for text in (session.preview, session.title) if text
            ):
                return number
        return None


def _normalize_words(text: str) -> str:
    return " ".join(text[: 2 * _COMPARED_CHARS].split())[:_COMPARED_CHARS]
