"""One terminal's conversation: what is said goes the way of every message, through the inbox.

    route → accept → turn → finish → shown → sent

A program that is killed in between leaves a letter in the inbox, or an answer in the outbox; the next
terminal that continues the conversation finds them (`left`).
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager, suppress
from enum import IntEnum
from typing import TYPE_CHECKING

from rekindle.agent.turn import Ended
from rekindle.errors import NotFound, RekindleError
from rekindle.gateway.commands import Commands
from rekindle.gateway.conversation import Conversation, is_command
from rekindle.gateway.crash_attempts import Attempts
from rekindle.routing import reset_notice
from rekindle.types import JSON, Message

if TYPE_CHECKING:
    from rekindle.gateway.context import Office
    from rekindle.store.conversations.inbox import Letter, Parcel
    from rekindle.types import Route, Session, Source

    from .process_reports import Reports, Show
    from .views import View

STOPPED = "stopped by the user"
PRINTED = "printed"  # what stands for a message id where a text was shown on a screen


class Went(IntEnum):
    """How it went, as exit codes."""

    WELL = 0
    FAILED = 1
    REFUSED = 2  # a mistake in what was said


class Interrupted(Exception):
    """The user stopped the turn; what was said so far is kept."""


class Talk:
    """A conversation at this terminal. One turn runs at a time."""

    def __init__(
        self, office: Office, source: Source, reports: Reports | None = None, **facts: JSON
    ) -> None:
        """`facts` are kept with the session: the folder one is in, the model that answers."""
        self.office = office
        self.source = source
        self.key = office.key_of(source)
        self.conversation = Conversation(office, self.key)
        self._commands = Commands(office)
        self._attempts = Attempts(office)
        self._facts = facts
        self._reports = reports
        self._told: set[str] = set()  # the sessions that have them
        self._store = office.desk.store
        self._ask = office.desk.ask

    async def route(self) -> Route:
        """Where the conversation goes on, started anew if it is stale."""
        return await self.conversation.route(self.source)

    async def go_to(self, session: Session) -> Route:
        """Go on in that session."""
        await self.route()
        return await self._ask(self._store.routes.switch, self.key, session)

    async def say(self, text: str, view: View) -> Went:
        """Say something, or give a command, and show what comes of it."""
        said = Message("user", text)
        route = await self._ask(self._store.routes.open, self.key, self.source)
        if not is_command(said):  # a command never starts a conversation anew by itself
            route = await self.route()
            if route.reset is not None:
                view.note(await self._notice(route))

        async def show(text: str) -> None:
            view.note(text)

        await self.hear(show)
        runner, lease = self.office.runner, self.office.lease
        accept = self._store.mail.accept
        accepted = await self._ask(accept, self.key, self.source, said, runner=runner, lease=lease)
        return await self.take(accepted.letter, view)

    async def hear(self, show: Show, wait: float = 0.0) -> None:
        """Show what processes of this conversation reported; waits so long for a first report."""
        if self._reports is not None:
            with suppress(NotFound):
                route = await self._ask(self._store.routes.get, self.key)
                await self._reports.pass_on(route.session, show, wait)

    async def take(self, letter: Letter, view: View) -> Went:
        """Do what a letter asks for. `Interrupted` if the user stops it with Ctrl-C."""
        work = asyncio.ensure_future(self._do(letter, view))
        is_stopped = False

        def stop() -> None:
            nonlocal is_stopped
            is_stopped = True
            work.cancel()

        view.begin()
        async with _interrupts(stop):
            try:
                async with self._alive():
                    went = await work
            except asyncio.CancelledError:
                if not is_stopped:  # the program itself is ended: what is unfinished stays
                    await self._attempts.leave(letter)
                    raise
                view.end("Stopped.")
                await self._stop(letter)
                raise Interrupted from None
            except RekindleError as error:
                view.end(str(error))
                await self._give_up(letter, error)
                return Went.FAILED
            await self._over(letter)
        view.end()
        return went

    async def _do(self, letter: Letter, view: View) -> Went:
        verdict = await self._attempts.begin(letter)
        if verdict == "hopeless":
            for parcel in await self.conversation.give_up(letter):
                view.reply(parcel.text, ok=False)
        if verdict != "go on":
            return Went.FAILED
        if not _is_new_command(letter):
            return await self._turn(letter, view)
        outcome = await self._commands.run(letter, lambda text: (text,))
        for parcel in outcome.posted:
            view.reply(parcel.text, ok=not outcome.refused)
        if outcome.turn is not None:
            return await self._turn(outcome.turn, view)
        return Went.REFUSED if outcome.refused else Went.WELL

    async def _turn(self, letter: Letter, view: View) -> Went:
        ended: Ended | None = None
        async with aclosing(self.conversation.answer(letter)) as happenings:
            async for happening in happenings:
                view.show(happening)
                if isinstance(happening, Ended):
                    ended = happening
        if ended is None:
            return Went.FAILED
        if self._facts and ended.session.id not in self._told:
            await self._ask(self._store.update, ended.session, **self._facts)
            self._told.add(ended.session.id)
        return Went.WELL if ended.reason is None else Went.FAILED

    async def _stop(self, letter: Letter) -> None:
        """The user wants no answer any more; what was said so far stays."""
        waiting = await self._ask(self._store.mail.waiting, letter.key)
        for one in (one for one in waiting if one.num == letter.num):
            if _is_new_command(one):
                await self._ask(self._store.mail.close, one, STOPPED)
            else:
                await self.conversation.stop([one], STOPPED)
        await self._over(letter)

    async def _over(self, letter: Letter) -> None:
        self._attempts.end([letter])
        await self.shown(await self._ask(self._store.mail.parcels, letter.key))
        await self._ask(self._store.mail.release, self.key, self.office.runner)

    async def shown(self, parcels: Iterable[Parcel]) -> None:
        """These texts were printed: they count as delivered."""
        for parcel in parcels:
            if parcel.state == "waiting":
                await self._ask(self._store.mail.sent, parcel, PRINTED)

    async def _give_up(self, letter: Letter, error: RekindleError) -> None:
        try:
            await self.conversation.fail([letter], error)
            await self._over(letter)
        except RekindleError:
            pass  # the store still fails: the letter stays, and whoever continues finds it

    async def _notice(self, route: Route) -> str:
        policy = self.office.policy_for(self.source)
        title = None
        if route.previous is not None:
            title = (await self._ask(self._store.session, route.previous)).title
        return reset_notice.for_user("daily" if route.reset == "daily" else "idle", policy, title)

    @asynccontextmanager
    async def _alive(self) -> AsyncGenerator[None]:
        """Say now and then that this terminal works on its conversation."""

        async def renew() -> None:
            while True:
                await asyncio.sleep(self.office.lease / 3)
                await self._ask(self._store.mail.renew, self.office.runner, self.office.lease)

        beat = asyncio.create_task(renew())
        try:
            yield
        finally:
            beat.cancel()
            await asyncio.gather(beat, return_exceptions=True)

    async def leave(self, reason: str) -> Session | None:
        """The user goes; the session to come back to, if anything was said."""
        try:
            route = await self._ask(self._store.routes.get, self.key)
            return await self._ask(self._store.end, route.session, reason)
        except NotFound:
            return None


def _is_new_command(letter: Letter) -> bool:
    return letter.state == "waiting" and is_command(letter.message)


@asynccontextmanager
async def _interrupts(stop: Callable[[], None]) -> AsyncGenerator[None]:
    """Let Ctrl-C stop the turn and not the program."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, stop)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
