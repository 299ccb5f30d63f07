"""The person at the terminal: greeted, listened to, asked, and told how to come back."""

from __future__ import annotations

import asyncio
import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rekindle.agent.tools.tool import Question
from rekindle.cli.output import counted, name_of, one_line, printable, write_sessions
from rekindle.errors import RekindleError
from rekindle.gateway.commands import COMMANDS, parse

from .conversation import Interrupted
from .terminal import PROMPT, Typist, ask, echo, typist
from .tool_call_line import visible

if TYPE_CHECKING:
    from rekindle.agent.model.client import Endpoint
    from rekindle.types import Message, Session

    from .conversation import Talk
    from .history import History
    from .views import Screen

LEAVING = ("quit", "exit")
_ELSEWHERE = ("stop", "sethome")  # commands for where no key stops an answer
_SHOWN, _LAST = 60, 300
_YES = ("y", "yes")
_LISTENED, _PAUSE = 60.0, 1.0  # seconds for one question about reports, and between two


class Person:
    """Somebody who types, reads, and may be asked."""

    def __init__(
        self, screen: Screen, history: History, sessions: Callable[[], Sequence[Session]]
    ) -> None:
        self._screen = screen
        self._history = history
        self._sessions = sessions
        self._asked = asyncio.Lock()

    def greet(self, endpoint: Endpoint, session: Session | None, said: Sequence[Message]) -> None:
        """Say where they are, and what was said there last."""
        where = "a new conversation"
        if session is not None:
            count = counted(session.message_count, "message")
            where = f"{one_line(name_of(session), _SHOWN)} ({count})"
        self._screen.note(f"{endpoint.model} · {where} · /help")
        for role, mark in (("user", PROMPT), ("assistant", "")):
            last = next((one for one in reversed(said) if one.role == role and one.text), None)
            if last is not None:
                self._screen.note(f"{mark}{one_line(last.text, _LAST)}")

    def part(self, session: Session | None) -> None:
        """Say how to come back."""
        if session is not None and session.message_count:
            name = shlex.quote(session.title) if session.title else session.id
            self._screen.note(f"Come back with: rekindle chat -r {printable(name)}")

    async def converse(self, talk: Talk) -> None:
        """Answer what is typed, until they leave."""
        lines = typist(self._history, self.complete)
        is_leaving = False
        while True:
            try:
                text = await self._read(lines, talk)
            except EOFError:
                return
            except KeyboardInterrupt:
                if is_leaving:
                    return
                is_leaving = True
                self._screen.note("Ctrl-C once more leaves; so does Ctrl-D.")
                continue
            is_leaving = False
            if text.startswith("/") and parse(text).name in LEAVING:
                return
            if text.strip():
                await self._say(talk, text)

    async def _read(self, lines: Typist, talk: Talk) -> str:
        """What is typed next. Meanwhile it is shown what background processes report."""

        async def show(text: str) -> None:
            await lines.above(partial(self._screen.note, text))

        async def listen() -> None:
            while True:
                await talk.hear(show, _LISTENED)
                await asyncio.sleep(_PAUSE)

        listening = asyncio.create_task(listen())
        try:
            return await lines.read()
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    async def _say(self, talk: Talk, text: str) -> None:
        # Between the prompt and the turn there is nothing yet that Ctrl-C could stop.
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: None)
        try:
            with echo(on=False):
                await talk.say(text, self._screen)
        except Interrupted:
            return
        except RekindleError as error:  # nothing was taken in; the next try may be luckier
            self._screen.warn(f"{error} Your message was not taken in; say it again.")
            return
        if text.startswith("/help"):
            self._screen.note(f"/{LEAVING[0]} – leave; so does Ctrl-D")

    def complete(self, text: str) -> Iterable[tuple[str, str]]:
        """What a command may be completed to."""
        if not text.startswith("/") or "\n" in text:
            return
        word, space, begun = text.partition(" ")
        if not space:
            for name, command in COMMANDS.items():
                if f"/{name}".startswith(word) and name not in _ELSEWHERE:
                    yield f"/{name}", f"{command.takes} {command.help}".strip()
            if f"/{LEAVING[0]}".startswith(word):
                yield f"/{LEAVING[0]}", "leave"
        elif word == "/resume":
            titles = [one.title for one in self._sessions() if one.title]
            found = (title for title in titles if title.lower().startswith(begun.lower()))
            yield from ((f"/resume {title}", "") for title in found)

    async def choose(self, sessions: Sequence[Session]) -> Session | None:
        """Let them choose one of their sessions; None if they do not want any."""
        if not sessions:
            self._screen.note("There is no conversation to resume yet.")
            return None
        width = len(str(len(sessions)))
        numbered = [
            one._replace(title=f"{number:>{width}}  {name_of(one)}")
            for number, one in enumerate(sessions, 1)
        ]
        write_sessions(numbered)
        while True:
            answer = await ask("Which one? (number, Enter for none) ")
            if not answer:
                return None
            if answer.isascii() and answer.isdigit() and 1 <= int(answer) <= len(sessions):
                return sessions[int(answer) - 1]
            self._screen.note(f"A number from 1 to {len(sessions)}, please.")

    async def approve(self, question: Question) -> bool:
        """Ask whether a command may run. Only a clear yes is one."""
        async with self._asked:
            with self._screen.asking():
                self._screen.warn(f"{question.tool} wants to run in {visible(question.workdir)}:")
                for line in visible(question.command).split("\n"):
                    sys.stdout.write(f"    {line}\n")
                if question.reasons:
                    self._screen.warn(f"Careful: {visible('; '.join(question.reasons))}")
                return (await ask("Run it? [y/N] ")).lower() in _YES
