"""Resume a session: the agent, the command and the folder in which it goes on."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from rekindle.errors import InvalidInput, NotFound
from rekindle.routing.source import LOCAL
from rekindle.transcripts.restore import RestorePlan, plan_restore
from rekindle.transcripts.writers import AGENTS as WRITABLE_AGENTS
from rekindle.transcripts.writers import find_session_id
from rekindle.transcripts.writers.places import UserFolders, build_resume_words, find_session_file
from rekindle.types import MAX_TITLE_CHARS

from .agents import AGENTS

if TYPE_CHECKING:
    from rekindle.store import Store
    from rekindle.types import Session

CHAT = "chat"  # Rekindle's own
TARGETS = (*WRITABLE_AGENTS, CHAT)
_MAX_NAME_LENGTH = 40
_MAX_COPY_TITLE = MAX_TITLE_CHARS - 10  # the number of another copy has room after it
_ESCAPES: Mapping[str, str] = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\t": "\\t", "\x1b": "\\e"}


class ResumePlan(NamedTuple):
    """How a session goes on.

    `folder` is None if nobody knows the session's. With `restore_needed` the agent does not have the
    session, which must be written for it first.
    """

    agent: str  # one of TARGETS
    command: tuple[str, ...]
    folder: str | None
    restore_needed: bool = False
    note: str = ""
    session: str = ""  # its id in that agent
    preparation: tuple[tuple[str, ...], ...] = ()  # commands to run before, in the same folder


def plan_resume(
    session: Session,
    *,
    target: str | None = None,
    folder: str | None = None,
    is_present: bool = True,
) -> ResumePlan:
    """Plan how a session is resumed, by its own agent or by `target`, without looking at any file.

    `is_present` says whether its own agent still has it. Raise InvalidInput if there is no such agent.
    """
    agent = choose_agent(session) if target is None else target
    if agent not in TARGETS:
        raise InvalidInput(f"Unknown agent: {agent!r:.40}. Known: {', '.join(TARGETS)}.")
    folder = folder or get_session_folder(session)
    if agent == CHAT:
        words = ("rekindle", "chat", "--resume", *_guard_option(session.id))
        note = (
            ""
            if session.source == LOCAL
            else f"Continues a copy of a session of {get_source_title(session.source)}."
        )
        return ResumePlan(CHAT, words, folder, note=note, session=session.id)
    id = find_session_id(agent, session)
    words = build_resume_words(agent, id)
    title = get_agent_title(agent)
    if session.source == agent and id == session.id:
        note = "" if is_present else f"{title} no longer has this session; it is put back first."
        return ResumePlan(agent, words, folder, not is_present, note, id)
    origin = get_source_title(session.source)
    note = f"Handed over from {origin} to {title} as a copy."
    if session.source == agent:  # a fork, which is in the store alone
        note = f"{title} gets a copy of this session."
    return ResumePlan(agent, words, folder, restore_needed=True, note=note, session=id)


def prepare_resume(
    store: Store,
    session: Session,
    folders: UserFolders,
    *,
    target: str | None = None,
    folder: str | None = None,
) -> tuple[ResumePlan, RestorePlan | None]:
    """Plan how a session is resumed, and the file to write for the agent first, if any."""
    plan = plan_resume(session, target=target, folder=folder)
    if plan.agent == CHAT:
        return plan, None
    if find_session_file(plan.agent, plan.session, folders) is not None:
        note = f"{get_agent_title(plan.agent)} already has this copy, and continues it."
        if not plan.restore_needed:
            return plan, None
        return plan._replace(restore_needed=False, note=note), None
    if not plan.restore_needed:
        plan = plan_resume(session, target=target, folder=folder, is_present=False)
    restore = plan_restore(
        plan.agent,
        session,
        store.messages(session),
        folder=plan.folder or os.getcwd(),
        folders=folders,
        list_imports=store.find_imports,
        title=build_copy_title(session, plan.agent),
    )
    if restore.is_staged:
        imported = (get_agent_program(plan.agent), "import", str(restore.path))
        plan = plan._replace(preparation=(imported,))
    return plan, restore


def build_copy_title(session: Session, agent: str) -> str | None:
    """Return the title of a session for an agent; that of a copy says where it comes from."""
    if session.source == agent:
        return session.title
    origin = f" (from {get_source_title(session.source)})"
    title = " ".join((session.title or session.preview or "Untitled session").split())
    return title[: _MAX_COPY_TITLE - len(origin)].rstrip() + origin


def choose_agent(session: Session) -> str:
    """Return the agent that a session belongs to; raise InvalidInput if none resumes it."""
    if session.source == LOCAL:
        return CHAT
    if session.source in WRITABLE_AGENTS:
        return session.source
    raise InvalidInput(
        f"Rekindle cannot start {get_source_title(session.source)}, which this session is from."
        f" Hand it over with --in: {', '.join(TARGETS)}."
    )


def get_agent_title(agent: str) -> str:
    """Return the name of an agent for people."""
    return "Rekindle's chat" if agent == CHAT else AGENTS[agent].title


def get_agent_program(agent: str) -> str:
    """Return the program that must be installed for an agent."""
    return "rekindle" if agent == CHAT else AGENTS[agent].program


def get_session_folder(session: Session) -> str | None:
    """Return the folder that a session worked in, if it can be one on this machine."""
    cwd = session.cwd
    return cwd if cwd and os.path.isabs(cwd) and "\0" not in cwd else None


def find_resumable(store: Store, session: Session) -> Session:
    """Return the session to resume for this one: where it continues, or the parent of a sub-agent."""
    seen: set[str] = set()
    while session.id not in seen:
        seen.add(session.id)
        session = store.find_tip(session)
        session = _find_parent(store, session) or session
    return session


def find_last_session(store: Store, folder: str) -> Session | None:
    """Return the session that was last active in the project of a folder."""
    from rekindle.store import Filter

    scope = store.load_projects().find_folder_scope(folder)
    if scope is None or not scope.keys:
        return None
    return next(iter(store.recent(1, where=Filter(projects=scope.keys), fold=True)), None)


def _find_parent(store: Store, session: Session) -> Session | None:
    """Return the parent of a sub-agent, which has none of its own history."""
    if session.parent is None or session.sub_agent is None:
        return None
    try:
        parent = store.session(session.parent)
    except NotFound:
        return None
    return parent if parent.source == session.source else None


def render_command(plan: ResumePlan) -> str:
    """Return the plan as a command line for a shell, with the change of folder."""
    commands = [*plan.preparation, plan.command]
    if plan.folder:
        # `--` and the quotes: a folder may be named like an option, and may hold any character.
        commands.insert(0, ("cd", *_guard_option(plan.folder)))
    return " && ".join(" ".join(map(quote_word, words)) for words in commands)


def build_resume_command(store: Store, session: Session) -> str:
    """Return the command line that resumes a session: its agent's own, if that has the session."""
    found = find_resumable(store, session)
    try:
        plan = plan_resume(found)
    except InvalidInput:  # its agent cannot be started: say which one is to go on
        return _build_own_command(found, "--in", CHAT)
    return _build_own_command(found) if plan.restore_needed else render_command(plan)


def _build_own_command(session: Session, *options: str) -> str:
    id = quote_word(session.id)
    words = (*options, "--", id) if id.startswith("-") else (id, *options)
    return " ".join(("rekindle", "resume", *words))


def quote_word(word: str) -> str:
    """Quote a word for a shell; nothing in it reaches the terminal as a control character."""
    if word.isprintable():
        return shlex.quote(word)
    quoted = (
        _ESCAPES.get(char) or (char if char.isprintable() else _escape_char(char)) for char in word
    )
    return f"$'{''.join(quoted)}'"


def _escape_char(char: str) -> str:
    data = char.encode("utf-8", "surrogateescape" if "\udc80" <= char <= "\udcff" else "replace")
    return "".join(f"\\x{byte:02x}" for byte in data)


def _guard_option(word: str) -> tuple[str, ...]:
    return ("--", word) if word.startswith("-") else (word,)


def get_source_title(source: str) -> str:
    """Return the name of the agent or platform that a session is from, for people."""
    return AGENTS[source].title if source in AGENTS else f"{source:.{_MAX_NAME_LENGTH}}"
