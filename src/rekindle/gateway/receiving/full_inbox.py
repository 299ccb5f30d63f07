"""Keep a flood of messages from filling the store: limit waiting messages and reply to senders.

The limits are checked where a message is stored. An answer is a stored message too, so a sender gets
one now and then, not one for each message that is refused.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from rekindle.store.conversations.inbox import InboxLimits
from rekindle.types import Message, Role

ANSWER = (
    "Too many messages are waiting for an answer, so your last one was not kept."
    " Please send it again later."
)
ANSWER_SECONDS = 300.0
COMMAND_RESERVE = 20  # commands such as /stop must get through, but not any number of them
MAX_KNOWN_CONVERSATIONS = 10_000


class InboxGuard:
    """Decides how many messages may wait, and whether a refusal is answered."""

    def __init__(self, limits: InboxLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._answered: OrderedDict[str, float] = OrderedDict()
        self._mutex = threading.Lock()  # messages are stored by several threads

    def choose_limits(self, role: Role, message: Message) -> InboxLimits:
        """Return the limits for a message: owners are not kept out by what others have sent."""
        reserve = COMMAND_RESERVE if message.text.lstrip().startswith("/") else 0
        per_conversation, total = self._limits
        return InboxLimits(
            None if per_conversation is None else per_conversation + reserve,
            None if total is None or role == "owner" else total + reserve,
        )

    def is_answer_due(self, key: str) -> bool:
        """Return whether to answer a refusal in a conversation, and remember that it was answered."""
        now = self._clock()
        with self._mutex:
            last = self._answered.get(key)
            if last is not None and now - last < ANSWER_SECONDS:
                return False
            self._answered[key] = now
            self._answered.move_to_end(key)
            if len(self._answered) > MAX_KNOWN_CONVERSATIONS:
                self._answered.popitem(last=False)
            return True
