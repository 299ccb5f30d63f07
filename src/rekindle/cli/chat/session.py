"""From a command line to a conversation: settings, store, model and tools brought together."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Iterable, Mapping
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rekindle.agent.model.client import Endpoint, Model
from rekindle.agent.store_executor import Desk
from rekindle.agent.toolkit import Equipment, equipped
from rekindle.agent.tools.tool import Approve, Tool, ToolContext
from rekindle.cli.store_access import outlive_connections, settings, writing
from rekindle.config import Config, surroundings
from rekindle.errors import InvalidInput, InvalidSetting, NotFound, StoreError
from rekindle.gateway.commands import COMMANDS, parse, unknown
from rekindle.gateway.context import Office, owner_of
from rekindle.gateway.conversation import is_command
from rekindle.gateway.process_reports import busy_of
from rekindle.learning.warm_session_tool import tool_of
from rekindle.learning.warm_start import Starter, starter_of
from rekindle.processes.from_config import processes_of
from rekindle.processes.types import Processes
from rekindle.routing.source import LOCAL
from rekindle.types import JSON, KeyRule, Layered, Message, Price, Route, Session, Source

from .conversation import Interrupted, Talk, Went
from .history import History
from .interactive import Person
from .process_reports import Reports
from .recovery import Left, clear_away, left_behind, runner_of, take_over
from .terminal import echo
from .terminal_lock import Presence
from .views import Lines, Pipe, Screen, View

if TYPE_CHECKING:
    from rekindle.store import Store
    from rekindle.store.conversations.inbox import Letter

OK, INTERRUPTED, TERMINATED = 0, 130, 143
THREADS = 4
_OPENAI = "https://api.openai.com"


class Wish(NamedTuple):
    """What the command line asks for. An empty `resume` lets the user choose."""

    go_on: bool = False
    resume: str | None = None
    fork: bool = False
    model: str | None = None
    tools: tuple[str, ...] | None = None
    json: bool = False
    cold: bool = False
    template: str | None = None  # to start from, whatever fits


def chat(wish: Wish) -> int:
    """Have a conversation; the exit code is that of the command."""
    outlive_connections()
    config = settings()
    endpoint = _endpoint(config, wish.model)
    price = config.price_of(endpoint.model)
    presence = Presence(config.home / "chat")
    _log_to(config.home / "chat.log")
    with presence.enter() as terminal, writing(new=True) as store:
        source = Source(LOCAL, terminal, user_id=config.chat.owner or _login_name())
        place = _Place(config, wish, store, presence, source)
        try:
            return asyncio.run(_run(place, endpoint, price))
        finally:
            with suppress(StoreError):  # the next terminal does it
                clear_away(store, presence, terminal)


def _endpoint(config: Config, name: str | None) -> Endpoint:
    model = name or config.model.name
    if not model:
        raise InvalidSetting(
            "no model is set: put the name of one into REKINDLE_MODEL, or under [model] in"
            f" {config.file}, or give --model"
        )
    if not config.model.api_key and config.model.base_url.startswith(_OPENAI):
        raise InvalidSetting(
            "no key for the model is set: put it into OPENAI_API_KEY, or set OPENAI_BASE_URL to an"
            " endpoint that needs none"
        )
    return Endpoint(config.model.base_url, model, config.model.api_key)


def _login_name() -> str:
    """Who we are to the system, whatever the environment says."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run under a number that nobody has
        return str(os.getuid())


