"""A gateway as a program: made from the settings, and ended by a signal."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import MutableMapping
from contextlib import aclosing
from pathlib import Path

from rekindle.agent.model.client import Endpoint, Model
from rekindle.agent.store_executor import Desk
from rekindle.agent.toolkit import Equipment, equipped
from rekindle.agent.tools.tool import ToolContext
from rekindle.config import Config, surroundings
from rekindle.errors import InvalidSetting
from rekindle.gateway.context import Office, owner_of
from rekindle.gateway.gateway import Gateway, Habits
from rekindle.gateway.outbox_sender import Stamina
from rekindle.gateway.process_reports import address_of, busy_of
from rekindle.learning.warm_session_tool import tool_of
from rekindle.learning.warm_start import starter_of
from rekindle.platforms import Platform
from rekindle.platforms.plugins import connect
from rekindle.processes.from_config import processes_of
from rekindle.store import Store
from rekindle.types import JSON, Price, Route

from .health import page
from .instance import Runner, enter

logger = logging.getLogger(__name__)

_REMEMBERED = 10_000  # sessions whose notes are kept


def serve(config: Config, store: Store) -> None:
    """Run a gateway until it is told to stop (SIGTERM, SIGINT); a second time, at once."""
    if not config.gateway.platforms:
        raise InvalidSetting("gateway.platforms: not set; name what to connect (docs/gateway.md)")
    with enter(config.home) as runner:
        asyncio.run(_serve(config, store, runner))


async def _serve(config: Config, store: Store, runner: Runner) -> None:
    desk = Desk(store)
    endpoint = Endpoint(config.model.base_url, config.model.name, config.model.api_key)
    try:
        price = config.price_of(endpoint.model)
        processes = processes_of(config)
        tools = equipped(config, more=[tool_of(config, shared=True)], processes=processes)
        async with Model(endpoint) as model, aclosing(processes), tools as equipment:
            for problem in equipment.problems:
                logger.warning("MCP: %s", problem)
            await model.ready()
            platforms = connect(config.gateway.platforms)
            office = office_of(config, desk, model, runner.name, platforms, equipment, price)
            office = office._replace(is_busy=busy_of(processes, desk))
            gateway = Gateway(office, platforms, habits=habits_of(config), processes=processes)
            _end_by_signal(gateway)
            async with page(gateway, config.gateway.health_port) as port:
                runner.tell({"pid": os.getpid(), "port": port, "runner": runner.name,
                             "begun": time.time()})  # fmt: skip
                names = ", ".join(gateway.platforms)
                logger.info("%s serves %s; http://127.0.0.1:%d/health", runner.name, names, port)
                await gateway.run()
    finally:
        desk.close()


def office_of(
    config: Config,
    desk: Desk,
    model: Model,
    runner: str,
    platforms: list[Platform],
    equipment: Equipment,
    price: Price,
) -> Office:
    """What all conversations share, as the settings want it."""
    one = config.gateway
    workdir = Path(one.workdir)
    workdir.mkdir(parents=True, exist_ok=True, mode=0o700)
    _, environment = surroundings()
    notes: dict[str, MutableMapping[str, JSON]] = {}

    def tools_for(route: Route) -> ToolContext:
        if len(notes) > _REMEMBERED:
            notes.pop(next(iter(notes)))
        return ToolContext(
            session=route.session,
            cwd=workdir,
            owner=owner_of(route.key, route.origin),
            folders=(workdir, *equipment.folders),
            approval=one.approval,
            store=desk.store,
            environment=environment,
            notes=notes.setdefault(route.session, {}),
            address=address_of(route.origin),
        )

    return Office(
        desk=desk,
        model=model,
        toolbox=equipment.toolbox,
        tools_for=tools_for,
        runner=runner,
        policies=config.policies,
        key_rules=config.key_rules,
        lease=one.lease_seconds,
        limits=equipment.limits,
        price=price,
        arriving=one.arriving,
        platforms=[platform.name for platform in platforms],
        homes=desk.store.routes.homes,
        attempts=one.turn_attempts,
        starter=starter_of(config, desk.store, model.provider, shared=True),
    )


def habits_of(config: Config) -> Habits:
    """How the gateway works, as the settings want it."""
    one = config.gateway
    return Habits(
        turns=one.turns,
        edit_seconds=one.edit_seconds,
        grace=one.grace_seconds,
        keep=one.keep_days * 86_400,
        stamina=Stamina(attempts=one.send_attempts),
    )


def _end_by_signal(gateway: Gateway) -> None:
    loop = asyncio.get_running_loop()

    def told() -> None:
        logger.info("told to stop")
        gateway.stop()
        for number in (signal.SIGTERM, signal.SIGINT):  # a second time they end the program
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told)
