"""The calls of a session as mining sees them: their forms, and what became of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

from ...types import Call, ToolCall
from ..work import kind_of
from .forms import (
    REMEMBERED,
    Draft,
    Form,
    Redact,
    Remembering,
    draft,
    form_of,
    glance,
    is_glanced_at,
)

SURE = 0.7  # how far a verdict must be trusted to make an example of a call
OPENING = 8  # calls that are looked at closely, whatever they do

# Words of strangers come in by these too.
_STRANGERS = re.compile(
    r"(?i)mail|inbox|imap|gmail|outlook|slack|discord|telegram|tweet|rss|feed|comment|issue|ticket"
)
_new = cast(Any, tuple).__new__  # so many are made that the constructor would count
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


class Done(NamedTuple):
    """A session to read: verdicts on its calls, when users spoke, and its folder.

    Beside each verdict stands what the reader's `call_of` makes the call of.
    """

    calls: Sequence[tuple[Call, Any]]
    users: Sequence[int]
    cwd: str | None


class Reader:
    """Makes deeds of calls; remembers the form of calls that are made again.

    Only of the others it asks `call_of` what was called.
    """

    def __init__(self, redact: Redact, call_of: Callable[[Call, Any], ToolCall | None]) -> None:
        self._redact = Remembering(redact)
        self._call_of = call_of
        self._known: dict[tuple[int, str], Form] = {}

    def deeds(self, sessions: Iterable[Done]) -> Iterator[list[Deed]]:
        """The calls of each session in their order. Redacted together, it is faster."""
        ready = [_Ready.of(one) for one in sessions]
        drafts: dict[tuple[int, str], Draft] = {}
        known = self._known
        for one in ready:
            folder, closely = one.folder, one.closely
            for place, (verdict, made) in enumerate(one.calls):
                key = (verdict.digest, folder)
                if key in known or key in drafts:
                    continue
                if place < closely or not is_glanced_at(verdict.tool):
                    call = self._call_of(verdict, made)
                    if call is not None:
                        drafts[key] = draft(call, folder)
        self._redact.look_at([text for made in drafts.values() for text in made.texts])
        for one in ready:
            yield self._deeds(one, drafts)

    def _deeds(self, session: _Ready, drafts: dict[tuple[int, str], Draft]) -> list[Deed]:
        found: list[Deed] = []
        asked = iter(session.users)
        ahead = next(asked, None)
        turn, tainted = -1, False
        known, folder, closely = self._known, session.folder, session.closely
        for place, (verdict, made) in enumerate(session.calls):
            (
                _, position, number, id, _, work, sign, outcome, _, kind, fault, _, trust, _, answered,
            ) = verdict  # fmt: skip
            form = known.get((sign, folder))
            if form is None:
                form = self._form(verdict, made, folder, drafts, is_near=place < closely)
                if form is None:
                    continue
            while ahead is not None and ahead < position:
                turn, tainted, ahead = ahead, False, next(asked, None)
            tainted = tainted or _brings_in(form.tool, form.family, form.work, form.tier, work)
            sure = trust >= SURE
            found.append(
                _new(
                    Deed,
                    (
                        form,
                        position,
                        number,
                        answered,
                        turn,
                        sure and outcome == "ok",
                        sure and outcome == "error",
                        kind or "",
                        fault or "",
                        tainted,
                        id,
                    ),
                )
            )
        return found

    def _form(
        self,
        verdict: Call,
        made: Any,
        folder: str,
        drafts: dict[tuple[int, str], Draft],
        *,
        is_near: bool,
    ) -> Form | None:
        key = (verdict.digest, folder)
        drawn = drafts.get(key)
        if drawn is None or not is_near:
            call = self._call_of(verdict, made)
            if call is None:
                return None
            if not is_near and (form := glance(call)) is not None:
                return form
            drawn = drawn or draft(call, folder)
        form = form_of(drawn, self._redact)
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known[key] = form
        return form


class _Ready(NamedTuple):
    """A session without its bookkeeping, and how many of its calls are to be looked at closely."""

    calls: Sequence[tuple[Call, Any]]
    users: Sequence[int]
    folder: str
    closely: int

    @classmethod
    def of(cls, session: Done) -> _Ready:
        calls = [pair for pair in session.calls if pair[0].work != "bookkeeping"]
        # What was read matters at first, and where an edit failed.
        wrong = [verdict.tool for verdict, _ in calls if verdict.failed]
        is_edit = any(kind_of(tool).shape == "edit" for tool in wrong) if wrong else False
        return cls(calls, session.users, session.cwd or "", len(calls) if is_edit else OPENING)


@lru_cache(maxsize=REMEMBERED)
def _brings_in(tool: str, family: str, sort: str, tier: int, work: str) -> bool:
    """Whether a call like this brings in what strangers wrote."""
    if work == "research" or family == "web":
        return True
    if family in ("shell", "code"):
        return tier > 0 and _FETCHES.search(sort) is not None
    return family == "call" and _STRANGERS.search(tool) is not None
