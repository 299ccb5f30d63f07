"""What precedes the stored messages of a conversation in a request to the model."""

from __future__ import annotations

from collections.abc import Callable
from time import time

from rekindle.agent.persona import SessionStart, find_persona, load_persona
from rekindle.gateway.context import GatewayContext, get_owner
from rekindle.gateway.memory.facts import render_facts
from rekindle.gateway.schedule.run_message import RunInfo, build_run_prompt
from rekindle.learning.warm_start import build_opening_messages
from rekindle.routing import reset_notice
from rekindle.routing.context_prompt import build_context_prompt
from rekindle.routing.reset_policy import ResetReason
from rekindle.types import Message, Route, Session, Source


def build_opening(
    context: GatewayContext,
    source: Source,
    route: Route,
    session: Session,
    run: RunInfo | None = None,
    prompt: str | None = None,
) -> list[Message]:
    """Build what precedes the stored messages: prompt, memory, context, and the prelude.

    `prompt` is that of the session, if it is known. It blocks on the store: one call for all, because
    each call from the event loop costs as much as a query.
    """
    store = context.executor.store
    start = store.preludes.load(session)
    homes = context.homes()
    facts = render_facts(store.memory.list_for_session(get_owner(route), session.id))
    if prompt is None:
        started = _describe_start(context, source, route)
        prompt = load_persona(store, session, context.persona, started)
    prompts = [
        prompt,
        *([facts] if facts else []),
        build_context_prompt(source, platforms=context.platforms, homes=homes, names_speakers=True),
    ]
    if run is not None:
        prompts.append(build_run_prompt(run))
    return build_opening_messages("\n\n".join(prompts), start.messages)


def prepare_prompt(
    context: GatewayContext, source: Source, route: Route, session: Session
) -> tuple[str, Callable[[], object]]:
    """Return the prompt of a session, and what saves it in the transaction of its first message.

    This may read the instruction files, which must not happen in a transaction.
    """
    store, start = context.executor.store, _describe_start(context, source, route)
    prompt, is_kept = find_persona(store, session, context.persona, start)
    if is_kept:
        return prompt, lambda: None
    return prompt, lambda: store.preludes.save_prompt(session, prompt)


def _describe_start(context: GatewayContext, source: Source, route: Route) -> SessionStart:
    policy, notice = context.resolve_policy(source), ""
    if route.reset is not None:
        notice = reset_notice.build_model_notice(parse_reset_reason(route.reset), policy)
    folder = context.build_tool_context(route, "guest").cwd
    return SessionStart(folder, time(), policy.time_zone, notice)


async def build_reset_notices(
    context: GatewayContext, source: Source, route: Route
) -> list[tuple[Source, str]]:
    """Build the one-time notice to the user after an automatic reset."""
    if route.reset is None:
        return []
    title = None
    if route.previous is not None:
        load_session = context.executor.store.session
        title = (await context.executor.run(load_session, route.previous)).title
    policy, reason = context.resolve_policy(source), parse_reset_reason(route.reset)
    return [(source, reset_notice.build_user_notice(reason, policy, title))]


def parse_reset_reason(reason: str) -> ResetReason:
    """Return the stored reason of a reset as a value."""
    return "daily" if reason == "daily" else "idle"
