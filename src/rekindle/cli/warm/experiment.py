"""`rekindle warm experiment`: let chance decide who starts warm, and tell what it did."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.cli.output import (
    AsJson,
    Column,
    counted,
    encode,
    note,
    progress,
    say,
    time_of,
    write_array,
    write_table,
)
from rekindle.cli.store_access import reading, writing

from .templates import folder

if TYPE_CHECKING:
    from rekindle.experiments.experiment import Contrast, Report, Trial
    from rekindle.experiments.power import Plan, Tried
    from rekindle.learning.promotion import Tended
    from rekindle.store import Store

group = typer.Typer(
    help="Draw new sessions warm or cold, and see whether warm helps.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Percent = Annotated[float, typer.Option(metavar="PERCENT", help="Failed calls of 100.")]
Name = Annotated[str | None, typer.Argument(help="The experiment.", show_default="the newest")]


@group.command()
def start(
    name: Annotated[str, typer.Argument(help="What to call it.")],
    warm: Annotated[float, typer.Option(help="Share of sessions that start warm.")] = 0.5,
    cold: Annotated[float, typer.Option(help="Share that starts cold.")] = 0.5,
    placebo: Annotated[
        float, typer.Option(help="Share that gets an unrelated prelude of the same size.")
    ] = 0.0,
    smallest: Annotated[
        float, typer.Option(metavar="POINTS", help="The difference that is worth knowing.")
    ] = 3.0,
    template: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Try this template, even if it waits in quarantine."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Begin an experiment: every new session is drawn before its first message.

    With --template only sessions take part that it fits; the others start as on any other day.

    \b
    Examples:
      rekindle warm experiment start autumn
      rekindle warm experiment start autumn --warm 0.45 --cold 0.45 --placebo 0.1
      rekindle warm experiment start deploys --template 'Our deploys'
    """
    from secrets import token_hex

    from rekindle.experiments.experiment import Trial, checked_shares

    if not 0 < smallest < 100:
        raise typer.BadParameter("expected points between 0 and 100", param_hint="--smallest")
    given = {"warm": warm, "cold": cold, **({"placebo": placebo} if placebo else {})}
    with writing() as store:
        about = None if template is None else folder().find(template).id
        trial = Trial(
            name,
            checked_shares(given),
            token_hex(8),
            time.time(),
            smallest=smallest / 100,
            template=about,
        )
        store.trials.start(trial)
    if json:
        say(encode(trial).decode())
        return
    which = "new sessions" if about is None else f"new sessions that {about} fits"
    say(f"The experiment {name} has begun: {which} are {_shares(trial)}.")
    say("See what it says, as often as you like:  rekindle warm experiment report")


@group.command()
def stop(name: Name = None, json: AsJson = False) -> None:
    """End an experiment: new sessions are no longer drawn, the report stays.

    An automatic template that it was about is accepted if it helped, and retired if it did harm.

    \b
    Examples:
      rekindle warm experiment stop autumn
    """
    with writing() as store:
        trial = store.trials.stop(_named(store, name).name)
        one = _tended(store, trial)
    if json:
        deed = None if one is None else {"template": one.template.id, "deed": one.deed or None}
        say(encode({**trial._asdict(), "tended": deed}).decode())
        return
    say(f"The experiment {trial.name} has ended.")
    if one is not None:
        say(told_deed(one))


@group.command()
def tend(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done.")
    ] = False,
    json: AsJson = False,
) -> None:
    """See what each template does, accept what helped and retire what does harm.

    Templates that were made by themselves are accepted when an experiment about them says that
    they help, and retired when they do harm: in an experiment, or against the share of sessions
    that is kept cold every day. Others are only told of: they are yours to judge.

    \b
    Examples:
      rekindle warm experiment tend --dry-run
      rekindle warm experiment tend
    """
    from rekindle.learning import promotion

    with writing() as store, progress("Judging"):
        found = promotion.tend(store, folder(), now=time.time(), dry_run=dry_run)
    if json:
        write_array(
            {
                "template": one.template.id,
                "experiment": one.trial,
                "verdict": one.report.verdict,
                "words": one.report.words,
                "deed": one.deed or None,
                "done": bool(one.deed) and not dry_run,
            }
            for one in found
        )
    elif not found:
        note("No templates here: `rekindle warm build --name NAME` makes one.")
    for one in () if json else found:
        say(told_deed(one))


@group.command("list")
def show_all(json: AsJson = False) -> None:
    """Show all experiments.

    \b
    Examples:
      rekindle warm experiment list
    """
    with reading() as store:
        trials = store.trials.all()
    if json:
        write_array(trials)
    elif not trials:
        note("No experiments yet: `rekindle warm experiment start NAME` begins one.")
    else:
        columns = (Column("name", flexible=True), Column("arms"), Column("began"), Column("ended"))
        write_table(
            columns,
            (
                (
                    trial.name,
                    _shares(trial),
                    time_of(trial.started),
                    "runs" if trial.ended is None else time_of(trial.ended),
                )
                for trial in trials
            ),
        )


