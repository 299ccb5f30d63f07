"""`rekindle chat`: a conversation with an agent, at a terminal, in a pipe, or for a program."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from rekindle.cli.output import AsJson

_Name: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SESSION]...",
        help="With --resume: a title, an id, or the beginning of one.",
        show_default=False,
    ),
]
_GoOn: TypeAlias = Annotated[
    bool, typer.Option("--continue", "-c", help="Continue the newest conversation.")
]
_Resume: TypeAlias = Annotated[
    bool, typer.Option("--resume", "-r", help="Resume a conversation; without a name, choose one.")
]
_Fork: TypeAlias = Annotated[
    bool, typer.Option("--fork", help="With -c or -r: go on in a copy, and leave it as it is.")
]
_Model: TypeAlias = Annotated[
    str | None,
    typer.Option("--model", "-m", metavar="NAME", help="The model to ask.", show_default=False),
]
_Tools: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--tools",
        metavar="NAMES",
        help="Only these tools or toolsets, separated by commas.",
        show_default=False,
    ),
]
_Cold: TypeAlias = Annotated[
    bool, typer.Option("--cold", help="Begin with nothing of what earlier sessions have shown.")
]
_Template: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--template", metavar="NAME", help="Begin with this template.", show_default=False
    ),
]
_NoTools: TypeAlias = Annotated[bool, typer.Option("--no-tools", help="No tools at all.")]


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command("chat")(chat)


def chat(
    name: _Name = None,
    go_on: _GoOn = False,
    resume: _Resume = False,
    fork: _Fork = False,
    model: _Model = None,
    tools: _Tools = None,
    no_tools: _NoTools = False,
    cold: _Cold = False,
    template: _Template = None,
    json: AsJson = False,
) -> None:
    """Talk with an agent. In a pipe, what comes in is asked, and the answer alone goes out.

    Ctrl-C stops an answer, Ctrl-D leaves, /help shows the commands. With --json every event is
    one JSON object on a line of its own.

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
        f"to resume {title!r:.60} say: rekindle chat --resume {title}": title and not resume,
        "--continue and --resume are two things: give one of them": go_on and resume,
        "--fork needs --continue or --resume": fork and not (go_on or resume),
        "--cold and --template exclude each other": cold and template,
        "--cold and --template are for new conversations": (cold or template) and (go_on or resume),
        "--tools and --no-tools exclude each other": tools and no_tools,
    }
    for problem in (text for text, holds in problems.items() if holds):
        raise typer.BadParameter(problem)
    from .session import Wish, chat  # only now: it loads the model client

    wish = Wish(
        go_on=go_on,
        resume=title if resume else None,
        fork=fork,
        model=model,
        tools=() if no_tools else _names(tools),
        json=json,
        cold=cold,
        template=template,
    )
    if code := chat(wish):
        raise typer.Exit(code)


def _names(words: list[str] | None) -> tuple[str, ...] | None:
    if words is None:
        return None
    return tuple(name.strip() for word in words for name in word.split(",") if name.strip())
