"""The gateway: listens to all platforms, and answers each conversation in its order.

    platform → accept (kept for good, then acknowledged) → the worker of its key → turn or command
    → outbox → platform

What is kept is answered, by this gateway or by another on the same store: each conversation is worked
on by who holds its lease, and what the dead left is taken over when their leases run out.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import NamedTuple, TypeVar

from rekindle.errors import InvalidInput, StoreError
from rekindle.platforms import Incoming, Platform
from rekindle.processes.types import Processes
from rekindle.routing.key import Slot, join
from rekindle.store.conversations.inbox import Accepted

from .commands import Commands
from .context import Office
from .crash_attempts import Attempts
from .log_format import KEY
from .outbox_sender import Delivery, Stamina
from .process_reports import pass_on
from .worker import Shop, Worker

logger = logging.getLogger(__name__)

T = TypeVar("T")

_TROUBLE = 1.0  # seconds after an error, before a loop goes on
_LONGEST_TROUBLE = 30.0
_TIDY_SECONDS = 3600.0


class Habits(NamedTuple):
    """How a gateway works. `look` is how often it looks for what others left or took in."""

    turns: int = 100
    edit_seconds: float = 1.0
    look: float = 1.0
    grace: float = 20.0
    keep: float = 30 * 86_400.0
    stamina: Stamina = Stamina()


_USUAL = Habits()


class Gateway:
    """All conversations of some platforms. `run` until `stop` is called."""

    def __init__(
        self,
        office: Office,
        platforms: Iterable[Platform],
        *,
        habits: Habits = _USUAL,
        processes: Processes | None = None,
    ) -> None:
        """`processes` report to the chats in which they were started."""
        self.office = office
        self.platforms = {platform.name: platform for platform in platforms}
        self.begun = time.time()
        self.accepted = 0
        self._habits = habits
        self._processes = processes
        self._desk = office.desk
        self._mail = office.desk.store.mail
        self._delivery = Delivery(office, self.platforms, habits.stamina)
        self._attempts = Attempts(office)
        self._shop = Shop(
            office,
            Commands(office),
            self._delivery,
            self._attempts,
            self.platforms.get,
            asyncio.Semaphore(habits.turns),
            habits.edit_seconds,
        )
        self._workers: dict[str, Worker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopping = asyncio.Event()
        self._tidied = 0.0

    @property
    def running(self) -> int:
        """How many conversations are being worked on."""
        return len(self._workers)

    @property
    def sending(self) -> int:
        """In how many conversations something is being sent."""
        return len(self._delivery.keys)

    def stop(self) -> None:
        """Take nothing new in, finish or park the turns, and end."""
        self._stopping.set()

    async def run(self) -> None:
        """Work until stopped. What an earlier life of this gateway left is taken up at once."""
        await self._persist(lambda: self._desk.ask(self._mail.give_up, self.office.runner))
        arriving = [
            *(self._listen(platform) for platform in self.platforms.values()),
            self._every(self._habits.look, self._look),
        ]
        if self._processes is not None:
            arriving.append(pass_on(self._processes, self.platforms, self.take_in))
        tasks = [asyncio.create_task(loop) for loop in arriving]
        alive = asyncio.create_task(self._every(self.office.lease / 3, self._renew))
        try:
            await self._stopping.wait()
        finally:
            await self._end(tasks, alive)

    # -- coming in

    async def _listen(self, platform: Platform) -> None:
        trouble = _TROUBLE
        while not self._stopping.is_set():
            try:
                async with aclosing(platform.listen()) as arriving:
                    async for incoming in arriving:
                        await self._take_in(platform, incoming)
                        trouble = _TROUBLE
                return
            except Exception:  # one platform in trouble must not end the others, nor itself
                logger.exception("%s: listening failed; again in %g s", platform.name, trouble)
            await asyncio.sleep(trouble)
            trouble = min(trouble * 2, _LONGEST_TROUBLE)

    async def _take_in(self, platform: Platform, incoming: Incoming) -> None:
        await self.take_in(incoming)
        await platform.acknowledge(incoming)

    async def take_in(self, incoming: Incoming) -> None:
        """Keep what came in, and see that somebody works on it. The same message is kept once."""
        try:
            key = self.office.key_of(incoming.source)
            bound = KEY.set(key)
            accepted = await self._persist(lambda: self._accept(key, incoming))
        except InvalidInput as error:
            # It would be refused each time it is given again.
            platform = incoming.source.platform
            logger.error("%s: a message cannot be taken in: %s", platform, error)
            return
        if accepted.is_new:
            self.accepted += 1
            if accepted.is_ours:
                self._start(key)
            elif worker := self._workers.get(key):
                worker.arrived(accepted.letter)
        KEY.reset(bound)

    async def _accept(self, key: str, incoming: Incoming) -> Accepted:
        return await self._desk.ask(
            self._mail.accept,
            key,
            incoming.source,
            incoming.message,
            runner=self.office.runner,
            lease=self.office.lease,
        )

    # -- working

    def _start(self, key: str) -> None:
        """Let a worker begin; one that is about to leave stays. At the end none begins."""
        if self._stopping.is_set():
            return
        if worker := self._workers.get(key):
            worker.wanted = True
            return
        worker = self._workers[key] = Worker(self._shop, key)
        self._tasks[key] = asyncio.create_task(self._work(worker))

    async def _work(self, worker: Worker) -> None:
        try:
            await worker.run()
        except Exception:  # its lease runs out, and somebody takes the conversation up again
            logger.exception("the worker of %s failed", worker.key)
        finally:
            if self._workers.get(worker.key) is worker:
                del self._workers[worker.key], self._tasks[worker.key]

    # -- upkeep

    async def _every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except Exception as error:  # noqa: BLE001  # what cannot be looked after now can be later
                logger.warning("upkeep failed: %s: %s", type(error).__name__, error)
            await asyncio.sleep(seconds)

    async def _renew(self) -> None:
        """Say that we live; drop what somebody else took over while we seemed dead."""
        turns = {key: worker.turn for key, worker in self._workers.items() if worker.turn}
        sending = self._delivery.busy
        renewed = await self._desk.ask(self._mail.renew, self.office.runner, self.office.lease)
        held = frozenset(renewed)
        for key, turn in turns.items():
            worker = self._workers.get(key)
            if key not in held and worker is not None and worker.turn is turn:
                logger.warning("%s was taken over by another gateway", key)
                self._tasks[key].cancel()
                if worker.letter is not None:
                    await self._attempts.leave(worker.letter)
        self._delivery.keep(sending, held)
        for key in held:  # ours, and nobody at it: it must not wait for nobody
            if self._is_served(key) and key not in self._workers:
                self._start(key)

    def _is_served(self, key: str) -> bool:
        return key.startswith(tuple(self._under()))

    async def _look(self) -> None:
        """Take up what nobody works on, and hear what others took in for us."""
        under = self._under()
        office = self.office
        adopt = self._mail.adopt
        for key in await self._desk.ask(adopt, office.runner, office.lease, under=under):
            if key not in self._workers:
                logger.info("%s is taken up", key)
                self._start(key)
        await self._delivery.look(under)
        if any(worker.turn for worker in self._workers.values()):
            for letter in await self._desk.ask(self._mail.arrived, office.runner):
                if worker := self._workers.get(letter.key):
                    worker.arrived(letter)
        if time.monotonic() - self._tidied > _TIDY_SECONDS:
            await self._desk.ask(self._mail.tidy, self._habits.keep)
            self._tidied = time.monotonic()

    def _under(self) -> Sequence[str]:
        """How the keys of our platforms begin."""
        return [join(Slot(name, "")) for name in self.platforms]

    async def _persist(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do it, however long the store is away: what came in must be kept."""
        trouble = _TROUBLE
        while True:
            try:
                return await work()
            except StoreError as error:
                logger.error("the store cannot be used: %s; again in %g s", error, trouble)
            await asyncio.sleep(trouble)
            trouble = min(trouble * 2, _LONGEST_TROUBLE)

    # -- the end

    async def _end(self, arriving: Sequence[asyncio.Task[None]], alive: asyncio.Task[None]) -> None:
        """Finish what can be finished in time; the rest stays where the next life finds it."""
        end = time.monotonic() + self._habits.grace
        await _cancelled(arriving)
        for worker in self._workers.values():
            worker.leaving = True
        if self._tasks:
            await asyncio.wait([*self._tasks.values()], timeout=self._habits.grace)
        parked = [*self._tasks.values()]
        await _cancelled(parked)
        await self._delivery.close(max(1.0, end - time.monotonic()))
        await _cancelled([alive])
        for platform in self.platforms.values():
            await platform.close()
        try:
            await self._attempts.leave()
            await self._desk.ask(self._mail.give_up, self.office.runner)
        except StoreError as error:
            logger.warning("the leases could not be given back: %s", error)
        logger.info("ended; %d turns parked", len(parked))


async def _cancelled(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
