"""The inbox of one tenant, whose turns count against its quota."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from rekindle.store.conversations.inbox import InboundMessage, Inbox, OutboundMessage
from rekindle.types import Message, Session, Source

CountTurn = Callable[[Sequence[str], Sequence[Message]], AbstractContextManager[None]]


class TenantInbox(Inbox):
    """Inbound messages of one tenant. `count` is given the sessions and messages that a turn writes.

    What a turn writes counts, but is not refused: a turn that has begun ends with its answer. The next
    one is refused, see `TenantStore.check_quota`.
    """

    def __init__(self, *options: Any, count: CountTurn) -> None:
        super().__init__(*options)
        self._count = count

    def start_turn(self, inbound: InboundMessage, session: Session) -> InboundMessage:
        """Start a turn as `Inbox.start_turn` does; raise `QuotaExceeded` for a session too many."""
        is_new = inbound.state == "waiting"
        with self._count([session.id], [inbound.message] if is_new else []):
            return super().start_turn(inbound, session)

    def append_in_turn(
        self, inbound: InboundMessage, instance: str, session: Session, message: Message
    ) -> None:
        """Append a message of a running turn as `Inbox.append_in_turn` does."""
        with self._count([], [message]):
            super().append_in_turn(inbound, instance, session, message)

    def finish_turn(
        self,
        inbound_messages: Sequence[InboundMessage],
        session: Session | str,
        messages: Sequence[Message],
        replies: Sequence[tuple[Source, str]],
        **options: Any,
    ) -> list[OutboundMessage]:
        """End a turn as `Inbox.finish_turn` does."""
        with self._count([], messages):
            return super().finish_turn(inbound_messages, session, messages, replies, **options)
