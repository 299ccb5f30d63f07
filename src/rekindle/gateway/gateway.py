"""The gateway: listens to all platforms, and answers each conversation in order.

    platform → accept (store, then acknowledge) → worker of the key → turn or command
    → outbox → platform

Every stored message is answered, by this gateway or by another on the same store: the holder of a
conversation's lease works on it, and another gateway takes over when the lease of a dead one
expires.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from functools import partial
from typing import NamedTuple, TypeVar

from rekindle.errors import InboxFull, InvalidInput, PlatformError, StoreError, StoreTooNew
from rekindle.platforms import Platform, PlatformMessage
from rekindle.processes.operations import Processes
from rekindle.routing.key import KeyParts, join_key
from rekindle.routing.speaker import add_speaker
from rekindle.store.conversations.inbox import (
    AcceptResult,
    InboundMessage,
    InboxLimits,
    OutboundMessage,
)
from rekindle.types import Role, Route, Source

from .access.gate import Gate
from .access.rules import AccessRules
from .commands import CommandRunner
from .context import GatewayContext
from .crash_attempts import AttemptTracker
from .log_format import CURRENT_KEY
from .memory import flush as memory_flush
from .monitoring.error_log import ErrorCollector
from .monitoring.metrics import Metrics
from .outbox_sender import OutboxSender, SendRetryPolicy
from .process_reports import forward_reports
from .receiving.full_inbox import ANSWER, InboxGuard
from .receiving.message import ReceiveRules, complete_message
from .schedule.scheduler import POLL_SECONDS, Scheduler
from .turns.inbound import is_report
from .worker import Worker, WorkerContext

logger = logging.getLogger(__name__)

T = TypeVar("T")

_RETRY_SECONDS = 1.0  # seconds to wait after an error
_MAX_RETRY_SECONDS = 30.0
_USELESS_RETRY_SECONDS = 600.0  # where only the operator can help, such as with a new token
_RECOVERY_SECONDS = 60.0  # after which a platform that listens again counts as helped
_CLEANUP_SECONDS = 3600.0


class GatewayOptions(NamedTuple):
    """Options of a gateway. It polls every `poll_seconds` for work that others left or accepted."""

    max_turns: int = 100
    inbox_limits: InboxLimits = InboxLimits()
    edit_seconds: float = 1.0
    poll_seconds: float = 1.0
    grace_seconds: float = 20.0
    keep_seconds: float = 30 * 86_400.0
    retry_policy: SendRetryPolicy = SendRetryPolicy()
    flushes_memory: bool = True
    flush_poll_seconds: float = memory_flush.POLL_SECONDS
    receive_rules: ReceiveRules = ReceiveRules()


_DEFAULT_OPTIONS = GatewayOptions()


class RefusedMessage(NamedTuple):
    """A message that was not stored: the role of its sender, and the reply to them."""

    role: str
    reply: OutboundMessage | None = None


class Gateway:
    """All conversations of some platforms. `run` returns after `stop` is called."""

    def __init__(
        self,
        context: GatewayContext,
        platforms: Iterable[Platform],
        *,
        options: GatewayOptions = _DEFAULT_OPTIONS,
        processes: Processes | None = None,
    ) -> None:
        """Create a gateway; `processes` report to the chats in which they were started.

        Without a gate in the context, only people whom the store knows may talk.
        """
        gate = context.gate or Gate(
            context.executor.store.people, AccessRules(), context.executor.store.links
        )
        self.context = context = context._replace(gate=gate, metrics=Metrics())
        self.errors = ErrorCollector(context.metrics, context.model.endpoint.api_key)
        self.listening: dict[str, bool] = {}  # by platform
        self.failures: dict[str, str] = {}  # by platform: why only the operator can help
        self.platforms = {platform.name: platform for platform in platforms}
        self.started = time.time()
        self.accepted_count = 0
        self._options = options
        self._processes = processes
        self._executor = context.executor
        self._inbox = context.executor.store.inbox
        self._sender = OutboxSender(context, self.platforms, options.retry_policy)
        self._inbox_guard = InboxGuard(options.inbox_limits)
        self._attempts = AttemptTracker(context)
        self._worker_context = WorkerContext(
            context,
            CommandRunner(context),
            self._sender,
            self._attempts,
            self.platforms.get,
            asyncio.Semaphore(options.max_turns),
            options.edit_seconds,
        )
        self._scheduler = Scheduler(
            context.executor,
            gate,
            list(self.platforms),
            instance=context.instance,
            lease_seconds=context.lease,
            on_start=self._on_accepted,
        )
        self._flusher = memory_flush.MemoryFlusher(context, self._build_key_prefixes())
        self._workers: dict[str, Worker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopping = asyncio.Event()
        self._too_new: StoreTooNew | None = None
        self._last_cleanup = 0.0

    @property
    def worker_count(self) -> int:
        """The number of conversations being worked on."""
        return len(self._workers)

    @property
    def sender_count(self) -> int:
        """The number of conversations with messages being sent."""
        return len(self._sender.keys)

    def stop(self) -> None:
        """Accept nothing new, finish or suspend the turns, and end."""
        self._stopping.set()

    async def run(self) -> None:
        """Run until stopped. Work that a previous run of this gateway left is resumed at once."""
        logging.getLogger("rekindle").addHandler(self.errors)
        try:
            await self._run_loops()
        finally:
            logging.getLogger("rekindle").removeHandler(self.errors)
        if self._too_new is not None:
            raise self._too_new

    async def _run_loops(self) -> None:
        await self._retry_until_stored(
            lambda: self._executor.run(self._inbox.release_leases, self.context.instance)
        )
        loops = [
            *(self._listen(platform) for platform in self.platforms.values()),
            self._run_periodically(self._options.poll_seconds, self._poll_for_work),
            self._run_periodically(POLL_SECONDS, self._scheduler.start_due),
            self._run_periodically(self._options.poll_seconds, self._store_errors),
        ]
        if self._options.flushes_memory:
            loops.append(
                self._run_periodically(self._options.flush_poll_seconds, self._flush_memory)
            )
        if self._processes is not None:
            loops.append(forward_reports(self._processes, self.platforms, self.accept))
        for platform in self.platforms.values():
            platform.use_admission(self._is_admitted)
        tasks = [asyncio.create_task(loop) for loop in loops]
        renewal = asyncio.create_task(
            self._run_periodically(self.context.lease / 3, self._renew_leases)
        )
        try:
            await self._stopping.wait()
        finally:
            await self._shut_down(tasks, renewal)

    # -- receiving

    async def _is_admitted(self, source: Source) -> bool:
        """Return whether someone may talk to the gateway."""
        gate = self.context.gate
        assert gate is not None
        return await self._executor.run(gate.find_role, source) is not None

    async def _listen(self, platform: Platform) -> None:
        delay = _RETRY_SECONDS
        while not self._stopping.is_set():
            recovery = asyncio.get_running_loop().call_later(
                _RECOVERY_SECONDS, self.failures.pop, platform.name, None
            )
            try:
                async with aclosing(platform.listen()) as incoming_messages:
                    self.listening[platform.name] = True
                    async for incoming in incoming_messages:
                        self.failures.pop(platform.name, None)
                        await self._accept_and_acknowledge(platform, incoming)
                        delay = _RETRY_SECONDS
                return
            except PlatformError as error:
                delay = self._record_failure(platform.name, error, delay)
            except Exception:  # a failing platform must stop neither itself nor others
                logger.exception("%s: listening failed; retrying in %g s", platform.name, delay)
            finally:
                recovery.cancel()
                self.listening[platform.name] = False
            await asyncio.sleep(delay)
            delay = min(delay * 2, _MAX_RETRY_SECONDS)

    def _record_failure(self, name: str, error: PlatformError, delay: float) -> float:
        """Log why a platform gave up, once, and return the seconds until the next attempt."""
        if not error.permanent:
            logger.warning("%s: %s; retrying in %g s", name, error, delay)
            return delay
        if self.failures.get(name) != str(error):
            self.failures[name] = str(error)
            logger.error("%s: %s", name, error, extra={"kind": type(error).__name__})
        return _USELESS_RETRY_SECONDS

    async def _accept_and_acknowledge(self, platform: Platform, incoming: PlatformMessage) -> None:
        await self.accept(incoming)
        await platform.acknowledge(incoming)

    async def accept(self, incoming: PlatformMessage) -> None:
        """Store an incoming message once and make sure that a worker handles it."""
        try:
            if incoming.change != "new":
                await self._retry_until_stored(
                    lambda: self._executor.run(self._apply_change, incoming)
                )
                return
            if not incoming.is_addressed and not self._options.receive_rules.answers_all:
                return
            if incoming.attachments or incoming.quote:
                incoming = await self._complete(incoming)
            result = await self._retry_until_stored(
                lambda: self._executor.run(self._check_and_store, incoming)
            )
        except InvalidInput as error:
            # Acknowledge it anyway: it would be rejected again on every redelivery.
            platform = incoming.source.platform
            logger.error("%s: rejected a message: %s", platform, error)
            return
        if isinstance(result, AcceptResult):
            self._on_accepted(result)
            return
        self.context.metrics.count_refusal(result.role)
        if result.reply is not None:
            self._sender.send([result.reply])

    async def _complete(self, incoming: PlatformMessage) -> PlatformMessage:
        """Add quote and files to a message; nothing is fetched for someone who may not talk."""
        gate = self.context.gate
        assert gate is not None
        role = await self._retry_until_stored(
            lambda: self._executor.run(gate.find_role, incoming.source)
        )
        message = await complete_message(incoming, role, self._options.receive_rules)
        return incoming._replace(message=message, attachments=(), quote="")

    def _apply_change(self, incoming: PlatformMessage) -> None:
        """Change or end a message that its sender edited or deleted, if it still waits."""
        gate, source, id = self.context.gate, incoming.source, incoming.message.platform_message_id
        role = gate.find_role(source) if gate is not None else "owner"
        if role is None or id is None:
            return
        key = self.context.build_key(source, role)
        for inbound in self._inbox.list_waiting(key):
            if (
                inbound.message.platform_message_id == id
                and inbound.source.user_id == source.user_id
            ):
                message = add_speaker(incoming.message, source)
                is_deleted = incoming.change == "deleted"
                self._inbox.change_waiting(inbound, None if is_deleted else message)

    def _on_accepted(self, result: AcceptResult) -> None:
        """Make sure that a worker handles a message that was stored."""
        if not result.is_new:
            return
        key = result.inbound.key
        token = CURRENT_KEY.set(key)
        self.accepted_count += 1
        if result.has_lease:
            self._start_worker(key, result.pending)
        elif worker := self._workers.get(key):
            worker.on_new_message(result.inbound)
        CURRENT_KEY.reset(token)

    def _check_and_store(self, incoming: PlatformMessage) -> AcceptResult | RefusedMessage:
        """Store a message of someone who may talk, if there is room for it."""
        gate, source = self.context.gate, incoming.source
        role: Role = "owner"
        if gate is not None and not is_report(incoming.message):
            admission = gate.check(source)
            if admission.role is None:
                if not admission.reply:
                    return RefusedMessage("stranger")
                key = self.context.build_key(source, "guest")
                return RefusedMessage("stranger", self._inbox.post(key, source, admission.reply))
            role = admission.role
        key, limits = self.context.build_key(source, role), InboxLimits()
        if not is_report(incoming.message):
            limits = self._inbox_guard.choose_limits(role, incoming.message)
        try:
            return self._inbox.accept(
                key,
                source,
                add_speaker(incoming.message, source),
                instance=self.context.instance,
                lease_seconds=self.context.lease,
                limits=limits,
            )
        except InboxFull:
            if not self._inbox_guard.is_answer_due(key):
                return RefusedMessage(role)
            logger.warning("%s: too many messages are waiting; refusing more", key)
            return RefusedMessage(role, self._inbox.post(key, source, ANSWER))

    # -- workers

    def _start_worker(self, key: str, pending: Sequence[InboundMessage] = ()) -> None:
        """Start a worker, or keep one that is about to end; start none during shutdown."""
        if self._stopping.is_set():
            return
        if worker := self._workers.get(key):
            worker.has_new_work = True
            return
        worker = self._workers[key] = Worker(self._worker_context, key, pending=pending)
        self._tasks[key] = asyncio.create_task(self._run_worker(worker))

    async def _flush_memory(self) -> None:
        await self._flusher.run_due(self._run_flush, self._workers)

    async def _run_flush(self, route: Route) -> None:
        """Run the flush of a conversation whose lease we hold, as the work of its worker."""
        key = route.key
        if self._stopping.is_set() or key in self._workers:
            return
        worker = Worker(self._worker_context, key, partial(self._flusher.flush, route))
        self._workers[key] = worker
        self._tasks[key] = task = asyncio.create_task(self._run_worker(worker))
        await asyncio.wait([task])

    async def _run_worker(self, worker: Worker) -> None:
        try:
            await worker.run()
        except Exception:  # the lease expires and the conversation is adopted again
            logger.exception("worker of %s failed", worker.key)
        finally:
            if self._workers.get(worker.key) is worker:
                del self._workers[worker.key], self._tasks[worker.key]

    # -- maintenance

    async def _run_periodically(
        self, seconds: float, operation: Callable[[], Awaitable[None]]
    ) -> None:
        while True:
            try:
                await operation()
            except StoreTooNew as error:  # upgraded by another gateway: this one can only end
                self._too_new = error
                self.stop()
            except Exception as error:  # noqa: BLE001  # the next run tries again
                logger.warning("maintenance failed: %s: %s", type(error).__name__, error)
            await asyncio.sleep(seconds)

    async def _renew_leases(self) -> None:
        """Renew our leases, and drop conversations that another gateway has taken over."""
        turns = {key: worker.turn for key, worker in self._workers.items() if worker.turn}
        sending = self._sender.leased_keys
        renewed = await self._executor.run(
            self._inbox.renew_leases, self.context.instance, self.context.lease
        )
        held = frozenset(renewed)
        for key, turn in turns.items():
            worker = self._workers.get(key)
            if key not in held and worker is not None and worker.turn is turn:
                logger.warning("%s was taken over by another gateway", key)
                self._tasks[key].cancel()
                if worker.inbound is not None:
                    await self._attempts.undo(worker.inbound)
        self._sender.sync_leases(sending, held)
        for key in held:  # leased by us, but without a worker
            if self._is_own_key(key) and key not in self._workers:
                self._start_worker(key)

    def _is_own_key(self, key: str) -> bool:
        return key.startswith(tuple(self._build_key_prefixes()))

    async def _store_errors(self) -> None:
        """Store the errors that were logged since the last time."""
        if entries := self.errors.list_collected():
            await self._executor.run(self._executor.store.gateway_errors.add, entries)
            self.errors.discard(entries)

    async def _poll_for_work(self) -> None:
        """Adopt conversations without a worker, and pick up messages that others accepted for us."""
        prefixes = self._build_key_prefixes()
        context = self.context
        adopt = self._inbox.adopt_conversations
        for key in await self._executor.run(
            adopt, context.instance, context.lease, prefixes=prefixes
        ):
            if key not in self._workers:
                logger.info("adopted %s", key)
                self._start_worker(key)
        await self._sender.claim_pending(prefixes)
        if any(worker.turn for worker in self._workers.values()):
            for inbound in await self._executor.run(
                self._inbox.list_waiting_for_instance, context.instance
            ):
                if worker := self._workers.get(inbound.key):
                    worker.on_new_message(inbound)
        if time.monotonic() - self._last_cleanup > _CLEANUP_SECONDS:
            await self._executor.run(self._inbox.delete_finished, self._options.keep_seconds)
            people = self._executor.store.people
            await self._executor.run(people.delete_old, self._options.keep_seconds)
            approvals = self._executor.store.approvals
            await self._executor.run(approvals.delete_old, self._options.keep_seconds)
            await self._executor.run(self._executor.store.session_leases.delete_expired)
            jobs = self._executor.store.jobs
            await self._executor.run(jobs.delete_old_runs, self._options.keep_seconds)
            self._last_cleanup = time.monotonic()

    def _build_key_prefixes(self) -> Sequence[str]:
        """Build the key prefixes of our platforms."""
        return [join_key(KeyParts(name, "")) for name in self.platforms]

    async def _retry_until_stored(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Run an operation, retrying for as long as the store is unavailable."""
        delay = _RETRY_SECONDS
        while True:
            try:
                return await operation()
            except StoreError as error:
                logger.error("store unavailable: %s; retrying in %g s", error, delay)
            await asyncio.sleep(delay)
            delay = min(delay * 2, _MAX_RETRY_SECONDS)

    # -- shutdown

    async def _shut_down(
        self, loops: Sequence[asyncio.Task[None]], renewal: asyncio.Task[None]
    ) -> None:
        """Finish what fits into the grace period; the rest stays in the store for the next run."""
        deadline = time.monotonic() + self._options.grace_seconds
        await _cancel_tasks(loops)
        for worker in self._workers.values():
            worker.is_stopping = True
        if self._tasks:
            await asyncio.wait([*self._tasks.values()], timeout=self._options.grace_seconds)
        unfinished = [*self._tasks.values()]
        await _cancel_tasks(unfinished)
        await self._sender.close(max(1.0, deadline - time.monotonic()))
        await _cancel_tasks([renewal])
        for platform in self.platforms.values():
            await platform.close()
        try:
            await self._attempts.undo()
            await self._executor.run(self._inbox.release_leases, self.context.instance)
            await self._store_errors()
        except StoreError as error:
            logger.warning("cannot release leases: %s", error)
        logger.info("stopped; %d turns left for the next run", len(unfinished))


async def _cancel_tasks(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
