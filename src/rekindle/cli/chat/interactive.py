"""The interactive chat on a terminal: prompt, commands, approvals and process reports."""

from __future__ import annotations

import asyncio
import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rekindle.agent.tools.tool import Answer, ApprovalRequest
from rekindle.cli.output import (
    escape_control_chars,
    format_count,
    get_display_name,
    to_one_line,
    write_sessions,
)
from rekindle.errors import RekindleError
from rekindle.gateway.commands import COMMANDS, parse_command

from .conversation import TurnInterrupted
from .terminal import PROMPT, LineReader, ask_question, create_line_reader, set_echo
from .tool_call_line import escape_invisible

if TYPE_CHECKING:
    from rekindle.agent.model.client import Endpoint
    from rekindle.types import Message, Session

    from .conversation import ChatConversation
    from .held_session import HeldChoice
    from .history import InputHistory
    from .views import TerminalView

QUIT_COMMANDS = ("quit", "exit")
_GATEWAY_COMMANDS = ("stop", "sethome")  # only useful where Ctrl-C cannot stop an answer
_MAX_TITLE_LENGTH, _MAX_MESSAGE_LENGTH = 60, 300
_WAIT_ANSWERS, _COPY_ANSWERS = ("w", "wait"), ("c", "copy", "f", "fork")
_YES_ANSWERS, _SESSION_ANSWERS = ("y", "yes"), ("s", "session")
_REPORT_WAIT_SECONDS, _REPORT_PAUSE_SECONDS = 60.0, 1.0


class InteractiveSession:
    """A chat with a user on a terminal."""

    def __init__(
        self,
        screen: TerminalView,
        history: InputHistory,
        list_sessions: Callable[[], Sequence[Session]],
    ) -> None:
        self._screen = screen
        self._history = history
        self._list_sessions = list_sessions
        self._approval_lock = asyncio.Lock()

    def greet(
        self, endpoint: Endpoint, session: Session | None, messages: Sequence[Message]
    ) -> None:
        """Show the model, the session and its last messages."""
        where = "new conversation"
        if session is not None:
            count = format_count(session.message_count, "message")
            where = f"{to_one_line(get_display_name(session), _MAX_TITLE_LENGTH)} ({count})"
        self._screen.show_note(f"{endpoint.model} · {where} · /help")
        for role, mark in (("user", PROMPT), ("assistant", "")):
            last = next((one for one in reversed(messages) if one.role == role and one.text), None)
            if last is not None:
                self._screen.show_note(f"{mark}{to_one_line(last.text, _MAX_MESSAGE_LENGTH)}")

    def show_resume_hint(self, session: Session | None) -> None:
        """Show how to resume the conversation."""
        if session is not None and session.message_count:
            name = shlex.quote(session.title) if session.title else session.id
            self._screen.show_note(f"Resume with: rekindle chat -r {escape_control_chars(name)}")

    async def run(self, conversation: ChatConversation) -> None:
        """Read and answer input until the user quits."""
        reader = create_line_reader(self._history, self.complete)
        is_leaving = False
        while True:
            try:
                text = await self._read_input(reader, conversation)
            except EOFError:
                return
            except KeyboardInterrupt:
                if is_leaving:
                    return
                is_leaving = True
                self._screen.show_note("Press Ctrl-C again or Ctrl-D to quit.")
                continue
            is_leaving = False
            if text.startswith("/") and parse_command(text).name in QUIT_COMMANDS:
                return
            if text.strip():
                await self._send(conversation, text)

    async def _read_input(self, reader: LineReader, conversation: ChatConversation) -> str:
        """Read the next input. Meanwhile show reports of background processes."""

        async def show_report(text: str) -> None:
            await reader.print_above(partial(self._screen.show_note, text))

        async def poll_reports() -> None:
            while True:
                await conversation.show_process_reports(show_report, _REPORT_WAIT_SECONDS)
                await asyncio.sleep(_REPORT_PAUSE_SECONDS)

        polling = asyncio.create_task(poll_reports())
        try:
            return await reader.read()
        finally:
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)

    async def _send(self, conversation: ChatConversation, text: str) -> None:
        # Ignore Ctrl-C between the prompt and the turn: there is nothing to stop yet.
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: None)
        try:
            with set_echo(on=False):
                await conversation.send(text, self._screen)
        except TurnInterrupted:
            return
        except RekindleError as error:  # nothing was stored; a retry may succeed
            self._screen.show_warning(f"{error} Your message was not sent. Please try again.")
            return
        if text.startswith("/help"):
            self._screen.show_note(f"/{QUIT_COMMANDS[0]} – quit (or Ctrl-D)")

    def complete(self, text: str) -> Iterable[tuple[str, str]]:
        """Yield completions of a command, each with its help."""
        if not text.startswith("/") or "\n" in text:
            return
        word, space, prefix = text.partition(" ")
        if not space:
            for name, command in COMMANDS.items():
                if f"/{name}".startswith(word) and name not in _GATEWAY_COMMANDS:
                    yield f"/{name}", f"{command.argument_hint} {command.help}".strip()
            if f"/{QUIT_COMMANDS[0]}".startswith(word):
                yield f"/{QUIT_COMMANDS[0]}", "quit"
        elif word == "/resume":
            titles = [one.title for one in self._list_sessions() if one.title]
            found = (title for title in titles if title.lower().startswith(prefix.lower()))
            yield from ((f"/resume {title}", "") for title in found)

    async def choose_session(self, sessions: Sequence[Session]) -> Session | None:
        """Let the user pick one of their sessions; return None if they decline."""
        if not sessions:
            self._screen.show_note("No conversation to resume yet.")
            return None
        width = len(str(len(sessions)))
        numbered = [
            one._replace(title=f"{number:>{width}}  {get_display_name(one)}")
            for number, one in enumerate(sessions, 1)
        ]
        write_sessions(numbered)
        while True:
            answer = await ask_question("Which one? (number, Enter to cancel) ")
            if not answer:
                return None
            if answer.isascii() and answer.isdigit() and 1 <= int(answer) <= len(sessions):
                return sessions[int(answer) - 1]
            self._screen.show_note(f"Enter a number from 1 to {len(sessions)}.")

    async def ask_about_held_session(self, problem: str) -> HeldChoice:
        """Ask what to do about a session that another program holds."""
        self._screen.show_warning(problem)
        question = "Wait for it (w), continue in a copy (c), or Enter to cancel? "
        answer = (await ask_question(question)).lower()
        if answer in _WAIT_ANSWERS:
            return "wait"
        return "copy" if answer in _COPY_ANSWERS else "cancel"

    def announce_wait(self) -> None:
        """Say how to stop waiting for a session that another program holds."""
        self._screen.show_note("Waiting. Ctrl-C stops the wait.")

    async def approve(self, request: ApprovalRequest) -> Answer:
        """Ask whether a call may run. Anything but a clear yes is a no."""
        async with self._approval_lock:
            with self._screen.pause_live_line():
                self._screen.show_warning(
                    f"{request.tool} wants to run in {escape_invisible(request.workdir)}:"
                )
                for line in escape_invisible(request.command).split("\n"):
                    sys.stdout.write(f"    {line}\n")
                if request.reasons:
                    self._screen.show_warning(
                        f"Warning: {escape_invisible('; '.join(request.reasons))}"
                    )
                answer = (await ask_question("Run it? [y/N] (s: for this session) ")).lower()
        if answer in _SESSION_ANSWERS:
            return "session"
        return "once" if answer in _YES_ANSWERS else "no"
