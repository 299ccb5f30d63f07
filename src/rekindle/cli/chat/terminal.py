"""What is typed at a terminal: lines with editing, history and completion, and answers to questions.

`prompt_toolkit` reads the lines where it is installed; else Python's own `readline` does, or nothing
but the terminal itself.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeAlias

from .history import History

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

PROMPT, MORE = "› ", "… "

# What a text may be completed to, each with a remark.
Complete: TypeAlias = Callable[[str], Iterable[tuple[str, str]]]


class Typist(Protocol):
    """Somebody at a terminal."""

    async def read(self) -> str:
        """What is said next. `EOFError` at the end, `KeyboardInterrupt` for Ctrl-C."""
        ...

    async def above(self, write: Callable[[], None]) -> None:
        """Write something above the line that is being typed."""
        ...


def typist(history: History, complete: Complete) -> Typist:
    """The best way to read lines that there is here."""
    try:
        return Editor(history, complete)
    except ImportError:
        return Plain(history, complete)


class Editor:
    """Lines edited with prompt_toolkit. Alt-Enter, or a backslash at the end, goes on in a new line."""

    def __init__(self, history: History, complete: Complete) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.filters import Condition
        from prompt_toolkit.formatted_text import FormattedText
        from prompt_toolkit.history import InMemoryHistory

        self._history = history
        self._session: PromptSession[str] = PromptSession(
            FormattedText([("bold ansicyan", PROMPT)]),
            multiline=True,
            prompt_continuation=lambda width, number, wrapped: " " * width if wrapped else MORE,
            key_bindings=_keys(complete),
            history=InMemoryHistory(history.load()),
            completer=_completer(complete),
            # A menu while a command is typed, and none in the way of other text.
            complete_while_typing=Condition(self._is_command),
            reserve_space_for_menu=6,
            enable_suspend=True,
        )

    def _is_command(self) -> bool:
        return self._session.default_buffer.text.startswith("/")

    async def read(self) -> str:
        text = await self._session.prompt_async()
        self._history.add(text)
        return text

    async def above(self, write: Callable[[], None]) -> None:
        from prompt_toolkit.application import run_in_terminal
        from prompt_toolkit.application.current import set_app

        with set_app(self._session.app):
            await run_in_terminal(write)


def _keys(complete: Complete) -> KeyBindings:
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    def enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.is_cursor_at_the_end and buffer.text.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    def newline(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    def tab(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        found = [whole for whole, _ in complete(buffer.document.text_before_cursor)]
        if len(found) == 1:  # nothing to choose, so no menu
            buffer.cancel_completion()
            buffer.delete_before_cursor(buffer.cursor_position)
            buffer.insert_text(found[0])
        elif buffer.complete_state:
            buffer.complete_next()
        elif found:
            buffer.start_completion(insert_common_part=True)

    keys.add("tab")(tab)
    keys.add("enter")(enter)
    keys.add("c-j")(enter)  # how a line comes that was typed ahead
    keys.add("escape", "enter")(newline)
    return keys


def _completer(complete: Complete) -> Completer:
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    class Commands(Completer):
        def get_completions(
            self, document: Document, complete_event: CompleteEvent
        ) -> Iterable[Completion]:
            text = document.text_before_cursor
            for whole, remark in complete(text):
                yield Completion(whole, -len(text), display_meta=remark)

    return Commands()


class Plain:
    """Lines edited with readline if Python has it; a backslash at the end goes on in a new line."""

    def __init__(self, history: History, complete: Complete) -> None:
        self._history = history
        try:
            import readline
        except ImportError:
            return
        for text in history.load():
            readline.add_history(text.replace("\n", " "))
        readline.set_completer_delims("")
        readline.set_completer(_completion_of(complete))
        readline.parse_and_bind("tab: complete")

    async def read(self) -> str:
        with _interrupting():
            lines = [input(PROMPT)]
            while lines[-1].endswith("\\"):
                lines[-1] = lines[-1][:-1]
                lines.append(input(MORE))
        text = "\n".join(lines)
        self._history.add(text)
        return text

    async def above(self, write: Callable[[], None]) -> None:
        write()


def _completion_of(complete: Complete) -> Callable[[str, int], str | None]:
    def completion(text: str, number: int) -> str | None:
        found = [whole for whole, _ in complete(text)]
        return found[number] if number < len(found) else None

    return completion


@contextmanager
def _interrupting() -> Generator[None]:
    """Ctrl-C raises, whatever the event loop made of it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


async def ask(question: str) -> str:
    """One line in answer to a question. What was typed before the question was seen is dropped."""
    fd = sys.stdin.fileno()
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()

    def take() -> None:
        if not line.done():
            line.set_result(os.read(fd, 4096).decode(errors="replace"))

    with echo(on=True):
        termios.tcflush(fd, termios.TCIFLUSH)
        sys.stdout.write(question)
        sys.stdout.flush()
        loop.add_reader(fd, take)
        try:
            return (await line).strip()
        finally:
            loop.remove_reader(fd)


@contextmanager
def echo(*, on: bool) -> Generator[None]:
    """Show what is typed, or keep it for the next prompt without showing it."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    changed = list(before)
    changed[3] = before[3] | termios.ECHO if on else before[3] & ~termios.ECHO
    termios.tcsetattr(fd, termios.TCSANOW, changed)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSANOW, before)
