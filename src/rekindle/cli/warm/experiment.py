"""`rekindle warm experiment`: randomize which sessions start warm and measure the effect."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.cli.help import create_group
from rekindle.cli.output import (
    Column,
    JsonOption,
    build_number_columns,
    format_count,
    format_time,
    print_json,
    print_line,
    print_notice,
    show_progress,
    write_json_array,
    write_table,
)
from rekindle.cli.store_access import open_for_reading, open_for_writing

from .options import open_library

if TYPE_CHECKING:
    from rekindle.experiments.experiment import Contrast, Experiment, ExperimentReport
    from rekindle.experiments.power import PowerPlan, SimulationResult
    from rekindle.learning.promotion import PromotionDecision
    from rekindle.store import Store

group = create_group("Randomize new sessions to warm or cold and measure the effect.")

PercentOption = Annotated[
    float, typer.Option(metavar="PERCENT", help="Error rate of calls in percent.")
]
ExperimentArgument = Annotated[
    str | None, typer.Argument(help="Name of the experiment.", show_default="the newest")
]


@group.command()
def start(
    name: Annotated[str, typer.Argument(help="Name of the experiment.")],
    warm: Annotated[float, typer.Option(help="Share of sessions that start warm.")] = 0.5,
    cold: Annotated[float, typer.Option(help="Share of sessions that start cold.")] = 0.5,
    placebo: Annotated[
        float, typer.Option(help="Share of sessions with an unrelated prelude of the same size.")
    ] = 0.0,
    min_effect: Annotated[
        float, typer.Option(metavar="POINTS", help="Smallest difference worth detecting.")
    ] = 3.0,
    template: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Test this template, even if it is quarantined."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Start an experiment that assigns each new session to an arm before its first message.

    With --template, only sessions that match it take part; the others start as usual.

    \b
    Examples:
      rekindle warm experiment start autumn
      rekindle warm experiment start autumn --warm 0.45 --cold 0.45 --placebo 0.1
      rekindle warm experiment start deploys --template 'Our deploys'
    """
    from secrets import token_hex

    from rekindle.experiments.experiment import Experiment, normalize_shares

    if not 0 < min_effect < 100:
        raise typer.BadParameter("expected points between 0 and 100", param_hint="--min-effect")
    shares = {"warm": warm, "cold": cold, **({"placebo": placebo} if placebo else {})}
    with open_for_writing() as store:
        template_id = None if template is None else open_library().find(template).id
        experiment = Experiment(
            name,
            normalize_shares(shares),
            token_hex(8),
            time.time(),
            min_effect=min_effect / 100,
            template=template_id,
        )
        store.experiments.start(experiment)
    if json:
        print_json(experiment)
        return
    which = "new sessions" if template_id is None else f"new sessions that match {template_id}"
    print_line(f"Started experiment {name}: {which} are {_format_shares(experiment)}.")
    print_line("Check the results at any time: rekindle warm experiment report")


@group.command()
def stop(name: ExperimentArgument = None, json: JsonOption = False) -> None:
    """Stop an experiment. New sessions are no longer assigned; the report stays available.

    If it tested an automatic template, the template is accepted if it helped and retired if it did
    harm.

    \b
    Examples:
      rekindle warm experiment stop autumn
    """
    from rekindle.learning.promotion import stop_experiment

    with open_for_writing() as store:
        found = _find_experiment(store, name).name
        experiment, one = stop_experiment(store, open_library(), found, time.time())
    if json:
        decision = (
            None if one is None else {"template": one.template.id, "action": one.action or None}
        )
        print_json({**experiment._asdict(), "decision": decision})
        return
    print_line(f"Stopped experiment {experiment.name}.")
    if one is not None:
        print_line(format_decision(one))


