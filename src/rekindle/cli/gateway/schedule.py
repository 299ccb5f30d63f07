"""`rekindle schedule`: prompts and commands that the gateway runs by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.cli.help import create_group
from rekindle.cli.output import (
    Column,
    JsonOption,
    escape_control_chars,
    print_json,
    print_line,
    write_json_array,
    write_table,
)
from rekindle.cli.store_access import load_settings, open_for_reading, open_for_writing
from rekindle.errors import InvalidInput

if TYPE_CHECKING:
    from rekindle.store.conversations.jobs import JobRun, ScheduledJob

group = create_group("Run prompts and commands at set times.")
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Job id or name.")]
OPERATOR = "operator"  # owner of the jobs that are made on the command line


@group.command("add")
def add_job(
    when: Annotated[str, typer.Argument(help="When to run it; see the examples.")],
    prompt: Annotated[str | None, typer.Argument(help="Prompt for the session.")] = None,
    command: Annotated[
        str | None, typer.Option("--command", "-c", help="A shell command to run instead.")
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the job.")] = "",
    deliver: Annotated[
        str,
        typer.Option(
            help="Where the result goes: local (a folder), PLATFORM (its home chat), or"
            " PLATFORM:CHAT[:THREAD]."
        ),
    ] = "local",
    zone: Annotated[str, typer.Option(help="Time zone, such as Europe/Berlin.")] = "",
    same_session: Annotated[
        bool, typer.Option("--same-session", help="Continue one session in all runs.")
    ] = False,
    silent: Annotated[
        bool, typer.Option("--silent", help="Deliver only if there is something to report.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Add a job. A running gateway runs it; results are delivered and kept.

    \b
    Examples:
      rekindle schedule add 30m 'Remind me of the tea'
      rekindle schedule add 'every 2h' 'Check the build' --deliver matrix --silent
      rekindle schedule add 'weekdays at 8:30' 'Plan my day' --zone Europe/Berlin
      rekindle schedule add '0 3 * * *' --command './backup.sh' --name backup
    """
    from rekindle.gateway.schedule import planning
    from rekindle.routing.source import LOCAL
    from rekindle.types import Source

    if (prompt is None) == (command is None):
        raise InvalidInput("give either a prompt or --command")
    request = planning.JobRequest(
        when=when,
        text=prompt if prompt is not None else command or "",
        name=name,
        kind="prompt" if prompt is not None else "command",
        deliver=deliver,
        zone=zone,
        session="same" if same_session else "new",
        is_silent=silent,
    )
    with open_for_writing(may_create=True) as store:
        job = planning.add_job(
            store,
            request,
            owner=OPERATOR,
            maker=Source(LOCAL, "terminal"),
            zone=load_settings().policies.default.time_zone,
            platforms=_list_running_platforms(),
        )
    _print_job(job, json)


@group.command("list")
def list_jobs(json: JsonOption = False) -> None:
    """List all jobs, ordered by their next run.

    \b
    Examples:
      rekindle schedule list
      rekindle schedule list --json
    """
    from rekindle.gateway.schedule.planning import format_moment, job_to_dict

    with open_for_reading(refresh=False) as store:
        jobs = store.jobs.list()
    if json:
        write_json_array(job_to_dict(job) for job in jobs)
        return
    if not jobs:
        print_line("No jobs. Add one with `rekindle schedule add`.")
        return
    columns = (
        Column("job", style="cyan"),
        Column("name", flexible=True),
        Column("when"),
        Column("next"),
        Column("to"),
        Column("runs", right=True),
    )
    rows = [
        (job.id, job.name, job.rule.to_text(),
         format_moment(job.next_run, job.rule.zone) if job.next_run else job.reason or job.state,
         job.deliver, f"{job.runs}")
        for job in jobs
    ]  # fmt: skip
    write_table(columns, rows)


@group.command("history")
def show_history(
    name: JobArgument,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Maximum number of runs.")
    ] = 20,
    json: JsonOption = False,
) -> None:
    """Show the runs of a job, newest first, with their outputs.

    \b
    Examples:
      rekindle schedule history backup
    """
    from rekindle.gateway.schedule.planning import run_to_dict

    with open_for_reading(refresh=False) as store:
        job = store.jobs.find(name)
        runs = store.jobs.list_runs(job, limit)
    if json:
        write_json_array(run_to_dict(run) for run in runs)
        return
    if not runs:
        print_line("It has not run yet.")
    for run in runs:
        _print_run(job, run)


@group.command("pause")
def pause_job(name: JobArgument, json: JsonOption = False) -> None:
    """Stop a job from running until it is resumed.

    \b
    Examples:
      rekindle schedule pause backup
    """
    _change_job("pause_job", name, json)


@group.command("resume")
def resume_job(name: JobArgument, json: JsonOption = False) -> None:
    """Resume a paused job at its next scheduled time.

    \b
    Examples:
      rekindle schedule resume backup
    """
    _change_job("resume_job", name, json)


@group.command("run")
def run_job(name: JobArgument, json: JsonOption = False) -> None:
    """Run a job now, in the running gateway. Its schedule does not change.

    \b
    Examples:
      rekindle schedule run backup
    """
    _change_job("run_job_now", name, json)
    if not _list_running_platforms():
        typer.echo("No gateway is running: the job runs when one starts.", err=True)


@group.command("remove")
def remove_job(name: JobArgument) -> None:
    """Delete a job and its history. The sessions of its runs are kept.

    \b
    Examples:
      rekindle schedule remove backup
    """
    with open_for_writing() as store:
        job = store.jobs.find(name)
        store.jobs.remove(job)
    print_line(escape_control_chars(f"Removed {job.id} “{job.name}”."))


def _change_job(change: str, name: str, json: bool) -> None:
    from rekindle.gateway.schedule import planning

    with open_for_writing() as store:
        job: ScheduledJob = getattr(planning, change)(store, store.jobs.find(name))
    _print_job(job, json)


def _print_job(job: ScheduledJob, json: bool) -> None:
    from rekindle.gateway.schedule.planning import describe_job, job_to_dict

    if json:
        print_json(job_to_dict(job))
    else:
        print_line(escape_control_chars(describe_job(job)))


def _print_run(job: ScheduledJob, run: JobRun) -> None:
    from rekindle.gateway.schedule.planning import format_moment

    reason = f": {run.reason}" if run.reason else ""
    session = f", session {run.session}" if run.session else ""
    due = format_moment(run.due, job.rule.zone)
    print_line(escape_control_chars(f"{due}  {run.state}{reason}{session}"))
    for line in run.output.splitlines():
        print_line(f"  {escape_control_chars(line)}")


def _list_running_platforms() -> list[str]:
    from rekindle.gateway.service.status import list_running_platforms

    return list_running_platforms(load_settings().home)
