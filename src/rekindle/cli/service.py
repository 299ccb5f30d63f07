"""`rekindle service`: keep the watcher or the gateway running with systemd or launchd."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from rekindle.config import get_home_and_env

from .help import create_group
from .output import DryRunOption, JsonOption, print_json, print_line, print_notice
from .store_access import load_settings

if TYPE_CHECKING:
    from rekindle.services.manager import ServiceManager

group = create_group("Keep `rekindle watch` or the gateway running with systemd or launchd.")


_ServiceChoice: TypeAlias = Literal["watch", "gateway"]
_ServiceArgument = Annotated[_ServiceChoice, typer.Argument(help="What to keep running.")]
_STOP_MARGIN = 15.0  # seconds that a gateway gets beside those for its turns


@group.command("install")
def install_command(service: _ServiceArgument = "watch", dry_run: DryRunOption = False) -> None:
    """Install and start the user service, or update it.

    \b
    Examples:
      rekindle service install --dry-run
      rekindle service install
      rekindle service install gateway
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
    logs = f"rekindle service logs {service}"
    print_line(f"The service {service} is running. See `{logs}`.")
    if sys.platform.startswith("linux"):
        print_line("It stops when you log out, unless you run: loginctl enable-linger")
    origins = load_settings().origins.values()
    if ignored := [origin for origin in origins if origin.startswith("environment")]:
        print_notice(
            f"Note: the service does not see settings from the {', '.join(ignored)};"
            f" put them into {load_settings().file}."
        )


@group.command("uninstall")
def uninstall_command(service: _ServiceArgument = "watch", dry_run: DryRunOption = False) -> None:
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
def show_status(service: _ServiceArgument = "watch", json: JsonOption = False) -> None:
    """Show whether the service is installed and running; exit with code 1 if it is not running.

    \b
    Examples:
      rekindle service status
      rekindle service status --json
    """
    status = _choose_manager(service).query_status()
    running = _list_processes(service)  # it may also have been started by hand
    if json:
        more = {"watcher": next(iter(running), None)} if service == "watch" else {}
        print_json({**status._asdict(), **more, "processes": running})
    else:
        state = f"; {status.state}" if status.running or status.state != "unknown" else ""
        process = f", process {status.pid}" if status.pid else ""
        if status.installed:
            print_line(f"{status.name}: installed as {status.file}{state}{process}")
        else:
            install = f"Install it with `rekindle service install {service}`."
            print_line(f"{status.name}: not installed{state}{process}. {install}")
        for pid in running:
            if pid != status.pid:
                what = "watcher" if service == "watch" else "gateway"
                print_line(f"A {what} that is not the service is running, process {pid}.")
    if not status.running:
        raise typer.Exit(1)


@group.command("logs")
def show_logs(
    service: _ServiceArgument = "watch",
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="Number of lines.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep showing new lines.")] = False,
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


def _list_processes(service: _ServiceChoice) -> list[int]:
    """List the processes in this home that do the work of the service."""
    home = load_settings().home
    if service == "watch":
        from rekindle.watching.lock import find_running_watcher

        watcher = find_running_watcher(home)
        return [] if watcher is None else [watcher]
    from rekindle.gateway.service.instance import list_running_instances

    pids = [one.get("pid") for one in list_running_instances(home)]
    return [pid for pid in pids if isinstance(pid, int)]


def _choose_manager(service: _ServiceChoice) -> ServiceManager:
    from rekindle.services.definition import DEFAULT_STOP_SECONDS, build_service
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
    stop_seconds = DEFAULT_STOP_SECONDS
    if service == "gateway":
        stop_seconds = config.gateway.grace_seconds + _STOP_MARGIN
    definition = build_service(service, program, passed, config.home, stop_seconds)
    return choose_manager(definition, home, env)
