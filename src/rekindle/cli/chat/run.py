"""From a command line to a conversation: settings, store, model and tools brought together."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...agent.desk import Desk
from ...agent.model import Endpoint, Model
from ...agent.registry import Registry, Toolbox
from ...agent.tools.standard import STANDARD
from ...agent.tools.tool import Approve, ToolContext
from ...agent.turn import Limits
from ...config import Config, surroundings
from ...errors import InvalidInput, InvalidSetting, NotFound
from ...gateway.office import Office, owner_of
from ...routing.source import LOCAL
from ...types import JSON, KeyRule, Layered, Route, Session, Source
from ..opening import outlive_connections, settings, writing
from .history import History
from .left import Left, left_behind, runner_of, take_over
from .person import Person
from .presence import Presence
from .screen import Lines, Pipe, Screen, View
from .talk import Interrupted, Talk
from .terminal import echo

if TYPE_CHECKING:
    from ...store import Store
    from ...store.mail import Letter

OK, FAILED, INTERRUPTED, TERMINATED = 0, 1, 130, 143
THREADS = 4
OWNER = owner_of("", Source(LOCAL, ""))  # of the sessions of all terminals
_OPENAI = "https://api.openai.com"


class Wish(NamedTuple):
    """What the command line asks for. An empty `resume` lets the user choose."""

    go_on: bool = False
    resume: str | None = None
    fork: bool = False
    model: str | None = None
    tools: tuple[str, ...] | None = None
    json: bool = False


def chat(wish: Wish) -> int:
    """Have a conversation; the exit code is that of the command."""
    outlive_connections()
    config = settings()
    endpoint = _endpoint(config, wish.model)
    names = _tool_names(config) if wish.tools is None else wish.tools
    toolbox = Registry(STANDARD).select(names)
    presence = Presence(config.home / "chat")
    _log_to(config.home / "chat.log")
    with presence.enter() as terminal, writing(new=True) as store:
        place = _Place(config, wish, store, presence, Source(LOCAL, terminal))
        return asyncio.run(_run(place, endpoint, toolbox))


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


def _log_to(file: Path) -> None:
    """Keep warnings off the screen: they are not for who is talking."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file.touch(mode=0o600)
    form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(filename=file, level=logging.WARNING, format=form)


def _tool_names(config: Config) -> tuple[str, ...]:
    return tuple(name.strip() for name in config.chat.tools.split(",") if name.strip())


class _Place(NamedTuple):
    """Where a conversation takes place, and what is wished for."""

    config: Config
    wish: Wish
    store: Store
    presence: Presence
    source: Source


async def _run(place: _Place, endpoint: Endpoint, toolbox: Toolbox) -> int:
    ours = asyncio.current_task()
    assert ours is not None
    # An end from outside takes the way of all ends, so that the terminal is left as it was.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ours.cancel)
    desk = Desk(place.store, THREADS)
    try:
        async with Model(endpoint) as model:
            if _is_person(place.wish):
                return await _with_person(place, desk, model, toolbox)
            return await _with_program(place, desk, model, toolbox)
    except asyncio.CancelledError:
        return TERMINATED
    except Interrupted:
        return INTERRUPTED
    finally:
        desk.close()


def _is_person(wish: Wish) -> bool:
    return not wish.json and sys.stdin.isatty() and sys.stdout.isatty()


async def _with_person(place: _Place, desk: Desk, model: Model, toolbox: Toolbox) -> int:
    config = place.config
    screen = Screen(toolbox.tools, reasoning=config.chat.reasoning == "dim")
    history = History(config.home / "chat_history", config.chat.history)
    person = Person(screen, history, lambda: place.store.recent(50, owner=OWNER))
    office = _office(place, desk, model, toolbox, person.approve)
    talk = Talk(office, place.source, **_facts(model))
    if place.wish.resume == "":
        chosen = await person.choose(await desk.ask(_own, place.store))
        if chosen is None:
            return OK
        place = place._replace(wish=place.wish._replace(resume=chosen.id))
    session, left = await desk.ask(_wanted, place)
    said = [] if session is None else await desk.ask(place.store.messages, session)
    person.greet(model.endpoint, session, said)
    if left.is_shared:
        screen.note("Another terminal is in this conversation too; both write to it.")
    with echo(on=False), suppress(Interrupted):
        await _catch_up(talk, session, left, screen)
    await person.converse(talk)
    person.part(await talk.leave("user_exit"))
    return OK


