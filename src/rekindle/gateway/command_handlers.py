"""The handlers of chat commands and their replies."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

from rekindle.agent.tools.confinement import get_sandbox
from rekindle.agent.tools.tool import ALL_ABILITIES
from rekindle.agent.turn import format_cost
from rekindle.errors import InvalidInput, NotFound
from rekindle.pages.text import format_count
from rekindle.routing.reset_policy import compute_next_reset
from rekindle.routing.sanitize import clean_text
from rekindle.routing.source import LOCAL, describe_source
from rekindle.store import Filter, Store
from rekindle.store.conversations.inbox import InboundMessage
from rekindle.types import ResetPolicy, Route, Session, Tokens, Usage

from .context import GatewayContext, get_owner
from .turns.session_hold import SessionHold, describe_lease

MAX_LISTED = 10
_MAX_CANDIDATES = 40  # sessions searched for resumable ones
_MAX_NAME_CHARS = 60
_MAX_UNDO_TURNS = 1000
_MAX_JOBS_COUNTED = 200
_MAX_JOBS_SHOWN = 3
_AGE_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"))


class TurnState(NamedTuple):
    """The state of the conversation when a command arrived."""

    stopped: int = 0  # messages that it stopped
    running: bool = False
    busy: bool = False  # the session has running background processes


class CommandContext(NamedTuple):
    """Where a command was given. `session` is None while the conversation is empty."""

    gateway_context: GatewayContext
    inbound: InboundMessage
    route: Route
    session: Session | None
    argument: str
    turn_state: TurnState
    listed: list[str]  # session ids that the reply lists, for picking by number

    @property
    def store(self) -> Store:
        return self.gateway_context.executor.store

    @property
    def owner(self) -> str:
        return get_owner(self.route)


def start_new(context: CommandContext) -> str:
    """Start a new session."""
    context.store.routes.reset(context.inbound.key)
    way_back = " Use /back to return to the previous one." if context.session else ""
    return (
        f"{describe_stopped(context)}Started a new conversation.{way_back}\n"
        f"{describe_conversation(None)}"
    )


def go_back(context: CommandContext) -> str:
    """Return to the previous session."""
    if context.route.previous is None:
        raise NotFound("no previous conversation")
    return _switch_session(
        context, context.store.session(context.route.previous, owner=context.owner)
    )


def resume_session(context: CommandContext) -> str:
    """Switch to a session by title, id or number; without an argument, list titled ones."""
    if not context.argument:
        titled = _find_resumable(context, Filter(titled=True))
        if not titled:
            return (
                "None of your conversations has a title. Use /sessions to list all, or /title to"
                f" name this one.\n{describe_conversation(context.session)}"
            )
        return (
            f"{_render_list(context, titled)}\nSend /resume and a number or title.\n"
            f"{describe_conversation(context.session)}"
        )
    found = _find_by_number(context) or context.store.resolve(context.argument, owner=context.owner)
    return _switch_session(context, context.store.find_tip(found, owner=context.owner))


def list_sessions(context: CommandContext) -> str:
    """List the user's sessions, or search them."""
    if not context.argument:
        found = _find_resumable(context, Filter())
        if not found:
            return f"You have no conversations yet.\n{describe_conversation(context.session)}"
        return (
            f"{_render_list(context, found)}\nSend /resume and a number.\n"
            f"{describe_conversation(context.session)}"
        )
    hits = context.store.search(
        context.argument, owner=context.owner, limit=_MAX_CANDIDATES, context=0
    )
    snippets = {hit.session.id: hit.snippet for hit in reversed(hits)}
    by_id = {hit.session.id: hit.session for hit in hits}
    if not hits:
        return f"No matches.\n{describe_conversation(context.session)}"
    listed = _render_list(context, [*by_id.values()][:MAX_LISTED], snippets)
    return f"{listed}\nSend /resume and a number.\n{describe_conversation(context.session)}"


def set_title(context: CommandContext) -> str:
    """Set the title of the session."""
    if context.session is None:
        raise InvalidInput("nothing to name yet; send a message first")
    if not context.argument:
        return describe_conversation(context.session)
    renamed = context.store.rename(context.session, context.argument)
    return f"Title set.\n{describe_conversation(renamed)}"


def undo_turns(context: CommandContext) -> str:
    """Undo the last turn, or the last n."""
    turns = 1
    if context.argument:
        if (
            not context.argument.isascii()
            or not context.argument.isdigit()
            or int(context.argument[:9]) < 1
        ):
            raise InvalidInput(
                f"/undo takes a number of turns, not “{clean_text(context.argument, 40)}”"
            )
        turns = min(int(context.argument[:9]), _MAX_UNDO_TURNS)
    if context.session is None or not context.session.message_count:
        raise NotFound("nothing to undo")
    rewind = context.store.undo(context.session, turns)
    left = context.session._replace(message_count=context.session.message_count - rewind.messages)
    removed = format_count(rewind.messages, "message")
    return f"{describe_stopped(context)}Removed {removed}.\n{describe_conversation(left)}"


