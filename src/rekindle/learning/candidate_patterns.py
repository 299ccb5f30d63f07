"""Aggregate mined candidates into patterns, and add the request and the result of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, cast

import msgspec

from rekindle.knowledge.mining import call_example, candidates, merge, summarize
from rekindle.knowledge.mining.call_reader import MinedCall
from rekindle.store import Store
from rekindle.store.learning.mining_results import CandidateOccurrence
from rekindle.types import Message, Pattern, PatternKind, PatternStep

if TYPE_CHECKING:
    from rekindle.redaction.redactor import Redactor

MAX_CANDIDATES: Mapping[str, int] = {  # candidates examined per kind
    "example": 80, "sequence": 60, "retry": 60, "init": 30, "final": 20,
}  # fmt: skip
LOOKBACK_MESSAGES = 60  # messages searched for the user's request
MAX_OCCURRENCES = 6  # sessions that a pattern is built from
MAX_REQUESTS = 3  # requests shown per pattern

# Decoders for the stored calls of a session.
decode_calls = msgspec.json.Decoder(list[MinedCall]).decode
_decode_raw_calls = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_call = msgspec.json.Decoder(MinedCall).decode


class _StoredCalls:
    """The stored calls of a session, each decoded on access, since usually only one is needed."""

    def __init__(self, blob: bytes) -> None:
        self._blob = blob

    def __getitem__(self, number: int) -> MinedCall:
        return _decode_call(self._raw_calls[number])

    @cached_property
    def _raw_calls(self) -> list[msgspec.Raw]:
        return _decode_raw_calls(self._blob)

    @cached_property
    def all_calls(self) -> list[MinedCall]:
        return decode_calls(self._blob)


def aggregate_patterns(
    store: Store, nums: Sequence[int], *, min_sessions: int, max_patterns: int, now: float
) -> list[tuple[Pattern, Sequence[merge.Occurrence]]]:
    """Aggregate the patterns that these sessions share, each with its newest occurrences."""
    wanted = set(nums)
    tally, call_type_counts = store.mining_results.count_candidates(
        wanted, min_sessions, MAX_CANDIDATES
    )
    shapes = {one.shape: one.kind for one in tally}
    occurrences = store.mining_results.find_occurrences([*shapes], wanted, MAX_OCCURRENCES)
    sessions = {occurrence.num for found in occurrences.values() for occurrence in found}
    stored_calls = {
        num: _StoredCalls(blob)
        for num, blob in store.mining_results.load_calls([*sessions]).items()
    }
    type_stats = {name: merge.CallTypeStats(*counts) for name, counts in call_type_counts.items()}
    families = {one.shape: (one.families, one.support) for one in tally}
    built: list[Pattern] = []
    origins: dict[str, Sequence[merge.Occurrence]] = {}
    for shape, kind in shapes.items():
        for found, counts in _iter_variants(
            kind, occurrences[shape], stored_calls, families[shape]
        ):
            one = merge.build_pattern(cast("PatternKind", kind), found, type_stats, counts, now)
            if one is not None:
                built.append(one)
                origins[one.id] = sorted(found, key=lambda place: -place.time)[:MAX_REQUESTS]
    return [(one, origins[one.id]) for one in merge.select_patterns(built, max_patterns)]


def _iter_variants(
    kind: str,
    occurrences: Sequence[CandidateOccurrence],
    stored_calls: Mapping[int, _StoredCalls],
    counts: tuple[int, int],
) -> Iterator[tuple[list[merge.Occurrence], tuple[int, int]]]:
    """Yield the occurrences of a candidate; for a sequence also its longer variants."""
    if kind != "sequence":
        yield (
            [
                _to_occurrence(one, [stored_calls[one.num][at] for at in _parse_call_numbers(one)])
                for one in occurrences
            ],
            counts,
        )
        return
    variants: dict[tuple[int, ...], list[merge.Occurrence]] = {}
    for occurrence in occurrences:
        session_calls = stored_calls[occurrence.num].all_calls
        for numbers in candidates.extend_sequence(session_calls, _parse_call_numbers(occurrence)):
            digests = tuple(session_calls[number].signature.digest for number in numbers)
            variants.setdefault(digests, []).append(
                _to_occurrence(occurrence, [session_calls[number] for number in numbers])
            )
    for digests, found in variants.items():
        families = len({one.family for one in found})
        if len(digests) == 2:
            yield found, counts
        elif families > 1:
            yield found, (families, len(found))


def _parse_call_numbers(occurrence: CandidateOccurrence) -> list[int]:
    return [int(number) for number in occurrence.location.split(",")]


def _to_occurrence(occurrence: CandidateOccurrence, calls: Sequence[MinedCall]) -> merge.Occurrence:
    tainted = any(call.tainted for call in calls) or occurrence.tainted
    return merge.Occurrence(
        occurrence.session,
        occurrence.family,
        occurrence.time,
        tuple(calls),
        occurrence.support,
        tainted,
    )


def add_request_and_result(
    store: Store, redactor: Redactor, pattern: Pattern, found: Sequence[merge.Occurrence]
) -> Pattern:
    """Return the pattern with its request, example arguments and result, as far as they may be shown."""
    first = found[0]
    requests = [
        _find_request(store, redactor, one.mined_calls[-len(pattern.steps)], one.session)
        for one in found
    ]
    steps: list[PatternStep] = []
    for step, call in zip(pattern.steps, first.mined_calls[-len(pattern.steps) :], strict=True):
        result = (
            "" if call.answered is None else _summarize_result(store, redactor, call, first.session)
        )
        example = (
            None
            if call.tainted
            else call_example.build_call_example(call.signature, step.arguments, requests[0])
        )
        steps.append(step._replace(result=result, example=example))
    other_requests = [text for text in dict.fromkeys(requests[1:]) if text not in ("", requests[0])]
    return pattern._replace(steps=tuple(steps), asked=requests[0], also=tuple(other_requests))


def _find_request(store: Store, redactor: Redactor, call: MinedCall, session: str) -> str:
    """Return the user's request: that of this turn or, if it is a mere assent, an earlier one."""
    if call.turn < 0:
        return ""
    for message in _iter_messages_before(store, session, call.turn):
        if message.role == "user":
            request = summarize.summarize_request(
                message.text, lambda text: redactor.redact_text(text, "requests")
            )
            if request and not summarize.is_assent(request):
                return request
    return ""


def _iter_messages_before(store: Store, session: str, turn: int) -> Iterator[Message]:
    """Yield the message at a position and those before it, newest first, loaded on demand."""
    message = _load_message(store, session, turn)
    if message is not None:
        yield message
    if turn > 0:
        after = max(-1, turn - 1 - LOOKBACK_MESSAGES)
        earlier = store.messages(session, after=after, limit=turn - 1 - after)
        # If messages were rewound, the page may extend past `turn`.
        yield from reversed([one for one in earlier if (one.position or 0) < turn])


def _summarize_result(store: Store, redactor: Redactor, call: MinedCall, session: str) -> str:
    message = _load_message(store, session, call.answered or 0)
    if message is None:
        return ""
    return summarize.summarize_result(
        message.text,
        call.signature.family,
        lambda text: redactor.redact_text(text, "results"),
        tainted=call.tainted,
    )


def _load_message(store: Store, session: str, position: int) -> Message | None:
    found = store.messages(session, after=position - 1, limit=1)
    return found[0] if found and found[0].position == position else None
