"""What messages link to: the sub-agents that their calls started, their images, the rest of a text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import NamedTuple

from rekindle.judging.rules.evidence import Evidence
from rekindle.pages.text import replace_surrogates
from rekindle.types import Message, Session, ToolCall

from .common import format_time, format_title

_NO_RESULT = Message("tool")
_COMPARED_CHARS = 60  # of a prompt; the preview of a session is short


class PageLinks:
    """The links of a page that is one file: there is nothing outside of it."""

    def count_omitted(self, message: Message) -> int:
        """Return how many characters of the message were not loaded."""
        return 0

    def find_text(self, message: Message) -> str:
        """Return the address of the whole text of a message; empty if there is none."""
        return ""

    def find_image(self, message: Message, number: int, data: str) -> str:
        """Return the address of an image of a message, given its data URL."""
        return data

    def render_agent(self, call: ToolCall, result: Message | None) -> str:
        """Return the HTML of a link to the sub-agent that a call started; empty if it started none."""
        return ""

    def render_prompt_head(self, message: Message, number: int | None, speaker: str) -> str:
        """Return the HTML above a prompt."""
        name = f"Prompt {number}{' · ' if speaker else ''}{speaker}"
        return f"<span>{name}</span><span>{escape(format_time(message.timestamp))}</span>"

    def mark_answer(self, message: Message) -> str:
        """Return the `id` attribute of an answer, with a blank before it; empty for none."""
        return ""

    def mark_result(self, result: Message | None) -> str:
        """Return the `id` attribute of a call with this result; empty for none."""
        return ""


NO_LINKS = PageLinks()


def render_omission(omitted: int, message: Message | None, links: PageLinks) -> str:
    """Render that a text goes on, and where the whole of it is."""
    address = links.find_text(message) if message else ""
    more = f' · <a href="{escape(address)}">whole text</a>' if address else ""
    return f'<p class="omitted">{omitted:,} characters left out{more}</p>\n'


class AgentRun(NamedTuple):
    """A sub-agent: its session, and how to load its messages."""

    session: Session
    load_messages: Callable[[], Iterable[Message]]


class AgentLinks:
    """Finds the sub-agent that a call started: by its id, or by its task."""

    def __init__(self, runs: Sequence[AgentRun]) -> None:
        self.runs = runs
        self._open = {number: run.session for number, run in enumerate(runs, 1)}

    def find_agent(self, call: ToolCall, result: Message | None) -> tuple[int, Session] | None:
        """Return the number of the sub-agent and its session; None if the call started none."""
        if not self._open:
            return None
        evidence = Evidence(call, _NO_RESULT)
        if evidence.shape != "agent":
            return None
        number = self._find_number(evidence, result)
        return None if number is None else (number, self._open.pop(number))

    def render_link(self, call: ToolCall, result: Message | None) -> str:
        """Return the HTML of a link to the sub-agent; empty if the call started none."""
        found = self.find_agent(call, result)
        if found is None:
            return ""
        title = escape(replace_surrogates(format_title(found[1])))
        return f'<p class="started">Sub-agent: <a href="#a{found[0]}">{title}</a></p>\n'

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
