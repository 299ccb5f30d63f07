"""What terminals left behind that ended in the middle of an answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ...routing.source import LOCAL

if TYPE_CHECKING:
    from ...store import Store
    from ...store.mail import Letter, Parcel
    from ...types import Route, Session
    from .presence import Presence

_PAGE, _LOOKED_AT = 1000, 5000  # routes, newest first


class Left(NamedTuple):
    """Letters without an answer, answers that were not shown; and is another terminal there now?"""

    letters: tuple[Letter, ...] = ()
    parcels: tuple[Parcel, ...] = ()
    is_shared: bool = False


def runner_of(terminal: str) -> str:
    """The name of a terminal among those that work on conversations."""
    return f"chat-{terminal}"


def left_behind(store: Store, presence: Presence, session: Session | None) -> Left:
    """What was left in a session; and what was said last and never got into any session."""
    letters: list[Letter] = []
    parcels: list[Parcel] = []
    is_shared = False
    for route in _terminals(store):
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


def take_over(store: Store, letter: Letter, runner: str, lease: float) -> bool:
    """Work on a letter in place of the terminal that is gone; False if another was faster."""
    store.mail.give_up(runner_of(letter.source.chat_id))
    return letter.key in store.mail.adopt(runner, lease, under=[letter.key])


def _terminals(store: Store) -> Iterator[Route]:
    for offset in range(0, _LOOKED_AT, _PAGE):
        page = store.routes.list(limit=_PAGE, offset=offset)
        yield from (route for route in page if route.origin.platform == LOCAL)
        if len(page) < _PAGE:
            return
