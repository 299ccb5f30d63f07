"""A gateway as a program: made from the settings, and ended by a signal."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import MutableMapping
from pathlib import Path

from ..agent.desk import Desk
from ..agent.model import Endpoint, Model
from ..agent.registry import Registry
from ..agent.tools.standard import STANDARD
from ..agent.tools.tool import ToolContext
from ..agent.turn import Limits
from ..config import Config, surroundings
from ..errors import InvalidSetting
from ..platforms import Platform
from ..platforms.plugins import connect
from ..store import Store
from ..types import JSON, Route
from .delivery import Stamina
from .gateway import Gateway, Habits
from .health import page
from .homes import Homes
from .office import Office, owner_of
from .runner import Runner, enter

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
        async with Model(endpoint) as model:
            platforms = connect(config.gateway.platforms)
            homes = Homes(config.home / "gateway" / "homes.json")
            office = office_of(config, desk, model, runner.name, platforms, homes)
            gateway = Gateway(office, platforms, habits=habits_of(config), homes=homes)
            _end_by_signal(gateway)
            async with page(gateway, config.gateway.health_port) as port:
                runner.tell({"pid": os.getpid(), "port": port, "runner": runner.name,
                             "begun": time.time()})  # fmt: skip
                logger.info(
                    "%s serves %s, health page at %d", runner.name, [*gateway.platforms], port
                )
                await gateway.run()
    finally:
        desk.close()


def office_of(
    config: Config, desk: Desk, model: Model, runner: str, platforms: list[Platform], homes: Homes
) -> Office:
    """What all conversations share, as the settings want it."""
    one = config.gateway
    names = tuple(name.strip() for name in one.tools.split(",") if name.strip())
    workdir = Path(one.workdir)
    workdir.mkdir(parents=True, exist_ok=True, mode=0o700)
    folders = tuple(Path(each).expanduser() for each in one.folders.split(os.pathsep) if each)
    _, environment = surroundings()
    notes: dict[str, MutableMapping[str, JSON]] = {}

    def tools_for(route: Route) -> ToolContext:
        if len(notes) > _REMEMBERED:
            notes.pop(next(iter(notes)))
        return ToolContext(
            session=route.session,
            cwd=workdir,
            owner=owner_of(route.key, route.origin),
            folders=(workdir, *folders),
            approval=one.approval,
            store=desk.store,
            environment=environment,
            notes=notes.setdefault(route.session, {}),
        )

    return Office(
        desk=desk,
        model=model,
        toolbox=Registry(STANDARD).select(names),
        tools_for=tools_for,
        runner=runner,
        policies=config.policies,
        key_rules=config.key_rules,
        lease=one.lease_seconds,
        limits=Limits(iterations=one.steps, tokens=one.tokens, context=one.context),
        arriving=one.arriving,
        platforms=[platform.name for platform in platforms],
        homes=homes,
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
