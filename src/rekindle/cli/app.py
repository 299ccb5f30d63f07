"""The tree of commands, and what becomes of an error: one line and an exit code."""

from __future__ import annotations

import sys
from typing import Annotated, Any, cast

import typer

from rekindle.config import masked
from rekindle.errors import InvalidInput, NotFound, RekindleError

from . import chat, config, gateway, setup, store_access
from .insights import commands as insights
from .output import printable
from .processes import commands as processes
from .sessions import edit, maintenance, read, retention, transfer
from .warm import templates

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

# The parent of all mistakes on the command line, wherever this version of typer keeps it.
_UsageProblem: type[Exception] = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="rekindle",
    help="Sessions of AI agents that survive, resume, and start warm.",
    epilog="Start with:  rekindle start",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def choose(
    store: Annotated[
        str | None,
        typer.Option(
            metavar="PATH_OR_URL",
            help="The store to use: a SQLite file or postgresql://…",
            show_default="the setting store.url",
        ),
    ] = None,
    version: Annotated[bool, typer.Option("--version", "-V", help="Show the version.")] = False,
) -> None:
    if version:
        from rekindle import __version__

        sys.stdout.write(f"rekindle {__version__}\n")
        raise typer.Exit
    store_access.choose(store)


setup.register(app)
config.register(app)
insights.register(app)
chat.register(app)
templates.register(app)
processes.register(app)
app.add_typer(read.group, name="sessions")
app.add_typer(gateway.group, name="gateway")
for part in (read, edit, retention, transfer, maintenance):
    part.register(read.group)


def run(arguments: list[str]) -> int:
    """Run one command line; the exit code is 0 ok, 1 failed, 2 wrong use."""
    _speak_any_text()
    store_access.end_with_the_pipe()
    try:
        code = app(_store_first(arguments), prog_name="rekindle", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else OK
    except _UsageProblem as problem:
        return _usage(problem)
    except (InvalidInput, NotFound) as error:
        return _say(error, USAGE)
    except RekindleError as error:
        return _say(error, FAILED)
    except OSError as error:
        return _say(_about(error), FAILED)
    except typer.Abort:
        return _say("nothing was changed", FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED


def _store_first(arguments: list[str]) -> list[str]:
    """Let `--store` stand anywhere: move it to the front, where the command tree expects it."""
    front: list[str] = []
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            return [*front, *rest, word, *words]
        if word == "--store":
            front += [word, *(value for value in [next(words, None)] if value is not None)]
        else:
            (front if word.startswith("--store=") else rest).append(word)
    return front + rest


def _usage(problem: Exception) -> int:
    context: Any = getattr(problem, "ctx", None)
    path: str = context.command_path if context else "rekindle"
    message = str(cast("Any", problem).format_message())
    if type(problem).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(f"{message}\n")
    else:
        end = "" if message.endswith((".", "?")) else "."
        _say(f"{message}{end} See '{path} --help'.", USAGE)
    return USAGE


def _say(problem: object, code: int) -> int:
    text = masked(printable(" ".join(str(problem).split())))
    sys.stdout.flush()
    sys.stderr.write(f"rekindle: {text}\n")
    return code


def _about(error: OSError) -> str:
    what = error.strerror or str(error)
    return f"{error.filename}: {what}" if error.filename else what


def _speak_any_text() -> None:
    """Words that the terminal's encoding cannot show are escaped; they never stop a command."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure:
            reconfigure(errors="backslashreplace")
