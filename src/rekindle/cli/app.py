"""The command tree, and the mapping of errors to one line on stderr and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, cast

import typer

from rekindle.config import mask_secrets
from rekindle.errors import InvalidInput, NotFound, RekindleError

from . import chat, config, gateway, hook, service, setup, store_access, watch
from .agents import doctor, install
from .api import push
from .api.serve import group as serve_group
from .help import MAX_HELP_WIDTH, CommandGroup
from .insights import calls, usage
from .insights import commands as insights
from .matrix import group as matrix_group
from .mcp import serve as mcp
from .mcp import skills
from .processes import commands as processes
from .sessions import (
    edit,
    maintenance,
    projects,
    read,
    restore,
    resume,
    retention,
    send,
    share,
    transfer,
)
from .tenants import group as tenants_group
from .terminal.pager import disable_pager
from .terminal.text import escape_control_chars, escape_unencodable_output
from .warm import distill, experiment, lessons, notes, playbook, preview, replay
from .warm import share as template_share
from .warm.templates import group as warm_group
from .web.serve import group as web_group

_GLOBAL_FLAGS = ("--no-refresh", "--no-pager")
_LISTS = {  # what to read after a message of the store
    "Session not found": "List sessions with `rekindle sessions list`.",
    "Job not found": "List jobs with `rekindle schedule list`.",
}
_NUMBER_TYPES = ("integer range", "int range", "float range", "integer", "int", "float")
OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

# The base class of all usage errors; its import path differs between typer versions.
_UsageError: type[Exception] = typer.BadParameter.__mro__[2]

app = typer.Typer(
    cls=CommandGroup,
    name="rekindle",
    help="Find, resume and learn from the sessions of your AI agents.\n\n"
    "Without a command, rekindle opens a picker: type to search all sessions, press Enter to resume"
    " one in its own agent and folder. In a pipe, it lists the latest sessions.",
    epilog="Get started with: rekindle start",
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": MAX_HELP_WIDTH},
)


@app.callback()
def apply_global_options(
    context: typer.Context,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="PATH_OR_URL",
            help="Store to use: a SQLite file or a postgresql:// URL.",
            show_default="setting store.url",
        ),
    ] = None,
    no_refresh: Annotated[
        bool,
        typer.Option("--no-refresh", help="Do not import new sessions before reading."),
    ] = False,
    no_pager: Annotated[
        bool, typer.Option("--no-pager", help="Write long output to the terminal, not to a pager.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Show the version and exit.")
    ] = False,
) -> None:
    if version:
        from rekindle import __version__

        sys.stdout.write(f"rekindle {__version__}\n")
        raise typer.Exit
    store_access.set_store_override(store)
    store_access.set_refresh(not no_refresh)
    if no_pager:
        disable_pager()
    if context.invoked_subcommand is None:
        from .picker.launch import open_picker

        raise typer.Exit(open_picker())


_COMMANDS: Mapping[str, Callable[..., Any]] = {
    "start": setup.import_local_sessions,
    "import": setup.import_files,
    "watch": watch.watch_sessions,
    "push": push.push_transcripts,
    "install": install.install_agents,
    "uninstall": install.uninstall_agents,
    "doctor": doctor.check_agents,
    "config": config.show_settings,
    "search": read.search_messages,
    "projects": projects.list_projects,
    "calls": calls.list_calls,
    "profile": insights.profile,
    "compare": insights.compare,
    "compress-check": insights.compress_check,
    "insights": insights.show_insights,
    "usage": usage.show_usage,
    "share": share.share_session,
    "chat": chat.start_chat,
    "resume": resume.resume_session,
    "lessons": lessons.show_lessons,
    "run": processes.start_process,
    "ps": processes.ps,
    "logs": processes.logs,
    "wait": processes.wait,
    "kill": processes.kill,
    "restart": processes.restart,
    "send": processes.send,
    "attach": processes.attach,
    "hook": hook.hook,
    "mcp": mcp.serve_mcp,
}
_SESSION_COMMANDS: Mapping[str, Callable[..., Any]] = {
    "list": read.list_sessions,
    "show": read.show_session,
    "search": read.search_messages,
    "rename": edit.rename,
    "fork": edit.fork,
    "undo": edit.undo,
    "redo": edit.redo,
    "end": edit.end,
    "reopen": edit.reopen,
    "archive": retention.archive,
    "prune": retention.prune,
    "restore": retention.restore,
    "export": transfer.export_sessions,
    "import": transfer.import_sessions,
    "copy": transfer.copy_store,
    "send": send.send_sessions,
    "restore-to": restore.restore_session,
    "verify": maintenance.verify,
    "repair": maintenance.repair,
    "backup": maintenance.backup,
    "stats": maintenance.stats,
}
_WARM_COMMANDS: Mapping[str, Callable[..., Any]] = {
    "export": template_share.export_template_file,
    "import": template_share.import_template_file,
    "accept": template_share.accept,
    "retire": template_share.retire,
    "merge": template_share.merge,
    "test": preview.preview_template,
    "load": preview.print_template_messages,
    "pick": preview.pick_template,
    "learn": notes.learn_sessions,
    "recall": notes.recall_notes,
    "replay": replay.replay_history,
    "distill": distill.distill_notes,
    "profile": insights.profile,
    "compress-check": insights.compress_check,
    "compare": insights.compare,
}
_COMMAND_OPTIONS: Mapping[str, Any] = {
    "search": {"cls": read.SearchCommand},
    "run": {"context_settings": {"allow_interspersed_args": False}},
}
_GROUPS = {
    "warm": warm_group,
    "skill": skills.skill_group,
    "plugin": skills.plugin_group,
    "sessions": read.group,
    "gateway": gateway.group,
    "schedule": gateway.schedule.group,
    "deliver": gateway.deliver.group,
    "memory": gateway.memory.group,
    "service": service.group,
    "matrix": matrix_group,
    "web": web_group,
    "serve": serve_group,
    "tenants": tenants_group,
}
for parent, commands in (
    (app, _COMMANDS),
    (read.group, _SESSION_COMMANDS),
    (warm_group, _WARM_COMMANDS),
):
    for name, command in commands.items():
        parent.command(name, **_COMMAND_OPTIONS.get(name, {}))(command)
for name, group in _GROUPS.items():
    app.add_typer(group, name=name)
warm_group.add_typer(playbook.group, name="notes")
warm_group.add_typer(experiment.group, name="experiment")


@cache
def build_command_tree() -> Any:
    """Build the tree of commands from the signatures of their functions."""
    return typer.main.get_command(app)


def run_command_line(arguments: list[str]) -> int:
    """Run one command line and return its exit code: 0 ok, 1 failure, 2 usage error."""
    escape_unencodable_output()
    store_access.restore_sigpipe()
    try:
        words = _move_global_options_first(arguments)
        code = build_command_tree()(words, prog_name="rekindle", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else OK
    except BaseException as error:  # noqa: BLE001 -- raised again if unknown
        return report_failure(error, arguments)


def report_failure(problem: BaseException, arguments: Sequence[str] = ()) -> int:
    """Report the error of a command on one line, and return its exit code."""
    try:
        raise problem
    except typer.Exit as end:
        return end.exit_code
    except _UsageError as error:
        return _report_usage_error(error, arguments)
    except (InvalidInput, NotFound) as error:
        return _report_error(_add_hint(str(error)), USAGE)
    except RekindleError as error:
        return _report_error(error, FAILED)
    except UnicodeEncodeError as error:
        text = error.object.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        return _report_error(f"{text}: not valid UTF-8", USAGE)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        return _report_error(_describe_os_error(error), USAGE if error.filename else FAILED)
    except OSError as error:
        return _report_error(_describe_os_error(error), FAILED)
    except typer.Abort:
        return _report_error("Aborted. Nothing was changed.", FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED


def _add_hint(message: str) -> str:
    """Add to the message of the store how to list what there is."""
    for start, hint in _LISTS.items():
        if message.startswith(start) and "`" not in message:
            return f"{message.rstrip('.')}. {hint}"
    return message


def _move_global_options_first(arguments: list[str]) -> list[str]:
    """Move options of the whole program to the front, so that users can pass them anywhere."""
    front: list[str] = []
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            return [*front, *rest, word, *words]
        if word == "--store":
            front += [word, *(value for value in [next(words, None)] if value is not None)]
        elif word in _GLOBAL_FLAGS and rest[:1] != ["run"]:  # else the option of its program
            front.append(word)
        else:
            (front if word.startswith("--store=") else rest).append(word)
    return front + rest


def _find_command_path(arguments: Sequence[str]) -> str:
    """Return the names of the command that a command line begins with."""
    tree, path, words = build_command_tree(), ["rekindle"], iter(arguments)
    for word in words:
        found = getattr(tree, "commands", {}).get(word)
        if found is not None:
            tree = found
            path.append(word)
        elif word == "--store":
            next(words, None)
        elif not word.startswith("-"):
            break
    return " ".join(path)


def _report_usage_error(problem: Exception, arguments: Sequence[str]) -> int:
    context: Any = getattr(problem, "ctx", None)
    path: str = context.command_path if context else _find_command_path(arguments)
    message = str(cast("Any", problem).format_message()).removeprefix("Invalid value: ")
    for name in _NUMBER_TYPES:
        message = message.replace(f"is not a valid {name}.", "is not a number.")
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
