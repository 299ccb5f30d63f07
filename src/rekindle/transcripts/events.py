"""What a reader tells about a foreign file, as a stream of events.

A reader is a generator, so a file of two gigabytes costs the memory of its longest message:

    Opened(session)     the messages that follow belong to this session
    Message             one entry of it, with a `platform_message_id` that a second reading repeats
    Damage              a place that could not be read, and that was skipped
    Learned(session)    what the whole file told about it: title, model, tokens

Sessions may alternate in one file (a sub-agent's lines between those of its parent): `Opened`
comes again whenever the stream changes over.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from rekindle.types import Message, Session


class Opened(NamedTuple):
    """From here on the messages belong to `session`, of which only the beginning is known."""

    session: Session


class Learned(NamedTuple):
    """The same session, with what only the end of the file knows: title, model, tokens."""

    session: Session


class Damage(NamedTuple):
    """A place in a file that could not be read. Lines count from 1."""

    file: str
    line: int
    what: str


Event: TypeAlias = Opened | Message | Damage | Learned
