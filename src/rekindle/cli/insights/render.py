"""How numbers look on a terminal: a rate with its interval, a difference in points, a small plot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rekindle.cli.output import (
    Column,
    counted,
    name_of,
    one_line,
    printable,
    say,
    short_ids,
    write_table,
)

if TYPE_CHECKING:
    from rekindle.analytics.claims import Claim, Reading
    from rekindle.analytics.cluster_stats import Estimate, Rate
    from rekindle.analytics.compare import Comparison, Side
    from rekindle.analytics.compression import Check, Kept
    from rekindle.analytics.insights import Insight, Row
    from rekindle.analytics.profile import Profile
    from rekindle.analytics.sample import Totals
    from rekindle.types import Call

TOO_FEW, NOTHING = "too few", "–"
_PLOT, _TOOLS, _GROUPS, _KINDS, _NAME = 22, 15, 12, 6, 24


_LEGEND = f"""\
Rates: errors per judged call, with 95% intervals; sessions are the clusters. Differences: in points.
same mix: with the tools in the proportions of all sessions. late − early: the last fifth of the calls
less the first, each tool of a session with itself. {TOO_FEW}: under 20 calls or 5 sessions."""


# ── one number


def percent(share: float | None) -> str:
    """`6.3%`."""
    return NOTHING if share is None else f"{share:.1%}"


def rate_text(rate: Rate) -> str:
    """`6.3% (5.9–6.7)`, or that there is too little to say how sure this is."""
    if rate.rate is None:
        return NOTHING
    if rate.low is None or rate.high is None:
        return f"{rate.rate:.1%} ({TOO_FEW})"
    return f"{rate.rate:.1%} ({100 * rate.low:.1f}–{100 * rate.high:.1f})"


def share_text(estimate: Estimate | None) -> str:
    """A rate that was estimated, with its interval."""
    if estimate is None:
        return NOTHING
    return f"{estimate.value:.1%} ({100 * estimate.low:.1f}–{100 * estimate.high:.1f})"


def points(estimate: Estimate | None) -> str:
    """`−1.2 [−2.4, +0.1]`, a difference in percentage points."""
    if estimate is None:
        return NOTHING
    return points_in(estimate.value, estimate.low, estimate.high)


def points_in(value: float, low: float, high: float) -> str:
    """A difference of shares and its interval, in percentage points."""
    return f"{_signed(100 * value)} [{_signed(100 * low)}, {_signed(100 * high)}]"


def _signed(value: float) -> str:
    shown = f"{value:+.1f}".replace("-", "−")
    return "0.0" if shown in ("+0.0", "−0.0") else shown


def short(count: int) -> str:
    """`950`, `1.2k`."""
    if count < 1000:
        return f"{count}"
    return f"{count / 1000:.1f}k" if count < 10_000 else f"{count // 1000}k"


def chance(p: float | None) -> str:
    """`p = 0.03`."""
    return NOTHING if p is None else "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def bar(low: float, middle: float, high: float, top: float, width: int = _PLOT) -> str:
    """An interval as a line with its middle marked, on a scale from zero to `top`."""
    if top <= 0:
        return ""
    places = [min(width - 1, max(0, int(value / top * width))) for value in (low, middle, high)]
    line = ["·"] * width  # a table would not keep spaces
    line[places[0] : places[2] + 1] = "─" * (places[2] + 1 - places[0])
    line[places[1]] = "●"
    return "".join(line)


def rate_bar(rate: Rate, top: float, width: int = _PLOT) -> str:
    """A rate with its interval, as a small plot."""
    if rate.rate is None or rate.low is None or rate.high is None:
        return ""
    return bar(rate.low, rate.rate, rate.high, top, width)


def top_of(rates: Iterable[Rate]) -> float:
    """The end of a scale on which all these intervals fit."""
    return max((rate.high or rate.rate or 0.0 for rate in rates), default=0.0)


# ── calls


def write_calls(calls: Sequence[Call], *, with_session: bool) -> None:
    """A table of calls, in order."""
    ids = dict(zip(names := list({c.session: None for c in calls}), short_ids(names), strict=True))
    columns = [
        *([Column("session", style="cyan")] if with_session else []),
        Column("#", right=True),
        Column("tool"),
        Column("outcome"),
        Column("failed"),
        Column("error"),
        Column("rule", flexible=True, style="dim"),
        Column("sure", right=True),
        Column("time", right=True),
    ]
    write_table(columns, ([*([ids[c.session]] if with_session else []), *_call(c)] for c in calls))


def _call(call: Call) -> Iterator[str]:
    yield f"{call.position}"
    yield one_line(call.tool, _NAME)
    yield call.outcome
    yield {True: "yes", False: "no", None: "?"}[call.failed]
    yield " · ".join(part for part in (call.error_kind, call.fault) if part)
    yield call.rule
    yield f"{call.confidence:.2f}"
    yield "" if call.duration is None else f"{call.duration:.1f} s"


# ── the profile of a session


def write_profile(profile: Profile) -> None:
    """One session in numbers."""
    session = profile.session
    say(f"{printable(one_line(name_of(session), 70))}  {session.id}")
    say()
    for label, value in _profile_facts(profile):
        say(f"{label:<14}{value}")
    if profile.tools:
        say()
        top = top_of(use.rate for use in profile.tools)
        columns = (
            Column("tool", flexible=True),
            Column("kind"),
            Column("calls", right=True),
            Column("unknown", right=True),
            Column("errors", right=True),
            Column("error rate"),
            Column("", style="cyan"),
        )
        rows = [
            (
                use.tool, use.kind, f"{use.calls:,}", f"{use.unknown or ''}",
                f"{use.rate.errors:,}", rate_text(use.rate), rate_bar(use.rate, top, 16),
            )
            for use in profile.tools
        ]  # fmt: skip
        write_table(columns, rows)
    say()
    say("Intervals take the calls of this session as independent of each other.")


def _profile_facts(profile: Profile) -> Iterator[tuple[str, str]]:
    rate = profile.rate
    yield "messages", f"{profile.messages:,}"
    yield "calls", f"{profile.calls:,} ({_left_out(profile.bookkeeping, profile.unknown)})"
    yield "errors", f"{rate.errors:,} of {counted(rate.calls, 'judged call')}, {rate_text(rate)}"
    if profile.faults:
        yield "  whose", _counts(profile.faults)
        yield "  what", _counts(profile.errors)
    if profile.gain:
        gain = profile.gain
        yield "first 20%", f"{rate_text(gain.first)} of {counted(gain.first.calls, 'call')}"
        yield "last 20%", f"{rate_text(gain.last)} of {counted(gain.last.calls, 'call')}"
        less = "negative is better"
        yield "gain", f"{points(gain.difference)} points, {less}, {chance(gain.difference.p)}"
    else:
        yield "gain", f"not enough data: {counted(rate.calls, 'judged call')}"
    yield "kinds", _counts(profile.kinds) or NOTHING
    yield "mostly", profile.dominant or NOTHING
    yield "task", f"{profile.task} (in the first 30 turns: {profile.early_task})"
    yield "retries", f"{profile.retries:,} ({profile.recovered:,} worked)"
    yield "loops", f"{profile.loops:,} ({counted(profile.loop_calls, 'call')})"
    if profile.compressions:
        yield "compressions", f"{profile.compressions:,}"


def _counts(counts: Mapping[str, int]) -> str:
    parts = [f"{name} {count:,}" for name, count in list(counts.items())[:_KINDS]]
    return printable(" · ".join(parts)) + (" · …" if len(counts) > _KINDS else "")


def _left_out(bookkeeping: int, unknown: int) -> str:
    return f"{bookkeeping:,} bookkeeping, {unknown:,} unknown"


# ── two sides


def write_comparison(found: Comparison) -> None:
    """Two sides, and how they differ."""
    columns = (
        Column("", style="cyan"),
        Column("what", flexible=True),
        Column("sessions", right=True),
        Column("messages", right=True),
        Column("calls", right=True),
        Column("errors", right=True),
        Column("error rate"),
    )
    write_table(columns, (_side(name, side) for name, side in (("A", found.a), ("B", found.b))))
    say()
    if found.improvement is None:
        say("not enough data to compare: " + _shortage(found))
        return
    say(
        f"improvement from A to B  {points(found.improvement)} points, {chance(found.improvement.p)}"
    )
    if found.same_mix:
        say(f"at the same mix of work  {points(found.same_mix)} points")
    better = f"{found.better} is better" if found.better else "no difference that the data can tell"
    say(f"{better} ({found.test}, 95%)")
    if found.shared:
        say(f"{counted(found.shared, 'session')} in both")
    if found.a.totals.sessions == found.b.totals.sessions == 1:
        say("This speaks of these two sessions, not of others like them.")


def _shortage(found: Comparison) -> str:
    sides = (found.a, found.b)
    return " and ".join(
        f"{counted(side.rate.sessions, 'session')} with {counted(side.rate.calls, 'judged call')}"
        for side in sides
    )


def _side(name: str, side: Side) -> Sequence[str]:
    totals = side.totals
    return (
        name, side.name, f"{totals.sessions:,}", f"{totals.messages:,}", f"{totals.judged:,}",
        f"{totals.failed:,}", rate_text(side.rate),
    )  # fmt: skip


# ── compressions of a conversation


def write_check(check: Check) -> None:
    """Whether a conversation kept its proficiency over its compressions."""
    if not check.has_compression or check.together is None:
        say("This conversation was never compressed.")
        return
    columns = (
        Column("compression"),
        Column("before"),
        Column("after"),
        Column("within 20%"),
        Column("right before"),
        Column("right after"),
    )
    rows = [
        (f"{number}{' (child)' if kept.in_child else ''}", *_kept(kept))
        for number, kept in enumerate(check.compressions, 1)
    ]
    if len(rows) > 1:
        rows.append(("all", *_kept(check.together)))
    write_table(columns, rows)
    say()
    within = {True: "yes", False: "no", None: "no calls to tell by"}[check.proficiency_preserved]
    say(f"error rate within 20%: {within}; how sure: {_sure(check)}")
    near = check.together.near_difference
    if near:
        say(f"right after less right before: {points(near)} points, {chance(near.p)}")
    say("Intervals take the calls of this conversation as independent of each other.")


def _sure(check: Check) -> str:
    return {"kept": "surely kept", "not kept": "surely not kept"}.get(check.verdict, check.verdict)


def _kept(kept: Kept) -> Sequence[str]:
    return (
        _of(kept.before), _of(kept.after), {True: "yes", False: "no", None: NOTHING}[kept.within],
        _of(kept.near_before), _of(kept.near_after),
    )  # fmt: skip


def _of(rate: Rate) -> str:
    return f"{percent(rate.rate)} of {rate.calls:,}"


# ── many sessions


def write_insight(found: Insight) -> None:
    """Everything, from the totals to the claims."""
    _write_totals(found.totals, found.rate)
    _write_rows("By session length", "messages", found.lengths)
    _write_positions(found)
    _write_rows("By task", "task", found.tasks)
    _write_rows("By source", "source", found.sources)
    _write_rows("By model", "model", found.models)
    _write_tools(found)
    _write_compression(found)
    for claim in found.claims:
        _write_claim(claim)
    say()
    say(_LEGEND)


def _write_totals(totals: Totals, rate: Rate) -> None:
    say(
        f"{counted(totals.sessions, 'session')} ({totals.with_calls:,} with calls),"
        f" {counted(totals.messages, 'message')}, {counted(totals.calls, 'call')}"
    )
    say(f"judged    {totals.judged:,}, of which failed {totals.failed:,}: {rate_text(rate)}")
    whose = ("agent", "environment", "refused", "expected", "other")
    say("  whose   " + " · ".join(f"{name} {getattr(totals, name):,}" for name in whose))
    say(
        f"left out  unknown {totals.unknown:,} · bookkeeping {totals.bookkeeping:,} ·"
        f" copies of calls in earlier sessions {totals.copies:,}"
    )


def _write_rows(title: str, label: str, rows: Sequence[Row]) -> None:
    if not rows:
        return
    say()
    say(title)
    columns = (
        Column(label, flexible=True),
        Column("sess.", right=True),
        Column("calls", right=True),
        Column("error rate"),
        Column("same mix"),
        Column("late − early"),
    )
    shown = [
        (
            row.name, f"{row.rate.sessions:,}", f"{row.rate.calls:,}", rate_text(row.rate),
            share_text(row.same_mix), points(row.same_tool),
        )
        for row in rows[:_GROUPS]
    ]  # fmt: skip
    write_table(columns, shown)
    _tell_more(len(rows) - _GROUPS)


def _write_positions(found: Insight) -> None:
    if not found.positions:
        return
    say()
    say("By call number")
    top = top_of(step.rate for step in found.positions)
    columns = (
        Column("calls"),
        Column("alive", right=True),
        Column("error rate"),
        Column("", style="cyan"),
        Column("since the first 10, same tool"),
    )
    rows = [
        (
            f"{step.first}–{step.last}" if step.last else f"{step.first}+", f"{step.alive:,}",
            rate_text(step.rate), rate_bar(step.rate, top), points(step.change),
        )
        for step in found.positions
    ]  # fmt: skip
    write_table(columns, rows)


def _write_tools(found: Insight) -> None:
    if not found.tools:
        return
    say()
    say("By tool")
    shown = found.tools[:_TOOLS]
    top = top_of(tool.rate for tool in shown)
    columns = (
        Column("tool", flexible=True),
        Column("sess.", right=True),
        Column("calls", right=True),
        Column("errors", right=True),
        Column("agent's", right=True),
        Column("error rate"),
        Column("", style="cyan"),
    )
    rows = [
        (
            tool.name, f"{tool.rate.sessions:,}", f"{tool.rate.calls:,}", f"{tool.rate.errors:,}",
            f"{tool.agent:,}", rate_text(tool.rate), rate_bar(tool.rate, top, 16),
        )
        for tool in shown
    ]  # fmt: skip
    write_table(columns, rows)
    _tell_more(len(found.tools) - _TOOLS)


def _write_compression(found: Insight) -> None:
    around = found.compression
    if not around.compressions:
        return
    say()
    say(f"Around {counted(around.compressions, 'compression')}, 20 calls to each side")
    before, after = around.before, around.after
    say(f"before    {rate_text(before)}  {_size(before)}")
    say(f"after     {rate_text(after)}  {_size(after)}")
    if around.change:
        say(f"change    {points(around.change)} points; same tool {points(around.same_tool)}")
    else:
        say("change    not enough data")


def _size(rate: Rate) -> str:
    return f"{counted(rate.calls, 'call')}, {counted(rate.sessions, 'compression')}"


def _write_claim(claim: Claim) -> None:
    say()
    say(f"Claim: {claim.text}")
    say(f"  → {claim.verdict}")
    columns = (
        Column("reading"),
        Column("difference"),
        Column("sessions", right=True),
        Column("calls", right=True),
        Column("verdict", style="bold"),
    )
    rows = [_reading(reading) for reading in claim.readings]
    rows += [_reading(trap, "trap: ") for trap in claim.traps]
    write_table(columns, rows)


def _reading(reading: Reading, mark: str = "") -> Sequence[str]:
    before, after = reading.before, reading.after
    return (
        f"{mark}{reading.name}", points(reading.difference),
        f"{short(before.sessions)}|{short(after.sessions)}",
        f"{short(before.calls)}|{short(after.calls)}",
        reading.verdict,
    )  # fmt: skip


def _tell_more(left: int) -> None:
    if left > 0:
        say(f"… and {left:,} more; --json has all")
