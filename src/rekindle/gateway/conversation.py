"""One conversation: its route, its turns, and what is said in it.

    letter → the route's session (fresh or the same, as the policy says) → the message takes its place
    → the turn runs, every message stored as it exists → answer, delivery and end of the letter at once

After a crash the letter is still there. If its turn had begun, the turn goes on where it stopped.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from time import time
from typing import TypeAlias

from rekindle.agent.compaction import compress
from rekindle.agent.model.client import TextDelta
from rekindle.agent.turn import Again, Called, Ended, Happening, Setting, Shrunk, turn
from rekindle.errors import NotFound
from rekindle.learning.warm_start import Newcomer, begin, opening
from rekindle.routing import reset_notice
from rekindle.routing.context_prompt import context_prompt
from rekindle.routing.reset_policy import Why, is_stale
from rekindle.routing.source import describe
from rekindle.store.conversations.inbox import Letter, Parcel
from rekindle.types import Message, Policy, Route, Session, Source

from .context import Office, owner_of
from .log_format import SESSION

Parts: TypeAlias = Callable[[str], Sequence[str]]

STOPPED = "(Stopped.)"
_COMMAND = re.compile(r"/[A-Za-z][A-Za-z_-]*(@\S+)?(\s|$)")  # not /etc/hosts


def _whole(text: str) -> Sequence[str]:
    return (text,)


class Conversation:
    """The conversation of one key. One turn runs at a time; `parts` cuts what is too long to send."""

    def __init__(self, office: Office, key: str, parts: Parts = _whole) -> None:
        self.key = key
        self.posted: list[Parcel] = []  # by the last turn: what goes out
        self.reset: str | None = None  # why the last turn began a new session by itself
        self.so_far = ""  # of an answer that is being written
        self._office = office
        self._desk = office.desk
        self._parts = parts
        self._joined: list[Letter] = []  # answered by the running turn
        self._session: Session | None = None  # in which it runs

    async def route(self, source: Source) -> Route:
        """Where the conversation goes on, started anew if it is stale."""
        policy, now = self._office.policy_for(source), time()
        idle = await self._idle_session(source, policy, now)

        def stale(route: Route) -> str | None:
            return is_stale(policy, route.updated, now, busy=route.session != idle)

        routes = self._desk.store.routes
        return await self._desk.ask(
            routes.open, self.key, source, name=describe(source), stale=stale
        )

    async def _idle_session(self, source: Source, policy: Policy, now: float) -> str | None:
        """The session, if it is stale and has no running processes; asked before the transaction."""
        try:
            route = await self._desk.ask(self._desk.store.routes.get, self.key)
        except NotFound:
            return None
        if is_stale(policy, route.updated, now) is None:
            return None
        busy = await self._office.is_busy(owner_of(self.key, source), route.session)
        return None if busy else route.session

    def session(self, route: Route) -> Session:
        """The route's session as it begins: nothing is written before its first message."""
        return session_of(self._office, route)

    async def answer(
        self, letter: Letter, quiet: Callable[[], Awaitable[None]] | None = None
    ) -> AsyncGenerator[Happening]:
        """Run the turn of a letter, and tell what happens; at the end the answer is on its way.

        `quiet` is waited for before: from then on another gateway may send the answer.
        """
        self.posted, self.so_far = [], ""
        letter, route, session = await self._begin(letter)
        self._session, self.reset = session, route.reset
        bound = SESSION.set(session.id)
        setting = Setting(
            model=self._office.model,
            toolbox=self._office.toolbox,
            context=self._office.tools_for(route),
            opening=await self._opening(letter.source, route, session),
            limits=self._office.limits,
            price=self._office.price,
            steering=self._steer if self._office.arriving == "steer" else None,
            shrink=self._shrink,
        )
        try:
            async with aclosing(turn(self._desk, session, setting)) as happenings:
                async for happening in happenings:
                    self._hear(happening)
                    if isinstance(happening, Ended):
                        if quiet is not None:
                            await quiet()
                        await self._end(letter, route, happening)
                    yield happening
        finally:
            SESSION.reset(bound)

    async def join(self, letters: Sequence[Letter]) -> None:
        """Let letters take part in the turn of the first of them, which has begun."""
        first, *others = letters
        assert first.session is not None
        session = await self._desk.ask(self._desk.store.tip, first.session)
        for letter in others:
            await self._desk.ask(self._desk.store.mail.begin, letter, session)

    async def tell(self, letter: Letter) -> list[Parcel]:
        """Pass a note on: it goes out, and stands in the session that it is about."""
        self.posted = await self._desk.ask(self._told, letter)
        return self.posted

    def _told(self, letter: Letter) -> list[Parcel]:
        store, note = self._desk.store, letter.message
        about, said = str((note.meta or {}).get("session", "")), list[Message]()
        with suppress(NotFound):  # a conversation that went elsewhere is not bothered with it
            if store.tip(about).id == store.routes.get(self.key).session:
                said, about = [note], store.tip(about).id
        parts = [(letter.source, part) for part in self._parts(note.text)]
        return store.mail.finish([letter], about, said, parts)

    async def stop(
        self, letters: Sequence[Letter], why: str, *, shown: bool = False
    ) -> list[Parcel]:
        """End letters without an answer. What was said and what came of it stays.

        `shown`: some of the answer can be seen, so that its end must be.
        """
        store, first = self._desk.store, letters[0]
        route = await self._desk.ask(store.routes.open, self.key, first.source)
        session = self.session(route)
        if first.session is not None:
            session = await self._desk.ask(store.tip, first.session)
        for letter in letters:
            await self._desk.ask(store.mail.begin, letter, session)
        said = f"{self.so_far}\n\n{STOPPED}".strip()
        parts = self._parts(said) if shown else ()
        self.posted = await self._desk.ask(
            store.mail.finish,
            letters,
            session,
            [Message("assistant", said)],
            [*await self._notices(first, route), *((first.source, part) for part in parts)],
            reason=why,
        )
        return self.posted

    async def fail(self, letters: Sequence[Letter], error: Exception) -> list[Parcel]:
        """Give letters up because of an error of ours, and say so."""
        text = f"Something went wrong here ({type(error).__name__}). Please say it again."
        first = letters[0]
        route = await self._desk.ask(self._desk.store.routes.open, self.key, first.source)
        self.posted = await self._desk.ask(
            self._desk.store.mail.finish,
            letters,
            first.session or route.session,
            [],
            [(first.source, text)],
            reason=f"{type(error).__name__}: {error}",
        )
        return self.posted

    async def give_up(self, letter: Letter) -> list[Parcel]:
        """End a letter that ended the program each time, with what had joined its turn; say so."""
        attempts, store = self._office.attempts, self._desk.store
        times = "once" if attempts == 1 else f"{attempts} times"
        text = (
            f"I gave this message up: the program ended {times} while it worked on it. Say it again,"
            " perhaps in other words, to let it be tried once more."
        )
        letters, session, notices = [letter], letter.session or "", list[tuple[Source, str]]()
        if letter.session is not None:  # it has its place: what follows must not take it up again
            _, route, found = await self._resume(letter, letter.session)
            letters, session = self._joined, found.id
            notices = await self._notices(letter, route)
        self.posted = await self._desk.ask(
            store.mail.finish,
            letters,
            session,
            [Message("assistant", text)] if session else [],
            [*notices, *((letter.source, part) for part in self._parts(text))],
            reason=f"given up: the program ended {times} while it worked on it",
            hopeless=True,
        )
        return self.posted

    def _hear(self, happening: Happening) -> None:
        if isinstance(happening, TextDelta):
            self.so_far += happening.text
        elif isinstance(happening, (Again, Called)):
            self.so_far = ""

    async def _begin(self, letter: Letter) -> tuple[Letter, Route, Session]:
        if letter.state == "running" and letter.session is not None:
            return await self._resume(letter, letter.session)
        route = await self.route(letter.source)
        session, letter = await self._desk.ask(self._place, letter, route, self.session(route))
        self._joined = [letter]
        return letter, route, session

    def _place(self, letter: Letter, route: Route, session: Session) -> tuple[Session, Letter]:
        """Give the message of a letter its place. The session that begins with it may start warm."""
        office, store = self._office, self._desk.store
        if office.starter is None or not store.preludes.is_new(session):
            return session, store.mail.begin(letter, session)
        context = office.tools_for(route)
        tools, said = office.toolbox.definitions(context), letter.message.text
        newcomer = Newcomer(session, said, tools, str(context.cwd), session.owner)
        return begin(
            store, office.starter, newcomer, lambda session: store.mail.begin(letter, session)
        )

    async def _resume(self, letter: Letter, session: str) -> tuple[Letter, Route, Session]:
        """Take up a turn that was interrupted, with all that had joined it."""
        store = self._desk.store
        route = await self._desk.ask(store.routes.open, self.key, letter.source)
        tip = await self._desk.ask(store.tip, session)
        if route.session == session != tip.id:  # it was compressed, and the crash came right then
            route = await self._desk.ask(store.routes.follow, self.key, session, tip.id)
        waiting = await self._desk.ask(store.mail.waiting, self.key)
        others = [one for one in waiting if one.state == "running" and one.num != letter.num]
        self._joined = [letter, *others]
        return letter, route, tip

    async def _end(self, letter: Letter, route: Route, ended: Ended) -> None:
        parts = self._parts(ended.message.text)
        store = self._desk.store
        self.posted = await self._desk.ask(
            store.mail.finish,
            self._joined,
            ended.session,
            [ended.message],
            [*await self._notices(letter, route), *((letter.source, part) for part in parts)],
            reason=ended.reason,
        )
        self.so_far = ""
        await self._desk.ask(store.routes.touch, self.key, ended.usage)

    async def _notices(self, letter: Letter, route: Route) -> list[tuple[Source, str]]:
        """What the user is told once after an automatic reset."""
        if route.reset is None:
            return []
        policy = self._office.policy_for(letter.source)
        title = await self._title(route.previous)
        return [(letter.source, reset_notice.for_user(_why(route.reset), policy, title))]

    async def _title(self, session: str | None) -> str | None:
        if session is None:
            return None
        return (await self._desk.ask(self._desk.store.session, session)).title

    async def _opening(self, source: Source, route: Route, session: Session) -> list[Message]:
        office = self._office
        start = await self._desk.ask(self._desk.store.preludes.start, session)
        homes = await self._desk.ask(office.homes)
        told = [
            office.prompt,
            context_prompt(source, platforms=office.platforms, homes=homes),
        ]
        if route.reset is not None:
            told.append(reset_notice.for_model(_why(route.reset), office.policy_for(source)))
        return opening("\n\n".join(told), start.messages)

    async def _steer(self) -> list[Message]:
        """What was said meanwhile joins the turn, up to the next command."""
        store = self._desk.store
        said: list[Message] = []
        for letter in await self._desk.ask(store.mail.waiting, self.key):
            if letter.state != "waiting" or is_note(letter.message):
                continue
            if is_command(letter.message) or not same_place(letter, self._joined[0]):
                break
            assert self._session is not None
            begun = await self._desk.ask(store.mail.begin, letter, self._session)
            self._joined.append(begun)
            said.append(begun.message)
        return said

    async def _shrink(self, session: Session, messages: Sequence[Message]) -> Shrunk | None:
        shrunk = await compress(self._desk, self._office.model, session, messages)
        if shrunk is not None:
            routes = self._desk.store.routes
            await self._desk.ask(routes.follow, self.key, session.id, shrunk.session.id)
            self._session = shrunk.session
        return shrunk


def session_of(office: Office, route: Route) -> Session:
    """A route's session as it begins: nothing is written before its first message."""
    source = route.origin
    return office.desk.store.begin(
        id=route.session,
        source=source.platform,
        owner=owner_of(route.key, source),
        user=source.user_name or source.user_id,
        model=office.model.endpoint.model,
    )


def is_command(message: Message) -> bool:
    """Whether a message is for the gateway and not for the model."""
    return message.role == "user" and _COMMAND.match(message.text) is not None


def is_note(message: Message) -> bool:
    """Whether a message needs no answer: it is passed on, and what follows is said with it known."""
    return message.role == "assistant"


def same_place(one: Letter, other: Letter) -> bool:
    """Does one answer reach both? People of one conversation may write in several chats."""
    a, b = one.source, other.source
    return (a.platform, a.chat_id, a.thread_id) == (b.platform, b.chat_id, b.thread_id)


def _why(reason: str) -> Why:
    return "daily" if reason == "daily" else "idle"
