"""`rekindle warm test`, `load` and `pick`: preview how a new session would start, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rekindle.cli.output import (
    JsonOption,
    escape_control_chars,
    print_json,
    print_line,
    print_notice,
    to_one_line,
)
from rekindle.cli.store_access import (
    ignore_sigpipe,
    load_settings,
    open_for_notes,
    restore_sigpipe,
)
from rekindle.errors import InvalidInput

from .options import TemplateArgument, find_template, open_library

if TYPE_CHECKING:
    from rekindle.agent.model.providers import Provider
    from rekindle.agent.tools.tool import ToolContext
    from rekindle.config import Config
    from rekindle.knowledge.notes.note import Recall
    from rekindle.knowledge.render import PreludeForm
    from rekindle.learning.selection import Selection
    from rekindle.learning.warm_start import NewSession, Prelude, WarmStarter
    from rekindle.store import Store
    from rekindle.types import JSON, Message, Template

_MessageArgument = Annotated[
    str,
    typer.Argument(metavar="MESSAGE", help="First message of the session.", show_default=False),
]
_FormOption = Annotated[
    str | None,
    typer.Option(
        "--form", metavar="FORM", help="Prelude form: turns, digest or both.", show_default=False
    ),
]
_MaxOption = Annotated[
    int | None,
    typer.Option("--max", metavar="N", help="Maximum number of notes.", show_default=False),
]
_TokensOption = Annotated[
    int | None,
    typer.Option("--tokens", metavar="N", help="Maximum number of tokens.", show_default=False),
]
_ProviderOption = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="Message rules to follow: openai, anthropic, gemini, mistral."
    ),
]
_NoExamplesOption = Annotated[bool, typer.Option("--no-examples", help="Leave out the notes.")]


def preview_template(
    name: TemplateArgument,
    message: _MessageArgument,
    form: _FormOption = None,
    provider: _ProviderOption = "openai",
    max: _MaxOption = None,
    tokens: _TokensOption = None,
    no_examples: _NoExamplesOption = False,
    json: JsonOption = False,
) -> None:
    """Show the messages that a session with this template would send before the first answer.

    They follow the agent's system message. Token counts are slight overestimates. Configured
    MCP servers are queried for their tools, as in a chat. Quarantined and retired templates can be
    previewed too, although no session starts from them.

    \b
    Examples:
      rekindle warm test demo 'fix the failing test'
      rekindle warm test demo 'fix the failing test' --form turns --provider mistral
    """
    config = load_settings()
    template = find_template(name)
    previewed = template._replace(notes=()) if no_examples else template
    with open_for_notes() as store:
        starter = _create_warm_starter(config, store, form, provider, max, tokens, previewed)
        new_session = _create_new_session(config, store, message)
        if no_examples:
            new_session = new_session._replace(folder=None)  # no notes of the project either
        prelude = starter.build_prelude(new_session)
    if no_examples:
        prelude = prelude._replace(reason=_explain_without_examples(prelude))
    if template.state != "active":
        state = "quarantined" if template.state == "quarantined" else template.state
        print_notice(
            f"“{template.name}” is {state}. This is only a preview; no session starts from it."
        )
    sent = [*prelude.messages, _create_user_message(message)]
    if json:
        result = {
            **_prelude_to_dict(prelude),
            "state": template.state,
            "messages": _to_wire_messages(sent, provider),
        }
        print_json(result)
        return
    if not prelude.messages:
        print_notice(f"The session would start cold: {prelude.reason}.")
        return
    _write_messages(sent)
    print_line(
        f"About {prelude.tokens:,} tokens before the message. {_to_sentence(prelude.reason)}"
    )


def _explain_without_examples(prelude: Prelude) -> str:
    if prelude.messages:
        return "notes left out on request"
    return "the template has nothing but notes"


def print_template_messages(
    name: TemplateArgument,
    message: Annotated[
        str, typer.Option("--for", metavar="MESSAGE", help="Select notes for this message.")
    ] = "",
    form: _FormOption = None,
    provider: _ProviderOption = "openai",
    max: _MaxOption = None,
    tokens: _TokensOption = None,
    no_examples: _NoExamplesOption = False,
    tool: Annotated[
        list[str] | None,
        typer.Option(metavar="TOOL", help="Available tool (repeatable). Default: a shell."),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Accepted for consistency; always JSON.")
    ] = False,
) -> None:
    """Print a template as JSON messages, to start a session of another program.

    Insert them after the system message and before the first user message.

    \b
    Examples:
      rekindle warm load demo > prelude.json
      rekindle warm load demo --for 'fix the failing test' --form turns --tool Bash
    """
    from rekindle.agent.model.providers import PROVIDER_RULES
    from rekindle.knowledge.render import MAX_CONTEXT_CHARS, RenderOptions, render_prelude
    from rekindle.learning.selection import select_notes
    from rekindle.learning.warm_start import require_active

    config = load_settings()
    template = require_active(find_template(name))
    tools = dict.fromkeys(["terminal"] if tool is None else tool, _accept_any_arguments)
    options = RenderOptions(
        _parse_form(form or config.warm.format),
        _check_range("--tokens", tokens, 50, 100_000) or config.warm.max_tokens,
        _check_range("--max", max, 1, 15) or config.warm.max_notes,
        not no_examples,
        MAX_CONTEXT_CHARS,
        not PROVIDER_RULES[_parse_provider(provider)].needs_signature,
    )
    rendered = render_prelude(template, select_notes(template, message, tools), tools, options)
    print_json(_to_wire_messages(rendered.messages, provider))


def pick_template(
    message: _MessageArgument,
    folder: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Working folder of the session.", show_default=False),
    ] = None,
    max: _MaxOption = None,
    json: JsonOption = False,
) -> None:
    """Show the notes that a session with this first message would get, and why.

    These are the notes of the project of the folder, and those of a template that fits.

    Configured MCP servers are queried for their tools, as in a chat.

    \b
    Examples:
      rekindle warm pick 'fix the failing test'
      rekindle warm pick 'fix the failing test' --json
    """
    config = load_settings()
    with open_for_notes() as store:
        starter = _create_warm_starter(config, store, None, "openai", max, None, None)
        new_session = _create_new_session(config, store, message, folder)
        recall, selection = starter.recall_notes(new_session), starter.select(new_session)
    if json:
        print_json(_selection_to_dict(recall, selection))
        return
    _write_selection(recall, selection)


# ── setup from the settings


def _create_warm_starter(
    config: Config,
    store: Store,
    form: str | None,
    provider: str,
    most: int | None,
    tokens: int | None,
    template: Template | None,
) -> WarmStarter:
    from rekindle.agent.model.providers import PROVIDER_RULES
    from rekindle.learning.warm_start import WarmStarter, build_warm_start_config

    warm_config = build_warm_start_config(config)._replace(control_share=0.0, enabled=True)
    if form is not None:
        warm_config = warm_config._replace(format=_parse_form(form))
    if most is not None:
        warm_config = warm_config._replace(max_notes=_check_range("--max", most, 1, 15))
    if tokens is not None:
        warm_config = warm_config._replace(max_tokens=_check_range("--tokens", tokens, 50, 100_000))
    return WarmStarter(
        store,
        warm_config,
        templates=open_library(),
        template=template,
        shows_calls=not PROVIDER_RULES[_parse_provider(provider)].needs_signature,
    )


def _create_new_session(
    config: Config, store: Store, message: str, folder: Path | None = None
) -> NewSession:
    """Describe the session that a chat would start here, with the tools it would have."""
    import asyncio

    from rekindle.agent.tools.schema_check import build_tool_checks
    from rekindle.agent.tools.tool import ToolContext
    from rekindle.learning.warm_start import NewSession

    if not message.strip():
        raise InvalidInput("MESSAGE is empty. Pass the first message of a session.")
    here = (folder or Path.cwd()).expanduser().absolute()
    context = ToolContext("", here, owner="", store=store, notes={})
    ignore_sigpipe()  # an MCP server may exit while we query it
    tools = asyncio.run(_load_tool_definitions(config, context))
    restore_sigpipe()
    return NewSession(store.begin(), message, build_tool_checks(tools), str(here))


async def _load_tool_definitions(config: Config, context: ToolContext) -> list[dict[str, JSON]]:
    """Return the tool definitions of a chat, including those of its MCP servers."""
    from contextlib import aclosing

    from rekindle.agent.toolkit import open_toolkit
    from rekindle.learning.warm_session_tool import create_tool_from_config
    from rekindle.processes.from_config import create_client

    extra_tools = [create_tool_from_config(config, shared=False)]
    async with (
        aclosing(create_client(config)) as processes,
        open_toolkit(config, None, extra_tools, processes) as toolkit,
    ):
        for problem in toolkit.problems:
            print_notice(escape_control_chars(problem))
        return toolkit.toolbox.build_definitions(context)


def _parse_form(form: str) -> PreludeForm:
    from rekindle.knowledge.render import PRELUDE_FORMS

    for known in PRELUDE_FORMS:
        if form == known:
            return known
    raise InvalidInput(f"--form: {form!r:.40} is not one of {', '.join(PRELUDE_FORMS)}")


def _parse_provider(name: str) -> Provider:
    from rekindle.agent.model.providers import PROVIDERS

    for known in PROVIDERS:
        if name == known:
            return known
    raise InvalidInput(f"--provider: {name!r:.40} is not one of {', '.join(PROVIDERS)}")


def _check_range(option: str, value: int | None, minimum: int, maximum: int) -> int:
    if value is not None and not minimum <= value <= maximum:
        raise InvalidInput(
            f"{option}: expected a number from {minimum} to {maximum:,}, got {value}"
        )
    return value or 0


def _accept_any_arguments(_: Mapping[str, JSON]) -> bool:
    return True


# ── output


def _create_user_message(text: str) -> Message:
    from rekindle.types import Message

    return Message("user", text)


def _to_wire_messages(messages: Sequence[Message], provider: str) -> list[dict[str, Any]]:
    from rekindle.agent.model.chat_completions import to_chat_message

    return [dict(to_chat_message(message, _parse_provider(provider), "")) for message in messages]


def _prelude_to_dict(prelude: Prelude) -> dict[str, Any]:
    return {
        "template": prelude.template,
        "revision": prelude.revision,
        "notes": list(prelude.notes),
        "tokens": prelude.tokens,
        "hash": prelude.hash,
        "reason": prelude.reason,
    }


def _selection_to_dict(recall: Recall, selection: Selection) -> dict[str, Any]:
    from rekindle.types import to_json_value

    template = selection.template
    return {
        "template": template.id if template else None,
        "name": template.name if template else None,
        "revision": template.revision if template else None,
        "reason": selection.reason,
        "project_notes": [{"id": one.id, "text": one.text} for one in recall.notes],
        "notes": [to_json_value(one) for one in selection.notes],
        "considered": [to_json_value(one) for one in selection.considered],
    }


def _write_messages(messages: Sequence[Message]) -> None:
    for message in messages:
        print_line(f"── {message.role}")
        if message.text:
            print_line(escape_control_chars(message.text))
        for call in message.tool_calls:
            print_line(f"→ {call.name} {escape_control_chars(str(call.arguments))}")
        print_line()


def _write_selection(recall: Recall, selection: Selection) -> None:
    if recall.text:
        print_line(f"{escape_control_chars(recall.text)}\n")
    if selection.template is not None:
        print_line(f"{selection.template.name} ({selection.template.id}): {selection.reason}.")
        for one in selection.notes:
            print_line(f"  {to_one_line(escape_control_chars(one.text), 120)}")
    elif recall.text:
        print_line(f"No template: {selection.reason}.")
    else:
        print_line(f"No template: {selection.reason}. The session would start cold.")
    if len(selection.considered) > 1:
        print_line("\nAlso considered:")
        for one in selection.considered[1:]:
            print_line(f"  {one.name}: {one.reason}")


def _to_sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith((".", "!", "?")) else ".")
