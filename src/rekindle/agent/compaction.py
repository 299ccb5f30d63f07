"""Compress a long conversation and continue it in a child session.

Old tool results are shortened first. If that is not enough, the middle is summarized (see
`compaction_plan` for what is kept). The summary is made first; then one transaction ends the old
session and starts the child. If the summary fails or is cancelled, nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from rekindle.agent.model.client import Model
from rekindle.errors import CompressionFailed, InvalidInput
from rekindle.store import Store
from rekindle.store.store_executor import StoreExecutor
from rekindle.types import Message, Session, Tokens, replace_fields

from .compaction_plan import SUMMARY_OF, plan_compression
from .context_space import ContextSpace
from .summary import summarize_messages
from .turn import Compacted

SUMMARY_MARK = "[Summary of the conversation so far]"

_UNLIMITED = ContextSpace()


async def compress_session(
    executor: StoreExecutor,
    model: Model,
    session: Session,
    messages: Sequence[Message],
    space: ContextSpace = _UNLIMITED,
    *,
    on_request: bool = True,
    write_child: Callable[[Callable[[], Session]], Session] | None = None,
) -> Compacted | None:
    """Compress a session and continue in a child; raise `CompressionFailed` if that is impossible.

    On request, the middle is summarized although the messages fit, or None is returned if it is too
    short for that. Otherwise, the child takes at most `space.tokens`. `write_child` calls what starts
    the child, in a transaction of its own.
    """
    plan = plan_compression(messages, space, on_request=on_request)
    if plan is None:
        return None
    child, tokens = [*plan.before, *plan.after], Tokens()
    if plan.middle:
        mark = Message("user", f"{SUMMARY_MARK}\n")
        room = plan.summary_tokens - space.estimate((mark,))
        summary = await summarize_messages(model, plan.middle, space, max(16, room))
        tokens = summary.tokens
        meta = {SUMMARY_OF: session.id}
        message = Message("user", f"{mark.text}{summary.text}", meta=meta)
        child = [*plan.before, message, *plan.after]
    if not on_request and space.estimate(child) > space.tokens:
        text = f"The conversation is too long, and no summary fits into {space.tokens:,} tokens."
        raise CompressionFailed(text, tokens)
    start_child = partial(_store_child, executor.store, session, child)
    if write_child is None:
        stored = await executor.run(start_child)
    else:
        stored = await executor.run(write_child, start_child)
    return Compacted(stored, await executor.run(executor.store.messages, stored), tokens)


def _store_child(store: Store, session: Session, messages: Sequence[Message]) -> Session:
    """Start the child, or return the one that another writer has started."""
    copies = [_copy_for_child(message) for message in messages]
    try:
        return store.compress(session, *copies)
    except InvalidInput:
        tip = store.find_tip(session)
        if tip.id != session.id:
            return tip
    store.reopen(session)  # it had ended, and continues all the same
    return store.compress(session, *copies)


def _copy_for_child(message: Message) -> Message:
    """Return a copy of the message without the fields that belong to the parent session."""
    return replace_fields(message, timestamp=None, position=None, rewound=False)