async def _with_program(place: _Place, desk: Desk, model: Model, toolbox: Toolbox) -> int:
    if place.wish.resume == "":
        raise InvalidInput("--resume: name the session; there is nobody here to choose one")
    text = (await asyncio.to_thread(sys.stdin.buffer.read)).decode("utf-8", "replace")
    text = text.strip("\n")
    office = _office(place, desk, model, toolbox, None)
    talk = Talk(office, place.source, **_facts(model))
    session, left = await desk.ask(_wanted, place)
    if not text.strip() and not left.letters and not left.parcels:
        raise InvalidInput("nothing was said: give a text on stdin")
    view: View = Lines() if place.wish.json else Pipe(toolbox.tools)
    earlier: View = view
    if text.strip() and not place.wish.json:
        earlier = Pipe(toolbox.tools, sys.stderr)  # what is late is not the answer
    went_well = await _catch_up(talk, session, left, earlier)
    if text.strip():
        went_well = await talk.say(text, view)
    return OK if went_well else FAILED


def _facts(model: Model) -> dict[str, str]:
    return {"cwd": str(Path.cwd()), "model": model.endpoint.model}


def _office(
    place: _Place, desk: Desk, model: Model, toolbox: Toolbox, approve: Approve | None
) -> Office:
    one = place.config.chat
    folders = tuple(Path(each).expanduser() for each in one.folders.split(os.pathsep) if each)
    notes: dict[str, dict[str, JSON]] = {}
    _, environment = surroundings()

    def tools_for(route: Route) -> ToolContext:
        return ToolContext(
            session=route.session,
            cwd=Path.cwd(),
            owner=OWNER,
            folders=(Path.cwd(), *folders),
            approval=one.approval,
            approve=approve,
            store=place.store,
            environment=environment,
            notes=notes.setdefault(route.session, {}),
        )

    return Office(
        desk=desk,
        model=model,
        toolbox=toolbox,
        tools_for=tools_for,
        runner=runner_of(place.source.chat_id),
        policies=place.config.policies,
        key_rules=_each_terminal(place.config.key_rules),
        limits=Limits(iterations=one.steps, tokens=one.tokens, context=one.context),
    )


def _each_terminal(rules: Layered[KeyRule]) -> Layered[KeyRule]:
    """Each terminal has a conversation of its own, whatever is set for other platforms."""
    place = (LOCAL, "dm")
    changed: Mapping[str, JSON] = {**rules.changes.get(place, {}), "direct": "shared"}
    return Layered(rules.default, {**rules.changes, place: changed})


# -- which session


def _own(store: Store) -> list[Session]:
    return [one for one in store.recent(40, owner=OWNER) if one.end_reason != "compression"][:20]


def _wanted(place: _Place) -> tuple[Session | None, Left]:
    """The session to go on in, and what was left there; neither for a new conversation."""
    wish, store = place.wish, place.store
    if wish.resume is not None:
        session = store.tip(store.resolve(wish.resume, owner=OWNER), owner=OWNER)
    elif wish.go_on:
        newest = store.recent(1, owner=OWNER)
        session = store.tip(newest[0], owner=OWNER) if newest else None
    else:
        return None, Left()
    if wish.fork:
        if session is None:
            raise NotFound("there is no conversation to continue yet")
        return store.fork(session), Left()
    left = left_behind(store, place.presence, session)
    if wish.resume is not None:
        left = left._replace(letters=tuple(one for one in left.letters if one.session))
    if session is None and not left.letters:
        raise NotFound("there is no conversation to continue yet")
    return session, left


async def _catch_up(talk: Talk, session: Session | None, left: Left, view: View) -> bool:
    """Show what was not shown, answer what was not answered, and go on from there."""
    went_well, stopped = True, None
    for parcel in left.parcels:
        view.reply(parcel.text)
        await talk.shown([parcel])
    desk, store = talk.office.desk, talk.office.desk.store
    for letter in _first_of_each(left.letters):
        earlier = Talk(talk.office, letter.source)
        runner, lease = talk.office.runner, talk.office.lease
        if not await desk.ask(take_over, store, letter, runner, lease):
            continue
        for one in await desk.ask(store.mail.waiting, letter.key):
            view.note(f"Not answered yet: {one.message.text[:200]}")
            try:
                went_well = await earlier.take(one, view)
            except Interrupted as error:
                stopped = error
        route = await desk.ask(store.routes.get, letter.key)
        session = await desk.ask(store.tip, route.session)
    if session is not None:
        await talk.go_to(session)
    if stopped is not None:
        raise stopped
    return went_well


def _first_of_each(letters: Iterable[Letter]) -> list[Letter]:
    """One letter for each conversation."""
    return [*{letter.key: letter for letter in reversed([*letters])}.values()][::-1]
