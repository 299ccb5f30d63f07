"""What becomes of templates by what they did: an experiment promotes one, harm retires it.

Chance keeps a share of the sessions cold that a template fitted: what those do is what the others would
have done without it. So every template in use has its small experiment that never ends, looked at with
the same interval as the others (`warm/trial.py`). One that waits in quarantine has none: for it a
person starts an experiment of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from rekindle.experiments import experiment as trials
from rekindle.experiments.experiment import COLD, FIRST_CALLS, WARM, Assigned, Report, Share, Trial
from rekindle.store import Filter, Store
from rekindle.store.learning.experiments import IDLE
from rekindle.types import Judged, Template

from . import build, miner
from .library import Templates

NEWEST = 400  # sessions of a template: what helped long ago does not excuse it for ever

Deed = Literal["accept", "retire", ""]


class Tended(NamedTuple):
    """A template, what is known of its effect, from which experiment, and what follows from that."""

    template: Template
    report: Report
    trial: str | None  # None: from everyday use
    deed: Deed = ""


def tend(store: Store, folder: Templates, *, now: float, dry_run: bool = False) -> list[Tended]:
    """Look at what every template did; accept and retire those that were made by themselves."""
    miner.judge(store, Filter(archived=None))
    about = {one.template: one for one in reversed(store.trials.all()) if one.template}
    found = [
        look(store, entry.template, about.get(entry.template.id), now)
        for entry in folder.all()
        if entry.template is not None
    ]
    if not dry_run:
        for one in found:
            act(store, folder, one)
    return found


def look(store: Store, template: Template, trial: Trial | None, now: float) -> Tended:
    """What is known of a template: from the experiment about it, else from everyday use."""
    if trial is not None:
        report = trials.report(trial, store.trials.assigned(trial.name))
    else:
        report = _everyday(template, store.judged(Filter(template=template.id, archived=None)), now)
    return Tended(template, report, trial.name if trial else None, _deed(template, report))


def act(store: Store, folder: Templates, one: Tended) -> None:
    """Do what follows."""
    if one.deed == "accept":
        build.accept(store, folder, one.template.id)
    elif one.deed == "retire":
        build.retire(store, folder, one.template.id)


def _deed(template: Template, report: Report) -> Deed:
    if template.made != "automatic":
        return ""  # a person made it, and decides
    if template.state == "quarantined" and report.verdict == "helps":
        return "accept"
    return "retire" if template.state != "retired" and report.verdict == "harms" else ""


def _everyday(template: Template, sessions: Iterable[Judged], now: float) -> Report:
    assigned = [_assigned(one, now) for one in sessions if _is_drawn(one)][-NEWEST:]
    cold = sum(one.arm == COLD for one in assigned)
    # The share that is kept cold may have been another in the past: what came of it counts.
    share = cold / len(assigned) if assigned else 0.5
    shares = (Share(WARM, 1 - share), Share(COLD, share))
    return trials.report(Trial(template.id, shares, "", template.created), assigned)


def _is_drawn(one: Judged) -> bool:
    """Was it chance that decided about this session? Those that go on from others have their arm."""
    return one.session.arm in (WARM, COLD) and one.session.parent is None


def _assigned(one: Judged, now: float) -> Assigned:
    session = one.session
    known = [call for call in one.calls if call.failed is not None and call.work != "bookkeeping"]
    first = known[:FIRST_CALLS]
    return Assigned(
        session.id,
        session.owner,
        session.arm or COLD,
        session.started or 0.0,
        len(first),
        sum(bool(call.failed) for call in first),
        ripe=len(first) == FIRST_CALLS or session.ended is not None
        or now - session.last_active > IDLE,
        given=session.arm == WARM,
    )  # fmt: skip
