"""Ask an owner, in their own direct chat, about a tool call that needs approval.

The turn waits until the question is answered or expires. The answer is claimed in the store before
the call runs, so that one approval never runs a call twice. After a crash, the turn resumes, and
the same call finds its open question again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from hashlib import sha256
from time import monotonic
from typing import cast

from rekindle.agent.tools.tool import Answer, ApprovalRequest, Approver
from rekindle.errors import ToolError
from rekindle.gateway.context import GatewayContext
from rekindle.gateway.schedule.run_message import read_run
from rekindle.routing.key import parse_key
from rekindle.routing.sanitize import clean_text
from rekindle.routing.source import LOCAL, describe_source
from rekindle.store.conversations.approvals import ApprovalQuestion
from rekindle.store.conversations.inbox import InboundMessage
from rekindle.types import Source

from .speakers import get_speaker

logger = logging.getLogger(__name__)

MAX_ASKED = 3  # owners who are asked, if it is not one of them who wants the call
MAX_OPEN = 20  # questions at the same time, so that nobody can flood an owner with them
MAX_CALL_CHARS = 1200
_MAX_ROUTES = 2000  # newest direct chats among which owners are looked for
_POLL_SECONDS = 0.3
_HINT = "Use another approach, or tell the user what to run."


def make_approver(context: GatewayContext, inbound: InboundMessage) -> Approver:
    """Return what asks an owner about the calls in the turn of a message."""

    async def approve(request: ApprovalRequest) -> Answer:
        while True:
            question = await context.executor.run(_open_question, context, inbound, request)
            answer = await _wait_for_answer(context, question)
            if answer is not None:
                logger.info("question %s: the answer is %s", question.id, answer)
                return answer
            # A call of the same words used the answer: this one needs its own.

    return approve


async def _wait_for_answer(context: GatewayContext, question: ApprovalQuestion) -> Answer | None:
    """Wait for the answer and claim it; return None if it was claimed for another call."""
    run, approvals = context.executor.run, context.executor.store.approvals
    deadline = monotonic() + context.approval_seconds
    while True:
        state = await run(approvals.get_state, question.id)
        if state == "answered":
            return cast("Answer | None", await run(approvals.claim_answer, question.id))
        if state == "used":
            return None
        is_over = state == "expired" or monotonic() > deadline  # whatever the clock says
        if is_over and await run(approvals.close, question.id):
            raise ToolError(
                "refused: this needs the approval of an owner, and none answered in"
                f" {_format_seconds(context.approval_seconds)}. {_HINT}",
                refused=True,
            )
        await asyncio.sleep(_POLL_SECONDS)


def _open_question(
    context: GatewayContext, inbound: InboundMessage, request: ApprovalRequest
) -> ApprovalQuestion:
    """Find or make the question about a call, and send a new one to the owners' chats."""
    store = context.executor.store
    chats = [*_iter_asked_chats(context, inbound)]
    if not chats:
        raise ToolError(
            "refused: this needs the approval of an owner, and no owner has a direct chat with me"
            f" in which I could ask. {_HINT}",
            refused=True,
        )
    if len(store.approvals.list_open()) >= MAX_OPEN:
        raise ToolError(f"refused: too many questions are open already. {_HINT}", refused=True)
    summary = _describe_call(request, _describe_asker(inbound))
    digest = sha256(
        "\0".join((request.tool, request.command, request.workdir)).encode("utf-8", "surrogatepass")
    )

    def ask_and_post() -> ApprovalQuestion:
        question, is_new = store.approvals.ask(
            inbound.num, inbound.key, digest.hexdigest(),
            tool=request.tool, summary=summary, seconds=context.approval_seconds,
        )  # fmt: skip
        if is_new:
            text = render_question(question, context.approval_seconds)
            for key, chat in chats:
                store.inbox.post(key, chat, text)
            if read_run(inbound) is None and not any(_is_here(chat, inbound) for _, chat in chats):
                notice = (
                    "This needs an owner's approval. I have asked for it, and wait for the answer."
                )
                store.inbox.post(inbound.key, inbound.source, notice)
        return question

    return store.transaction(ask_and_post)


def render_question(question: ApprovalQuestion, seconds: float) -> str:
    """Render a question for an owner."""
    return (
        f"{question.summary}\n\n"
        f"/approve {question.id} – run it this once\n"
        f"/approve {question.id} session – also from now on in this conversation\n"
        f"/deny {question.id}\n"
        f"Without an answer, it is refused in {_format_seconds(seconds)}."
    )


def _iter_asked_chats(
    context: GatewayContext, inbound: InboundMessage
) -> Iterator[tuple[str, Source]]:
    """Yield key and chat to ask in: that of the speaker if they are an owner, else of some owners."""
    gate, speaker = context.gate, get_speaker(inbound)
    if gate is None:
        return
    own = gate.find_person(speaker) if gate.find_role(speaker) == "owner" else None
    if own is not None and _is_direct(inbound):
        yield inbound.key, inbound.source
        return
    by_person: dict[str, tuple[str, Source]] = {}
    for route in context.executor.store.routes.list(chat_type="dm", limit=_MAX_ROUTES):
        chat = route.origin
        if chat.platform not in context.platforms or parse_key(route.key).chat_type != "dm":
            continue
        if gate.find_role(chat) == "owner":
            by_person.setdefault(gate.find_person(chat), (route.key, chat))
    yield from [by_person[own]] if own in by_person else [*by_person.values()][:MAX_ASKED]


def _is_direct(inbound: InboundMessage) -> bool:
    source = inbound.source
    return source.chat_type == "dm" and source.platform != LOCAL and read_run(inbound) is None


def _is_here(chat: Source, inbound: InboundMessage) -> bool:
    here = inbound.source
    return (chat.platform, chat.chat_id) == (here.platform, here.chat_id)


def _describe_asker(inbound: InboundMessage) -> str:
    if (run := read_run(inbound)) is not None:
        return f"The scheduled job “{clean_text(run.name)}”"
    source = inbound.source
    name = clean_text(source.user_name) or clean_text(source.user_id) or "Somebody"
    return f"{name} ({clean_text(source.platform)}, {_describe_place(source)})"


def _describe_place(source: Source) -> str:
    return "direct chat" if source.chat_type == "dm" else clean_text(describe_source(source))


def _describe_call(request: ApprovalRequest, asker: str) -> str:
    """Describe who wants what and why that needs approval; nothing in the call stays invisible."""
    call = _show_call(request.command)
    lines = [f"{asker} needs your approval for {clean_text(request.tool)}:", *call]
    if request.workdir:
        lines.append(f"Folder: {clean_text(request.workdir, 200)}")
    if request.reasons:
        lines.append(f"Why: {clean_text('; '.join(request.reasons), 300)}")
    return "\n".join(lines)


def _show_call(text: str) -> Iterator[str]:
    """Yield the lines of a call, marked so that none can imitate a line of ours."""
    left_out = len(text) - MAX_CALL_CHARS
    if left_out > 0:
        head = MAX_CALL_CHARS * 2 // 3
        tail = MAX_CALL_CHARS - head
        yield from _mark_lines(text[:head])
        yield f"[{left_out:,} characters are not shown]"
        yield from _mark_lines(text[-tail:])
        return
    yield from _mark_lines(text)


def _mark_lines(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        shown = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
        yield f"> {''.join(shown)}"


def _format_seconds(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:g} seconds"
    return f"{seconds / 60:g} minutes"