@group.command()
def review(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done without doing it.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Review templates: accept those that help and retire those that do harm.

    Automatic templates are accepted when an experiment shows that they help, and retired when they
    do harm: in an experiment, or compared with the sessions that always start cold. Other templates
    are only reported; the decision is yours.

    \b
    Examples:
      rekindle warm experiment review --dry-run
      rekindle warm experiment review
    """
    from rekindle.learning import promotion

    with open_for_writing() as store, show_progress("Judging"):
        found = promotion.review_templates(store, open_library(), now=time.time(), dry_run=dry_run)
    if json:
        write_json_array(
            {
                "template": one.template.id,
                "experiment": one.experiment,
                "verdict": one.report.verdict,
                "summary": one.report.summary,
                "action": one.action or None,
                "applied": bool(one.action) and not dry_run,
            }
            for one in found
        )
    elif not found:
        print_notice("No templates yet. Create one with `rekindle warm build --name NAME`.")
    for one in () if json else found:
        print_line(format_decision(one))


@group.command("list")
def list_experiments(json: JsonOption = False) -> None:
    """List all experiments.

    \b
    Examples:
      rekindle warm experiment list
    """
    with open_for_reading() as store:
        experiments = store.experiments.list_all()
    if json:
        write_json_array(experiments)
    elif not experiments:
        print_notice("No experiments yet. Start one with `rekindle warm experiment start NAME`.")
    else:
        columns = (
            Column("name", flexible=True),
            Column("arms"),
            Column("started"),
            Column("ended"),
        )
        write_table(
            columns,
            (
                (
                    experiment.name,
                    _format_shares(experiment),
                    format_time(experiment.started),
                    "running" if experiment.ended is None else format_time(experiment.ended),
                )
                for experiment in experiments
            ),
        )


@group.command()
def report(name: ExperimentArgument = None, json: JsonOption = False) -> None:
    """Show the results of an experiment so far. Checking often does not bias them.

    \b
    Examples:
      rekindle warm experiment report
      rekindle warm experiment report autumn --json
    """
    from rekindle.experiments import experiment as trials
    from rekindle.learning.verdicts import judged_sessions
    from rekindle.learning.verdicts.session_outcomes import judge_outcomes
    from rekindle.store import Filter

    with open_for_reading() as store:
        experiment = _find_experiment(store, name)
        with show_progress("Judging") as show:
            judged_sessions.judge_sessions(store, Filter(archived=None), progress=show)
            judge_outcomes(store)
        found = trials.build_report(experiment, store.experiments.list_assignments(experiment.name))
    if json:
        print_json({**found._asdict(), "verdict": found.verdict})
    else:
        _write_report(found)


@group.command()
def plan(
    cold: PercentOption = 9.0,
    warm: PercentOption = 6.0,
    correlation: Annotated[
        float, typer.Option(help="Correlation of failures within a session, 0 to 1.")
    ] = 0.10,
    runs: Annotated[
        int,
        typer.Option(min=0, max=100_000, help="Also check the plan on this many simulated runs."),
    ] = 0,
    json: JsonOption = False,
) -> None:
    """Calculate how many sessions an experiment needs.

    \b
    Examples:
      rekindle warm experiment plan --cold 9 --warm 5.7
      rekindle warm experiment plan --cold 9 --warm 5.7 --runs 1000
    """
    from rekindle.experiments import power as plans

    made = plans.plan_experiment(cold / 100, warm / 100, correlation)
    result: SimulationResult | None = None
    if runs:
        with show_progress("Simulating") as show:
            result = plans.simulate_plan(made, runs, seed=1, progress=show)
    if json:
        print_json({"plan": made, "simulation": result})
    else:
        _write_plan(made, result)


# ── text output


def format_decision(one: PromotionDecision) -> str:
    """Format the verdict on a template and the decision taken."""
    suffixes = {"accept": " Accepted.", "retire": " Retired.", "": ""}
    summary = one.report.summary[0]
    if not one.action and one.report.verdict == "harms" and one.template.state == "active":
        return f"{one.template.id}: {summary} Retire it: `rekindle warm retire {one.template.id}`."
    return f"{one.template.id}: {summary}{suffixes[one.action]}"


def _find_experiment(store: Store, name: str | None) -> Experiment:
    from rekindle.errors import NotFound

    if name is not None:
        return store.experiments.get(name)
    experiments = store.experiments.list_all()
    if not experiments:
        raise NotFound("No experiments yet. Start one with `rekindle warm experiment start NAME`.")
    return experiments[0]


def _format_shares(experiment: Experiment) -> str:
    return ", ".join(f"{share:.0%} {arm}" for arm, share in experiment.shares)


def _write_report(found: ExperimentReport) -> None:
    from rekindle.cli.insights.render import format_rate

    for line in found.summary:
        print_line(line)
    print_line()
    columns = (
        Column("arm"),
        *build_number_columns("assigned", "counted", "still running", "no calls", "got a prelude"),
        Column(f"errors in the first {found.experiment.calls} calls", right=True),
    )
    write_table(
        columns,
        (
            (
                arm.arm,
                f"{arm.assigned:,}",
                f"{arm.counted:,}",
                f"{arm.running:,}",
                f"{arm.without_calls:,}",
                f"{arm.given:,}",
                format_rate(arm.rate),
            )
            for arm in found.arms
        ),
    )
    print_line()
    for contrast in found.contrasts:
        print_line(_format_contrast(contrast))


def _format_contrast(contrast: Contrast) -> str:
    from rekindle.cli.insights.render import format_points

    between = f"{contrast.arm} − {contrast.other}"
    effect = contrast.effect
    if effect is None or effect.range.high - effect.range.low >= 2:
        return f"{between}: not enough sessions"
    return (
        f"{between}: {format_points(effect.value, *effect.range)} points, mean over sessions, 95% "
        f"anytime-valid interval ({format_count(effect.sessions, 'session')}, "
        f"{format_count(effect.owners, 'owner')})"
    )


def _write_plan(made: PowerPlan, result: SimulationResult | None) -> None:
    what = f"an error rate of {made.cold:.1%} cold vs. {made.warm:.1%} warm"
    if made.sessions is None:
        print_line(f"Detecting {what} takes more sessions than is practical.")
        return
    print_line(
        f"To detect {what} with 80% power: about {made.sessions:,} sessions per arm, "
        "checked at any time."
    )
    if result is not None:
        median = "–" if result.median_sessions is None else f"{result.median_sessions:,}"
        print_line(f"Simulated {result.runs:,} runs, checking after every session:")
        print_line(
            f"  {result.found:.1%} detected it, half of those within {median} sessions per arm"
        )
        print_line(
            f"  {result.false_alarms:.1%} detected a difference where there was none (limit: 5%)"
        )
