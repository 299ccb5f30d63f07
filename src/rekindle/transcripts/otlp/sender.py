"""Send sessions to a collector: new messages only, once or as they are stored."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from typing import Any, NamedTuple

from rekindle.errors import NotFound, StoreBusy, StoreUnavailable
from rekindle.store import Store
from rekindle.transcripts.export.redact import SessionRedactor
from rekindle.types import Message, Session, Usage

from .collector import Collector, SendReport, Wait
from .progress import SendProgress
from .spans import NO_SPANS, SpanCursor, SpanStep, build_spans

POLL_SECONDS = 1.0
SWEEP_SECONDS = 60.0  # an import may add messages to sessions that are not among the latest
REST_SECONDS = 600.0  # without a message, after which a turn counts as over
_MAX_SPANS, _MAX_BYTES = 512, 1_000_000
_PAGE_SIZE = 500


class _Seen(NamedTuple):
    """What a session was like when it was last looked at."""

    messages: int
    last_active: float
    is_over: bool
    usage: Usage


class _SpanBatch:
    """Spans of one request, and the cursors that their sessions have after it."""

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []
        self.cursors: dict[str, SpanCursor] = {}
        self.size = 0

    def add(self, session: str, step: SpanStep) -> None:
        self.spans.append(step.span)
        self.cursors[session] = step.cursor
        self.size += sum(
            len(one["key"]) + len(one["value"].get("stringValue", "")) + 20
            for one in step.span["attributes"]
        )

    @property
    def is_full(self) -> bool:
        return len(self.spans) >= _MAX_SPANS or self.size >= _MAX_BYTES


class SessionSender:
    """Sends sessions of a store, redacted, and keeps record of what has arrived."""

    def __init__(
        self,
        store: Store,
        collector: Collector,
        progress: SendProgress,
        redactor: SessionRedactor,
        wait: Wait,
    ) -> None:
        self.store = store
        self.collector = collector
        self.progress = progress
        self.redactor = redactor
        self.wait = wait
        self._seen: dict[str, _Seen] = {}

    def send_new(
        self, sessions: Iterable[Session], *, rest_seconds: float | None = None
    ) -> SendReport:
        """Send the parts of these sessions that the collector has not received.

        The last turn of a session counts as over; with `rest_seconds`, only if the session has ended
        or had no message for so long.
        """
        report = self._send_plan_again()
        batch = _SpanBatch()
        for session in sessions:
            is_over = _is_over(session, rest_seconds)
            for step in self._build_steps(session, is_over):
                batch.add(session.id, step)
                if batch.is_full:
                    report = report.add(self._send_batch(batch))
                    batch = _SpanBatch()
        return report.add(self._send_batch(batch))

    def follow(
        self,
        find_sessions: Callable[[bool], Iterable[Session]],
        show: Callable[[SendReport], None],
        note: Callable[[str], None],
    ) -> None:
        """Send messages as they are stored, until `wait` says to stop.

        `find_sessions` returns the latest sessions or, if it is asked to, all of them.
        """
        next_sweep = 0.0
        while True:
            is_sweep = time.monotonic() >= next_sweep
            try:
                report = self.send_new(find_sessions(is_sweep), rest_seconds=REST_SECONDS)
            except (StoreBusy, StoreUnavailable) as error:
                note(" ".join(str(error).split()))
            else:
                if is_sweep:
                    next_sweep = time.monotonic() + SWEEP_SECONDS
                if report.spans or report.rejected:
                    show(report)
            if self.wait(POLL_SECONDS):
                return

    def _send_batch(self, batch: _SpanBatch) -> SendReport:
        if not batch.spans:
            return SendReport()
        self.progress.write_plan(batch.cursors)
        report = self.collector.send(batch.spans, self.wait)
        self.progress.finish_plan()
        return report

    def _send_plan_again(self) -> SendReport:
        """Send again what may not have arrived, exactly as it was."""
        plan = self.progress.plan
        if not plan:
            return SendReport()
        batch = _SpanBatch()
        for id, session in self.store.find_sessions(list(plan)).items():
            target = plan[id]
            messages = takewhile(
                lambda one, last=target.position: (one.position or 0) <= last,
                self._iter_messages(session),
            )
            for step in self._build(session, messages, target.is_closed, target.usage):
                batch.add(id, step)
        report = self.collector.send(batch.spans, self.wait) if batch.spans else SendReport()
        self.progress.finish_plan()
        return report

    def _build_steps(self, session: Session, is_over: bool) -> Iterator[SpanStep]:
        """Yield the spans of a session that have not been sent."""
        usage = Usage(session.tokens, session.cost)
        seen = _Seen(session.message_count, session.last_active, is_over, usage)
        if self._seen.get(session.id) == seen:
            return
        cursor = self.progress.cursors.get(session.id, NO_SPANS)
        try:
            is_due = (is_over and not cursor.is_closed) or self.store.messages(
                session, after=cursor.position, limit=1
            )
            if is_due:
                yield from self._build(session, self._iter_messages(session), is_over, usage)
        except NotFound:
            return  # deleted meanwhile
        self._seen[session.id] = seen

    def _build(
        self, session: Session, messages: Iterable[Message], is_over: bool, usage: Usage
    ) -> Iterator[SpanStep]:
        return build_spans(
            self.redactor.redact_session(session),
            messages,
            self.progress.cursors.get(session.id, NO_SPANS),
            prepare=self.redactor.redact_message,
            is_over=is_over,
            usage=usage,
        )

    def _iter_messages(self, session: Session) -> Iterator[Message]:
        """Yield the messages of the turn at which the session's cursor is, and all after it."""
        after = self.progress.cursors.get(session.id, NO_SPANS).turn - 1
        while page := self.store.messages(session, after=after, limit=_PAGE_SIZE):
            yield from page
            after = page[-1].position or 0


def _is_over(session: Session, rest_seconds: float | None) -> bool:
    if rest_seconds is None or session.ended is not None:
        return True
    return time.time() - session.last_active > rest_seconds
