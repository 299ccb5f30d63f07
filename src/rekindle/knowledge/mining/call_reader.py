"""The calls of a session as mining sees them: their forms, and what became of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

from rekindle.judging.tool_kinds import kind_of
from rekindle.types import Call, ToolCall

from .call_signature import (
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
from .taint import brings_in

SURE = 0.7  # how far a verdict must be trusted to make an example of a call
OPENING = 8  # calls that are looked at closely, whatever they do

_new = cast(Any, tuple).__new__  # so many are made that the constructor would count
# No word of what these answer is told, and they were called before the answer came.
_CLEAN_THEMSELVES = frozenset(("call", "agent"))


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
    tainted: bool  # strangers may have had a say
    id: str


class Done(NamedTuple):
    """A session to read: verdicts on its calls, when users spoke, and its folder.

    Beside each verdict stands what the reader's `call_of` makes the call of.
    """

    calls: Sequence[tuple[Call, Any]]
    users: Sequence[int]
    cwd: str | None
    tainted: bool = False  # from the beginning: it goes on from one in which strangers had a say


# With what a call is like: whether it brings in what strangers wrote.
_Drawn = tuple[Draft, bool]
_Known = tuple[Form, bool]


class Reader:
    """Makes deeds of calls; remembers the form of calls that are made again.

    Only of the others it asks `call_of` what was called.
    """

    def __init__(self, redact: Redact, call_of: Callable[[Call, Any], ToolCall | None]) -> None:
        self._redact = Remembering(redact)
        self._call_of = call_of
        self._known: dict[tuple[int, str], _Known] = {}

    def deeds(self, sessions: Iterable[Done]) -> Iterator[list[Deed]]:
        """The calls of each session in their order. Redacted together, it is faster."""
        ready = [_Ready.of(one) for one in sessions]
        drafts: dict[tuple[int, str], _Drawn] = {}
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
                        drafts[key] = draft(call, folder), brings_in(call, folder)
        self._redact.look_at([text for made, _ in drafts.values() for text in made.texts])
        for one in ready:
            yield self._deeds(one, drafts)

    def lets_in(self, session: Done) -> bool:
        """Did strangers have a say in this session?"""
        folder = session.cwd or ""
        made = (self._call_of(verdict, of) for verdict, of in session.calls)
        return any(call is not None and brings_in(call, folder) for call in made)

    def _deeds(self, session: _Ready, drafts: dict[tuple[int, str], _Drawn]) -> list[Deed]:
        found: list[Deed] = []
        asked = iter(session.users)
        ahead = next(asked, None)
        turn, tainted = -1, session.tainted
        known, folder, closely = self._known, session.folder, session.closely
        for place, (verdict, made) in enumerate(session.calls):
            (
                _, position, number, id, _, _, sign, outcome, _, kind, fault, _, trust, _, answered,
            ) = verdict  # fmt: skip
            one = known.get((sign, folder))
            if one is None:
                one = self._form(verdict, made, folder, drafts, is_near=place < closely)
                if one is None:
                    continue
            form, is_foreign = one
            while ahead is not None and ahead < position:
                turn, ahead = ahead, next(asked, None)
            is_tainted = tainted
            if is_foreign and not tainted:
                # To the end, whatever a user says: what was read stays before the agent's eyes.
                tainted, is_tainted = True, form.family not in _CLEAN_THEMSELVES
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
                        is_tainted,
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
        drafts: dict[tuple[int, str], _Drawn],
        *,
        is_near: bool,
    ) -> _Known | None:
        key = (verdict.digest, folder)
        drawn = drafts.get(key)
        if drawn is None or not is_near:
            call = self._call_of(verdict, made)
            if call is None:
                return None
            if not is_near and (form := glance(call)) is not None:
                return form, brings_in(call, folder)
            drawn = drawn or (draft(call, folder), brings_in(call, folder))
        form = form_of(drawn[0], self._redact)
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        known = self._known[key] = form, drawn[1]
        return known


class _Ready(NamedTuple):
    """A session without its bookkeeping, and how many of its calls are to be looked at closely."""

    calls: Sequence[tuple[Call, Any]]
    users: Sequence[int]
    folder: str
    closely: int
    tainted: bool

    @classmethod
    def of(cls, session: Done) -> _Ready:
        calls = [pair for pair in session.calls if pair[0].work != "bookkeeping"]
        # What was read matters at first, and where an edit failed.
        wrong = [verdict.tool for verdict, _ in calls if verdict.failed]
        is_edit = any(kind_of(tool).shape == "edit" for tool in wrong) if wrong else False
        closely = len(calls) if is_edit else OPENING
        return cls(calls, session.users, session.cwd or "", closely, session.tainted)
