"""What people say to the gateway and not to the model: `/new`, `/resume Bob's plan`, `/help` …

A command is a letter like any other: it is carried out once, however often the platform says it and
whenever we crash, because what it changes, the end of its letter and its answer are one transaction.
It sees and touches the sessions of its own conversation alone. Every answer ends with the line that
says which conversation the speaker is in now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Literal, NamedTuple, TypeAlias

from rekindle.agent.compaction import compress
from rekindle.errors import InvalidInput, NotFound
from rekindle.routing.source import describe
from rekindle.store.conversations.inbox import Letter, Parcel
from rekindle.types import Message

from . import command_handlers
from .command_handlers import At, Moment, here
from .context import Office
from .conversation import Parts

# Past a running turn at once; after it; or by stopping it and what waits before it.
When: TypeAlias = Literal["at once", "after", "stopping"]


LONGEST = 1000  # characters behind a command


class Command(NamedTuple):
    """A command: how it is called, what it does, and when it is carried out.

    `act` gives the answer. One that `changes` something is run inside a transaction; one without
    `act` needs the model.
    """

    name: str
    takes: str
    help: str
    when: When
    act: Callable[[At], str] | None
    changes: bool = False


def _help(at: At) -> str:
    usage = [(f"/{one.name} {one.takes}".rstrip(), one.help) for one in COMMANDS.values()]
    return "\n".join([*(f"{how} – {what}" for how, what in usage), here(at.session)])


COMMANDS: Mapping[str, Command] = {
    command.name: command
    for command in (
        Command("new", "", "start a new conversation", "stopping", command_handlers.new, True),
        Command("reset", "", "the same as /new", "stopping", command_handlers.new, True),
        Command(
            "back", "", "return to the one before this", "stopping", command_handlers.back, True
        ),
        Command(
            "resume",
            "[title, id or number]",
            "go on in one",
            "stopping",
            command_handlers.resume,
            True,
        ),
        Command("sessions", "[words]", "list or search them", "at once", command_handlers.sessions),
        Command("title", "[title]", "name this one", "after", command_handlers.title, True),
        Command("retry", "", "ask the model again", "stopping", None, True),
        Command(
            "undo", "[n]", "take back the last turn, or n", "stopping", command_handlers.undo, True
        ),
        Command("fork", "", "go on in a copy", "after", command_handlers.fork, True),
        Command("compress", "", "sum up what was said, to make room", "after", None),
        Command(
            "status", "", "where you are, and what it took", "at once", command_handlers.status
        ),
        Command("stop", "", "stop the answer", "stopping", command_handlers.stop),
        Command(
            "sethome",
            "",
            "make this chat the home for news",
            "at once",
            command_handlers.set_home,
            True,
        ),
        Command("help", "", "list the commands", "at once", _help),
    )
}


class Said(NamedTuple):
    """A command as somebody typed it."""

    name: str
    argument: str


class Outcome(NamedTuple):
    """What came of a command: its answer, and the letter whose turn must run now, if one must.

    `refused`: it was a mistake, and nothing was done.
    """

    posted: Sequence[Parcel] = ()
    turn: Letter | None = None
    refused: bool = False


def parse(text: str) -> Said:
    """The command in a text. What follows its name is taken as typed: quotes are part of it."""
    word, *rest = text.split(maxsplit=1)
    name = word.removeprefix("/").partition("@")[0].lower()
    return Said(name, rest[0].strip() if rest else "")


def when_of(message: Message) -> When:
    """When the command in a message is carried out."""
    said = parse(message.text)
    command = COMMANDS.get(said.name)
    if command is None or (said.name == "resume" and not said.argument):
        return "at once"  # it only tells something
    return command.when


def unknown(name: str) -> str:
    """What is said to a command that there is not."""
    near = get_close_matches(name[:40], COMMANDS, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(f'/{one}' for one in near)}?" if near else "see /help."
    return f"There is no command /{name[:40]}; {hint}"


class Commands:
    """Carries commands out."""

    def __init__(self, office: Office) -> None:
        self._office = office
        self._desk = office.desk

    async def run(self, letter: Letter, parts: Parts, moment: Moment | None = None) -> Outcome:
        """Carry out the command in a letter; its answer is on its way when this returns.

        `parts` cuts an answer that is too long for one message.
        """
        said = parse(letter.message.text)
        at = await self._desk.ask(self._at, letter, said.argument, moment or Moment())
        command = COMMANDS.get(said.name)
        if said.name == "status":
            busy = await self._office.is_busy(at.owner, at.route.session)
            at = at._replace(moment=at.moment._replace(busy=busy))
        try:
            if len(said.argument) > LONGEST:
                raise InvalidInput(
                    f"that is too long for a command: {len(said.argument):,} characters, {LONGEST:,}"
                    " are taken"
                )
            if said.name == "retry":
                return Outcome(turn=await self._desk.ask(self._retry, at))
            if command and command.act and command.changes:
                return await self._desk.ask(self._close, at, parts, partial(command.act, at))
            text, refused = await self._text(at, said.name, command), command is None
        except (InvalidInput, NotFound) as error:
            text, refused = (
                f"{command_handlers.stopped(at)}{_sentence(str(error))}\n{here(at.session)}",
                True,
            )
        outcome = await self._desk.ask(self._close, at, parts, lambda: text)
        return outcome._replace(refused=refused)

    async def _text(self, at: At, name: str, command: Command | None) -> str:
        if command is None:
            return f"{unknown(name)}\n{here(at.session)}"
        if command.act is None:
            return await self._compressed(at)
        return await self._desk.ask(command.act, at)

    def _at(self, letter: Letter, argument: str, moment: Moment) -> At:
        """Where the command is given. A command never starts a conversation anew by itself."""
        store, source = self._desk.store, letter.source
        route = store.routes.open(letter.key, source, name=describe(source))
        session = command_handlers.stored(store, route.session)
        if session is not None and session.end_reason == "compression":
            session = store.tip(session)  # a crash came before the route could follow
            if session.id != route.session:
                route = store.routes.follow(letter.key, route.session, session.id)
        return At(self._office, letter, route, session, argument, moment, [])

    def _close(self, at: At, parts: Parts, say: Callable[[], str]) -> Outcome:
        """Make the change, end the letter and post the answer: all at once, and once."""
        mail, letter = self._desk.store.mail, at.letter

        def work() -> list[Parcel]:
            if not mail.close(letter):
                return []
            text = say()
            if at.listed:
                self._desk.store.routes.show(letter.key, at.listed)
            return [mail.post(letter.key, letter.source, part, letter) for part in parts(text)]

        return Outcome(self._desk.store.together(work))

    def _retry(self, at: At) -> Letter:
        """Take the last answer out; the letter's turn is then to answer the message before it."""
        store = self._desk.store
        if at.session is None:
            raise NotFound("there is nothing to ask again")

        def work() -> Letter:
            asked = store.retry(at.route.session)
            return store.mail.go_on(at.letter, at.route.session, asked.position or 0)

        return store.together(work)

    async def _compressed(self, at: At) -> str:
        if at.session is None:
            raise NotFound("there is nothing to sum up yet")
        store, session = self._desk.store, at.session
        messages = await self._desk.ask(store.messages, session)
        shrunk = await compress(self._desk, self._office.model, session, messages)
        if shrunk is None:
            return (
                f"Nothing was changed: it is short, or the model gave no summary.\n{here(session)}"
            )
        await self._desk.ask(store.routes.follow, at.letter.key, session.id, shrunk.session.id)
        name, taken = self._office.taken(shrunk.tokens)
        await self._desk.ask(store.add_usage, shrunk.session, *taken, model=name)
        await self._desk.ask(store.routes.touch, at.letter.key, {name: taken})
        count, left = len(messages), len(shrunk.messages)
        child = await self._desk.ask(store.session, shrunk.session.id)
        return f"Summed up: {count} messages became {left}. /back returns to all of them.\n{here(child)}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith((".", "?", "!")) else ".")
