"""The outbox: what has to reach somebody is sent until it did, in order, by one at a time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from rekindle.errors import PlatformError, StoreError
from rekindle.platforms import Platform
from rekindle.store.conversations.inbox import SENDING, Letter, Parcel

from .context import Office
from .live_draft import Draft, nonce_of
from .log_format import KEY

logger = logging.getLogger(__name__)

SEND_SECONDS = 60.0  # for one message, before the attempt counts as failed
_TROUBLE = 2.0  # seconds to wait after an error of our own


class Stamina(NamedTuple):
    """How often a parcel is tried, and the seconds between: each pause twice the one before."""

    attempts: int = 8
    first: float = 1.0
    longest: float = 300.0

    def pause(self, attempts: int, error: PlatformError) -> float | None:
        """Seconds until the next attempt after so many; None to give up."""
        if error.lasting or attempts >= self.attempts:
            return None
        pause = min(self.longest, self.first * 2 ** (attempts - 1))
        return max(pause, error.retry_after or 0.0)


class Delivery:
    """Sends what waits in the outbox to the platforms that are connected."""

    def __init__(
        self, office: Office, platforms: Mapping[str, Platform], stamina: Stamina | None = None
    ) -> None:
        self._desk = office.desk
        self._mail = office.desk.store.mail
        self._runner = office.runner
        self._lease = office.lease
        self._platforms = platforms
        self._stamina = stamina or Stamina()
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._wanted: set[str] = set()
        self._busy: set[str] = set()  # where parcels are at hand
        self._begun: dict[int, tuple[Letter, Draft | None]] = {}  # by parcel: what it answers

    @property
    def keys(self) -> list[str]:
        """In which conversations something is being sent."""
        return [*self._sending]

    @property
    def busy(self) -> frozenset[str]:
        """In which conversations we have parcels at hand, and so hold the lease."""
        return frozenset(self._busy)

    def send(
        self, posted: Sequence[Parcel], letter: Letter | None = None, draft: Draft | None = None
    ) -> None:
        """Send parcels that were just posted; the first of them begins the answer to `letter`."""
        if not posted:
            return
        if letter is not None:
            self._begun[posted[0].num] = (letter, draft)
        self._start(posted[0].key, claimed=False)

    async def look(self, under: Sequence[str]) -> None:
        """Take up what nobody sends, in conversations whose keys begin with one of `under`."""
        claim = self._mail.claim
        for key in await self._desk.ask(claim, self._runner, self._lease, under=under):
            if key not in self._sending:
                self._start(key, claimed=True)

    async def close(self, grace: float) -> None:
        """Wait for what is being sent, so long; what waits for its next attempt stays for later."""
        tasks = [*self._sending.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=grace)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def keep(self, sending: Collection[str], held: Collection[str]) -> None:
        """Go on with what we hold; leave what another sends now."""
        ours = {name.removeprefix(SENDING) for name in held if name.startswith(SENDING)}
        for key in self._busy.intersection(sending) - ours:
            self._sending[key].cancel()
        for key in ours:
            if key not in self._sending:
                self._start(key, claimed=True)

    def _start(self, key: str, *, claimed: bool) -> None:
        if key in self._sending:
            self._wanted.add(key)
            return
        self._sending[key] = asyncio.create_task(self._send_all(key, claimed))

    async def _send_all(self, key: str, claimed: bool) -> None:
        KEY.set(key)
        try:
            while True:
                parcels = await self._held(key, claimed)
                if parcels:
                    self._busy.add(key)
                    claimed = await self._send_some(parcels)
                    self._busy.discard(key)
                elif key not in self._wanted:
                    return
                else:
                    self._wanted.discard(key)
                    claimed = False
        finally:
            self._sending.pop(key, None)
            self._wanted.discard(key)
            self._busy.discard(key)

    async def _held(self, key: str, claimed: bool) -> list[Parcel]:
        while True:
            try:
                if claimed:
                    return await self._desk.ask(self._mail.let_go, key, self._runner)
                return await self._desk.ask(self._mail.take, key, self._runner, self._lease)
            except StoreError as error:
                logger.warning("the outbox cannot be read: %s", error)
                await asyncio.sleep(_TROUBLE)

    async def _send_some(self, parcels: Sequence[Parcel]) -> bool:
        """Send what can be sent, in order, up to the first that must be tried again."""
        for parcel in parcels:
            wait = min(parcel.next_try - time.time(), self._stamina.longest)
            if wait > 0 and parcel.attempts:  # else it is late only by a clock that was put back
                await asyncio.sleep(wait)
            try:
                if not await self._deliver(parcel):
                    break
            except Exception:  # what is posted must go out, whatever went wrong this time
                logger.exception("parcel %d was not sent", parcel.num)
                await asyncio.sleep(_TROUBLE)
                break
        return True

    async def _deliver(self, parcel: Parcel) -> bool:
        """Try to send a parcel; False if it must be tried again."""
        try:
            async with asyncio.timeout(SEND_SECONDS):
                message_id = await self._put(parcel)
        except (PlatformError, TimeoutError) as problem:
            error = problem
            if not isinstance(error, PlatformError):
                error = PlatformError(f"no answer within {SEND_SECONDS:g} s")
            again = self._stamina.pause(parcel.attempts + 1, error)
            await self._desk.ask(self._mail.missed, parcel, str(error) or "failed", again=again)
            told = "given up" if again is None else f"again in {again:g} s"
            logger.warning("parcel %d was not sent: %s; %s", parcel.num, error, told)
            if again is None:
                self._begun.pop(parcel.num, None)
            return again is None
        await self._desk.ask(self._mail.sent, parcel, message_id)
        self._begun.pop(parcel.num, None)
        return True

    async def _put(self, parcel: Parcel) -> str:
        platform = self._platforms.get(parcel.target.platform)
        if platform is None:
            raise PlatformError(f"{parcel.target.platform} is not connected")
        if not platform.can_edit:
            return await platform.send(parcel.target, parcel.text, _nonce(parcel))
        if parcel.num in self._begun:
            letter, draft = self._begun[parcel.num]
            maybe_drafted = draft is not None and draft.was_sent
            known = draft.message_id if draft else None
        else:
            letter, known = await self._desk.ask(self._mail.opens, parcel), None
            maybe_drafted = True  # in another life
        if letter is None:
            return await platform.send(parcel.target, parcel.text, _nonce(parcel))
        message_id = known or await platform.send(parcel.target, parcel.text, nonce_of(letter))
        if maybe_drafted:
            await platform.edit(parcel.target, message_id, parcel.text)
        return message_id


def _nonce(parcel: Parcel) -> str:
    """Stable over restarts, and not that of another store's parcel."""
    return f"parcel-{parcel.num}-{round(parcel.time * 1000):x}"
