"""The gateway as a service: built from the settings, stopped by a signal."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, MutableMapping
from contextlib import aclosing
from pathlib import Path

from rekindle.agent.model.client import Model
from rekindle.agent.toolkit import (
    Toolkit,
    build_model_config,
    build_persona_settings,
    open_model,
    open_toolkit,
)
from rekindle.agent.tools.tool import ALL_ABILITIES, HARMLESS_ABILITIES, Ability, ToolContext
from rekindle.config import Config, get_home_and_env
from rekindle.errors import InvalidSetting
from rekindle.gateway.access.gate import Gate
from rekindle.gateway.access.rules import AccessRules, DailyLimits, parse_allowed
from rekindle.gateway.context import GatewayContext, get_owner
from rekindle.gateway.gateway import Gateway, GatewayOptions
from rekindle.gateway.memory.tool import create_memory_tool
from rekindle.gateway.outbox_sender import SendRetryPolicy
from rekindle.gateway.process_reports import build_report_address, make_busy_check
from rekindle.gateway.receiving.files import FileRules
from rekindle.gateway.receiving.message import ReceiveRules
from rekindle.gateway.schedule.tool import create_schedule_tool
from rekindle.gateway.sending.file_tool import ROUTE_KEY_NOTE, create_file_tool, delete_old_copies
from rekindle.learning.warm_session_tool import create_tool_from_config
from rekindle.learning.warm_start import create_warm_starter
from rekindle.platforms import Platform
from rekindle.platforms.folder import FolderPlatform
from rekindle.platforms.plugins import connect_platforms
from rekindle.processes.from_config import create_client
from rekindle.projects import find_branch
from rekindle.routing.delivery_target import FOLDER
from rekindle.store import Store
from rekindle.store.conversations.inbox import InboxLimits
from rekindle.store.store_executor import StoreExecutor
from rekindle.types import JSON, Price, Role, Route, Source

from .health import serve_health
from .instance import GatewayInstance, claim_instance
from .learning import choose_advisors, learn_meanwhile

logger = logging.getLogger(__name__)

# What the tools of a role may do. Guests get only tools that touch nothing but their conversation.
_ABILITIES: dict[Role, frozenset[Ability]] = {
    "owner": ALL_ABILITIES,
    "user": frozenset((*HARMLESS_ABILITIES, "reach_people", "remember")),
    "guest": frozenset(),
}
_MAX_NOTE_SESSIONS = 10_000  # sessions whose tool notes are kept in memory


def run_service(config: Config, store: Store) -> None:
    """Run a gateway until SIGTERM or SIGINT; a second signal ends it immediately."""
    if not config.gateway.platforms and not store.jobs.list(limit=1):
        raise InvalidSetting("gateway.platforms: not set; list what to connect (docs/gateway.md)")
    with claim_instance(config.home) as instance:
        asyncio.run(_run_until_stopped(config, store, instance))


async def _run_until_stopped(config: Config, store: Store, instance: GatewayInstance) -> None:
    executor = StoreExecutor(store)
    try:
        price = config.get_price(config.model.name)
        processes = create_client(config)
        platforms = [
            *connect_platforms(config.gateway.platforms, config.home),
            FolderPlatform(config.home / "results"),
        ]
        extra_tools = [
            create_tool_from_config(config, shared=True),
            create_schedule_tool(config.policies.default.time_zone),
            create_memory_tool(_make_speaker_check(config, store)),
            create_file_tool(
                config.home / "sent-files", [one.name for one in platforms if "files" in one.lacks]
            ),
        ]
        tools = open_toolkit(config, extra_tools=extra_tools, processes=processes)
        async with open_model(config) as model, aclosing(processes), tools as toolkit:
            for problem in toolkit.problems:
                logger.warning("%s", problem)
            await model.load_client()
            context = build_gateway_context(
                config, executor, model, instance.name, platforms, toolkit, price
            )
            if not config.gateway.allow and not store.people.has_anyone():
                logger.warning(
                    "nobody may talk to this gateway yet: allow yourself with"
                    " `rekindle gateway allow PLATFORM:USER --role owner`, or write to it and"
                    " approve the code it sends you with `rekindle gateway pair CODE --role owner`"
                )
            context = context._replace(
                is_busy=make_busy_check(processes, executor),
                session_wait=config.gateway.session_wait_seconds,
            )
            gateway = Gateway(
                context, platforms, options=build_gateway_options(config), processes=processes
            )
            _install_signal_handlers(gateway)
            learning = learn_meanwhile(config, executor)
            async with learning, serve_health(gateway, config.gateway.health_port) as port:
                before = time.time() - config.gateway.keep_days * 86_400
                delete_old_copies(config.home / "sent-files", before)
                instance.write_status({"pid": os.getpid(), "port": port, "instance": instance.name,
                             "started": time.time()})  # fmt: skip
                names = ", ".join(gateway.platforms)
                logger.info("%s serving %s; http://127.0.0.1:%d/health", instance.name, names, port)
                await gateway.run()
    finally:
        executor.close()


def build_gateway_context(
    config: Config,
    executor: StoreExecutor,
    model: Model,
    instance: str,
    platforms: list[Platform],
    toolkit: Toolkit,
    price: Price,
) -> GatewayContext:
    """Build the context shared by all conversations from the settings."""
    settings, workdir = config.gateway, Path(config.gateway.workdir).absolute()
    workdir.mkdir(parents=True, exist_ok=True, mode=0o700)
    return GatewayContext(
        executor=executor,
        model=model,
        toolbox=toolkit.toolbox,
        build_tool_context=_make_tool_context_builder(config, executor.store, toolkit),
        instance=instance,
        policies=config.policies,
        key_rules=config.key_rules,
        lease=settings.lease_seconds,
        limits=toolkit.limits,
        price=price,
        busy_mode=settings.busy_mode,
        platforms=[platform.name for platform in platforms if platform.name != FOLDER],
        shared_platforms=frozenset(one.name for one in platforms if one.is_always_shared),
        homes=executor.store.routes.list_homes,
        max_attempts=settings.turn_attempts,
        starter=create_warm_starter(
            config, executor.store, shows_calls=model.accepts_foreign_calls, shared=True
        ),
        create_advisor=choose_advisors(config, executor.store, str(workdir)),
        gate=Gate(executor.store.people, build_access_rules(config), executor.store.links),
        approval_seconds=settings.approval_seconds,
        persona=build_persona_settings(config),
        describe_session=lambda: _describe_session(config, model, workdir),
    )


def _make_tool_context_builder(
    config: Config, store: Store, toolkit: Toolkit
) -> Callable[[Route, Role], ToolContext]:
    """Return what builds the context of tools for a role in a conversation."""
    settings, workdir = config.gateway, Path(config.gateway.workdir)
    _, environment = get_home_and_env()
    notes: dict[str, MutableMapping[str, JSON]] = {}
    grants: dict[tuple[str, Role], set[str]] = {}  # what an owner allowed for a session

    def build_tool_context(route: Route, role: Role) -> ToolContext:
        if len(grants) > _MAX_NOTE_SESSIONS:
            grants.pop(next(iter(grants)))
        return ToolContext(
            session=route.session,
            cwd=workdir,
            owner=get_owner(route),
            folders=(workdir, *toolkit.folders),
            approval=settings.approval,
            store=store,
            environment=environment,
            notes=_get_notes(notes, route),
            address=build_report_address(route.origin),
            abilities=_ABILITIES[role],
            rules=toolkit.rules,
            granted=grants.setdefault((route.session, role), set()),
            sandbox=toolkit.sandbox,
            pass_on=toolkit.pass_on,
        )

    return build_tool_context


def _get_notes(
    notes: dict[str, MutableMapping[str, JSON]], route: Route
) -> MutableMapping[str, JSON]:
    """Return the tool notes of a conversation's session."""
    if len(notes) > _MAX_NOTE_SESSIONS:
        notes.pop(next(iter(notes)))
    found = notes.setdefault(route.session, {})
    found[ROUTE_KEY_NOTE] = route.key
    return found


