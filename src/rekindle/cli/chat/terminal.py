"""Terminal input: lines with editing, history and completion, and answers to questions.

Uses `prompt_toolkit` if it is installed, else Python's `readline`, else the bare terminal.
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

from .history import InputHistory

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

PROMPT, CONTINUATION_PROMPT = "› ", "… "

# Returns the completions of a text, each with a remark.
Completions: TypeAlias = Callable[[str], Iterable[tuple[str, str]]]


class LineReader(Protocol):
    """A source of input lines."""

    async def read(self) -> str:
        """Read the next input. Raise `EOFError` at the end, `KeyboardInterrupt` on Ctrl-C."""
        ...

    async def print_above(self, write: Callable[[], None]) -> None:
        """Call `write` to print above the line being edited."""
        ...


def create_line_reader(history: InputHistory, complete: Completions) -> LineReader:
    """Create the best line reader available here."""
    try:
        return PromptToolkitReader(history, complete)
    except ImportError:
        return ReadlineReader(history, complete)


class PromptToolkitReader:
    """Line editing with prompt_toolkit. Alt-Enter or a trailing backslash continues on a new line."""

    def __init__(self, history: InputHistory, complete: Completions) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.filters import Condition
        from prompt_toolkit.formatted_text import FormattedText
        from prompt_toolkit.history import InMemoryHistory

        self._history = history
        self._session: PromptSession[str] = PromptSession(
            FormattedText([("bold ansicyan", PROMPT)]),
            multiline=True,
            prompt_continuation=lambda width, number, wrapped: (
                " " * width if wrapped else CONTINUATION_PROMPT
            ),
            key_bindings=_create_key_bindings(complete),
            history=InMemoryHistory(history.load()),
            completer=_create_completer(complete),
            # Show the menu only while a command is typed.
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

    async def print_above(self, write: Callable[[], None]) -> None:
        from prompt_toolkit.application import run_in_terminal
        from prompt_toolkit.application.current import set_app

        with set_app(self._session.app):
            await run_in_terminal(write)


def _create_key_bindings(complete: Completions) -> KeyBindings:
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    def on_enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.is_cursor_at_the_end and buffer.text.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    def on_newline(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    def on_tab(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        found = [whole for whole, _ in complete(buffer.document.text_before_cursor)]
        if len(found) == 1:  # no menu for a single completion
            buffer.cancel_completion()
            buffer.delete_before_cursor(buffer.cursor_position)
            buffer.insert_text(found[0])
        elif buffer.complete_state:
            buffer.complete_next()
        elif found:
            buffer.start_completion(insert_common_part=True)

    keys.add("tab")(on_tab)
    keys.add("enter")(on_enter)
    keys.add("c-j")(on_enter)  # lines typed ahead arrive as c-j
    keys.add("escape", "enter")(on_newline)
    return keys


def _create_completer(complete: Completions) -> Completer:
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    class CommandCompleter(Completer):
        def get_completions(
            self, document: Document, complete_event: CompleteEvent
        ) -> Iterable[Completion]:
            text = document.text_before_cursor
            for whole, remark in complete(text):
                yield Completion(whole, -len(text), display_meta=remark)

    return CommandCompleter()


class ReadlineReader:
    """Line editing with readline if available; a trailing backslash continues on a new line."""

    def __init__(self, history: InputHistory, complete: Completions) -> None:
        self._history = history
        try:
            import readline
        except ImportError:
            return
        for text in history.load():
            readline.add_history(text.replace("\n", " "))
        readline.set_completer_delims("")
        readline.set_completer(_create_readline_completer(complete))
        readline.parse_and_bind("tab: complete")

    async def read(self) -> str:
        with _raise_on_sigint():
            lines = [input(PROMPT)]
            while lines[-1].endswith("\\"):
                lines[-1] = lines[-1][:-1]
                lines.append(input(CONTINUATION_PROMPT))
        text = "\n".join(lines)
        self._history.add(text)
        return text

    async def print_above(self, write: Callable[[], None]) -> None:
        write()


def _create_readline_completer(complete: Completions) -> Callable[[str, int], str | None]:
    def get_completion(text: str, number: int) -> str | None:
        found = [whole for whole, _ in complete(text)]
        return found[number] if number < len(found) else None

    return get_completion


@contextmanager
def _raise_on_sigint() -> Generator[None]:
    """Let Ctrl-C raise `KeyboardInterrupt`, whatever the event loop installed."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


async def ask_question(question: str) -> str:
    """Ask a question and return one line. Input typed before the question is discarded."""
    fd = sys.stdin.fileno()
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()

    def on_readable() -> None:
        if not line.done():
            line.set_result(os.read(fd, 4096).decode(errors="replace"))

    with set_echo(on=True):
        termios.tcflush(fd, termios.TCIFLUSH)
        sys.stdout.write(question)
        sys.stdout.flush()
        loop.add_reader(fd, on_readable)
        try:
            return (await line).strip()
        finally:
            loop.remove_reader(fd)


@contextmanager
def set_echo(*, on: bool) -> Generator[None]:
    """Turn the terminal's echo on or off; input typed without echo is kept for the next prompt."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    changed = list(before)
    changed[3] = before[3] | termios.ECHO if on else before[3] & ~termios.ECHO
    termios.tcsetattr(fd, termios.TCSANOW, changed)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSANOW, before)
