"""The `warm_session` tool: an agent manages its own templates and evaluates sessions.

A template that an agent builds stays in quarantine until a person accepts it, since an agent may
have been manipulated; so it never replaces one in use. Deleting a template requires approval. Where
many people use one process, each sees only their own sessions and templates, and those tagged
`shared`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from rekindle.agent.tools.tool import CallAssessment, Tool, ToolContext, ToolResult, build_schema
from rekindle.config import Config, get_home_and_env
from rekindle.types import JSON

from .library import MAX_TAG_CHARS, TemplateLibrary

if TYPE_CHECKING:
    from rekindle.redaction.redactor import Redactor

MIN_MESSAGES = 30
MAX_SESSIONS = 30
ACTIONS = ("build", "extract", "list", "load", "delete", "profile", "compress-check", "compare")
_TIMEOUT = 600.0


def create_warm_session_tool(
    templates: TemplateLibrary, create_redactor: Callable[[], Redactor], *, shared: bool
) -> Tool:
    """Create the tool. `shared`: many people use this process, and each sees only what is their own."""

    async def handle(context: ToolContext, arguments: Mapping[str, JSON]) -> ToolResult:
        from .warm_session_actions import (
            WarmSessionHandler,  # imports all of learning; most sessions never call this
        )

        with_defaults = {"min_messages": MIN_MESSAGES, "max_sessions": MAX_SESSIONS, **arguments}
        return await WarmSessionHandler(templates, create_redactor, shared).handle(
            context, with_defaults
        )

    return Tool(
        name="warm_session",
        toolset="sessions",
        description=(
            "Manage templates that start new sessions; evaluate sessions. build: learn one"
            " from past sessions; extract: from one session; list, load, delete; profile: errors and"
            " tools of a session; compress-check: did proficiency survive compression; compare:"
            " session_id (started warm) with compare_with (cold). Results are JSON."
        ),
        parameters=_PARAMETERS,
        handler=handle,
        abilities=frozenset(("change_rekindle",)),
        assess=_assess_action,
        missing=_find_missing_requirement,
        emoji="🔥",
        seconds=_TIMEOUT,
    )


def _assess_action(context: ToolContext, arguments: Mapping[str, JSON]) -> CallAssessment:
    """Assess an action; `delete` asks by itself, once it knows which template is meant."""
    action = str(arguments["action"])
    command = f"{action} {arguments.get('name', '')}".strip()
    return CallAssessment(command, acts=action in ("build", "extract"))


def create_tool_from_config(config: Config, *, shared: bool) -> Tool:
    """Create the tool for the templates of this home, with redaction that knows this machine."""

    def create_redactor() -> Redactor:
        from rekindle.redaction.redactor import Redactor

        return Redactor.from_environment(*get_home_and_env())

    return create_warm_session_tool(
        TemplateLibrary.from_home(config.home), create_redactor, shared=shared
    )


_TEXT_SCHEMA: dict[str, JSON] = {"type": "string", "minLength": 1, "maxLength": 200}
_PARAMETERS = build_schema(
    "action",
    action={"type": "string", "enum": list(ACTIONS), "description": "action to run"},
    name={**_TEXT_SCHEMA, "description": "template name"},
    description={**_TEXT_SCHEMA, "maxLength": 1000, "description": "what the template is for"},
    min_messages={
        "type": "integer",
        "minimum": 0,
        "maximum": 100_000,
        "description": f"build: minimum messages per session (default {MIN_MESSAGES})",
    },
    max_sessions={
        "type": "integer",
        "minimum": 1,
        "maximum": 1000,
        "description": f"build: maximum sessions, newest first (default {MAX_SESSIONS})",
    },
    source_filter={
        **_TEXT_SCHEMA,
        "description": "build: only sessions from this source, such as codex",
    },
    tags={
        "type": "array",
        "items": {**_TEXT_SCHEMA, "maxLength": MAX_TAG_CHARS},
        "maxItems": 20,
        "description": "build, extract, list: tags",
    },
    session_id={**_TEXT_SCHEMA, "description": "session id or title"},
    compare_with={**_TEXT_SCHEMA, "description": "compare: id or title of the other session"},
)


def _find_missing_requirement(context: ToolContext) -> str | None:
    if context.store is None:
        return "no session store available"
    return None if context.owner is not None else "the session has no known owner"
