"""Works on one conversation for as long as something waits there, in the order of arrival.

A turn runs as a task of its own, so that what arrives meanwhile can stop it. Commands that only tell
something are carried out beside it; those that change where the conversation goes stop it first, and
with it whatever waits before them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import NamedTuple

from rekindle.errors import StoreError
from rekindle.platforms import Platform
from rekindle.store.conversations.inbox import Letter, Parcel

from .command_handlers import Moment
from .commands import Commands, when_of
from .context import Office
from .conversation import Conversation, Parts, is_command, is_note, same_place
from .crash_attempts import Attempts
from .live_draft import Draft
from .log_format import KEY
from .outbox_sender import Delivery
from .splitting import split

logger = logging.getLogger(__name__)

TRIES = 3  # of a turn that fails by an error of ours
_TROUBLE = 1.0


class Shop(NamedTuple):
    """What all workers of a gateway share. `places` is how many turns may run at once."""

    office: Office
    commands: Commands
    delivery: Delivery
    attempts: Attempts
    platform_of: Callable[[str], Platform | None]
    places: asyncio.Semaphore
    edit_seconds: float = 1.0  # between two looks at an answer that is being written; 0: none


class Worker:
    """One conversation at work."""

    def __init__(self, shop: Shop, key: str) -> None:
        self.key = key
        self.wanted = False  # something came for us while we were leaving
        self.leaving = False  # the program ends: no new turn
        self._shop = shop
        self._desk = shop.office.desk
        self._mail = shop.office.desk.store.mail
        self._turn: asyncio.Task[None] | None = None
        self._letter: Letter | None = None  # whose turn it is
        self._draft: Draft | None = None
        self._beside: dict[int, asyncio.Task[None]] = {}  # commands carried out during a turn
        self._tries = 0
        self._conversation = Conversation(shop.office, key)

    @property
    def turn(self) -> asyncio.Task[None] | None:
        """The turn that is under way."""
        return self._turn

    @property
    def letter(self) -> Letter | None:
        """Whose turn is, or was last, under way."""
        return self._letter

    def arrived(self, letter: Letter) -> None:
        """Something more came in: it may have to be heard at once."""
        turn, running = self._turn, self._letter
        if turn is None or running is None or letter.num in self._beside:
            return
        if letter.state != "waiting" or letter.num == running.num:
            return
        if not is_command(letter.message):
            if is_note(letter.message):
                return
            if self._shop.office.arriving == "interrupt" and same_place(letter, running):
                turn.cancel()
            return
        when = when_of(letter.message)
        if when == "stopping":
            turn.cancel()
        elif when == "at once":
            task = asyncio.create_task(self._carry_out(letter, Moment(running=True)))
            self._beside[letter.num] = task

    async def run(self) -> None:
        """Work until nothing waits. The lease of the conversation is ours, and given back."""
        KEY.set(self.key)
        try:
            while not self.leaving:
                letters = await self._release()
                if letters:
                    await self._step(letters)
                elif not self.wanted:
                    return
                self.wanted = False
        finally:
            for task in self._beside.values():
                task.cancel()

    async def _release(self) -> list[Letter]:
        await asyncio.gather(*self._beside.values(), return_exceptions=True)
        self._beside.clear()
        while True:
            try:
                return await self._desk.ask(self._mail.release, self.key, self._shop.office.runner)
            except StoreError as error:
                logger.warning("the inbox cannot be read: %s", error)
                await asyncio.sleep(_TROUBLE)

    async def _step(self, letters: Sequence[Letter]) -> None:
        """Do what is next. It ends with the letters as the store has them, not as we think."""
        try:
            command, place = _next_command(letters)
            if command is not None and (place == 0 or when_of(command.message) != "after"):
                stopped = 0
                if when_of(command.message) == "stopping":
                    stopped = await self._stop(letters[:place], command)
                await self._carry_out(command, Moment(stopped))
            elif is_note(letters[0].message):
                self._shop.delivery.send(await self._noted(letters[0]), letters[0])
            else:
                await self._answer(letters)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever it is, the conversation must go on
            await self._failed(letters, error)
        else:
            self._tries = 0

    async def _answer(self, letters: Sequence[Letter]) -> None:
        """Run the turn of the first letter; those that interrupted it take part."""
        first = letters[0]
        if first.state == "running" and self._shop.office.arriving == "interrupt":
            joining = [first]
            for letter in letters[1:]:
                if is_note(letter.message):
                    continue
                if is_command(letter.message) or not same_place(letter, first):
                    break
                joining.append(letter)
            await self._conversation.join(joining)
        self._conversation = Conversation(self._shop.office, self.key, self._parts(first))
        self._letter, self._draft = first, self._new_draft(first)
        self._turn = asyncio.create_task(self._run_turn(first))
        for letter in letters[1:]:  # what came before the turn began
            self.arrived(letter)
        try:
            await self._turn
        except asyncio.CancelledError:
            if not self._turn.done() or not self._turn.cancelled() or _is_cancelled():
                await self._end_turn()
                raise
            # Somebody stopped the turn, not us: the letters say what is next.
        finally:
            self._turn = None

    async def _noted(self, letter: Letter) -> Sequence[Parcel]:
        return await Conversation(self._shop.office, self.key, self._parts(letter)).tell(letter)

    async def _end_turn(self) -> None:
        turn = self._turn
        if turn is not None:
            turn.cancel()
            await asyncio.gather(turn, return_exceptions=True)

    async def _run_turn(self, letter: Letter) -> None:
        conversation, attempts = self._conversation, self._shop.attempts
        # Who waits to be worked on alone must not keep others from a place.
        async with attempts.turn(letter), self._shop.places:
            if self.leaving:
                return
            verdict = await attempts.begin(letter)
            if verdict == "over":
                return
            logger.info("turn of letter %d begins", letter.num)
            if verdict == "hopeless":
                await self._give_up(letter)
            else:
                await self._hear_out(letter)
        logger.info("turn of letter %d ended", letter.num)
        attempts.end([letter])
        draft, self._draft = self._draft, None
        self._shop.delivery.send(conversation.posted, letter, draft)

    async def _hear_out(self, letter: Letter) -> None:
        conversation, draft = self._conversation, self._draft
        try:
            quiet = draft.settle if draft is not None else None
            async with aclosing(conversation.answer(letter, quiet)) as happenings:
                async for happening in happenings:
                    if draft is not None and conversation.reset is None:
                        draft.note(happening)
        finally:
            if draft is not None:
                await draft.close()

    async def _give_up(self, letter: Letter) -> None:
        logger.error("letter %d is given up: it ended the program each time", letter.num)
        await self._conversation.give_up(letter)

    async def _stop(self, letters: Sequence[Letter], command: Letter) -> int:
        """End what waits before a command that stops it; how many letters that were."""
        told = [
            one
            for one in letters
            if one.state == "running" or not (is_command(one.message) or is_note(one.message))
        ]
        if not told:
            return 0
        draft, self._draft = self._draft or self._new_draft(told[0]), None
        shown = draft is not None and draft.was_sent
        why = f"stopped by {command.message.text[:40].strip()}"
        posted = await self._conversation.stop(told, why, shown=shown)
        self._shop.delivery.send(posted, told[0] if shown else None, draft)
        return len(told)

    async def _carry_out(self, letter: Letter, moment: Moment) -> None:
        logger.info("command %s", letter.message.text[:40].split(maxsplit=1)[0])
        parts, attempts = self._parts(letter), self._shop.attempts
        async with attempts.turn(letter):
            verdict = await attempts.begin(letter)
            if verdict == "hopeless":
                hopeless = Conversation(self._shop.office, self.key, parts)
                logger.error("command %d is given up: it ended the program each time", letter.num)
                self._shop.delivery.send(await hopeless.give_up(letter), letter)
            elif verdict == "go on":
                outcome = await self._shop.commands.run(letter, parts, moment)
                self._shop.delivery.send(outcome.posted, letter)
                if outcome.turn is None:
                    attempts.end([letter])

    async def _failed(self, letters: Sequence[Letter], error: Exception) -> None:
        self._tries += 1
        logger.error("letter %d failed (%d)", letters[0].num, self._tries, exc_info=error)
        await asyncio.sleep(_TROUBLE * self._tries)
        if self._tries < TRIES or isinstance(error, StoreError):
            return  # what is next is asked anew; a store that is away comes back
        try:
            posted = await self._conversation.fail([letters[0]], error)
        except Exception:  # the store may be away too; the letter stays, and is tried again
            logger.exception("letter %d could not be given up", letters[0].num)
            return
        self._tries = 0
        self._shop.delivery.send(posted)

    def _parts(self, letter: Letter) -> Parts:
        platform = self._shop.platform_of(letter.source.platform)
        limit = platform.limit if platform else 4000
        return lambda text: split(text, limit)

    def _new_draft(self, letter: Letter) -> Draft | None:
        platform = self._shop.platform_of(letter.source.platform)
        if platform is None or not platform.can_edit or not self._shop.edit_seconds:
            return None
        draft = Draft(platform, letter, self._shop.edit_seconds, self._is_sent)
        draft.was_sent = letter.state == "running"  # in another life, perhaps
        if self._draft is not None and self._draft.letter.num == letter.num:
            draft.was_sent = draft.was_sent or self._draft.was_sent
            draft.message_id = self._draft.message_id
        return draft

    async def _is_sent(self) -> bool:
        return await self._desk.ask(self._mail.is_sent, self.key)


def _next_command(letters: Sequence[Letter]) -> tuple[Letter | None, int]:
    """The command that comes next, and where: one that tells something, or one that stops."""
    waiting = [
        (place, letter)
        for place, letter in enumerate(letters)
        if letter.state == "waiting" and is_command(letter.message)
    ]
    for when in ("at once", "stopping"):
        for place, letter in waiting:
            if when_of(letter.message) == when:
                return letter, place
    return (waiting[0][1], waiting[0][0]) if waiting else (None, 0)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
