"""Promote and retire templates by their results: an experiment promotes one, harm retires it.

A random share of the sessions that a template fits is kept cold, as a control group. So every
template in use has a small experiment that never ends, evaluated with the same interval as the
others. A quarantined template has none: a person starts a dedicated experiment for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from rekindle.errors import NotFound
from rekindle.experiments import experiment as trials
from rekindle.experiments.experiment import (
    COLD,
    FIRST_CALLS,
    WARM,
    ArmShare,
    AssignedSession,
    Experiment,
    ExperimentReport,
)
from rekindle.store import Filter, Store
from rekindle.store.learning.experiments import IDLE_SECONDS
from rekindle.types import JudgedSession, Template

from . import build
from .library import TemplateLibrary
from .verdicts.judged_sessions import judge_sessions

MAX_RECENT_SESSIONS = 400  # per template: old results must not outweigh recent harm

PromotionAction = Literal["accept", "retire", ""]


class PromotionDecision(NamedTuple):
    """A template, its measured effect, the experiment it comes from, and the resulting action."""

    template: Template
    report: ExperimentReport
    experiment: str | None  # None for everyday use
    action: PromotionAction = ""


def review_templates(
    store: Store, template_library: TemplateLibrary, *, now: float, dry_run: bool = False
) -> list[PromotionDecision]:
    """Evaluate every template; accept or retire those that were built automatically."""
    judge_sessions(store, Filter(archived=None))
    experiments = {
        one.template: one for one in reversed(store.experiments.list_all()) if one.template
    }
    decisions = [
        evaluate_template(store, entry.template, experiments.get(entry.template.id), now)
        for entry in template_library.list_entries()
        if entry.template is not None
    ]
    if not dry_run:
        for one in decisions:
            apply_decision(store, template_library, one)
    return decisions


def evaluate_template(
    store: Store, template: Template, experiment: Experiment | None, now: float
) -> PromotionDecision:
    """Evaluate a template from its experiment, or else from everyday use."""
    if experiment is not None:
        report = trials.build_report(
            experiment, store.experiments.list_assignments(experiment.name)
        )
    else:
        report = _report_everyday_use(
            template, store.iter_judged_sessions(Filter(template=template.id, archived=None)), now
        )
    return PromotionDecision(
        template, report, experiment.name if experiment else None, _choose_action(template, report)
    )


def stop_experiment(
    store: Store, template_library: TemplateLibrary, name: str, now: float
) -> tuple[Experiment, PromotionDecision | None]:
    """Stop an experiment; evaluate the template that it tested, if any, and apply the decision."""
    experiment = store.experiments.stop(name)
    if experiment.template is None:
        return experiment, None
    judge_sessions(store, Filter(archived=None))
    try:
        template = template_library.read(experiment.template)
    except NotFound:
        return experiment, None
    decision = evaluate_template(store, template, experiment, now)
    apply_decision(store, template_library, decision)
    return experiment, decision


def apply_decision(
    store: Store, template_library: TemplateLibrary, decision: PromotionDecision
) -> None:
    """Apply a decision."""
    if decision.action == "accept":
        build.accept_template(store, template_library, decision.template.id)
    elif decision.action == "retire":
        build.retire_template(store, template_library, decision.template.id)


def _choose_action(template: Template, report: ExperimentReport) -> PromotionAction:
    if template.made != "automatic":
        return ""  # made by a person, who decides
    if template.state == "quarantined" and report.verdict == "helps":
        return "accept"
    return "retire" if template.state != "retired" and report.verdict == "harms" else ""


def _report_everyday_use(
    template: Template, sessions: Iterable[JudgedSession], now: float
) -> ExperimentReport:
    assigned = [_to_assignment(one, now) for one in sessions if _is_randomized(one)][
        -MAX_RECENT_SESSIONS:
    ]
    cold = sum(one.arm == COLD for one in assigned)
    # Use the observed share: the setting may have changed over time.
    share = cold / len(assigned) if assigned else 0.5
    shares = (ArmShare(WARM, 1 - share), ArmShare(COLD, share))
    return trials.build_report(Experiment(template.id, shares, "", template.created), assigned)


def _is_randomized(one: JudgedSession) -> bool:
    """Return whether the arm was assigned at random; continuations inherit theirs."""
    return one.session.arm in (WARM, COLD) and one.session.parent is None


def _to_assignment(one: JudgedSession, now: float) -> AssignedSession:
    session = one.session
    known = [call for call in one.calls if call.failed is not None and call.kind != "bookkeeping"]
    first = known[:FIRST_CALLS]
    return AssignedSession(
        session.id,
        session.owner,
        session.arm or COLD,
        session.started or 0.0,
        len(first),
        sum(bool(call.failed) for call in first),
        complete=len(first) == FIRST_CALLS or session.ended is not None
        or now - session.last_active > IDLE_SECONDS,
        given=session.arm == WARM,
    )  # fmt: skip
