"""What each command does, and how it says so."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

from rekindle.agent.turn import amount
from rekindle.errors import InvalidInput, NotFound
from rekindle.routing.reset_policy import next_reset
from rekindle.routing.sanitize import clean
from rekindle.routing.source import LOCAL, describe
from rekindle.store import Filter, Store
from rekindle.store.conversations.inbox import Letter
from rekindle.types import Policy, Route, Session, Tokens, Usage

from .context import Office, owner_of

LISTED = 10
_LOOKED_AT = 40  # of which the newest that go on are listed
_WORDS_SHOWN = 60
_MOST_TURNS = 1000
_AGES = ((86_400, "d"), (3600, "h"), (60, "min"))


class Moment(NamedTuple):
    """What went on in the conversation when a command came."""

    stopped: int = 0  # letters that it stopped
    running: bool = False
    busy: bool = False  # has its session running background processes?


class At(NamedTuple):
    """Where a command was given. `session` is None while nothing was said there."""

    office: Office
    letter: Letter
    route: Route
    session: Session | None
    argument: str
    moment: Moment
    listed: list[str]  # the sessions that the answer lists, in order: a number picks from them

    @property
    def store(self) -> Store:
        return self.office.desk.store

    @property
    def owner(self) -> str:
        return owner_of(self.letter.key, self.letter.source)


def new(at: At) -> str:
    at.store.routes.reset(at.letter.key)
    way_back = " /back returns to the last one." if at.session else ""
    return f"{stopped(at)}A new conversation.{way_back}\n{here(None)}"


def back(at: At) -> str:
    if at.route.previous is None:
        raise NotFound("there is no conversation before this one")
    return _switched(at, at.store.session(at.route.previous, owner=at.owner))


def resume(at: At) -> str:
    if not at.argument:
        titled = _going_on(at, Filter(titled=True))
        if not titled:
            return (
                "None of your conversations has a title. /sessions lists them all, /title names"
                f" this one.\n{here(at.session)}"
            )
        return f"{_list(at, titled)}\nSend /resume and a number or a title.\n{here(at.session)}"
    found = _picked(at) or at.store.resolve(at.argument, owner=at.owner)
    return _switched(at, at.store.tip(found, owner=at.owner))


def sessions(at: At) -> str:
    if not at.argument:
        found = _going_on(at, Filter())
        if not found:
            return f"You have no conversations yet.\n{here(at.session)}"
        return f"{_list(at, found)}\nSend /resume and a number.\n{here(at.session)}"
    hits = at.store.search(at.argument, owner=at.owner, limit=_LOOKED_AT, context=0)
    snippets = {hit.session.id: hit.snippet for hit in reversed(hits)}
    by_id = {hit.session.id: hit.session for hit in hits}
    if not hits:
        return f"Nothing was found.\n{here(at.session)}"
    listed = _list(at, [*by_id.values()][:LISTED], snippets)
    return f"{listed}\nSend /resume and a number.\n{here(at.session)}"


def title(at: At) -> str:
    if at.session is None:
        raise InvalidInput("nothing was said here yet; say something, then name it")
    if not at.argument:
        return here(at.session)
    return f"Named.\n{here(at.store.rename(at.session, at.argument))}"


def undo(at: At) -> str:
    turns = 1
    if at.argument:
        if not at.argument.isascii() or not at.argument.isdigit() or int(at.argument[:9]) < 1:
            raise InvalidInput(f"/undo takes a number of turns, not “{clean(at.argument, 40)}”")
        turns = min(int(at.argument[:9]), _MOST_TURNS)
    if at.session is None or not at.session.message_count:
        raise NotFound("there is nothing to take back")
    rewind = at.store.undo(at.session, turns)
    left = at.session._replace(message_count=at.session.message_count - rewind.messages)
    return f"{stopped(at)}Took back {_count(rewind.messages, 'message')}.\n{here(left)}"


def fork(at: At) -> str:
    if at.session is None:
        raise NotFound("there is nothing to copy yet")
    child = at.store.fork(at.session)
    at.store.routes.follow(at.letter.key, at.session.id, child.id)
    return f"A copy. /back returns to the original.\n{here(child)}"


def stop(at: At) -> str:
    said = stopped(at).strip() or "Nothing was running."
    return f"{said}\n{here(at.session)}"


def set_home(at: At) -> str:
    if at.letter.source.platform == LOCAL:
        raise InvalidInput("a terminal can be no home: nothing can be sent there when it is closed")
    at.store.routes.set_home(at.letter.source)
    place = clean(describe(at.letter.source))
    return f"The home of {clean(at.letter.source.platform)} is now: {place}.\n{here(at.session)}"


def status(at: At) -> str:
    source, now = at.letter.source, time.time()
    policy = at.office.policy_for(source)
    due = next_reset(policy, at.route.updated, now, busy=at.moment.busy)
    of_session = at.session.tokens if at.session else Tokens()
    lines = [
        f"Place: {clean(describe(source))}",
        f"Session: {at.route.session}",
        f"Model: {clean(at.office.model.endpoint.model)}",
        f"Start: {_start(at)}",
        f"Tokens of this session: {_tokens(of_session)}",
        *_by_model(at.store.usage(at.session) if at.session else {}),
        f"Tokens of this chat: {_tokens(at.route.tokens)}",
        *_by_model(at.route.usage),
        f"Reset: {_reset(policy, due)}",
        "An answer is being written." if at.moment.running else "Nothing is running.",
        here(at.session),
    ]
    return "\n".join(lines)


def _start(at: At) -> str:
    """How the session was started: warm with which template, or cold."""
    one = at.store.preludes.start(at.route.session)
    if not one.messages:
        kept = " (kept so, to compare with)" if one.arm == "cold" else ""
        return f"cold{kept}"
    calls = sum(len(message.tool_calls) for message in one.messages)
    shown = f", {_count(calls, 'call')} shown" if calls else ""
    return f"warm, from “{clean(one.template or '', 100)}” (revision {one.revision}{shown})"


def here(session: Session | None) -> str:
    """The line that says which conversation the speaker is in."""
    if session is None:
        return "You are in a new conversation."
    count = _count(session.message_count, "message")
    return f"You are in {_called(session)} ({count})."


def stored(store: Store, id: str) -> Session | None:
    """The session of that id, if anything was ever said in it."""
    try:
        found = store.session(id)
    except NotFound:
        return None
    return found if found.message_count or found.preview else None


def _called(session: Session) -> str:
    if session.title:
        return f"“{clean(session.title, 100)}”"
    words = clean(session.preview, _WORDS_SHOWN)
    return f"the conversation that began with “{words}”" if words else "a conversation"


def stopped(at: At) -> str:
    """What is said about the letters that a command stopped."""
    if not at.moment.stopped:
        return ""
    waited = at.moment.stopped - 1
    more = f"; {_count(waited, 'message')} that waited too" if waited else ""
    return f"Stopped the answer{more}. "


def _switched(at: At, target: Session) -> str:
    if target.id == at.route.session:
        return f"{stopped(at)}You are there already.\n{here(target)}"
    at.store.routes.switch(at.letter.key, target)
    return f"{stopped(at)}Back in an earlier conversation.\n{here(target)}"


def _picked(at: At) -> Session | None:
    """The session of a number in the list that was shown here last."""
    if not (at.argument.isascii() and at.argument.isdigit() and len(at.argument) <= 3):
        return None
    shown, number = at.store.routes.shown(at.letter.key), int(at.argument)
    if not 1 <= number <= len(shown):
        return None
    return at.store.session(shown[number - 1], owner=at.owner)


def _going_on(at: At, where: Filter) -> list[Session]:
    """The speaker's newest sessions, without those that go on in a compressed child."""
    found = at.store.recent(_LOOKED_AT, where=where, owner=at.owner)
    return [one for one in found if one.end_reason != "compression"][:LISTED]


