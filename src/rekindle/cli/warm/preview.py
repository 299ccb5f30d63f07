"""`rekindle warm test`, `load` and `pick`: what a new session would be started with, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rekindle.cli.output import AsJson, encode, note, one_line, printable, say
from rekindle.cli.store_access import end_with_the_pipe, outlive_connections, settings, writing
from rekindle.errors import InvalidInput

if TYPE_CHECKING:
    from rekindle.agent.model.providers import Provider
    from rekindle.agent.tools.tool import ToolContext
    from rekindle.config import Config
    from rekindle.knowledge.render import Form
    from rekindle.knowledge.selection import Choice
    from rekindle.learning.library import Templates
    from rekindle.learning.warm_start import Newcomer, Prelude, Starter
    from rekindle.store import Store
    from rekindle.types import JSON, Message, Template

_Template = Annotated[
    str, typer.Argument(metavar="TEMPLATE", help="A template's id or name.", show_default=False)
]
_Message = Annotated[
    str,
    typer.Argument(metavar="MESSAGE", help="The first message of a session.", show_default=False),
]
_Form = Annotated[
    str | None,
    typer.Option("--form", metavar="FORM", help="turns, digest or both.", show_default=False),
]
_Max = Annotated[
    int | None,
    typer.Option("--max", metavar="N", help="At most so many examples.", show_default=False),
]
_Tokens = Annotated[
    int | None,
    typer.Option("--tokens", metavar="N", help="At most so many tokens.", show_default=False),
]
_Provider = Annotated[
    str, typer.Option(metavar="NAME", help="Whose rules hold: openai, anthropic, gemini, mistral.")
]
_NoExamples = Annotated[
    bool, typer.Option("--no-examples", help="Only what is known beside the examples.")
]


def register(group: typer.Typer) -> None:
    """Add the commands of this file."""
    group.command("test")(try_out)
    group.command("load")(load)
    group.command("pick")(pick)


def try_out(
    name: _Template,
    message: _Message,
    form: _Form = None,
    provider: _Provider = "openai",
    max: _Max = None,
    tokens: _Tokens = None,
    no_examples: _NoExamples = False,
    json: AsJson = False,
) -> None:
    """Show the exact messages that a session with this template would send before the first answer.

    They stand behind the system message of the agent. Tokens are estimated, a little too high. MCP
    servers in the settings are asked for their tools, as a chat does. A template in quarantine, or
    one that was retired, can be looked at like this too; no session starts from it.

    \b
    Examples:
      rekindle warm test demo 'fix the failing test'
      rekindle warm test demo 'fix the failing test' --form turns --provider mistral
    """
    config = settings()
    template = _templates(config).find(name)
    shown = template._replace(patterns=()) if no_examples else template
    with writing(new=True) as store:
        starter = _starter(config, store, form, provider, max, tokens, shown)
        prelude = starter.prelude(_newcomer(config, store, message))
    if no_examples:
        prelude = prelude._replace(why=_without_examples(prelude))
    if template.state != "active":
        is_ = "in quarantine" if template.state == "quarantined" else template.state
        note(f"“{template.name}” is {is_}: this is only a look, no session starts from it.")
    sent = [*prelude.messages, _user(message)]
    if json:
        told = {**_told(prelude), "state": template.state, "messages": _wire(sent, provider)}
        say(encode(told).decode())
        return
    if not prelude.messages:
        note(f"The session would start cold: {prelude.why}.")
        return
    _write_messages(sent)
    say(f"About {prelude.tokens:,} tokens before the message. {_sentence(prelude.why)}")


def _without_examples(prelude: Prelude) -> str:
    if prelude.messages:
        return "without its examples, as asked"
    return "without its examples the template says nothing"


def load(
    name: _Template,
    message: Annotated[
        str, typer.Option("--for", metavar="MESSAGE", help="Choose what fits this message.")
    ] = "",
    form: _Form = None,
    provider: _Provider = "openai",
    max: _Max = None,
    tokens: _Tokens = None,
    no_examples: _NoExamples = False,
    tool: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOOL", help="A tool that there is; may be given again. Default: all."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="JSON it is in any case.")] = False,
) -> None:
    """Print a template as messages in JSON, to begin a session of another program with.

    Put them behind the system message and before the first message of the user. Calls are shown as
    they were made, with the tools of then.

    \b
    Examples:
      rekindle warm load demo > prelude.json
      rekindle warm load demo --for 'fix the failing test' --form turns --tool Bash
    """
    from rekindle.agent.model.providers import RULES
    from rekindle.knowledge.render import CONTEXT, Manner, render
    from rekindle.knowledge.selection import Ask
    from rekindle.learning.warm_start import accepted, chosen_of

    config = settings()
    template = accepted(_templates(config).find(name))
    known = {step.tool for one in template.patterns for step in one.steps}
    tools = dict.fromkeys(known if tool is None else tool, _anything)
    most = _checked("--max", max, 1, 15) or config.warm.patterns
    choice = chosen_of(template, Ask(message, tools), most)
    manner = Manner(
        _form(form or config.warm.form),
        _checked("--tokens", tokens, 50, 100_000) or config.warm.tokens,
        most,
        not no_examples,
        CONTEXT,
        not RULES[_provider(provider)].signed,
    )
    found = render(template, choice.patterns, tools, manner)
    say(encode(_wire(found.messages, provider)).decode())


def pick(
    message: _Message,
    folder: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where the session works.", show_default=False),
    ] = None,
    max: _Max = None,
    json: AsJson = False,
) -> None:
    """Show which template a session with this first message would get, and why; or that none fits.

    MCP servers in the settings are asked for their tools, as a chat does.

    \b
    Examples:
      rekindle warm pick 'fix the failing test'
      rekindle warm pick 'fix the failing test' --json
    """
    from rekindle.learning.warm_start import tools_of

    config = settings()
    with writing(new=True) as store:
        starter = _starter(config, store, None, "openai", max, None, None)
        newcomer = _newcomer(config, store, message, folder)
        choice = starter.choose(newcomer, tools_of(newcomer.tools))
    if json:
        say(encode(_choice(choice)).decode())
        return
    _write_choice(choice)


# ── from the settings


def _templates(config: Config) -> Templates:
    from rekindle.learning.library import Templates

    return Templates.of_home(config.home)


def _starter(
    config: Config,
    store: Store,
    form: str | None,
    provider: str,
    most: int | None,
    tokens: int | None,
    template: Template | None,
) -> Starter:
    from rekindle.learning.warm_start import Starter, warming_of

    warming = warming_of(config)._replace(share_cold=0.0, enabled=True)
    if form is not None:
        warming = warming._replace(form=_form(form))
    if most is not None:
        warming = warming._replace(patterns=_checked("--max", most, 1, 8))
    if tokens is not None:
        warming = warming._replace(tokens=_checked("--tokens", tokens, 50, 100_000))
    found = _templates(config)
    return Starter(store, warming, templates=found, template=template, provider=_provider(provider))


def _newcomer(config: Config, store: Store, message: str, folder: Path | None = None) -> Newcomer:
    """A session that a chat would begin here, with the tools that it would have."""
    import asyncio

    from rekindle.agent.tools.tool import ToolContext
    from rekindle.learning.warm_start import Newcomer

    if not message.strip():
        raise InvalidInput("MESSAGE: nothing was said; give the first message of a session")
    here = (folder or Path.cwd()).expanduser().absolute()
    context = ToolContext("", here, owner="", store=store, notes={})
    outlive_connections()  # a server may die while it is asked
    tools = asyncio.run(_definitions(config, context))
    end_with_the_pipe()
    return Newcomer(store.begin(), message, tools, str(here))


async def _definitions(config: Config, context: ToolContext) -> list[dict[str, JSON]]:
    """What the model of a chat is told about its tools; servers are asked as a chat asks them."""
    from contextlib import aclosing

    from rekindle.agent.toolkit import equipped
    from rekindle.learning.warm_session_tool import tool_of
    from rekindle.processes.from_config import processes_of

    more = [tool_of(config, shared=False)]
    async with (
        aclosing(processes_of(config)) as processes,
        equipped(config, None, more, processes) as equipment,
    ):
        for problem in equipment.problems:
            note(printable(f"MCP: {problem}"))
        return equipment.toolbox.definitions(context)


def _form(form: str) -> Form:
    from rekindle.knowledge.render import FORMS

    for known in FORMS:
        if form == known:
            return known
    raise InvalidInput(f"--form: {form!r:.40} is not one of {', '.join(FORMS)}")


def _provider(name: str) -> Provider:
    from rekindle.agent.model.providers import PROVIDERS

    for known in PROVIDERS:
        if name == known:
            return known
    raise InvalidInput(f"--provider: {name!r:.40} is not one of {', '.join(PROVIDERS)}")


def _checked(option: str, value: int | None, least: int, most: int) -> int:
    if value is not None and not least <= value <= most:
        raise InvalidInput(f"{option}: expected a number from {least} to {most:,}, got {value}")
    return value or 0


def _anything(_: Mapping[str, JSON]) -> bool:
    return True


# ── for people and for programs


def _user(text: str) -> Message:
    from rekindle.types import Message

    return Message("user", text)


def _wire(messages: Sequence[Message], provider: str) -> list[dict[str, Any]]:
    from rekindle.agent.model.chat_completions import chat_message

    return [dict(chat_message(message, _provider(provider), "")) for message in messages]


def _told(prelude: Prelude) -> dict[str, Any]:
    return {
        "template": prelude.template,
        "revision": prelude.revision,
        "patterns": list(prelude.patterns),
        "tokens": prelude.tokens,
        "hash": prelude.hash,
        "why": prelude.why,
    }


def _choice(choice: Choice) -> dict[str, Any]:
    from rekindle.types import plain

    head = choice.template
    return {
        "template": head.id if head else None,
        "name": head.name if head else None,
        "revision": head.revision if head else None,
        "why": choice.why,
        "patterns": [
            {**plain(one.pattern), "fit": one.fit, "words": list(one.words), "here": one.here}
            for one in choice.picked
        ],
        "considered": [plain(one) for one in choice.considered],
    }


def _write_messages(messages: Sequence[Message]) -> None:
    for message in messages:
        say(f"── {message.role}")
        if message.text:
            say(printable(message.text))
        for call in message.tool_calls:
            say(f"→ {call.name} {printable(str(call.arguments))}")
        say()


def _write_choice(choice: Choice) -> None:
    if choice.template is None:
        say(f"None: {choice.why}. The session would start cold.")
    else:
        say(f"{choice.template.name} ({choice.template.id}): {choice.why}.")
        say()
        for one in choice.picked:
            what = one.pattern.asked or ", ".join(step.tool for step in one.pattern.steps)
            here = ", from this folder" if one.here else ""
            say(f"  {one.fit:.2f}  {one_line(printable(what), 100)}{here}")
    others = [
        one
        for one in choice.considered
        if choice.template is None or one.template != choice.template.id
    ]
    if others:
        say()
        say("Looked at too:")
        for one in others:
            say(f"  {one.fit:.2f}  {one.name}: {one.why}")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith((".", "!", "?")) else ".")
