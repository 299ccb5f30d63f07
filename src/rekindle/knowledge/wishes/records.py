"""Wishes as they are kept: of one session without their words, of a project with them."""

from __future__ import annotations

import msgspec


class SessionWish(msgspec.Struct, array_like=True, frozen=True):
    """Where a session's user wished for something: what about, in hashes, and not the words."""

    digest: int
    position: int
    is_standing: bool


class Wish(msgspec.Struct, array_like=True, frozen=True):
    """What users asked for, in their words, and the sessions in which they did."""

    text: str
    is_standing: bool
    sessions: tuple[str, ...]  # newest first
    last: float
