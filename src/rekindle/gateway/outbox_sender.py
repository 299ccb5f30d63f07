"""Send outbox messages until they are delivered: in order, one sender per conversation."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rekindle.errors import PlatformError, StoreError
from rekindle.platforms import Platform
from rekindle.routing.sanitize import clean_text
from rekindle.store.conversations.inbox import SEND_LEASE_PREFIX, InboundMessage, OutboundMessage

from .context import GatewayContext
from .live_draft import LiveDraft, build_answer_nonce
from .log_format import CURRENT_KEY

logger = logging.getLogger(__name__)

SEND_SECONDS = 60.0  # for one message, before the attempt counts as failed
_RETRY_SECONDS = 2.0  # seconds to wait after an internal error


class SendRetryPolicy(NamedTuple):
    """How often to try to send a message; the delay doubles with each attempt."""

    max_attempts: int = 8
    first_delay: float = 1.0
    max_delay: float = 300.0

    def get_delay(self, attempts: int, error: PlatformError) -> float | None:
        """Return the seconds until the next attempt, or None to stop retrying."""
        if error.permanent or attempts >= self.max_attempts:
            return None
        delay = min(self.max_delay, self.first_delay * 2 ** (attempts - 1))
        return max(delay, error.retry_after or 0.0)


class OutboxSender:
    """Sends the messages in the outbox to the connected platforms."""

    def __init__(
        self,
        context: GatewayContext,
        platforms: Mapping[str, Platform],
        retry_policy: SendRetryPolicy | None = None,
    ) -> None:
        self._executor = context.executor
        self._metrics = context.metrics
        self._inbox = context.executor.store.inbox
        self._instance = context.instance
        self._lease = context.lease
        self._platforms = platforms
        self._retry_policy = retry_policy or SendRetryPolicy()
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._requested: set[str] = set()
        self._leased: set[str] = set()  # keys whose lease we hold
        self._answers: dict[int, tuple[InboundMessage, LiveDraft | None]] = {}  # by outbound number
        self._pauses: dict[str, float] = {}  # by key: monotonic time before which nothing is sent

    @property
    def keys(self) -> list[str]:
        """Keys of the conversations that have a sender."""
        return [*self._sending]

    @property
    def leased_keys(self) -> frozenset[str]:
        """Keys of the conversations whose send lease we hold."""
        return frozenset(self._leased)

    def send(
        self,
        outbound_messages: Sequence[OutboundMessage],
        inbound: InboundMessage | None = None,
        draft: LiveDraft | None = None,
    ) -> None:
        """Send newly posted messages; the first of them begins the answer to `inbound`."""
        if not outbound_messages:
            return
        if inbound is not None:
            self._answers[outbound_messages[0].num] = (inbound, draft)
        self._start_sending(outbound_messages[0].key, claimed=False)

    async def claim_pending(self, key_prefixes: Sequence[str]) -> None:
        """Claim unsent messages in conversations whose keys begin with one of `key_prefixes`."""
        claim = self._inbox.claim_conversations
        for key in await self._executor.run(
            claim, self._instance, self._lease, prefixes=key_prefixes
        ):
            if key not in self._sending:
                self._start_sending(key, claimed=True)

    async def close(self, grace_seconds: float) -> None:
        """Wait up to `grace_seconds` for senders to finish; unsent messages stay in the outbox."""
        tasks = [*self._sending.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=grace_seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def sync_leases(self, sending: Collection[str], leases: Collection[str]) -> None:
        """Start senders for leases that we hold, and cancel those for leases that we lost."""
        ours = {
            name.removeprefix(SEND_LEASE_PREFIX)
            for name in leases
            if name.startswith(SEND_LEASE_PREFIX)
        }
        for key in self._leased.intersection(sending) - ours:
            self._sending[key].cancel()
        for key in ours:
            if key not in self._sending:
                self._start_sending(key, claimed=True)

    def _start_sending(self, key: str, *, claimed: bool) -> None:
        if key in self._sending:
            self._requested.add(key)
            return
        self._sending[key] = asyncio.create_task(self._send_until_empty(key, claimed))

    async def _send_until_empty(self, key: str, claimed: bool) -> None:
        CURRENT_KEY.set(key)
        try:
            while True:
                outbound_messages = await self._fetch_outbound(key, claimed)
                if outbound_messages:
                    self._leased.add(key)
                    claimed = await self._send_batch(outbound_messages)
                    self._leased.discard(key)
                elif key not in self._requested:
                    return
                else:
                    self._requested.discard(key)
                    claimed = False
        finally:
            self._sending.pop(key, None)
            self._requested.discard(key)
            self._leased.discard(key)

    async def _fetch_outbound(self, key: str, claimed: bool) -> list[OutboundMessage]:
        while True:
            try:
                if claimed:
                    return await self._executor.run(
                        self._inbox.release_send_lease, key, self._instance
                    )
                return await self._executor.run(
                    self._inbox.claim_unsent, key, self._instance, self._lease
                )
            except StoreError as error:
                logger.warning("cannot read the outbox: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _send_batch(self, outbound_messages: Sequence[OutboundMessage]) -> bool:
        """Send messages in order, up to the first that must be retried."""
        for outbound in outbound_messages:
            await self._wait_until_due(outbound)
            try:
                if not await self._deliver(outbound):
                    break
            except Exception:  # keep the message queued, whatever went wrong
                logger.exception("outbound message %d not sent", outbound.num)
                await asyncio.sleep(_RETRY_SECONDS)
                break
        return True

    async def _wait_until_due(self, outbound: OutboundMessage) -> None:
        """Wait before the next attempt, for as long as the platform asked, whatever the clock says."""
        pause = self._pauses.pop(outbound.key, None)
        if pause is not None:
            wait = pause - time.monotonic()
        else:  # of an earlier run: perhaps the clock was set back since
            wait = min(outbound.next_try - time.time(), self._retry_policy.max_delay)
        if wait > 0 and outbound.attempts:
            await asyncio.sleep(wait)

    async def _deliver(self, outbound: OutboundMessage) -> bool:
        """Try to send a message; return False if it must be retried."""
        try:
            async with asyncio.timeout(SEND_SECONDS):
                message_id = await self._send_or_edit(outbound)
        except (PlatformError, TimeoutError) as problem:
            error = problem
            if not isinstance(error, PlatformError):
                error = PlatformError(f"no answer within {SEND_SECONDS:g} s")
            delay = self._retry_policy.get_delay(outbound.attempts + 1, error)
            await self._executor.run(
                self._inbox.mark_failed, outbound, str(error) or "failed", retry_after=delay
            )
            if delay is not None:
                self._pauses[outbound.key] = time.monotonic() + delay
            self._metrics.count_delivery("failed" if delay is None else "retried")
            next_step = "giving up" if delay is None else f"retrying in {delay:g} s"
            logger.warning("outbound message %d not sent: %s; %s", outbound.num, error, next_step)
            if delay is None:
                self._answers.pop(outbound.num, None)
                await self._report_unsent_file(outbound, error)
            return delay is None
        await self._executor.run(self._inbox.mark_sent, outbound, message_id)
        self._metrics.count_delivery("sent")
        self._answers.pop(outbound.num, None)
        return True

    async def _report_unsent_file(self, outbound: OutboundMessage, error: PlatformError) -> None:
        """Report in the chat that a file could not be sent, since its sender expects that it was."""
        if outbound.file is None:
            return
        name, reason = clean_text(Path(outbound.file).name), clean_text(str(error), 200)
        text = f"[File {name}: not sent: {reason}]"
        if outbound.text:
            text = f"{outbound.text}\n{text}"
        await self._executor.run(self._inbox.post, outbound.key, outbound.target, text)
        self._requested.add(outbound.key)

    async def _send_or_edit(self, outbound: OutboundMessage) -> str:
        platform = self._platforms.get(outbound.target.platform)
        if platform is None:
            raise PlatformError(f"{outbound.target.platform} is not connected")
        if outbound.file is not None:
            return await _send_file(platform, outbound)
        if not platform.can_edit:
            return await platform.send(outbound.target, outbound.text, _build_nonce(outbound))
        if outbound.num in self._answers:
            inbound, draft = self._answers[outbound.num]
            maybe_drafted = draft is not None and draft.was_sent
            message_id_hint = draft.message_id if draft else None
        else:
            inbound, message_id_hint = (
                await self._executor.run(self._inbox.find_answered, outbound),
                None,
            )
            maybe_drafted = True  # perhaps before a restart
        if inbound is None:
            return await platform.send(outbound.target, outbound.text, _build_nonce(outbound))
        message_id = message_id_hint or await platform.send(
            outbound.target, outbound.text, build_answer_nonce(inbound)
        )
        if maybe_drafted:
            await platform.edit(outbound.target, message_id, outbound.text)
        return message_id


async def _send_file(platform: Platform, outbound: OutboundMessage) -> str:
    file = Path(outbound.file or "")
    if not file.is_file():  # perhaps on the machine of another gateway, which will try too
        raise PlatformError(f"the file {file.name} is not on this machine")
    return await platform.send_file(outbound.target, file, outbound.text, _build_nonce(outbound))


def _build_nonce(outbound: OutboundMessage) -> str:
    """Build a nonce that is stable across restarts and distinct from those of other stores."""
    return f"parcel-{outbound.num}-{round(outbound.time * 1000):x}"