def _describe_session(config: Config, model: Model, folder: Path) -> dict[str, JSON]:
    return {
        "cwd": str(folder),
        "git_branch": find_branch(folder),
        "model_config": build_model_config(config, model),
    }


def _make_speaker_check(config: Config, store: Store) -> Callable[[Source], bool]:
    """Return what decides whose messages in a group may become facts."""
    gate = Gate(store.people, build_access_rules(config))
    return lambda source: gate.find_role(source) in ("owner", "user")


def build_access_rules(config: Config) -> AccessRules:
    """Build the access rules from the settings."""
    settings = config.gateway
    return AccessRules(
        allowed=parse_allowed(settings.allow),
        limits={
            "user": DailyLimits(settings.user_turns, settings.user_tokens, settings.user_cost),
            "guest": DailyLimits(settings.guest_turns, settings.guest_tokens, settings.guest_cost),
        },
        pairing=settings.pairing,
    )


def build_gateway_options(config: Config) -> GatewayOptions:
    """Build the gateway's options from the settings."""
    settings = config.gateway
    return GatewayOptions(
        max_turns=settings.max_turns,
        inbox_limits=InboxLimits(settings.max_waiting or None, settings.max_waiting_total or None),
        edit_seconds=settings.edit_seconds,
        grace_seconds=settings.grace_seconds,
        keep_seconds=settings.keep_days * 86_400,
        retry_policy=SendRetryPolicy(max_attempts=settings.send_attempts),
        flushes_memory=settings.memory_flush,
        receive_rules=ReceiveRules(
            answers_all=settings.groups == "all",
            files=FileRules(
                Path(settings.workdir), int(settings.max_file_mb * 1_000_000), settings.images
            ),
        ),
    )


def _install_signal_handlers(gateway: Gateway) -> None:
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        logger.info("stopping on signal")
        gateway.stop()
        for number in (signal.SIGTERM, signal.SIGINT):  # a second signal ends the process
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