def _list(at: At, found: list[Session], snippets: dict[str, str] | None = None) -> str:
    at.listed[:] = [session.id for session in found]
    now = time.time()
    return "\n".join(_lines(at, found, snippets or {}, now))


def _lines(at: At, found: list[Session], snippets: dict[str, str], now: float) -> Iterable[str]:
    for number, session in enumerate(found, 1):
        name = clean(session.title or session.preview, _WORDS_SHOWN) or "(nothing said)"
        is_here = " – here" if session.id == at.route.session else ""
        count = _count(session.message_count, "message")
        yield f"{number}. {name} · {count} · {_ago(now - session.last_active)}{is_here}"
        if snippet := snippets.get(session.id):
            yield f"   {clean(snippet, 160)}"


def _ago(seconds: float) -> str:
    for size, unit in _AGES:
        if seconds >= size:
            return f"{seconds // size:.0f} {unit} ago"
    return "now"


def _by_model(usage: Mapping[str, Usage]) -> Iterable[str]:
    """A line for each model, where there is more to tell than the sum."""
    if len(usage) > 1 or any(taken.cost for taken in usage.values()):
        for model, (tokens, cost) in usage.items():
            worth = f", cost {amount(cost)}" if cost else ""
            yield f"  {clean(model) or 'unknown model'}: {_tokens(tokens)}{worth}"


def _tokens(tokens: Tokens) -> str:
    cached = f" ({tokens.cache_read:,} from the cache)" if tokens.cache_read else ""
    return f"{tokens.input:,} in{cached}, {tokens.output:,} out"


def _reset(policy: Policy, due: float | None) -> str:
    if due is None:
        return "never" if policy.mode == "none" else "not while something runs"
    moment = datetime.fromtimestamp(due, ZoneInfo(policy.zone))
    return f"{policy.mode}; the next at {moment:%Y-%m-%d %H:%M} ({policy.zone}) if nothing is said"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