def _log_to(file: Path) -> None:
    """Keep warnings off the screen: they are not for who is talking."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file.touch(mode=0o600)
    form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(filename=file, level=logging.WARNING, format=form)


class _Place(NamedTuple):
    """Where a conversation takes place, and what is wished for."""

    config: Config
    wish: Wish
    store: Store
    presence: Presence
    source: Source

    @property
    def owner(self) -> str:
        """Of the sessions of all our terminals."""
        return owner_of("", self.source)


class _Agent(NamedTuple):
    """Who is talked with, and what they can do."""

    model: Model
    price: Price
    equipment: Equipment
    processes: Processes

    @property
    def tools(self) -> Mapping[str, Tool]:
        return self.equipment.toolbox.tools


async def _run(place: _Place, endpoint: Endpoint, price: Price) -> int:
    ours = asyncio.current_task()
    assert ours is not None
    # An end from outside takes the way of all ends, so that the terminal is left as it was.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ours.cancel)
    desk = Desk(place.store, THREADS)
    try:
        more = [tool_of(place.config, shared=False)]
        processes = processes_of(place.config)
        tools = equipped(place.config, place.wish.tools, more, processes)
        async with Model(endpoint) as model, aclosing(processes), tools as equipment:
            agent = _Agent(model, price, equipment, processes)
            if _is_person(place.wish):
                return await _with_person(place, desk, agent)
            return await _with_program(place, desk, agent)
    except asyncio.CancelledError:
        return TERMINATED
    except Interrupted:
        return INTERRUPTED
    finally:
        desk.close()


def _is_person(wish: Wish) -> bool:
    return not wish.json and sys.stdin.isatty() and sys.stdout.isatty()


async def _with_person(place: _Place, desk: Desk, agent: _Agent) -> int:
    config, model = place.config, agent.model
    screen = Screen(agent.tools, reasoning=config.chat.reasoning == "dim")
    history = History(config.home / "chat_history", config.chat.history)
    person = Person(screen, history, lambda: place.store.recent(50, owner=place.owner))
    office = _office(place, desk, agent, person.approve)
    reports = Reports(agent.processes, desk, place.owner)
    talk = Talk(office, place.source, reports, **_facts(model))
    if place.wish.resume == "":
        chosen = await person.choose(await desk.ask(_own, place))
        if chosen is None:
            return OK
        place = place._replace(wish=place.wish._replace(resume=chosen.id))
    session, left = await desk.ask(_wanted, place)
    said = [] if session is None else await desk.ask(place.store.messages, session)
    person.greet(model.endpoint, session, said)
    for problem in agent.equipment.problems:
        screen.note(f"MCP: {problem}")
    if left.is_shared:
        screen.note("Another terminal is in this conversation too; both write to it.")
    with echo(on=False), suppress(Interrupted):
        await _catch_up(talk, place.presence, session, left, screen)
    loading = asyncio.create_task(model.ready())  # while they type
    await person.converse(talk)
    loading.cancel()
    person.part(await talk.leave("user_exit"))
    return OK


async def _with_program(place: _Place, desk: Desk, agent: _Agent) -> int:
    if place.wish.resume == "":
        raise InvalidInput("--resume: name the session; there is nobody here to choose one")
    text = (await asyncio.to_thread(sys.stdin.buffer.read)).decode("utf-8", "replace")
    text = text.strip("\n")
    _refuse_unknown(text)
    office = _office(place, desk, agent, None)
    reports = Reports(agent.processes, desk, place.owner)
    talk = Talk(office, place.source, reports, **_facts(agent.model))
    session, left = await desk.ask(_wanted, place)
    if not text.strip() and not left.letters and not left.parcels:
        raise InvalidInput("nothing was said: give a text on stdin")
    view: View = Lines() if place.wish.json else Pipe(agent.tools)
    for problem in agent.equipment.problems:
        view.note(f"MCP: {problem}")
    earlier: View = view
    if text.strip() and not place.wish.json:
        earlier = Pipe(agent.tools, sys.stderr)  # what is late is not the answer
    went = await _catch_up(talk, place.presence, session, left, earlier)
    if text.strip():
        went = await talk.say(text, view)
    return int(went)


def _refuse_unknown(text: str) -> None:
    """A mistyped command is a mistake, not something to say."""
    if is_command(Message("user", text)) and (name := parse(text).name) not in COMMANDS:
        raise InvalidInput(unknown(name))


def _facts(model: Model) -> dict[str, str]:
    return {"cwd": str(Path.cwd()), "model": model.endpoint.model}


def _office(place: _Place, desk: Desk, agent: _Agent, approve: Approve | None) -> Office:
    one, equipment = place.config.chat, agent.equipment
    notes: dict[str, dict[str, JSON]] = {}
    _, environment = surroundings()

    def tools_for(route: Route) -> ToolContext:
        return ToolContext(
            session=route.session,
            cwd=Path.cwd(),
            owner=place.owner,
            folders=(Path.cwd(), *equipment.folders),
            approval=one.approval,
            approve=approve,
            store=place.store,
            environment=environment,
            notes=notes.setdefault(route.session, {}),
        )

    return Office(
        desk=desk,
        model=agent.model,
        toolbox=equipment.toolbox,
        tools_for=tools_for,
        runner=runner_of(place.source.chat_id),
        policies=place.config.policies,
        key_rules=_each_terminal(place.config.key_rules),
        limits=equipment.limits,
        price=agent.price,
        is_busy=busy_of(agent.processes, desk),
        attempts=place.config.gateway.turn_attempts,
        starter=_starter(place, agent.model),
    )


def _starter(place: _Place, model: Model) -> Starter | None:
    if place.wish.cold:
        return None
    return starter_of(place.config, place.store, model.provider, place.wish.template)


def _each_terminal(rules: Layered[KeyRule]) -> Layered[KeyRule]:
    """Each terminal has a conversation of its own, whatever is set for other platforms."""
    place = (LOCAL, "dm")
    changed: Mapping[str, JSON] = {**rules.changes.get(place, {}), "direct": "shared"}
    return Layered(rules.default, {**rules.changes, place: changed})


# -- which session


def _own(place: _Place) -> list[Session]:
    found = place.store.recent(40, owner=place.owner)
    return [one for one in found if one.end_reason != "compression"][:20]


def _wanted(place: _Place) -> tuple[Session | None, Left]:
    """The session to go on in, and what was left there; neither for a new conversation."""
    wish, store, owner = place.wish, place.store, place.owner
    if wish.resume is not None:
        session = store.tip(store.resolve(wish.resume, owner=owner), owner=owner)
    elif wish.go_on:
        newest = store.recent(1, owner=owner)
        session = store.tip(newest[0], owner=owner) if newest else None
    else:
        return None, Left()
    if wish.fork:
        if session is None:
            raise NotFound("there is no conversation to continue yet")
        return store.fork(session), Left()
    left = left_behind(store, place.presence, place.source.user_id, session)
    if wish.resume is not None:
        left = left._replace(letters=tuple(one for one in left.letters if one.session))
    if session is None and not left.letters:
        raise NotFound("there is no conversation to continue yet")
    return session, left


async def _catch_up(
    talk: Talk, presence: Presence, session: Session | None, left: Left, view: View
) -> Went:
    """Show what was not shown, answer what was not answered, and go on from there."""
    went, stopped = Went.WELL, None
    for parcel in left.parcels:
        view.reply(parcel.text)
        await talk.shown([parcel])
    desk, store = talk.office.desk, talk.office.desk.store
    for letter in _first_of_each(left.letters):
        earlier = Talk(talk.office, letter.source)
        runner, lease = talk.office.runner, talk.office.lease
        if not await desk.ask(take_over, store, presence, letter, runner, lease):
            view.note(f"Another terminal is answering: {letter.message.text[:200]}")
            continue
        for one in await desk.ask(store.mail.waiting, letter.key):
            view.note(f"Not answered yet: {one.message.text[:200]}")
            try:
                went = await earlier.take(one, view)
            except Interrupted as error:
                stopped = error
        route = await desk.ask(store.routes.get, letter.key)
        session = await desk.ask(store.tip, route.session)
    if session is not None:
        await talk.go_to(session)
    if stopped is not None:
        raise stopped
    return went


def _first_of_each(letters: Iterable[Letter]) -> list[Letter]:
    """One letter for each conversation."""
    return [*{letter.key: letter for letter in reversed([*letters])}.values()][::-1]