def redo_turns(context: CommandContext) -> str:
    """Restore the messages that the last undo removed."""
    if context.argument:
        raise InvalidInput("/redo takes no argument")
    try:  # also a conversation that is empty because all of it was undone
        session = context.store.session(context.route.session)
        rewinds = context.store.rewinds(session)
    except NotFound:
        raise NotFound("nothing to redo") from None
    undone = [one for one in rewinds if one.restored is None and one.kind in ("undo", "redo")]
    if not undone:
        raise NotFound("nothing to redo")
    replaced = len(context.store.messages(session, after=undone[-1].since - 1))
    rewind = context.store.redo(session, undone[-1].id)
    now = session._replace(message_count=session.message_count - replaced + rewind.messages)
    restored = format_count(rewind.messages, "message")
    return f"{describe_stopped(context)}Restored {restored}.\n{describe_conversation(now)}"


def fork_session(context: CommandContext) -> str:
    """Continue in a copy of the session."""
    if context.session is None:
        raise NotFound("nothing to copy yet")
    child = context.store.fork(context.session)
    context.store.routes.follow(context.inbound.key, context.session.id, child.id)
    return f"Continuing in a copy. Use /back to return to the original.\n{describe_conversation(child)}"


def stop_turn(context: CommandContext) -> str:
    """Stop the turn and report it."""
    text = describe_stopped(context).strip() or "Nothing to stop."
    return f"{text}\n{describe_conversation(context.session)}"


def set_home(context: CommandContext) -> str:
    """Make this chat the home of its platform."""
    if context.inbound.source.platform == LOCAL:
        raise InvalidInput("a terminal cannot be the home chat: it cannot receive when closed")
    gate = context.gateway_context.gate
    if gate is not None and gate.find_role(context.inbound.source) != "owner":
        raise InvalidInput("only an owner may choose the home chat")
    context.store.routes.set_home(context.inbound.source)
    chat = clean_text(describe_source(context.inbound.source))
    platform = clean_text(context.inbound.source.platform)
    return f"Home chat for {platform}: {chat}.\n{describe_conversation(context.session)}"


def show_status(context: CommandContext) -> str:
    """Show the session, its token usage, the next reset, and what the speaker may do."""
    source, now = context.inbound.source, time.time()
    policy = context.gateway_context.resolve_policy(source)
    due = compute_next_reset(policy, context.route.updated, now, busy=context.turn_state.busy)
    session_tokens = context.session.tokens if context.session else Tokens()
    lines = [
        f"Chat: {clean_text(describe_source(source))}",
        f"Session: {context.route.session}",
        f"Model: {clean_text(context.gateway_context.model.endpoint.model)}",
        f"Start: {_describe_start(context)}",
        f"Session tokens: {_format_tokens(session_tokens)}",
        *_iter_model_lines(context.store.usage(context.session) if context.session else {}),
        f"Chat tokens: {_format_tokens(context.route.tokens)}",
        *_iter_model_lines(context.route.usage),
        f"Reset: {_format_reset(policy, due)}",
        *_describe_access(context),
        f"Sandbox: {_describe_sandbox(context)}",
        "An answer is in progress." if context.turn_state.running else "No answer in progress.",
        describe_conversation(context.session),
    ]
    return "\n".join(lines)


def _describe_access(context: CommandContext) -> Iterable[str]:
    """Yield the speaker's role, their remaining limits, and their jobs."""
    gate, source = context.gateway_context.gate, context.inbound.source
    if gate is None:
        return
    role = gate.find_role(source) or "guest"
    limits = gate.describe_limits(source, role)
    yield f"Role: {role}" + (f" ({limits})" if limits else "")
    jobs = context.store.jobs.list(owner=context.owner, limit=_MAX_JOBS_COUNTED)
    active = sum(job.state == "active" for job in jobs)
    names = ", ".join(clean_text(job.name, 30) for job in jobs[:_MAX_JOBS_SHOWN])
    more = ", …" if len(jobs) > _MAX_JOBS_SHOWN else ""
    yield f"Jobs: {active} active of {len(jobs)}: {names}{more}" if jobs else "Jobs: none"


def _describe_sandbox(context: CommandContext) -> str:
    """Describe how the commands of this chat are confined."""
    gate = context.gateway_context.gate
    role = "owner" if gate is None else gate.find_role(context.inbound.source) or "guest"
    tools = context.gateway_context.build_tool_context(context.route, role)
    if not tools.abilities >= ALL_ABILITIES:
        return f"{get_sandbox(tools).describe_mode()}; only tools that change nothing"
    return get_sandbox(tools).describe_mode()


