"""Puts what was found in many sessions together: candidates into patterns, with what was asked and
what came back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, cast

import msgspec

from rekindle.knowledge.mining import call_example, candidates, merge, summarize
from rekindle.knowledge.mining.call_reader import Deed
from rekindle.store import Store
from rekindle.store.learning.mining_results import Place
from rekindle.types import Message, Pattern, PatternKind, Step

if TYPE_CHECKING:
    from rekindle.redaction.redactor import Redactor

MOST_SHAPES: Mapping[str, int] = {  # that are looked at closely, of each kind
    "example": 80, "sequence": 60, "retry": 60, "init": 30, "final": 20,
}  # fmt: skip
LOOKED_BACK = 60  # messages, for what a user wanted
MOST_PLACES = 6  # sessions that a pattern is put together from
MOST_ASKED = 3  # requests that are told of a pattern

# The calls that are kept of a session.
deeds_of = msgspec.json.Decoder(list[Deed]).decode
_unread = msgspec.json.Decoder(list[msgspec.Raw]).decode
_deed = msgspec.json.Decoder(Deed).decode


class _Kept:
    """The calls that are kept of a session, each read when it is asked for: mostly one of many is."""

    def __init__(self, blob: bytes) -> None:
        self._blob = blob

    def __getitem__(self, number: int) -> Deed:
        return _deed(self._unread[number])

    @cached_property
    def _unread(self) -> list[msgspec.Raw]:
        return _unread(self._blob)

    @cached_property
    def all(self) -> list[Deed]:
        return deeds_of(self._blob)


def patterns(
    store: Store, nums: Sequence[int], *, least: int, most: int, now: float
) -> list[tuple[Pattern, Sequence[merge.Found]]]:
    """Patterns that these sessions share, each with the newest places it is known from."""
    wanted = set(nums)
    tally, attempts = store.mined.tally(wanted, least, MOST_SHAPES)
    shapes = {one.shape: one.kind for one in tally}
    places = store.mined.places([*shapes], wanted, MOST_PLACES)
    sessions = {place.num for found in places.values() for place in found}
    deeds = {num: _Kept(blob) for num, blob in store.mined.calls([*sessions]).items()}
    sorts = {work: merge.Sort(*counts) for work, counts in attempts.items()}
    families = {one.shape: (one.families, one.support) for one in tally}
    made: list[Pattern] = []
    origins: dict[str, Sequence[merge.Found]] = {}
    for shape, kind in shapes.items():
        for found, counts in _ways(kind, places[shape], deeds, families[shape]):
            one = merge.pattern(cast("PatternKind", kind), found, sorts, counts, now)
            if one is not None:
                made.append(one)
                origins[one.id] = sorted(found, key=lambda place: -place.time)[:MOST_ASKED]
    return [(one, origins[one.id]) for one in merge.select(made, most)]


def _ways(
    kind: str, places: Sequence[Place], deeds: Mapping[int, _Kept], counts: tuple[int, int]
) -> Iterator[tuple[list[merge.Found], tuple[int, int]]]:
    """The places of a candidate as what was found there; two steps also with those that follow."""
    if kind != "sequence":
        yield [_found(one, [deeds[one.num][at] for at in _numbers(one)]) for one in places], counts
        return
    ways: dict[tuple[int, ...], list[merge.Found]] = {}
    for place in places:
        own = deeds[place.num].all
        for way in candidates.longer(own, _numbers(place)):
            signs = tuple(own[number].form.digest for number in way)
            ways.setdefault(signs, []).append(_found(place, [own[number] for number in way]))
    for signs, found in ways.items():
        families = len({one.family for one in found})
        if len(signs) == 2:
            yield found, counts
        elif families > 1:
            yield found, (families, len(found))


def _numbers(place: Place) -> list[int]:
    return [int(number) for number in place.place.split(",")]


def _found(place: Place, own: Sequence[Deed]) -> merge.Found:
    tainted = any(deed.tainted for deed in own) or place.tainted
    return merge.Found(place.session, place.family, place.time, tuple(own), place.support, tainted)


def told(
    store: Store, redactor: Redactor, pattern: Pattern, found: Sequence[merge.Found]
) -> Pattern:
    """The pattern with what was asked for, how it was done then and what came back, as far as told."""
    first = found[0]
    asked = [_asked(store, redactor, one.deeds[-len(pattern.steps)], one.session) for one in found]
    steps: list[Step] = []
    for step, deed in zip(pattern.steps, first.deeds[-len(pattern.steps) :], strict=True):
        result = "" if deed.answered is None else _result(store, redactor, deed, first.session)
        shown = None if deed.tainted else call_example.of(deed.form, step.arguments, asked[0])
        steps.append(step._replace(result=result, example=shown))
    also = [text for text in dict.fromkeys(asked[1:]) if text not in ("", asked[0])]
    return pattern._replace(steps=tuple(steps), asked=asked[0], also=tuple(also))


def _asked(store: Store, redactor: Redactor, deed: Deed, session: str) -> str:
    """What the user wanted: said in this turn, or, where that only says yes, in an earlier one."""
    if deed.turn < 0:
        return ""
    for message in _said_before(store, session, deed.turn):
        if message.role == "user":
            said = summarize.request(message.text, lambda text: redactor.text(text, "requests"))
            if said and not summarize.is_assent(said):
                return said
    return ""


def _said_before(store: Store, session: str, turn: int) -> Iterator[Message]:
    """The message at a position, and those before it, backwards; they are read when asked for."""
    message = _message(store, session, turn)
    if message is not None:
        yield message
    if turn > 0:
        after = max(-1, turn - 1 - LOOKED_BACK)
        earlier = store.messages(session, after=after, limit=turn - 1 - after)
        # Where some were taken back, the last of so many stand behind it.
        yield from reversed([one for one in earlier if (one.position or 0) < turn])


def _result(store: Store, redactor: Redactor, deed: Deed, session: str) -> str:
    message = _message(store, session, deed.answered or 0)
    if message is None:
        return ""
    return summarize.result(
        message.text,
        deed.form.family,
        lambda text: redactor.text(text, "results"),
        tainted=deed.tainted,
    )


def _message(store: Store, session: str, position: int) -> Message | None:
    found = store.messages(session, after=position - 1, limit=1)
    return found[0] if found and found[0].position == position else None
