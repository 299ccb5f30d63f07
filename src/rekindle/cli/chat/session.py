"""Run a chat session: bring together settings, store, model and tools."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rekindle.agent.model.client import Model
from rekindle.agent.toolkit import (
    Toolkit,
    build_model_config,
    build_persona_settings,
    open_model,
    open_toolkit,
    require_model_name,
)
from rekindle.agent.tools.tool import Approver, Tool, ToolContext
from rekindle.agent.turn import Advisor
from rekindle.cli.store_access import (
    ignore_sigpipe,
    load_settings,
    open_for_writing,
)
from rekindle.config import Config, get_home_and_env, get_login_name
from rekindle.errors import InvalidInput, NotFound, RekindleError, StoreError
from rekindle.gateway.commands import COMMANDS, describe_unknown_command, parse_command
from rekindle.gateway.context import GatewayContext, derive_owner
from rekindle.gateway.memory.tool import create_memory_tool
from rekindle.gateway.process_reports import make_busy_check
from rekindle.gateway.turns.inbound import is_command
from rekindle.learning.advice import NO_ADVICE, create_project_advisor
from rekindle.learning.warm_session_tool import create_tool_from_config
from rekindle.learning.warm_start import WarmStarter, create_warm_starter
from rekindle.processes.from_config import create_client
from rekindle.processes.operations import Processes
from rekindle.projects import find_branch
from rekindle.routing.source import LOCAL
from rekindle.store.store_executor import StoreExecutor
from rekindle.types import (
    JSON,
    KeyRule,
    Message,
    Overridable,
    Price,
    Role,
    Route,
    Session,
    Source,
)

from .conversation import ChatConversation, TurnInterrupted, TurnResult
from .held_session import open_held_session
from .history import InputHistory
from .interactive import InteractiveSession
from .process_reports import ProcessReports
from .recovery import (
    Leftovers,
    clean_up_terminals,
    copy_session,
    find_leftovers,
    find_named_session,
    format_instance_name,
    is_own_session,
    take_over_message,
)
from .terminal import set_echo
from .terminal_lock import TerminalLocks
from .views import ChatView, JsonLinesView, PipeView, TerminalView

if TYPE_CHECKING:
    from rekindle.store import Store
    from rekindle.store.conversations.inbox import InboundMessage

OK, INTERRUPTED, TERMINATED = 0, 130, 143
# Why a session ended that nobody has ended before the program did.
_END_REASONS = {OK: "user_exit", TERMINATED: "terminated"}
EXECUTOR_THREADS = 4
MAX_LEARNED_SESSIONS = 10  # at the end of a chat; the rest is left to `warm learn`


class ChatOptions(NamedTuple):
    """Options of the command line. With an empty `resume` the user picks a session."""

    continue_last: bool = False
    resume: str | None = None
    fork: bool = False
    model: str | None = None
    tools: tuple[str, ...] | None = None
    json: bool = False
    cold: bool = False
    template: str | None = None  # overrides template selection


def run_chat(options: ChatOptions) -> int:
    """Run a chat and return the exit code of the command."""
    ignore_sigpipe()
    config = load_settings()
    model_name = require_model_name(config, options.model, ", or pass --model")
    price = config.get_price(model_name)
    locks = TerminalLocks(config.home / "chat")
    _configure_logging(config.home / "chat.log")
    with locks.acquire() as terminal, open_for_writing(may_create=True) as store:
        source = Source(LOCAL, terminal, user_id=config.chat.owner or get_login_name())
        setup = _ChatSetup(config, options, store, locks, source)
        code = INTERRUPTED
        try:
            code = asyncio.run(_run_session(setup, model_name, price))
            return code
        finally:
            with suppress(StoreError):  # the next terminal retries
                clean_up_terminals(store, locks, terminal, _END_REASONS.get(code, "interrupted"))
            with suppress(RekindleError):  # the next chat, or `warm learn`, does it
                _learn_from_chat(store, config)


def _learn_from_chat(store: Store, config: Config) -> None:
    if config.warm.enabled:
        from rekindle.learning.notes.learner import learn_from_sessions

        learn_from_sessions(store, limit=MAX_LEARNED_SESSIONS)


def _configure_logging(file: Path) -> None:
    """Log warnings to a file, to keep them off the screen."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file.touch(mode=0o600)
    log_format = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(filename=file, level=logging.WARNING, format=log_format)


