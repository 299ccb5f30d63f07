"""What terminals left behind that ended in the middle of an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rekindle.routing.key import Slot, join
from rekindle.routing.source import LOCAL

if TYPE_CHECKING:
    from rekindle.store import Store
    from rekindle.store.conversations.inbox import Letter, Parcel
    from rekindle.types import Session

    from .terminal_lock import Presence

_RUNNER = "chat-"
_TERMINALS = join(Slot(LOCAL, "dm", ""))  # how the keys of all of them begin


class Left(NamedTuple):
    """Letters without an answer, answers that were not shown; and is another terminal there now?"""

    letters: tuple[Letter, ...] = ()
    parcels: tuple[Parcel, ...] = ()
    is_shared: bool = False


def runner_of(terminal: str) -> str:
    """The name of a terminal among those that work on conversations."""
    return f"{_RUNNER}{terminal}"


def left_behind(
    store: Store, presence: Presence, owner: str | None, session: Session | None
) -> Left:
    """What a person left in a session; and what they said last and never got into any session."""
    letters: list[Letter] = []
    parcels: list[Parcel] = []
    is_shared = False
    for route in store.routes.under(_TERMINALS):
        if route.origin.user_id != owner:
            continue
        here = session is not None and route.session == session.id
        newer = session is None or route.updated > session.last_active
        if not (here or newer):
            continue
        if not presence.is_gone(route.origin.chat_id):
            is_shared |= here
            continue
        waiting = store.mail.waiting(route.key)
        letters += [one for one in waiting if here or one.session is None]
        if here:
            parcels += [one for one in store.mail.parcels(route.key) if one.state == "waiting"]
    return Left(
        tuple(sorted(letters, key=lambda one: one.num)),
        tuple(sorted(parcels, key=lambda one: one.num)),
        is_shared,
    )


def take_over(store: Store, presence: Presence, letter: Letter, runner: str, lease: float) -> bool:
    """Work on a letter in place of a terminal that is gone; False if another works on it."""
    holder = store.mail.holder(letter.key) or ""  # not always the one where it was said
    if holder.startswith(_RUNNER) and presence.is_gone(holder.removeprefix(_RUNNER)):
        store.mail.give_up(holder)
    return letter.key in store.mail.adopt(runner, lease, under=[letter.key])


def clear_away(store: Store, presence: Presence, ours: str) -> None:
    """Remove what a terminal that ends, or ended, needs no more: its sessions are all that stays.

    What it left unfinished stays too, for whoever continues the conversation.
    """
    for route in store.routes.under(_TERMINALS):
        if route.origin.chat_id == ours or presence.is_gone(route.origin.chat_id):
            store.mail.forget(route.key)
