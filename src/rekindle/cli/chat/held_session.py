"""Open the session that a terminal continues, although another program may hold it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from rekindle.errors import SessionHeld

if TYPE_CHECKING:
    from rekindle.types import Session

    from .conversation import ChatConversation

# What to do about a session that another program holds.
HeldChoice: TypeAlias = Literal["wait", "copy", "cancel"]
AskAboutHeld: TypeAlias = Callable[[str], Awaitable[HeldChoice]]

_POLL_SECONDS = 0.3
_HINT = "Close it there first, or continue in a copy with --fork."


class OpenedSession(NamedTuple):
    """The session that the terminal holds now; `is_copy` if it is a copy of the one asked for."""

    session: Session
    is_copy: bool = False


async def open_held_session(
    conversation: ChatConversation,
    session: Session,
    ask: AskAboutHeld | None,
    announce_wait: Callable[[], None] = lambda: None,
) -> OpenedSession | None:
    """Acquire a session; if another program holds it, ask what to do. Return None to cancel.

    Without anybody to ask, raise `SessionHeld`. `announce_wait` is called once a wait can be stopped.
    """
    executor, hold = conversation.context.executor, conversation.hold
    while True:
        try:
            await executor.run(hold.acquire, session.id)
        except SessionHeld as error:
            if ask is None:
                raise SessionHeld(f"{error} {_HINT}") from error
            choice = await ask(str(error))
            if choice == "cancel":
                return None
            if choice == "wait":
                await _wait_until_free(conversation, session, announce_wait)
                continue
            fork = await executor.run(executor.store.fork, session)
            await executor.run(hold.acquire, fork.id)
            return OpenedSession(fork, is_copy=True)
        # The session may have been compressed while another program held it.
        tip = await executor.run(executor.store.find_tip, session)
        if tip.id == session.id:
            return OpenedSession(tip)
        session = tip


async def _wait_until_free(
    conversation: ChatConversation, session: Session, announce: Callable[[], None]
) -> None:
    """Wait until no other program holds the session, or until Ctrl-C."""
    executor, hold = conversation.context.executor, conversation.hold
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGINT, stopped.set)
    announce()
    try:
        while await executor.run(hold.find_other, session.id) is not None:
            try:
                async with asyncio.timeout(_POLL_SECONDS):
                    await stopped.wait()
            except TimeoutError:
                continue
            return
    finally:
        loop.remove_signal_handler(signal.SIGINT)
