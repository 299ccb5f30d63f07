"""What precedes the stored messages of a conversation in a request to the model."""

from __future__ import annotations

from time import time

from rekindle.agent.persona import SessionStart, load_persona
from rekindle.gateway.context import GatewayContext, get_owner
from rekindle.gateway.memory.facts import render_facts
from rekindle.gateway.schedule.run_message import RunInfo, build_run_prompt
from rekindle.learning.warm_start import build_opening_messages
from rekindle.routing import reset_notice
from rekindle.routing.context_prompt import build_context_prompt
from rekindle.routing.reset_policy import ResetReason
from rekindle.types import Message, Route, Session, Source


async def build_opening(
    context: GatewayContext,
    source: Source,
    route: Route,
    session: Session,
    run: RunInfo | None = None,
) -> list[Message]:
    """Build what precedes the stored messages: prompt, memory, context, and the prelude."""
    executor, store = context.executor, context.executor.store
    start = await executor.run(store.preludes.load, session)
    homes = await executor.run(context.homes)
    list_facts = store.memory.list_for_session
    facts = render_facts(await executor.run(list_facts, get_owner(route), session.id))
    prompts = [
        await executor.run(_load_prompt, context, source, route, session),
        *([facts] if facts else []),
        build_context_prompt(source, platforms=context.platforms, homes=homes, names_speakers=True),
    ]
    if run is not None:
        prompts.append(build_run_prompt(run))
    return build_opening_messages("\n\n".join(prompts), start.messages)


def _load_prompt(context: GatewayContext, source: Source, route: Route, session: Session) -> str:
    policy, notice = context.resolve_policy(source), ""
    if route.reset is not None:
        notice = reset_notice.build_model_notice(parse_reset_reason(route.reset), policy)
    folder = context.build_tool_context(route, "guest").cwd
    start = SessionStart(folder, time(), policy.time_zone, notice)
    return load_persona(context.executor.store, session, context.persona, start)


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
