"""`rekindle service`: keep a command running with systemd or launchd."""

from __future__ import annotations

import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.config import get_home_and_env

from .help import CommandGroup
from .output import DryRunOption, JsonOption, print_json, print_line, print_notice
from .store_access import load_settings

if TYPE_CHECKING:
    from rekindle.services.manager import ServiceManager

group = typer.Typer(
    cls=CommandGroup,
    help="Keep `rekindle watch` running with systemd or launchd.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class ServiceChoice(StrEnum):
    """A command that can run as a service."""

    watch = "watch"


_ServiceArgument = Annotated[ServiceChoice, typer.Argument(help="Command to keep running.")]


@group.command("install")
def install_command(
    service: _ServiceArgument = ServiceChoice.watch, dry_run: DryRunOption = False
) -> None:
    """Install and start the service of this user, or bring it up to date.

    \b
    Examples:
      rekindle service install --dry-run
      rekindle service install
    """
    from rekindle.services.manager import install_service

    manager = _choose_manager(service)
    if dry_run:
        print_line(f"Would write {manager.file}:")
        print_line()
        print_line(manager.render_file())
        print_line("Would run:")
        for words in manager.list_start_commands():
            print_line(f"  {' '.join(words)}")
        return
    is_changed = install_service(manager)
    print_line(f"{'Wrote' if is_changed else 'Already there:'} {manager.file}")
    print_line(f"The service {service.value} is running. See `rekindle service logs`.")
    if sys.platform.startswith("linux"):
        print_line("It stops when you log out, unless you run: loginctl enable-linger")
    origins = load_settings().origins.values()
    if ignored := [origin for origin in origins if origin.startswith("environment")]:
        print_notice(
            f"Note: the service does not see settings from the {', '.join(ignored)};"
            f" put them into {load_settings().file}."
        )


@group.command("uninstall")
def uninstall_command(
    service: _ServiceArgument = ServiceChoice.watch, dry_run: DryRunOption = False
) -> None:
    """Stop the service and remove it.

    \b
    Examples:
      rekindle service uninstall
    """
    from rekindle.services.manager import remove_service

    manager = _choose_manager(service)
    if dry_run:
        if manager.file.exists():
            for words in manager.list_stop_commands():
                print_line(f"Would run: {' '.join(words)}")
            print_line(f"Would remove {manager.file}")
        else:
            print_line(f"Not installed: {manager.file}")
    elif remove_service(manager):
        print_line(f"Stopped and removed {manager.file}")
    else:
        print_line(f"Not installed: {manager.file}")


@group.command("status")
def show_status(service: _ServiceArgument = ServiceChoice.watch, json: JsonOption = False) -> None:
    """Show whether the service is installed and running; exit with code 1 if it is not running.

    \b
    Examples:
      rekindle service status
      rekindle service status --json
    """
    from rekindle.watching.lock import find_running_watcher

    status = _choose_manager(service).query_status()
    # A watcher may also have been started by hand.
    watcher = find_running_watcher(load_settings().home)
    if json:
        print_json({**status._asdict(), "watcher": watcher})
    else:
        installed = f"installed as {status.file}" if status.installed else "not installed"
        process = f", process {status.pid}" if status.pid else ""
        print_line(f"{status.name}: {installed}; {status.state}{process}")
        if watcher is not None and watcher != status.pid:
            print_line(f"A watcher that is not the service is running, process {watcher}.")
    if not status.running:
        raise typer.Exit(1)


@group.command("logs")
def show_logs(
    service: _ServiceArgument = ServiceChoice.watch,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="Number of lines.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more lines.")] = False,
) -> None:
    """Show the last lines of the service's log.

    \b
    Examples:
      rekindle service logs
      rekindle service logs -n 200 --follow
    """
    words = _choose_manager(service).build_log_command(lines, follow=follow)
    sys.stdout.flush()
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        from rekindle.errors import ServiceError

        raise ServiceError(f"{words[0]} is not installed.") from None
    if done.returncode:
        raise typer.Exit(1)


def _choose_manager(service: ServiceChoice) -> ServiceManager:
    from rekindle.services.definition import build_service
    from rekindle.services.manager import choose_manager
    from rekindle.transcripts.discovery import LOCATION_VARIABLES

    home, env = get_home_and_env()
    config = load_settings()
    passed = {name: env[name] for name in ("REKINDLE_HOME", *LOCATION_VARIABLES) if env.get(name)}
    if "REKINDLE_HOME" in passed:  # relative to this folder, which the service does not have
        passed["REKINDLE_HOME"] = str(config.home)
    program = [str(Path(sys.executable).absolute()), "-m", "rekindle.cli"]
    if config.origins["store.url"].startswith("command line"):
        program += ["--store", config.store.url]
    definition = build_service(service.value, program, passed, config.home)
    return choose_manager(definition, home, env)
