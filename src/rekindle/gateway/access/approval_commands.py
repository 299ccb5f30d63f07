"""`/approve` and `/deny`: an owner answers a question about a tool call in a direct chat."""

from __future__ import annotations

from rekindle.errors import InvalidInput
from rekindle.gateway.command_handlers import CommandContext, describe_conversation
from rekindle.routing.sanitize import clean_text
from rekindle.routing.source import LOCAL
from rekindle.store.conversations.people import make_person

USAGE = "[id] [session]"


def approve_call(context: CommandContext) -> str:
    """Approve a call, once or for its session; without an argument, list the open questions."""
    _require_owner(context)
    id, _, scope = context.argument.partition(" ")
    if not id:
        return f"{_list_questions(context)}\n{describe_conversation(context.session)}"
    if scope.strip().lower() not in ("", "once", "session"):
        raise InvalidInput("/approve takes an id, and the word session to approve it from now on")
    is_lasting = scope.strip().lower() == "session"
    return _answer_question(context, id, "session" if is_lasting else "once")


def refuse_call(context: CommandContext) -> str:
    """Refuse a call."""
    _require_owner(context)
    if not context.argument:
        raise InvalidInput("/deny takes the id of a question; list them with /approve")
    return _answer_question(context, context.argument.split()[0], "no")


def _answer_question(context: CommandContext, id: str, answer: str) -> str:
    source = context.inbound.source
    question = context.store.approvals.answer(id, answer, make_person(source))
    event = "denied a call" if answer == "no" else "approved a call"
    context.store.people.add_event(
        source.platform, source.user_id or "", source.user_name or "", event,
        f"{question.id} {question.tool}",
    )  # fmt: skip
    tool = clean_text(question.tool)
    texts = {
        "no": f"Denied: {tool} does not run.",
        "once": f"Approved: {tool} may run once.",
        "session": f"Approved: {tool} may run, now and later in that conversation.",
    }
    return f"{texts[answer]}\n{describe_conversation(context.session)}"


def _list_questions(context: CommandContext) -> str:
    found = context.store.approvals.list_open()
    if not found:
        return "No question is open."
    texts = [f"{one.summary}\n/approve {one.id} or /deny {one.id}" for one in found]
    return "\n\n".join(texts)


def _require_owner(context: CommandContext) -> None:
    source, gate = context.inbound.source, context.gateway_context.gate
    if gate is None or source.platform == LOCAL:
        raise InvalidInput("calls in a terminal are approved at the prompt there")
    if gate.find_role(source) != "owner":
        raise InvalidInput("only an owner may answer this")
    if source.chat_type != "dm":
        raise InvalidInput("send this in a direct message")
