"""`rekindle chat`: a conversation with an agent, on a terminal, in a pipe, or for a program."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from rekindle.cli.output import JsonOption

_SessionArgument: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SESSION]...",
        help="With --resume: session title, id, or id prefix.",
        show_default=False,
    ),
]
_ContinueOption: TypeAlias = Annotated[
    bool, typer.Option("--continue", "-c", help="Continue the most recent conversation.")
]
_ResumeOption: TypeAlias = Annotated[
    bool, typer.Option("--resume", "-r", help="Resume a conversation; without a name, pick one.")
]
_ForkOption: TypeAlias = Annotated[
    bool, typer.Option("--fork", help="With -c or -r: continue in a copy of the conversation.")
]
_ModelOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--model", "-m", metavar="NAME", help="Model to use.", show_default=False),
]
_ToolsOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--tools",
        metavar="NAMES",
        help="Enable only these tools or toolsets, comma-separated.",
        show_default=False,
    ),
]
_ColdOption: TypeAlias = Annotated[
    bool, typer.Option("--cold", help="Start cold, without a template.")
]
_TemplateOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--template", metavar="NAME", help="Start with this template.", show_default=False
    ),
]
_NoToolsOption: TypeAlias = Annotated[bool, typer.Option("--no-tools", help="Disable all tools.")]


def start_chat(
    name: _SessionArgument = None,
    continue_last: _ContinueOption = False,
    resume: _ResumeOption = False,
    fork: _ForkOption = False,
    model: _ModelOption = None,
    tools: _ToolsOption = None,
    no_tools: _NoToolsOption = False,
    cold: _ColdOption = False,
    template: _TemplateOption = None,
    json: JsonOption = False,
) -> None:
    """Chat with an agent. In a pipe, stdin is the prompt and only the answer goes to stdout.

    Ctrl-C stops an answer, Ctrl-D exits, /help lists the commands. With --json, events are printed
    as one JSON object per line.

    \b
    Examples:
      rekindle chat
      rekindle chat -c
      rekindle chat -r My Project --fork
      git diff | rekindle chat --tools files
      echo 'What is the capital of France?' | rekindle chat --json
    """
    title = " ".join(name or ())
    problems = {
        f"to resume {title!r:.60} use: rekindle chat --resume {title}": title and not resume,
        "--continue and --resume cannot be combined": continue_last and resume,
        "--fork requires --continue or --resume": fork and not (continue_last or resume),
        "--cold and --template cannot be combined": cold and template,
        "--cold and --template only apply to new conversations": (cold or template)
        and (continue_last or resume),
        "--tools and --no-tools cannot be combined": tools and no_tools,
    }
    for problem in (text for text, holds in problems.items() if holds):
        raise typer.BadParameter(problem)
    from .session import ChatOptions, run_chat  # deferred: loads the model client

    options = ChatOptions(
        continue_last=continue_last,
        resume=title if resume else None,
        fork=fork,
        model=model,
        tools=() if no_tools else _split_names(tools),
        json=json,
        cold=cold,
        template=template,
    )
    if code := run_chat(options):
        raise typer.Exit(code)


def _split_names(words: list[str] | None) -> tuple[str, ...] | None:
    if words is None:
        return None
    return tuple(name.strip() for word in words for name in word.split(",") if name.strip())