class _ChatSetup(NamedTuple):
    """The settings, options, store and source of a chat."""

    config: Config
    options: ChatOptions
    store: Store
    locks: TerminalLocks
    source: Source

    @property
    def owner(self) -> str:
        """Owner of the sessions of all our terminals."""
        return derive_owner("", self.source)


class _ChatAgent(NamedTuple):
    """The model, its price and its tools."""

    model: Model
    price: Price
    toolkit: Toolkit
    processes: Processes

    @property
    def tools(self) -> Mapping[str, Tool]:
        return self.toolkit.toolbox.tools


async def _run_session(setup: _ChatSetup, model_name: str, price: Price) -> int:
    task = asyncio.current_task()
    assert task is not None
    # SIGTERM cancels the task, so that the terminal is restored like at any other end.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    executor = StoreExecutor(setup.store, EXECUTOR_THREADS)
    try:
        extra_tools = [create_tool_from_config(setup.config, shared=False), create_memory_tool()]
        processes = create_client(setup.config)
        tools = open_toolkit(setup.config, setup.options.tools, extra_tools, processes, model_name)
        async with (
            open_model(setup.config, model_name) as model,
            aclosing(processes),
            tools as toolkit,
        ):
            agent = _ChatAgent(model, price, toolkit, processes)
            if _is_interactive(setup.options):
                return await _run_interactive(setup, executor, agent)
            return await _run_piped(setup, executor, agent)
    except asyncio.CancelledError:
        return TERMINATED
    except TurnInterrupted:
        return INTERRUPTED
    finally:
        executor.close()


def _is_interactive(options: ChatOptions) -> bool:
    return not options.json and sys.stdin.isatty() and sys.stdout.isatty()


async def _run_interactive(setup: _ChatSetup, executor: StoreExecutor, agent: _ChatAgent) -> int:
    config, model = setup.config, agent.model
    screen = TerminalView(agent.tools, reasoning=config.chat.reasoning == "dim")
    history = InputHistory(config.home / "chat_history", config.chat.history)
    interactive = InteractiveSession(
        screen, history, lambda: setup.store.recent(50, owner=setup.owner)
    )
    context = _create_context(setup, executor, agent, interactive.approve)
    reports = ProcessReports(agent.processes, executor, setup.owner)
    conversation = ChatConversation(
        context, setup.source, reports, **_get_session_facts(setup.config, model)
    )
    if setup.options.resume == "":
        chosen = await interactive.choose_session(await executor.run(_list_own_sessions, setup))
        if chosen is None:
            return OK
        setup = setup._replace(options=setup.options._replace(resume=chosen.id))
    session, leftovers = await executor.run(_find_session, setup)
    async with conversation.hold.keep():
        if session is not None:
            opened = await open_held_session(
                conversation, session, interactive.ask_about_held_session, interactive.announce_wait
            )
            if opened is None:
                return OK
            session = opened.session
            if opened.is_copy:
                leftovers = Leftovers()
            elif not leftovers.copied and not setup.options.fork:  # the holder may have left some
                leftovers = await executor.run(_find_own_leftovers, setup, session)
        messages = [] if session is None else await executor.run(setup.store.messages, session)
        interactive.greet(model.endpoint, session, messages)
        for problem in agent.toolkit.problems:
            screen.show_note(problem)
        if leftovers.note:
            screen.show_note(leftovers.note)
        with set_echo(on=False), suppress(TurnInterrupted):
            await _catch_up(conversation, setup.locks, session, leftovers, screen)
        loading = asyncio.create_task(model.load_client())  # while the user types
        await interactive.run(conversation)
        loading.cancel()
        interactive.show_resume_hint(await conversation.leave("user_exit"))
    return OK


