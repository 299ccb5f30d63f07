"""The calls of a session as mining sees them: their forms, and what became of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ...types import Call, ToolCall
from ..work import kind_of
from .forms import REMEMBERED, Draft, Form, Redact, Remembering, draft, form_of, glance

SURE = 0.7  # how far a verdict must be trusted to make an example of a call
OPENING = 8  # calls that are looked at closely, whatever they do

# Words of strangers come in by these too.
_STRANGERS = re.compile(
    r"(?i)mail|inbox|imap|gmail|outlook|slack|discord|telegram|tweet|rss|feed|comment|issue|ticket"
)
_FETCHES = re.compile(r"\b(?:curl|wget|http|https|lynx|w3m|gh|glab)\b")


class Deed(NamedTuple):
    """A call of a session."""

    form: Form
    position: int
    number: int
    answered: int | None
    turn: int  # position of the user's message that it serves; -1 before any
    ok: bool  # surely worked
    failed: bool  # surely failed
    error_kind: str
    blame: str  # agent, environment, …
    tainted: bool
    id: str


class Reader:
    """Makes deeds of calls; remembers the form of calls that are made again."""

    def __init__(self, redact: Redact) -> None:
        self._redact = Remembering(redact)
        self._known: dict[tuple[int, str], Form] = {}
        self._drafts: dict[tuple[int, str], Draft] = {}

    def deeds(
        self, calls: Sequence[tuple[Call, ToolCall]], users: Iterable[int], cwd: str | None
    ) -> Iterator[Deed]:
        """The calls of one session in their order; `users` are the positions of user messages."""
        counted = [pair for pair in calls if pair[0].work != "bookkeeping"]
        asked = iter(users)
        ahead = next(asked, None)
        turn, tainted = -1, False
        for (verdict, _), form in zip(counted, self._forms(counted, cwd or ""), strict=True):
            while ahead is not None and ahead < verdict.position:
                turn, tainted, ahead = ahead, False, next(asked, None)
            tainted = tainted or _brings_in(form, verdict.work)
            sure = verdict.confidence >= SURE
            yield Deed(
                form,
                verdict.position,
                verdict.number,
                verdict.answered,
                turn,
                verdict.outcome == "ok" and sure,
                verdict.outcome == "error" and sure,
                verdict.error_kind or "",
                verdict.fault or "",
                tainted,
                verdict.id,
            )

    def prepare(
        self, sessions: Iterable[tuple[Sequence[tuple[Call, ToolCall]], str | None]]
    ) -> None:
        """Get the calls of some sessions and their folders ready: redacted at once, it is faster."""
        self._drafts.clear()
        for calls, cwd in sessions:
            folder = cwd or ""
            counted = [pair for pair in calls if pair[0].work != "bookkeeping"]
            closely = _closely(counted)
            for place, (verdict, call) in enumerate(counted):
                key = (verdict.digest, folder)
                if key in self._known or key in self._drafts:
                    continue
                if place < closely or glance(call) is None:
                    self._drafts[key] = draft(call, folder)
        self._redact.look_at([text for made in self._drafts.values() for text in made.texts])

    def _forms(self, calls: Sequence[tuple[Call, ToolCall]], cwd: str) -> Iterator[Form]:
        closely = _closely(calls)
        for place, (verdict, call) in enumerate(calls):
            key = (verdict.digest, cwd)
            form = self._known.get(key)
            if form is None and place >= closely:
                form = glance(call)
            if form is None:
                form = form_of(self._drafts.pop(key, None) or draft(call, cwd), self._redact)
                if len(self._known) >= REMEMBERED:
                    self._known.clear()
                self._known[key] = form
            yield form


def _closely(calls: Sequence[tuple[Call, ToolCall]]) -> int:
    """How many calls to look at closely: what was read matters at first, and where an edit failed."""
    wrong = any(verdict.failed and kind_of(call.name).shape == "edit" for verdict, call in calls)
    return len(calls) if wrong else OPENING


def _brings_in(form: Form, work: str) -> bool:
    if work == "research" or form.family == "web":
        return True
    if form.family in ("shell", "code"):
        return form.tier > 0 and _FETCHES.search(form.work) is not None
    return form.family == "call" and _STRANGERS.search(form.tool) is not None
