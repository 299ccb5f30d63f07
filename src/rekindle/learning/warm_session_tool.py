"""`warm_session`: an agent looks after its own templates, and asks how sessions did.

What an agent builds waits in quarantine until a person accepts it: an agent may have been talked into
it, and so it never replaces what is in use. To delete a template a person is asked. Where many people
talk to one program, each sees sessions and templates of their own alone, and those tagged `shared`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from rekindle.agent.tools.tool import Tool, ToolContext, ToolResult, schema
from rekindle.config import Config, surroundings
from rekindle.types import JSON

from .library import LONGEST_TAG, Templates

if TYPE_CHECKING:
    from rekindle.redaction.redactor import Redactor

MIN_MESSAGES = 30
MAX_SESSIONS = 30
ACTIONS = ("build", "extract", "list", "load", "delete", "profile", "compress-check", "compare")
_SECONDS = 600.0


def warm_session(templates: Templates, redactor: Callable[[], Redactor], *, shared: bool) -> Tool:
    """The tool. `shared`: many people talk to this program, and each sees only what is their own."""

    async def answer(context: ToolContext, given: Mapping[str, JSON]) -> ToolResult:
        from .warm_session_actions import (
            WarmDesk,  # all of the learning: most sessions never call this
        )

        asked = {"min_messages": MIN_MESSAGES, "max_sessions": MAX_SESSIONS, **given}
        return await WarmDesk(templates, redactor, shared).answer(context, asked)

    return Tool(
        name="warm_session",
        toolset="sessions",
        description=(
            "Templates that new sessions can be started from, and how sessions did. build: learn one"
            " from past sessions; extract: from one session; list, load, delete; profile: errors and"
            " tools of a session; compress-check: did it keep its skill when it was summed up; compare:"
            " session_id (started warm) with compare_with (cold). Answers are JSON."
        ),
        parameters=_PARAMETERS,
        handler=answer,
        missing=_missing,
        emoji="🔥",
        seconds=_SECONDS,
    )


def tool_of(config: Config, *, shared: bool) -> Tool:
    """The tool for the templates of this home, with redaction that knows this machine."""

    def redactor() -> Redactor:
        from rekindle.redaction.redactor import Redactor

        return Redactor.of_machine(*surroundings())

    return warm_session(Templates.of_home(config.home), redactor, shared=shared)


_TEXT: dict[str, JSON] = {"type": "string", "minLength": 1, "maxLength": 200}
_PARAMETERS = schema(
    "action",
    action={"type": "string", "enum": list(ACTIONS), "description": "what to do"},
    name={**_TEXT, "description": "of the template"},
    description={**_TEXT, "maxLength": 1000, "description": "what the template is for"},
    min_messages={
        "type": "integer",
        "minimum": 0,
        "maximum": 100_000,
        "description": f"build: of sessions with so many messages (default {MIN_MESSAGES})",
    },
    max_sessions={
        "type": "integer",
        "minimum": 1,
        "maximum": 1000,
        "description": f"build: of so many at most, newest first (default {MAX_SESSIONS})",
    },
    source_filter={**_TEXT, "description": "build: only sessions from here, such as codex"},
    tags={
        "type": "array",
        "items": {**_TEXT, "maxLength": LONGEST_TAG},
        "maxItems": 20,
        "description": "build, extract, list: tags",
    },
    session_id={**_TEXT, "description": "a session: id or title"},
    compare_with={**_TEXT, "description": "compare: the other session, id or title"},
)


def _missing(context: ToolContext) -> str | None:
    if context.store is None:
        return "there is no store of sessions"
    return None if context.owner is not None else "nobody is known to own this session"