def _describe_start(context: CommandContext) -> str:
    """Describe how the session was started: warm from which template, or cold."""
    start = context.store.preludes.load(context.route.session)
    if not start.messages:
        note = " (control group)" if start.arm == "cold" else ""
        return f"cold{note}"
    if start.template is None:
        return "warm, with notes about the project"
    return f"warm, template “{clean_text(start.template, 100)}” (revision {start.revision})"


def describe_conversation(session: Session | None) -> str:
    """Return the line that names the current conversation."""
    if session is None:
        return "You are in a new conversation."
    count = format_count(session.message_count, "message")
    return f"You are in {_format_session_name(session)} ({count})."


def find_session(store: Store, id: str) -> Session | None:
    """Return the session with this id, or None if it has no messages."""
    try:
        found = store.session(id)
    except NotFound:
        return None
    return found if found.message_count or found.preview else None


def _format_session_name(session: Session) -> str:
    if session.title:
        return f"“{clean_text(session.title, 100)}”"
    words = clean_text(session.preview, _MAX_NAME_CHARS)
    return f"the conversation that began with “{words}”" if words else "a conversation"


def describe_stopped(context: CommandContext) -> str:
    """Describe the messages that a command stopped."""
    if not context.turn_state.stopped:
        return ""
    queued = context.turn_state.stopped - 1
    more = f" and {format_count(queued, 'message')} in the queue" if queued else ""
    return f"Stopped the answer{more}. "


def _switch_session(context: CommandContext, target: Session) -> str:
    if target.id == context.route.session:
        return f"{describe_stopped(context)}You are already there.\n{describe_conversation(target)}"
    lease = SessionHold(context.gateway_context, context.inbound.key).find_other(target.id)
    if lease is not None:
        raise InvalidInput(f"that conversation is {describe_lease(lease)}; close it there first")
    context.store.routes.switch(context.inbound.key, target)
    return f"{describe_stopped(context)}Switched conversations.\n{describe_conversation(target)}"


def _find_by_number(context: CommandContext) -> Session | None:
    """Return the session with this number in the list shown last in this conversation."""
    if not (
        context.argument.isascii() and context.argument.isdigit() and len(context.argument) <= 3
    ):
        return None
    shown, number = (
        context.store.routes.load_listed_sessions(context.inbound.key),
        int(context.argument),
    )
    if not 1 <= number <= len(shown):
        return None
    return context.store.session(shown[number - 1], owner=context.owner)


def _find_resumable(context: CommandContext, where: Filter) -> list[Session]:
    """Return the user's newest sessions, without those that continue in a compressed child."""
    found = context.store.recent(_MAX_CANDIDATES, where=where, owner=context.owner)
    return [one for one in found if one.end_reason != "compression"][:MAX_LISTED]


def _render_list(
    context: CommandContext, found: list[Session], snippets: dict[str, str] | None = None
) -> str:
    context.listed[:] = [session.id for session in found]
    now = time.time()
    return "\n".join(_iter_list_lines(context, found, snippets or {}, now))


def _iter_list_lines(
    context: CommandContext, found: list[Session], snippets: dict[str, str], now: float
) -> Iterable[str]:
    for number, session in enumerate(found, 1):
        name = clean_text(session.title or session.preview, _MAX_NAME_CHARS) or "(empty)"
        mark = " (current)" if session.id == context.route.session else ""
        count = format_count(session.message_count, "message")
        yield f"{number}. {name} · {count} · {_format_age(now - session.last_active)}{mark}"
        if snippet := snippets.get(session.id):
            yield f"   {clean_text(snippet, 160)}"


def _format_age(seconds: float) -> str:
    for size, unit in _AGE_UNITS:
        if seconds >= size:
            return f"{seconds // size:.0f} {unit} ago"
    return "now"


def _iter_model_lines(usage: Mapping[str, Usage]) -> Iterable[str]:
    """Yield a line per model, if that adds to the total."""
    if len(usage) > 1 or any(one.cost for one in usage.values()):
        for model, (tokens, cost) in usage.items():
            price = f", cost {format_cost(cost)}" if cost else ""
            yield f"  {clean_text(model) or 'unknown model'}: {_format_tokens(tokens)}{price}"


def _format_tokens(tokens: Tokens) -> str:
    cached = f" ({tokens.cache_read:,} from the cache)" if tokens.cache_read else ""
    return f"{tokens.input:,} in{cached}, {tokens.output:,} out"


def _format_reset(policy: ResetPolicy, due: float | None) -> str:
    if due is None:
        return "never" if policy.mode == "none" else "paused while background processes run"
    moment = datetime.fromtimestamp(due, ZoneInfo(policy.time_zone))
    return f"{policy.mode}; next at {moment:%Y-%m-%d %H:%M} ({policy.time_zone}) unless you write first"
