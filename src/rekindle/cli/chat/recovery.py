"""Find the session that a terminal continues, and the work of terminals that ended during an answer."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from rekindle.coding_agents.resume import build_copy_title, find_resumable, get_source_title
from rekindle.errors import AmbiguousName, InvalidInput, NotFound
from rekindle.gateway.turns.session_hold import is_gone
from rekindle.routing.key import KeyParts, join_key
from rekindle.routing.source import LOCAL
from rekindle.transcripts import FORMATS

if TYPE_CHECKING:
    from rekindle.store import Store
    from rekindle.store.conversations.inbox import InboundMessage, OutboundMessage
    from rekindle.types import Session

    from .terminal_lock import TerminalLocks

_IMPORTED_SOURCES = frozenset(format.name for format in FORMATS)
TERMINAL_LOST = "terminal_lost"  # why the session of a killed terminal ended
_RUNNER_PREFIX = "chat-"
_TERMINAL_KEY_PREFIX = join_key(KeyParts(LOCAL, "dm", ""))  # common prefix of all terminal keys


class Leftovers(NamedTuple):
    """Unanswered messages and unshown answers.

    A copy of an imported session has none; `copied` says of which.
    """

    inbound: tuple[InboundMessage, ...] = ()
    outbound: tuple[OutboundMessage, ...] = ()
    copied: str = ""

    @property
    def note(self) -> str:
        """What the user should know about the session."""
        return self.copied and f"Continues a copy of {self.copied}, which stays as it is."


def format_instance_name(terminal: str) -> str:
    """Return the name under which a terminal holds leases."""
    return f"{_RUNNER_PREFIX}{terminal}"


def is_own_session(session: Session, owner: str) -> bool:
    """Return whether a session is the user's: a chat of theirs, or imported from another agent."""
    return session.owner in (owner, None) or session.source in _IMPORTED_SOURCES


def find_named_session(store: Store, name: str, owner: str, *, may_copy: bool) -> Session:
    """Return the session to continue: one of the user's chats first, else any other of theirs.

    Sessions of other people are found only if they are to be copied; raise InvalidInput otherwise.
    """
    try:
        return store.find_tip(store.resolve(name, owner=owner), owner=owner)
    except AmbiguousName:
        raise
    except NotFound:
        found = find_resumable(store, store.resolve(name))
    if not (may_copy or is_own_session(found, owner)):
        raise InvalidInput(
            f"Session {found.id} belongs to {found.owner}, from {found.source}."
            f" Continue in a copy: rekindle chat --resume {found.id} --fork."
        )
    return found


def copy_session(store: Store, session: Session, owner: str) -> tuple[Session, Leftovers]:
    """Return a fork of a session that is not one of the user's chats, to be continued as one."""
    title = build_copy_title(session, LOCAL)
    fork = store.fork(session, title=title, source=LOCAL, owner=owner)
    copied = f"a session of {get_source_title(session.source)} ({session.id})"
    return fork, Leftovers(copied=copied)


def find_leftovers(
    store: Store, locks: TerminalLocks, owner: str | None, session: Session | None
) -> Leftovers:
    """Find unanswered messages of a session, and messages that never reached any session."""
    inbound: list[InboundMessage] = []
    outbound: list[OutboundMessage] = []
    for route in store.routes.list_by_prefix(_TERMINAL_KEY_PREFIX):
        if route.origin.user_id != owner:
            continue
        here = session is not None and route.session == session.id
        newer = session is None or route.updated > session.last_active
        if not (here or newer):
            continue
        if not locks.is_gone(route.origin.chat_id):
            continue
        waiting = store.inbox.list_waiting(route.key)
        inbound += [one for one in waiting if here or one.session is None]
        if here:
            outbound += [
                one for one in store.inbox.list_outbound(route.key) if one.state == "waiting"
            ]
    return Leftovers(
        tuple(sorted(inbound, key=lambda one: one.num)),
        tuple(sorted(outbound, key=lambda one: one.num)),
    )


def take_over_message(
    store: Store, locks: TerminalLocks, inbound: InboundMessage, instance: str, lease: float
) -> bool:
    """Take over a message from a terminal that has ended; return False if another one works on it."""
    holder = (
        store.inbox.get_lease_holder(inbound.key) or ""
    )  # not always the terminal that received it
    if holder.startswith(_RUNNER_PREFIX) and locks.is_gone(holder.removeprefix(_RUNNER_PREFIX)):
        store.inbox.release_leases(holder)
    return inbound.key in store.inbox.adopt_conversations(instance, lease, prefixes=[inbound.key])


def clean_up_terminals(store: Store, locks: TerminalLocks, terminal: str, reason: str) -> None:
    """End the sessions of our terminal and of killed ones, and remove their routes.

    `reason` is why our terminal ends, if its session has not ended yet. Unfinished work is kept for the
    terminal that continues the conversation, which reopens the session.
    """
    for route in store.routes.list_by_prefix(_TERMINAL_KEY_PREFIX):
        is_ours = route.origin.chat_id == terminal
        if not is_ours and not locks.is_gone(route.origin.chat_id):
            continue
        lease = store.session_leases.find(route.session)
        if lease is None or is_gone(lease):  # nobody else continues it
            with suppress(NotFound):  # nothing was said in it
                store.end(route.session, reason if is_ours else TERMINAL_LOST)
        store.inbox.delete_conversation(route.key)
    store.session_leases.delete_expired()