async def _run_piped(setup: _ChatSetup, executor: StoreExecutor, agent: _ChatAgent) -> int:
    if setup.options.resume == "":
        raise InvalidInput("--resume: a session name is required when not on a terminal.")
    text = (await asyncio.to_thread(sys.stdin.buffer.read)).decode("utf-8", "replace")
    text = text.strip("\n")
    _reject_unknown_command(text)
    context = _create_context(setup, executor, agent, None)
    reports = ProcessReports(agent.processes, executor, setup.owner)
    conversation = ChatConversation(
        context, setup.source, reports, **_get_session_facts(setup.config, agent.model)
    )
    session, leftovers = await executor.run(_find_session, setup)
    if not text.strip() and not leftovers.inbound and not leftovers.outbound:
        raise InvalidInput("No input. Pass a message on stdin.")
    async with conversation.hold.keep():
        if session is not None:
            opened = await open_held_session(conversation, session, None)
            assert opened is not None  # nobody is asked
            session = opened.session
        return await _answer_input(setup, agent, conversation, (session, leftovers), text)


async def _answer_input(
    setup: _ChatSetup,
    agent: _ChatAgent,
    conversation: ChatConversation,
    found: tuple[Session | None, Leftovers],
    text: str,
) -> int:
    """Answer the input of a pipe, after the unanswered messages of the session."""
    session, leftovers = found
    view: ChatView = JsonLinesView() if setup.options.json else PipeView(agent.tools)
    for problem in agent.toolkit.problems:
        view.show_note(problem)
    if leftovers.copied:
        view.show_note(leftovers.note)
    earlier: ChatView = view
    if text.strip() and not setup.options.json:
        earlier = PipeView(
            agent.tools, sys.stderr
        )  # earlier answers are not the answer to this input
    result = await _catch_up(conversation, setup.locks, session, leftovers, earlier)
    if text.strip():
        result = await conversation.send(text, view)
    await conversation.leave("input_end")
    return int(result)


def _reject_unknown_command(text: str) -> None:
    """Raise `InvalidInput` for an unknown command, instead of sending it to the model."""
    if is_command(Message("user", text)) and (name := parse_command(text).name) not in COMMANDS:
        raise InvalidInput(describe_unknown_command(name))


def _get_session_facts(config: Config, model: Model) -> dict[str, JSON]:
    folder = Path.cwd()
    return {
        "cwd": str(folder),
        "git_branch": find_branch(folder),
        "model": model.endpoint.model,
        "model_config": build_model_config(config, model),
    }


def _create_context(
    setup: _ChatSetup, executor: StoreExecutor, agent: _ChatAgent, approve: Approver | None
) -> GatewayContext:
    chat_config, toolkit = setup.config.chat, agent.toolkit
    notes: dict[str, dict[str, JSON]] = {}
    granted: dict[str, set[str]] = {}
    _, environment = get_home_and_env()
    facts = _get_session_facts(setup.config, agent.model)
    del facts["model"]  # known to the gateway

    def create_tool_context(route: Route, role: Role) -> ToolContext:
        return ToolContext(
            session=route.session,
            cwd=Path.cwd(),
            owner=setup.owner,
            folders=(Path.cwd(), *toolkit.folders),
            approval=chat_config.approval,
            approve=approve,
            store=setup.store,
            environment=environment,
            notes=notes.setdefault(route.session, {}),
            rules=toolkit.rules,
            granted=granted.setdefault(route.session, set()),
            sandbox=toolkit.sandbox,
            pass_on=toolkit.pass_on,
        )

    return GatewayContext(
        executor=executor,
        model=agent.model,
        toolbox=toolkit.toolbox,
        build_tool_context=create_tool_context,
        instance=format_instance_name(setup.source.chat_id),
        policies=setup.config.policies,
        key_rules=_separate_terminals(setup.config.key_rules),
        limits=toolkit.limits,
        price=agent.price,
        is_busy=make_busy_check(agent.processes, executor),
        max_attempts=setup.config.gateway.turn_attempts,
        starter=_create_warm_starter(setup, agent.model),
        create_advisor=_choose_advisor(setup),
        persona=build_persona_settings(setup.config),
        describe_session=lambda: facts,
        program="terminal",
        session_wait=None,
    )


