"""`rekindle chat`: a conversation with an agent, at a terminal, in a pipe, or for a program."""

from __future__ import annotations

from typing import Annotated

import typer

from ..output import AsJson


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command("chat")(chat)


def chat(
    name: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SESSION]...",
            help="With --resume: a title, an id, or the beginning of one.",
            show_default=False,
        ),
    ] = None,
    go_on: Annotated[
        bool, typer.Option("--continue", "-c", help="Continue the newest conversation.")
    ] = False,
    resume: Annotated[
        bool,
        typer.Option("--resume", "-r", help="Resume a conversation; without a name, choose one."),
    ] = False,
    fork: Annotated[
        bool, typer.Option("--fork", help="With -c or -r: go on in a copy, and leave it as it is.")
    ] = False,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="NAME", help="The model to ask.", show_default=False),
    ] = None,
    tools: Annotated[
        list[str] | None,
        typer.Option(
            "--tools",
            metavar="NAMES",
            help="Only these tools or toolsets, separated by commas.",
            show_default=False,
        ),
    ] = None,
    no_tools: Annotated[bool, typer.Option("--no-tools", help="No tools at all.")] = False,
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
    if title and not resume:
        raise typer.BadParameter(f"to resume {title!r:.60} say: rekindle chat --resume {title}")
    if go_on and resume:
        raise typer.BadParameter("--continue and --resume are two things: give one of them")
    if fork and not (go_on or resume):
        raise typer.BadParameter("--fork needs --continue or --resume")
    if tools and no_tools:
        raise typer.BadParameter("--tools and --no-tools exclude each other")
    from .run import Wish, chat

    wish = Wish(
        go_on=go_on,
        resume=title if resume else None,
        fork=fork,
        model=model,
        tools=() if no_tools else _names(tools),
        json=json,
    )
    if code := chat(wish):
        raise typer.Exit(code)


def _names(words: list[str] | None) -> tuple[str, ...] | None:
    if words is None:
        return None
    return tuple(name.strip() for word in words for name in word.split(",") if name.strip())
