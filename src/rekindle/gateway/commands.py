"""Commands to the gateway instead of the model: `/new`, `/resume Bob's plan`, `/help` and so on.

A command arrives as a message like any other. It runs once, even if the platform redelivers it or
the process crashes, because its changes, the end of its message and its reply are committed in one
transaction. It can only see and change sessions of its own conversation. Every reply ends with a
line that names the current conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from difflib import get_close_matches
from functools import partial
from typing import Literal, NamedTuple, TypeAlias

from rekindle.agent.compaction import compress_session
from rekindle.agent.context_space import ContextSpace
from rekindle.agent.turn import Compacted
from rekindle.errors import CompressionFailed, InvalidInput, NotFound, SessionHeld
from rekindle.routing.source import describe_source
from rekindle.store.conversations.inbox import InboundMessage, OutboundMessage
from rekindle.types import Message, Session, Tokens

from . import command_handlers
from .access import approval_commands, linking
from .command_handlers import CommandContext, TurnState, describe_conversation
from .context import GatewayContext
from .conversation import TextSplitter
from .memory import command as memory_command
from .monitoring.error_texts import describe_compression_failure
from .turns.session_hold import SessionHold, describe_lease

# Run alongside a running turn, after it, or after stopping it and what is queued before.
CommandTiming: TypeAlias = Literal["immediate", "after_turn", "stop_turn"]


# Commands that change the messages of the session, which another program may hold.
_CHANGES_SESSION = frozenset(("undo", "redo", "retry", "compress"))
MAX_ARGUMENT_CHARS = 1000  # of the argument of a command


class ChatCommand(NamedTuple):
    """A command: its name, argument, help text, timing and handler.

    `handler` returns the reply. A command that `writes` runs inside a transaction; one without a
    handler needs the model.
    """

    name: str
    argument_hint: str
    help: str
    timing: CommandTiming
    handler: Callable[[CommandContext], str] | None
    writes: bool = False


def _show_help(command_context: CommandContext) -> str:
    lines = [(f"/{one.name} {one.argument_hint}".rstrip(), one.help) for one in COMMANDS.values()]
    return "\n".join(
        [
            *(f"{how} – {what}" for how, what in lines),
            describe_conversation(command_context.session),
        ]
    )


COMMANDS: Mapping[str, ChatCommand] = {
    command.name: command
    for command in (
        ChatCommand(
            "new", "", "start a new conversation", "stop_turn", command_handlers.start_new, True
        ),
        ChatCommand("reset", "", "same as /new", "stop_turn", command_handlers.start_new, True),
        ChatCommand(
            "back",
            "",
            "return to the previous conversation",
            "stop_turn",
            command_handlers.go_back,
            True,
        ),
        ChatCommand(
            "resume",
            "[title, id or number]",
            "resume a conversation",
            "stop_turn",
            command_handlers.resume_session,
            True,
        ),
        ChatCommand(
            "sessions",
            "[words]",
            "list or search your conversations",
            "immediate",
            command_handlers.list_sessions,
        ),
        ChatCommand(
            "title",
            "[title]",
            "name this conversation",
            "after_turn",
            command_handlers.set_title,
            True,
        ),
        ChatCommand("retry", "", "ask the model again", "stop_turn", None, True),
        ChatCommand(
            "undo",
            "[n]",
            "undo the last turn, or the last n",
            "stop_turn",
            command_handlers.undo_turns,
            True,
        ),
        ChatCommand(
            "redo",
            "",
            "restore what the last /undo removed",
            "stop_turn",
            command_handlers.redo_turns,
            True,
        ),
        ChatCommand(
            "fork", "", "continue in a copy", "after_turn", command_handlers.fork_session, True
        ),
        ChatCommand("compress", "", "summarize older messages to free context", "after_turn", None),
        ChatCommand(
            "memory",
            memory_command.USAGE,
            "show or change what is remembered about you",
            "immediate",
            memory_command.handle_memory,
            True,
        ),
        ChatCommand(
            "status",
            "",
            "show the current session and its token usage",
            "immediate",
            command_handlers.show_status,
        ),
        ChatCommand("stop", "", "stop the current answer", "stop_turn", command_handlers.stop_turn),
        ChatCommand(
            "sethome",
            "",
            "make this chat the home for notifications",
            "immediate",
            command_handlers.set_home,
            True,
        ),
        ChatCommand(
            "link",
            "[code]",
            "be the same person here and on another platform",
            "after_turn",
            linking.link_identity,
            True,
        ),
        ChatCommand("unlink", "", "undo /link", "after_turn", linking.unlink_identity, True),
        ChatCommand(
            "approve",
            approval_commands.USAGE,
            "let a tool call run that needs an owner's approval",
            "immediate",
            approval_commands.approve_call,
            True,
        ),
        ChatCommand(
            "deny", "[id]", "refuse such a call", "immediate", approval_commands.refuse_call, True
        ),
        ChatCommand("help", "", "list the commands", "immediate", _show_help),
    )
}


class ParsedCommand(NamedTuple):
    """A command as the user typed it."""

    name: str
    argument: str


class CommandResult(NamedTuple):
    """The result of a command: its reply, and the message whose turn must run next, if any.

    `refused`: the command was invalid and changed nothing.
    """

    outbound: Sequence[OutboundMessage] = ()
    turn_for: InboundMessage | None = None
    refused: bool = False


def parse_command(text: str) -> ParsedCommand:
    """Parse the command in a text. The argument is taken verbatim, quotes included."""
    word, *rest = text.split(maxsplit=1)
    name = word.removeprefix("/").partition("@")[0].lower()
    return ParsedCommand(name, rest[0].strip() if rest else "")


def get_command_timing(message: Message) -> CommandTiming:
    """Return when to run the command in a message."""
    parsed = parse_command(message.text)
    command = COMMANDS.get(parsed.name)
    if command is None or (parsed.name == "resume" and not parsed.argument):
        return "immediate"  # only replies
    return command.timing


def describe_unknown_command(name: str) -> str:
    """Return the reply to an unknown command, with similar names."""
    near = get_close_matches(name[:40], COMMANDS, n=3, cutoff=0.6)
    hint = f"Did you mean {' or '.join(f'/{one}' for one in near)}?" if near else "See /help."
    return f"Unknown command /{name[:40]}. {hint}"


class CommandRunner:
    """Runs commands. A terminal passes its `hold`, which it keeps."""

    def __init__(self, context: GatewayContext, hold: SessionHold | None = None) -> None:
        self._context = context
        self._hold = hold
        self._executor = context.executor

    async def run(
        self, inbound: InboundMessage, splitter: TextSplitter, turn_state: TurnState | None = None
    ) -> CommandResult:
        """Run the command in a message; its reply is in the outbox on return.

        `splitter` splits a reply that is too long for one message.
        """
        parsed = parse_command(inbound.message.text)
        command_context = await self._executor.run(
            self._build_command_context, inbound, parsed.argument, turn_state or TurnState()
        )
        command = COMMANDS.get(parsed.name)
        if parsed.name == "status":
            busy = await self._context.is_busy(command_context.owner, command_context.route.session)
            command_context = command_context._replace(
                turn_state=command_context.turn_state._replace(busy=busy)
            )
        try:
            if len(parsed.argument) > MAX_ARGUMENT_CHARS:
                raise InvalidInput(
                    f"the argument is too long: {len(parsed.argument):,} characters,"
                    f" at most {MAX_ARGUMENT_CHARS:,} are allowed"
                )
            if parsed.name in _CHANGES_SESSION and command_context.session is not None:
                await self._executor.run(self._refuse_if_held, command_context)
            if parsed.name == "retry":
                return CommandResult(
                    turn_for=await self._executor.run(self._retry_turn, command_context)
                )
            if command and command.handler and command.writes:
                return await self._executor.run(
                    self._finish,
                    command_context,
                    splitter,
                    partial(command.handler, command_context),
                )
            text, refused = (
                await self._build_reply(command_context, parsed.name, command),
                command is None,
            )
        except (InvalidInput, NotFound, SessionHeld) as error:
            text, refused = (
                f"{command_handlers.describe_stopped(command_context)}{_format_sentence(str(error))}\n{describe_conversation(command_context.session)}",
                True,
            )
        result = await self._executor.run(self._finish, command_context, splitter, lambda: text)
        return result._replace(refused=refused)

    async def _build_reply(
        self, command_context: CommandContext, name: str, command: ChatCommand | None
    ) -> str:
        if command is None:
            return f"{describe_unknown_command(name)}\n{describe_conversation(command_context.session)}"
        if command.handler is None:
            return await self._compress_session(command_context)
        return await self._executor.run(command.handler, command_context)

    def _refuse_if_held(self, command_context: CommandContext) -> None:
        """Raise `InvalidInput` if another program holds the session of the conversation."""
        hold = SessionHold(self._context, command_context.inbound.key)
        if (lease := hold.find_other(command_context.route.session)) is not None:
            raise InvalidInput(
                f"this conversation is {describe_lease(lease)}; try again when it is closed there,"
                " or use /fork to continue in a copy"
            )

    def _build_command_context(
        self, inbound: InboundMessage, argument: str, turn_state: TurnState
    ) -> CommandContext:
        """Build the context of a command. A command never resets a conversation automatically."""
        store, source = self._executor.store, inbound.source
        owner = self._context.find_owner(source)
        route = store.routes.open(inbound.key, source, name=describe_source(source), owner=owner)
        session = command_handlers.find_session(store, route.session)
        if session is not None and session.end_reason == "compression":
            session = store.find_tip(session)  # crashed before the route was updated
            if session.id != route.session:
                route = store.routes.follow(inbound.key, route.session, session.id)
        return CommandContext(self._context, inbound, route, session, argument, turn_state, [])

    def _finish(
        self,
        command_context: CommandContext,
        splitter: TextSplitter,
        build_reply: Callable[[], str],
    ) -> CommandResult:
        """Apply the change, finish the message and post the reply in one transaction, once."""
        inbox, inbound = self._executor.store.inbox, command_context.inbound

        def commit_reply() -> list[OutboundMessage]:
            if not inbox.close(inbound):
                return []
            text = build_reply()
            if command_context.listed:
                self._executor.store.routes.save_listed_sessions(
                    inbound.key, command_context.listed
                )
            return [
                inbox.post(inbound.key, inbound.source, part, inbound) for part in splitter(text)
            ]

        return CommandResult(self._executor.store.transaction(commit_reply))

    def _retry_turn(self, command_context: CommandContext) -> InboundMessage:
        """Remove the last answer and requeue the message as a turn that answers again."""
        store = self._executor.store
        if command_context.session is None:
            raise NotFound("nothing to retry yet")

        def requeue() -> InboundMessage:
            asked = store.retry(command_context.route.session)
            return store.inbox.start_turn_at(
                command_context.inbound, command_context.route.session, asked.position or 0
            )

        return store.transaction(requeue)

    async def _compress_session(self, command_context: CommandContext) -> str:
        if command_context.session is None:
            raise NotFound("nothing to compress yet")
        store, session = self._executor.store, command_context.session
        messages = await self._executor.run(store.messages, session)
        model, limits = self._context.model, self._context.limits
        ratio, reported = model.meter.get_ratio(session.id), model.meter.reported_context
        space = limits.build_space(0, ratio, reported) or ContextSpace(ratio=ratio)
        try:
            compacted = await self._compress_held(command_context, messages, space)
        except CompressionFailed as error:
            await self._record_usage(command_context, session, Tokens(*error.tokens))
            is_terminal = self._context.gate is None
            cause = str(error) if is_terminal else describe_compression_failure(error)
            return f"Nothing compressed: {cause}\n{describe_conversation(session)}"
        if compacted is None:
            text = "Nothing compressed: the conversation is too short."
            return f"{text}\n{describe_conversation(session)}"
        await self._executor.run(
            store.routes.follow, command_context.inbound.key, session.id, compacted.session.id
        )
        await self._record_usage(command_context, compacted.session, compacted.tokens)
        count, left = len(messages), len(compacted.messages)
        child = await self._executor.run(store.session, compacted.session.id)
        back = "Use /back to return to the full conversation."
        return f"Compressed {count} messages to {left}. {back}\n{describe_conversation(child)}"

    async def _compress_held(
        self, command_context: CommandContext, messages: Sequence[Message], space: ContextSpace
    ) -> Compacted | None:
        """Compress the session while no other program may write to it."""
        session, key = command_context.session, command_context.inbound.key
        assert session is not None
        hold = self._hold or SessionHold(self._context, key)
        async with nullcontext() if self._hold else hold.keep():
            await self._executor.run(hold.acquire, session.id)
            return await compress_session(
                self._executor,
                self._context.model,
                session,
                messages,
                space,
                write_child=hold.write_child,
            )

    async def _record_usage(
        self, command_context: CommandContext, session: Session, tokens: Tokens
    ) -> None:
        name, usage = self._context.compute_usage(tokens)
        store, key = self._executor.store, command_context.inbound.key
        await self._executor.run(store.routes.add_usage, key, session, usage, name)
        await self._executor.run(store.routes.touch, key)


def _format_sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith((".", "?", "!")) else ".")
