"""The event stream that a transcript reader yields.

A reader is a generator, so a two-gigabyte file costs only the memory of its longest message:

    SessionStarted(session)   the messages that follow belong to this session
    Message                   one message, with a `platform_message_id` that is stable across reads
    UnreadableEntry           a part of the file that was skipped because it could not be parsed
    SessionUpdated(session)   the session with everything learned from the file: title, model, tokens

Sessions may alternate within a file (a sub-agent's lines between its parent's): `SessionStarted` is
repeated whenever the stream switches.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from rekindle.types import Message, Session, UsageEntry


class SessionStarted(NamedTuple):
    """Marks that the following messages belong to `session`, known only from its beginning."""

    session: Session


class SessionUpdated(NamedTuple):
    """The same session with details known only at the end of the file: title, model, tokens.

    `usage` says when its models used their tokens, as far as the file has times. `abandoned` names
    the messages that are no part of the conversation any more, because the user went back and took
    another path.
    """

    session: Session
    usage: tuple[UsageEntry, ...] = ()
    abandoned: frozenset[str] = frozenset()


class UnreadableEntry(NamedTuple):
    """A part of a file that could not be parsed. Lines count from 1."""

    file: str
    line: int
    what: str


TranscriptEvent: TypeAlias = SessionStarted | Message | UnreadableEntry | SessionUpdated
