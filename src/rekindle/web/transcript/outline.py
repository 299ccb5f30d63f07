"""What a reader can jump to in a session: its prompts, the calls that failed, and the edits."""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from rekindle.judging.tool_kinds import classify_tool
from rekindle.learning.verdicts.judged_sessions import judge_sessions
from rekindle.store import Store
from rekindle.store.excerpts import UserExcerpt
from rekindle.transcripts.export.prompts import read_prompt
from rekindle.types import Session

KINDS = ("prompt", "error", "edit")
_MAX_KEPT = 16


class PromptMark(NamedTuple):
    """A prompt: where and when it was asked, what followed, and until when."""

    position: int
    title: str
    time: float | None
    end: float | None  # the time of the last message before the next prompt
    calls: int = 0
    failed: int = 0
    edits: int = 0


class Outline(NamedTuple):
    """The places of a session, in order."""

    prompts: Sequence[PromptMark]
    errors: Sequence[int]
    edits: Sequence[int]

    def number_prompt(self, position: int) -> int | None:
        """Return the number of the prompt at a position, from 1 on; None if there is none."""
        index = bisect_left(self.prompts, position, key=lambda one: one.position)
        is_found = index < len(self.prompts) and self.prompts[index].position == position
        return index + 1 if is_found else None

    def list_positions(self, kind: str) -> Sequence[int]:
        """Return the positions of all prompts, errors or edits."""
        if kind == "prompt":
            return [one.position for one in self.prompts]
        return self.errors if kind == "error" else self.edits

    def find_next(self, kind: str, after: int) -> int | None:
        """Return the first position of a kind after another one."""
        places = self.list_positions(kind)
        index = bisect_right(places, after)
        return places[index] if index < len(places) else None

    def find_previous(self, kind: str, before: int) -> int | None:
        """Return the last position of a kind before another one."""
        places = self.list_positions(kind)
        index = bisect_left(places, before)
        return places[index - 1] if index else None


def build_outline(store: Store, session: Session) -> Outline:
    """Judge a session if necessary, and find its places; takes as long as it has messages."""
    judge_sessions(store, session=session.id)
    places = array("q")
    errors, edits = array("q"), array("q")
    for call in store.excerpts.iter_calls(session.id):
        places.append(call.position)
        if call.outcome == "error":
            errors.append(call.position)
        elif _is_edit(call.tool) and call.outcome != "refused":
            edits.append(call.position)
    found = [one for one in store.excerpts.load_user_messages(session.id) if _find_title(one)]
    prompts: list[PromptMark] = []
    for index, one in enumerate(found):
        following = found[index + 1] if index + 1 < len(found) else None
        end = 2**62 if following is None else following.position
        counts = [
            bisect_left(listed, end) - bisect_left(listed, one.position)
            for listed in (places, errors, edits)
        ]
        ended = session.last_active if following is None else following.time_before
        prompts.append(PromptMark(one.position, _find_title(one), one.time, ended, *counts))
    return Outline(prompts, _drop_repeated(errors), _drop_repeated(edits))


def _find_title(message: UserExcerpt) -> str:
    prompt = read_prompt(message.text)
    if prompt.kind in ("prompt", "command"):
        return prompt.title
    is_image = message.has_parts and not prompt.context and prompt.kind == "context"
    return "An image" if is_image else ""


def _drop_repeated(places: array[int]) -> array[int]:
    """Return each position once: a message may make several calls."""
    return array("q", dict.fromkeys(places))


@cache
def _is_edit(tool: str) -> bool:
    return classify_tool(tool).shape == "edit"


class OutlineCache:
    """The outlines of the sessions that were looked at last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[object, Outline]] = OrderedDict()
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}

    def find(self, session: Session) -> Outline | None:
        """Return the outline of a session in its current state, if it was built before."""
        with self._lock:
            state, outline = self._kept.get(session.id, (None, None))
            return outline if state == _get_state(session) else None

    def load(self, store: Store, session: Session) -> Outline:
        """Return the outline of a session; two readers do not build it twice."""
        with self._lock:
            lock = self._locks.setdefault(session.id, threading.Lock())
        with lock:
            if found := self.find(session):
                return found
            outline = build_outline(store, session)
        with self._lock:
            self._locks.pop(session.id, None)
            self._kept[session.id] = (_get_state(session), outline)
            self._kept.move_to_end(session.id)
            while len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)
        return outline


def _get_state(session: Session) -> object:
    return session.message_count, session.tool_call_count, session.last_active