def _choose_advisor(setup: _ChatSetup) -> Callable[[Session, Role], Advisor]:
    """Return what creates the advisor of a turn, with what is known about this folder's project."""
    settings, folder = setup.config.warm, str(Path.cwd())
    if setup.options.cold:
        return lambda session, role: NO_ADVICE
    return lambda session, role: create_project_advisor(settings, setup.store, session, folder)


def _create_warm_starter(setup: _ChatSetup, model: Model) -> WarmStarter | None:
    if setup.options.cold:
        return None
    return create_warm_starter(
        setup.config, setup.store, setup.options.template, shows_calls=model.accepts_foreign_calls
    )


def _separate_terminals(rules: Overridable[KeyRule]) -> Overridable[KeyRule]:
    """Give each terminal its own conversation, whatever is set for other platforms."""
    layer = (LOCAL, "dm")
    changed: Mapping[str, JSON] = {**rules.overrides.get(layer, {}), "direct": "shared"}
    return Overridable(rules.default, {**rules.overrides, layer: changed})


# -- session selection


def _list_own_sessions(setup: _ChatSetup) -> list[Session]:
    """Return the newest chats of the user, and sessions that they imported, to choose from."""
    store, owner = setup.store, setup.owner
    chats = store.recent(40, owner=owner)
    imported = [one for one in store.recent(40) if is_own_session(one, owner) and not one.parent]
    found = {one.id: one for one in (*chats, *imported) if one.end_reason != "compression"}
    return sorted(found.values(), key=lambda one: one.last_active, reverse=True)[:20]


def _find_session(setup: _ChatSetup) -> tuple[Session | None, Leftovers]:
    """Return the session to continue and its leftovers; neither for a new conversation."""
    options, store, owner = setup.options, setup.store, setup.owner
    if options.resume is not None:
        session = find_named_session(store, options.resume, owner, may_copy=options.fork)
    elif options.continue_last:
        newest = store.recent(1, owner=owner)
        session = store.find_tip(newest[0], owner=owner) if newest else None
    else:
        return None, Leftovers()
    if session is not None and session.owner != owner:
        return copy_session(store, session, owner)
    if options.fork:
        if session is None:
            raise NotFound("No conversation to continue yet.")
        return store.fork(session), Leftovers()
    leftovers = _find_own_leftovers(setup, session)
    if session is None and not leftovers.inbound:
        raise NotFound("No conversation to continue yet.")
    return session, leftovers


def _find_own_leftovers(setup: _ChatSetup, session: Session | None) -> Leftovers:
    found = find_leftovers(setup.store, setup.locks, setup.source.user_id, session)
    if setup.options.resume is None:
        return found
    return found._replace(inbound=tuple(one for one in found.inbound if one.session))


async def _catch_up(
    conversation: ChatConversation,
    locks: TerminalLocks,
    session: Session | None,
    leftovers: Leftovers,
    view: ChatView,
) -> TurnResult:
    """Show unshown answers, answer unanswered messages, and continue from there."""
    result, stopped = TurnResult.SUCCEEDED, None
    for outbound in leftovers.outbound:
        view.show_reply(outbound.text)
        await conversation.mark_shown([outbound])
    executor, store = conversation.context.executor, conversation.context.executor.store
    for inbound in _pick_first_per_key(leftovers.inbound):
        earlier = ChatConversation(conversation.context, inbound.source, hold=conversation.hold)
        instance, lease = conversation.context.instance, conversation.context.lease
        if not await executor.run(take_over_message, store, locks, inbound, instance, lease):
            view.show_note(f"Another terminal is answering: {inbound.message.text[:200]}")
            continue
        for one in await executor.run(store.inbox.list_waiting, inbound.key):
            view.show_note(f"Not answered yet: {one.message.text[:200]}")
            try:
                result = await earlier.process(one, view)
            except TurnInterrupted as error:
                stopped = error
        route = await executor.run(store.routes.get, inbound.key)
        session = await executor.run(store.find_tip, route.session)
    if session is not None:
        await conversation.switch_to(session)
    if stopped is not None:
        raise stopped
    return result


def _pick_first_per_key(inbound_messages: Iterable[InboundMessage]) -> list[InboundMessage]:
    """Return the first message of each conversation."""
    return [*{inbound.key: inbound for inbound in reversed([*inbound_messages])}.values()][::-1]
