"""Read the calls of a session for mining: their signatures and their outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

from rekindle.judging.tool_kinds import classify_tool
from rekindle.types import JudgedCall, ToolCall

from .call_signature import (
    CACHE_SIZE,
    CachedRedactor,
    CallSignature,
    Redact,
    SignatureDraft,
    allows_quick_signature,
    build_quick_signature,
    build_signature,
    draft_signature,
)
from .taint import reads_untrusted_text

MIN_CONFIDENCE = 0.7  # of a verdict, to use its call as an example
CLOSE_READ_CALLS = 8  # calls at the start that are always read closely

_create_tuple = cast(Any, tuple).__new__  # faster than the constructor: millions are created
# Their results are never quoted, and the call was made before its result arrived.
_CLEAN_SHAPES = frozenset(("call", "agent"))


class MinedCall(NamedTuple):
    """A call of a session."""

    signature: CallSignature
    position: int
    number: int
    answered: int | None
    turn: int  # position of the user message it serves; -1 before any
    ok: bool  # worked, with enough confidence
    failed: bool  # failed, with enough confidence
    error_kind: str
    blame: str  # agent, environment, …
    tainted: bool  # untrusted text may have influenced it
    id: str


class SessionCalls(NamedTuple):
    """A session to read: the verdicts on its calls, the positions of user messages, its folder.

    Each verdict comes with the payload from which the reader's `load_call` loads the call.
    """

    calls: Sequence[tuple[JudgedCall, Any]]
    users: Sequence[int]
    cwd: str | None
    tainted: bool = False  # from the start: it continues a tainted session


# The second value: whether the call reads untrusted text.
_DraftEntry = tuple[SignatureDraft, bool]
_SignatureEntry = tuple[CallSignature, bool]


class CallReader:
    """Turns calls into mined calls; caches the signatures of repeated ones.

    It loads a call with `load_call` only if its signature is not cached.
    """

    def __init__(
        self, redact: Redact, load_call: Callable[[JudgedCall, Any], ToolCall | None]
    ) -> None:
        self._redact = CachedRedactor(redact)
        self._load_call = load_call
        self._known: dict[tuple[int, str], _SignatureEntry] = {}

    def read_sessions(self, sessions: Iterable[SessionCalls]) -> Iterator[list[MinedCall]]:
        """Yield the calls of each session in order. Batching speeds up redaction."""
        ready = [_PreparedSession.from_session(one) for one in sessions]
        drafts: dict[tuple[int, str], _DraftEntry] = {}
        known = self._known
        for one in ready:
            folder, closely = one.folder, one.close_read_calls
            for index, (verdict, payload) in enumerate(one.calls):
                key = (verdict.digest, folder)
                if key in known or key in drafts:
                    continue
                if index < closely or not allows_quick_signature(verdict.tool):
                    call = self._load_call(verdict, payload)
                    if call is not None:
                        drafts[key] = (
                            draft_signature(call, folder),
                            reads_untrusted_text(call, folder),
                        )
        self._redact.check_batch([text for payload, _ in drafts.values() for text in payload.texts])
        for one in ready:
            yield self._read_session(one, drafts)

    def is_session_tainted(self, session: SessionCalls) -> bool:
        """Return whether the session read untrusted text."""
        folder = session.cwd or ""
        calls = (self._load_call(verdict, payload) for verdict, payload in session.calls)
        return any(call is not None and reads_untrusted_text(call, folder) for call in calls)

    def _read_session(
        self, session: _PreparedSession, drafts: dict[tuple[int, str], _DraftEntry]
    ) -> list[MinedCall]:
        found: list[MinedCall] = []
        asked = iter(session.users)
        next_user = next(asked, None)
        turn, tainted = -1, session.tainted
        known, folder, closely = self._known, session.folder, session.close_read_calls
        for index, (verdict, payload) in enumerate(session.calls):
            (
                _, position, number, id, _, _, digest, outcome, _, kind, fault, _, confidence, _,
                answered,
            ) = verdict  # fmt: skip
            one = known.get((digest, folder))
            if one is None:
                one = self._get_signature(verdict, payload, folder, drafts, is_near=index < closely)
                if one is None:
                    continue
            signature, is_untrusted = one
            while next_user is not None and next_user < position:
                turn, next_user = next_user, next(asked, None)
            is_tainted = tainted
            if is_untrusted and not tainted:
                # Taint lasts to the end: what was read stays in the context.
                tainted, is_tainted = True, signature.family not in _CLEAN_SHAPES
            sure = confidence >= MIN_CONFIDENCE
            found.append(
                _create_tuple(
                    MinedCall,
                    (
                        signature,
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

    def _get_signature(
        self,
        verdict: JudgedCall,
        payload: Any,
        folder: str,
        drafts: dict[tuple[int, str], _DraftEntry],
        *,
        is_near: bool,
    ) -> _SignatureEntry | None:
        key = (verdict.digest, folder)
        draft_entry = drafts.get(key)
        if draft_entry is None or not is_near:
            call = self._load_call(verdict, payload)
            if call is None:
                return None
            if not is_near and (signature := build_quick_signature(call)) is not None:
                return signature, reads_untrusted_text(call, folder)
            draft_entry = draft_entry or (
                draft_signature(call, folder),
                reads_untrusted_text(call, folder),
            )
        signature = build_signature(draft_entry[0], self._redact)
        if len(self._known) >= CACHE_SIZE:
            self._known.clear()
        entry = self._known[key] = signature, draft_entry[1]
        return entry


class _PreparedSession(NamedTuple):
    """A session without bookkeeping, and how many of its calls to read closely."""

    calls: Sequence[tuple[JudgedCall, Any]]
    users: Sequence[int]
    folder: str
    close_read_calls: int
    tainted: bool

    @classmethod
    def from_session(cls, session: SessionCalls) -> _PreparedSession:
        calls = [pair for pair in session.calls if pair[0].kind != "bookkeeping"]
        # Reads matter at the start, and wherever an edit failed.
        failed_tools = [verdict.tool for verdict, _ in calls if verdict.failed]
        is_edit = (
            any(classify_tool(tool).shape == "edit" for tool in failed_tools)
            if failed_tools
            else False
        )
        close_read_calls = len(calls) if is_edit else CLOSE_READ_CALLS
        return cls(calls, session.users, session.cwd or "", close_read_calls, session.tainted)