@group.command()
def report(name: Name = None, json: AsJson = False) -> None:
    """Show what an experiment says by now. Looking often does not spoil it.

    \b
    Examples:
      rekindle warm experiment report
      rekindle warm experiment report autumn --json
    """
    from rekindle.experiments import experiment as trials
    from rekindle.learning import miner
    from rekindle.store import Filter

    with reading() as store:
        trial = _named(store, name)
        with progress("Judging") as show:
            miner.judge(store, Filter(archived=None), progress=show)
        found = trials.report(trial, store.trials.assigned(trial.name))
    if json:
        say(encode({**found._asdict(), "verdict": found.verdict}).decode())
    else:
        _write(found)


@group.command()
def plan(
    cold: Percent = 9.0,
    warm: Percent = 6.0,
    alike: Annotated[
        float, typer.Option(help="How much the calls of a session fail together, 0 to 1.")
    ] = 0.10,
    runs: Annotated[
        int, typer.Option(min=0, max=100_000, help="Also try the plan on that many made-up runs.")
    ] = 0,
    json: AsJson = False,
) -> None:
    """Work out how many sessions an experiment needs.

    \b
    Examples:
      rekindle warm experiment plan --cold 9 --warm 5.7
      rekindle warm experiment plan --cold 9 --warm 5.7 --runs 1000
    """
    from rekindle.experiments import power as plans

    made = plans.plan(cold / 100, warm / 100, alike)
    result: Tried | None = None
    if runs:
        with progress("Trying") as show:
            result = plans.tried(made, runs, seed=1, progress=show)
    if json:
        say(encode({"plan": made, "tried": result}).decode())
    else:
        _write_plan(made, result)


def _tended(store: Store, trial: Trial) -> Tended | None:
    """What follows for the template that the experiment was about, done."""
    from rekindle.errors import NotFound
    from rekindle.learning import miner, promotion
    from rekindle.store import Filter

    if trial.template is None:
        return None
    miner.judge(store, Filter(archived=None))
    try:
        template = folder().read(trial.template)
    except NotFound:
        return None
    one = promotion.look(store, template, trial, time.time())
    promotion.act(store, folder(), one)
    return one


# ── for people


def told_deed(one: Tended) -> str:
    deeds = {"accept": " It is accepted.", "retire": " It is retired.", "": ""}
    said = one.report.words[0]
    if not one.deed and one.report.verdict == "harms" and one.template.state == "active":
        return f"{one.template.id}: {said} `rekindle warm retire {one.template.id}` takes it out."
    return f"{one.template.id}: {said}{deeds[one.deed]}"


def _named(store: Store, name: str | None) -> Trial:
    from rekindle.errors import NotFound

    if name is not None:
        return store.trials.get(name)
    trials = store.trials.all()
    if not trials:
        raise NotFound("no experiments yet: `rekindle warm experiment start NAME` begins one")
    return trials[0]


def _shares(trial: Trial) -> str:
    return ", ".join(f"{share:.0%} {arm}" for arm, share in trial.shares)


def _write(found: Report) -> None:
    from rekindle.cli.insights.render import rate_text

    for words in found.words:
        say(words)
    say()
    columns = (
        Column("arm"),
        Column("drawn", right=True),
        Column("counted", right=True),
        Column("still running", right=True),
        Column("no calls", right=True),
        Column("given a prelude", right=True),
        Column(f"failed of the first {found.trial.calls} calls", right=True),
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
                rate_text(arm.rate),
            )
            for arm in found.arms
        ),
    )
    say()
    for contrast in found.contrasts:
        say(_contrast(contrast))


def _contrast(contrast: Contrast) -> str:
    from rekindle.cli.insights.render import points_in

    between = f"{contrast.arm} less {contrast.other}"
    effect = contrast.effect
    if effect is None or effect.range.high - effect.range.low >= 2:
        return f"{between}: too few sessions to say"
    return (
        f"{between}: {points_in(effect.value, *effect.range)} points, mean of sessions, at 95% "
        f"whenever looked at ({counted(effect.sessions, 'session')}, "
        f"{counted(effect.owners, 'owner')})"
    )


def _write_plan(made: Plan, result: Tried | None) -> None:
    what = f"{made.cold:.1%} failed calls cold against {made.warm:.1%} warm"
    if made.sessions is None:
        say(f"To see {what} takes more sessions than anyone has.")
        return
    say(
        f"To see {what} with a chance of 80%: about {made.sessions:,} sessions in each arm, "
        "looked at as often as you like."
    )
    if result is not None:
        usual = "–" if result.usual is None else f"{result.usual:,}"
        say(f"Tried on {result.runs:,} made-up runs, with a look after every session:")
        say(f"  {result.found:.1%} saw the difference, half of those by {usual} sessions per arm")
        say(f"  {result.false_alarms:.1%} saw one where there was none (at most 5% may)")
