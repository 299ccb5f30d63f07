"""The command tree, and the mapping of errors to one line on stderr and an exit code."""

from __future__ import annotations

import sys
from functools import cache
from typing import Annotated, Any, cast

import typer

from rekindle.config import mask_secrets
from rekindle.errors import InvalidInput, NotFound, RekindleError

from . import chat, config, gateway, hook, service, setup, store_access, watch
from .agents import doctor, install
from .help import CommandGroup
from .insights import commands as insights
from .insights import usage
from .mcp import serve as mcp
from .mcp import skills
from .output import escape_control_chars
from .processes import commands as processes
from .sessions import edit, maintenance, read, restore, retention, transfer
from .warm import templates

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

# The base class of all usage errors; its import path differs between typer versions.
_UsageError: type[Exception] = typer.BadParameter.__mro__[2]

app = typer.Typer(
    cls=CommandGroup,
    name="rekindle",
    help="Store, resume and learn from AI agent sessions.",
    epilog="Get started with: rekindle start",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def apply_global_options(
    store: Annotated[
        str | None,
        typer.Option(
            metavar="PATH_OR_URL",
            help="Store to use: a SQLite file or a postgresql:// URL.",
            show_default="setting store.url",
        ),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Show the version and exit.")
    ] = False,
) -> None:
    if version:
        from rekindle import __version__

        sys.stdout.write(f"rekindle {__version__}\n")
        raise typer.Exit
    store_access.set_store_override(store)


setup.register(app)
watch.register(app)
install.register(app)
doctor.register(app)
config.register(app)
insights.register(app)
usage.register(app)
chat.register(app)
templates.register(app)
processes.register(app)
hook.register(app)
mcp.register(app)
skills.register(app)
app.add_typer(read.group, name="sessions")
app.add_typer(gateway.group, name="gateway")
app.add_typer(service.group, name="service")
for command_module in (read, edit, retention, transfer, restore, maintenance):
    command_module.register(read.group)


@cache
def build_command_tree() -> Any:
    """Build the tree of commands from the signatures of their functions."""
    return typer.main.get_command(app)


def run_command_line(arguments: list[str]) -> int:
    """Run one command line and return its exit code: 0 ok, 1 failure, 2 usage error."""
    _escape_unencodable_output()
    store_access.restore_sigpipe()
    try:
        words = _move_store_option_first(arguments)
        code = build_command_tree()(words, prog_name="rekindle", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else OK
    except _UsageError as problem:
        return _report_usage_error(problem)
    except (InvalidInput, NotFound) as error:
        return _report_error(error, USAGE)
    except RekindleError as error:
        return _report_error(error, FAILED)
    except UnicodeEncodeError as error:
        text = error.object.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        return _report_error(f"{text}: not valid UTF-8", USAGE)
    except OSError as error:
        return _report_error(_describe_os_error(error), FAILED)
    except typer.Abort:
        return _report_error("Aborted. Nothing was changed.", FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED


def _move_store_option_first(arguments: list[str]) -> list[str]:
    """Move `--store` to the front, so that users can pass it anywhere."""
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


def _report_usage_error(problem: Exception) -> int:
    context: Any = getattr(problem, "ctx", None)
    path: str = context.command_path if context else "rekindle"
    message = str(cast("Any", problem).format_message())
    if type(problem).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(f"{message}\n")
    else:
        end = "" if message.endswith((".", "?")) else "."
        _report_error(f"{message}{end} See '{path} --help'.", USAGE)
    return USAGE


def _report_error(problem: object, code: int) -> int:
    text = mask_secrets(escape_control_chars(" ".join(str(problem).split())))
    sys.stdout.flush()
    sys.stderr.write(f"rekindle: {text}\n")
    return code


def _describe_os_error(error: OSError) -> str:
    message = error.strerror or str(error)
    return f"{error.filename}: {message}" if error.filename else message


def _escape_unencodable_output() -> None:
    """Escape characters that the terminal cannot encode instead of failing on them."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure:
            reconfigure(errors="backslashreplace")
