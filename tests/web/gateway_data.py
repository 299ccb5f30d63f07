"""A store as a gateway leaves it: conversations, deliveries, jobs, people, questions, errors, facts."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from decimal import Decimal

from rekindle import Message, Store
from rekindle.gateway.schedule import planning
from rekindle.gateway.schedule.planning import JobRequest
from rekindle.store.conversations.gateway_errors import GatewayError
from rekindle.store.conversations.jobs import ScheduledJob
from rekindle.types import Source, Tokens, Usage

CODE = "ABCDEFGH"
ADA = Source("matrix", "!ada:x", chat_name="Ada", user_id="@ada:example.org", user_name="Ada")
EVE = Source("matrix", "!eve:x", user_id="@eve:example.org", user_name="<b>Eve</b>")
OPS = Source("matrix", "!ops:x", chat_name="Ops", chat_type="group", user_id="@ada:example.org")
PHONE = Source("telegram", "7", user_id="7", user_name="Ada")
KEY = "agent:main:matrix:dm:@ada:example.org"


def fill_gateway(store: Store) -> ScheduledJob:
    """Fill a store through its public methods; return the job."""
    for key, source, text in (
        (KEY, ADA, "Is the build green? <script>alert(1)</script>"),
        ("agent:main:matrix:group:!ops:x", OPS, "Restart the staging server, please"),
    ):
        route = store.routes.open(key, source)
        session = store.begin(id=route.session, source=source.platform, title=f"About {text[:12]}")
        store.append(session, Message("user", content=text))
        store.append(session, Message("assistant", content="It is."))
    store.inbox.accept(
        KEY, ADA, Message("user", content="And?"), instance="gateway-here", lease_seconds=600
    )
    sent, failed, _ = (
        store.inbox.post(KEY, ADA, text) for text in ("It is green.", "Sorry <b>", "Soon.")
    )
    store.inbox.mark_sent(sent, "$1")
    store.inbox.mark_failed(failed, "the room is gone", retry_after=None)
    _add_people(store)
    request = JobRequest("weekdays at 8:30", "Plan my <i>day</i>", name="plan", deliver="local")
    job = planning.add_job(
        store, request, owner="operator", maker=Source("local", "terminal"), zone="UTC"
    )
    waiting = store.inbox.list_waiting(KEY)[0]
    store.approvals.ask(
        waiting.num, KEY, "digest", tool="terminal", seconds=600,
        summary="Ada (matrix, direct chat) needs your approval for terminal:\n> rm -rf build",
    )  # fmt: skip
    store.gateway_errors.add([GatewayError(time.time(), KEY, "model", "429: <slow down>", 3)])
    store.memory.add(KEY, "Ada prefers short answers", actor="person")
    store.memory.add(KEY, "Ada uses <b>tabs</b>", actor="agent", proposed=True)
    return job


def _add_people(store: Store) -> None:
    store.people.set_role("matrix", "@ada:example.org", "owner", name="Ada")
    store.people.set_role("matrix", "@mallory:example.org", "denied", name="Mallory")
    store.people.record_request(
        "matrix",
        EVE.user_id or "",
        EVE.user_name or "",
        CODE,
        seconds=3600,
        pause=600,
        max_pending=50,
    )
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    for day in ("2026-01-01", today, today):
        usage = Usage(Tokens(input=1200, output=300), Decimal("0.25"))
        store.people.add_usage("matrix:@ada:example.org", day, usage, turns=1)
    store.routes.open("agent:main:telegram:dm:7", PHONE, owner=KEY)
    store.links.link(PHONE, "matrix:@ada:example.org", KEY, "agent:main:telegram:dm:7")
