"""Decide from the replay of a project's history whether a proposal won.

A rewording won if sessions that would have been told it were told no less that came true, in fewer
tokens. A wish won if users said it again after it could have been told, and if telling it cost
nothing else that came true. With few sessions there is no evidence either way.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

from rekindle.knowledge.notes.note import count_sessions
from rekindle.knowledge.notes.records import SessionObservation
from rekindle.knowledge.notes.replay import SessionScore

from .proposals import has_support
from .sentences import UserSentence, matches_sentence

MIN_SESSIONS = 3  # that a verdict rests on

Outcome: TypeAlias = Literal["won", "did not win", "no evidence"]


class ScoreComparison(NamedTuple):
    """What sessions were told with a proposal and without it, where that differs."""

    sessions: int = 0
    named_before: int = 0  # commands, files and fixes that came true
    named_after: int = 0
    tokens_before: int = 0
    tokens_after: int = 0


class Repeats(NamedTuple):
    """How many sessions came after a wish could have been told, and in how many users said it again."""

    later: int = 0
    again: int = 0


class Verdict(NamedTuple):
    """Whether a proposal won, why, and on how many sessions that rests."""

    outcome: Outcome
    reason: str
    sample: int  # sessions


def compare_scores(
    before: Iterable[SessionScore], after: Iterable[SessionScore]
) -> ScoreComparison:
    """Compare the scores of the same sessions without a proposal and with it."""
    total = ScoreComparison()
    for one, other in zip(before, after, strict=True):
        if one != other:
            total = ScoreComparison(
                total.sessions + 1,
                total.named_before + _count_named(one),
                total.named_after + _count_named(other),
                total.tokens_before + sum(one.tokens),
                total.tokens_after + sum(other.tokens),
            )
    return total


def _count_named(score: SessionScore) -> int:
    return score.counts["came_true"][0] + score.counts["mended"][0]


def count_repeats(
    text: str, sessions: Iterable[SessionObservation], sentences: Iterable[UserSentence]
) -> Repeats:
    """Count the later sessions in which users said again what independent ones had said before.

    A session that begins like one that said so is a fork of it, and counts as no repetition.
    """
    saying: dict[str, list[UserSentence]] = {}
    for one in sentences:
        if matches_sentence(text, one.text):
            saying.setdefault(one.session, []).append(one)
    said: list[UserSentence] = []
    later = again = 0
    for session in sorted(sessions, key=lambda one: (one.started, one.session)):
        found = saying.get(session.session, [])
        if has_support(said):
            later += 1
            again += bool(found) and found[0].origin not in {one.origin for one in said}
        said += found
    return Repeats(later, again)


def judge_rewording(compared: ScoreComparison) -> Verdict:
    """Judge a rewording by what it would have changed."""
    count = compared.sessions
    saved = compared.tokens_before - compared.tokens_after
    if count < MIN_SESSIONS:
        return Verdict("no evidence", f"told in {count_sessions(count)} of the replay", count)
    told = f"in {count_sessions(count)}"
    if (worse := _describe_loss(compared)) is not None:
        return Verdict("did not win", f"{worse} {told}", count)
    if saved <= 0:
        return Verdict("did not win", f"takes {-saved} more tokens {told}", count)
    return Verdict("won", f"names the same with {saved} fewer tokens {told}", count)


def judge_wish(repeats: Repeats, compared: ScoreComparison) -> Verdict:
    """Judge a wish by whether it was said again, and by what telling it would have cost."""
    count = repeats.later
    later = f"{count} later {'session' if count == 1 else 'sessions'}"
    if (worse := _describe_loss(compared)) is not None:
        return Verdict("did not win", f"{worse} in {later}", count)
    if count < MIN_SESSIONS:
        return Verdict("no evidence", f"could be told in {later}", count)
    said = f"said again in {repeats.again} of {later}"
    return Verdict("won" if repeats.again else "did not win", said, count)


def _describe_loss(compared: ScoreComparison) -> str | None:
    if compared.named_after >= compared.named_before:
        return None
    return f"names {compared.named_after} instead of {compared.named_before} that came true"
