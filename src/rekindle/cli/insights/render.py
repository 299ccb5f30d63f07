"""Render statistics on a terminal: rates with intervals, differences in points, small plots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rekindle.cli.output import (
    Column,
    build_number_columns,
    escape_control_chars,
    format_count,
    get_display_name,
    print_line,
    to_one_line,
    write_table,
)

if TYPE_CHECKING:
    from rekindle.analytics.claims import Claim, ClaimReading
    from rekindle.analytics.cluster_stats import Estimate, Rate
    from rekindle.analytics.compare import ComparedSide, Comparison
    from rekindle.analytics.compression import CompressionCheck, Retention
    from rekindle.analytics.insights import Insights, SessionGroupRow
    from rekindle.analytics.profile import Profile
    from rekindle.analytics.sample import Totals

TOO_FEW, NO_VALUE = "too few", "–"
_PLOT_WIDTH, _MAX_TOOLS, _MAX_GROUPS, _MAX_KINDS, _MAX_NAME_LENGTH = 22, 15, 12, 6, 24


_LEGEND = f"""\
Rates: errors per judged call, with 95% intervals clustered by session. Differences: in points.
same mix: reweighted to the tool mix of all sessions. late − early: the last fifth of the calls
minus the first, compared per tool within a session. {TOO_FEW}: under 20 calls or 5 sessions."""


# ── single values


def format_percent(share: float | None) -> str:
    """Format a share as a percentage: `6.3%`."""
    return NO_VALUE if share is None else f"{share:.1%}"


def format_rate(rate: Rate) -> str:
    """Format a rate and its interval, `6.3% (5.9–6.7)`, or note that the sample is too small."""
    if rate.rate is None:
        return NO_VALUE
    if rate.low is None or rate.high is None:
        return f"{rate.rate:.1%} ({TOO_FEW})"
    return f"{rate.rate:.1%} ({100 * rate.low:.1f}–{100 * rate.high:.1f})"


def format_estimate(estimate: Estimate | None) -> str:
    """Format an estimated rate and its interval."""
    if estimate is None:
        return NO_VALUE
    return f"{estimate.value:.1%} ({100 * estimate.low:.1f}–{100 * estimate.high:.1f})"


def format_difference(estimate: Estimate | None) -> str:
    """Format a difference in percentage points: `−1.2 [−2.4, +0.1]`."""
    if estimate is None:
        return NO_VALUE
    return format_points(estimate.value, estimate.low, estimate.high)


def format_points(value: float, low: float, high: float) -> str:
    """Format a difference of shares and its interval in percentage points."""
    return (
        f"{_format_signed(100 * value)} [{_format_signed(100 * low)}, {_format_signed(100 * high)}]"
    )


def _format_signed(value: float) -> str:
    shown = f"{value:+.1f}".replace("-", "−")
    return "0.0" if shown in ("+0.0", "−0.0") else shown


def abbreviate_count(count: int) -> str:
    """Abbreviate a count: `950`, `1.2k`."""
    if count < 1000:
        return f"{count}"
    return f"{count / 1000:.1f}k" if count < 10_000 else f"{count // 1000}k"


def format_p_value(p: float | None) -> str:
    """Format a p-value: `p = 0.03`."""
    return NO_VALUE if p is None else "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def draw_interval(
    low: float, middle: float, high: float, top: float, width: int = _PLOT_WIDTH
) -> str:
    """Draw an interval as a line with its middle marked, on a scale from zero to `top`."""
    if top <= 0:
        return ""
    columns = [min(width - 1, max(0, int(value / top * width))) for value in (low, middle, high)]
    line = ["·"] * width  # tables collapse spaces
    line[columns[0] : columns[2] + 1] = "─" * (columns[2] + 1 - columns[0])
    line[columns[1]] = "●"
    return "".join(line)


def draw_rate(rate: Rate, top: float, width: int = _PLOT_WIDTH) -> str:
    """Draw a rate and its interval as a small plot."""
    if rate.rate is None or rate.low is None or rate.high is None:
        return ""
    return draw_interval(rate.low, rate.rate, rate.high, top, width)


def find_scale_top(rates: Iterable[Rate]) -> float:
    """Return the upper end of a scale that fits all these intervals."""
    return max((rate.high or rate.rate or 0.0 for rate in rates), default=0.0)


# ── the profile of a session


def write_profile(profile: Profile) -> None:
    """Print the profile of a session."""
    session = profile.session
    print_line(f"{escape_control_chars(to_one_line(get_display_name(session), 70))}  {session.id}")
    print_line()
    for label, value in _iter_profile_facts(profile):
        print_line(f"{label:<14}{value}")
    if profile.tools:
        print_line()
        top = find_scale_top(use.rate for use in profile.tools)
        columns = (
            Column("tool", flexible=True),
            Column("kind"),
            *build_number_columns("calls", "unknown", "errors"),
            Column("error rate"),
            Column("", style="cyan"),
        )
        rows = [
            (
                use.tool, use.kind, f"{use.calls:,}", f"{use.unknown or ''}",
                f"{use.rate.errors:,}", format_rate(use.rate), draw_rate(use.rate, top, 16),
            )
            for use in profile.tools
        ]  # fmt: skip
        write_table(columns, rows)
    print_line()
    print_line("Intervals assume that the calls of this session are independent.")


def _iter_profile_facts(profile: Profile) -> Iterator[tuple[str, str]]:
    rate = profile.rate
    yield "messages", f"{profile.messages:,}"
    yield "calls", f"{profile.calls:,} ({_format_excluded(profile)})"
    yield (
        "errors",
        f"{rate.errors:,} of {format_count(rate.calls, 'judged call')}, {format_rate(rate)}",
    )
    if profile.faults:
        yield "  fault", _format_counts(profile.faults)
        yield "  kind", _format_counts(profile.errors)
    if profile.gain:
        gain = profile.gain
        yield "first 20%", f"{format_rate(gain.first)} of {format_count(gain.first.calls, 'call')}"
        yield "last 20%", f"{format_rate(gain.last)} of {format_count(gain.last.calls, 'call')}"
        less = "negative is better"
        yield (
            "gain",
            f"{format_difference(gain.difference)} points, {less}, {format_p_value(gain.difference.p)}",
        )
    else:
        yield "gain", f"not enough data: {format_count(rate.calls, 'judged call')}"
    yield "kinds", _format_counts(profile.kinds) or NO_VALUE
    yield "main kind", profile.dominant or NO_VALUE
    yield "task", f"{profile.task} (in the first 30 turns: {profile.early_task})"
    yield "retries", f"{profile.retries:,} ({profile.recovered:,} worked)"
    yield "loops", f"{profile.loops:,} ({format_count(profile.loop_calls, 'call')})"
    if profile.compressions:
        yield "compressions", f"{profile.compressions:,}"


def _format_counts(counts: Mapping[str, int]) -> str:
    parts = [f"{name} {count:,}" for name, count in list(counts.items())[:_MAX_KINDS]]
    return escape_control_chars(" · ".join(parts)) + (" · …" if len(counts) > _MAX_KINDS else "")


def _format_excluded(profile: Profile) -> str:
    return (
        f"{profile.bookkeeping:,} bookkeeping, {profile.unknown:,} unknown,"
        f" {profile.refused:,} refused"
    )


# ── comparison


def write_comparison(found: Comparison) -> None:
    """Print two sides and how they differ."""
    columns = (
        Column("", style="cyan"),
        Column("name", flexible=True),
        *build_number_columns("sessions", "messages", "calls", "errors"),
        Column("error rate"),
    )
    write_table(
        columns, (_format_side(name, side) for name, side in (("A", found.a), ("B", found.b)))
    )
    print_line()
    if found.improvement is None:
        print_line("not enough data to compare: " + _describe_sample_sizes(found))
        return
    print_line(
        f"improvement from A to B  {format_difference(found.improvement)} points,"
        f" {format_p_value(found.improvement.p)}"
    )
    if found.same_mix:
        print_line(f"with the same work mix   {format_difference(found.same_mix)} points")
    better = f"{found.better} is better" if found.better else "no significant difference"
    print_line(f"{better} ({found.test}, 95%)")
    if found.shared:
        print_line(f"{format_count(found.shared, 'session')} in both")
    if found.a.totals.sessions == found.b.totals.sessions == 1:
        print_line("This applies to these two sessions only, not to others like them.")


def _describe_sample_sizes(found: Comparison) -> str:
    sides = (found.a, found.b)
    return " and ".join(
        f"{format_count(side.rate.sessions, 'session')} with"
        f" {format_count(side.rate.calls, 'judged call')}"
        for side in sides
    )


def _format_side(name: str, side: ComparedSide) -> Sequence[str]:
    totals = side.totals
    return (
        name, side.name, f"{totals.sessions:,}", f"{totals.messages:,}", f"{totals.judged:,}",
        f"{totals.failed:,}", format_rate(side.rate),
    )  # fmt: skip


# ── compressions of a conversation


def write_compression_check(check: CompressionCheck) -> None:
    """Print whether a conversation kept its proficiency over its compressions."""
    if not check.has_compression or check.together is None:
        print_line("This conversation was never compressed.")
        return
    columns = (
        Column("compression"),
        Column("before"),
        Column("after"),
        Column("within 20%"),
        Column("just before"),
        Column("just after"),
    )
    rows = [
        (f"{number}{' (child)' if retention.in_child else ''}", *_format_retention(retention))
        for number, retention in enumerate(check.compressions, 1)
    ]
    if len(rows) > 1:
        rows.append(("all", *_format_retention(check.together)))
    write_table(columns, rows)
    print_line()
    within = {True: "yes", False: "no", None: "no calls to compare"}[check.proficiency_preserved]
    print_line(f"error rate within 20%: {within}; verdict: {_format_verdict(check)}")
    near = check.together.near_difference
    if near:
        print_line(
            f"just after minus just before: {format_difference(near)} points, {format_p_value(near.p)}"
        )
    print_line("Intervals assume that the calls of this conversation are independent.")


def _format_verdict(check: CompressionCheck) -> str:
    return {"kept": "kept (95%)", "not kept": "not kept (95%)"}.get(check.verdict, check.verdict)


def _format_retention(retention: Retention) -> Sequence[str]:
    return (
        _format_rate_of_calls(retention.before), _format_rate_of_calls(retention.after),
        {True: "yes", False: "no", None: NO_VALUE}[retention.within],
        _format_rate_of_calls(retention.near_before), _format_rate_of_calls(retention.near_after),
    )  # fmt: skip


def _format_rate_of_calls(rate: Rate) -> str:
    return f"{format_percent(rate.rate)} of {rate.calls:,}"


# ── many sessions


def write_insight(found: Insights) -> None:
    """Print all insights, from the totals to the claims."""
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


def write_legend() -> None:
    """Print how to read the tables."""
    print_line()
    print_line(_LEGEND)


def _write_totals(totals: Totals, rate: Rate) -> None:
    print_line(
        f"{format_count(totals.sessions, 'session')} ({totals.with_calls:,} with calls),"
        f" {format_count(totals.messages, 'message')}, {format_count(totals.calls, 'call')}"
    )
    print_line(f"judged    {totals.judged:,}, {totals.failed:,} failed: {format_rate(rate)}")
    whose = ("agent", "environment", "refused", "expected", "other")
    print_line("  fault   " + " · ".join(f"{name} {getattr(totals, name):,}" for name in whose))
    print_line(
        f"excluded  unknown {totals.unknown:,} · bookkeeping {totals.bookkeeping:,} ·"
        f" duplicates of calls in earlier sessions {totals.copies:,}"
    )


def _write_rows(title: str, label: str, rows: Sequence[SessionGroupRow]) -> None:
    if not rows:
        return
    print_line()
    print_line(title)
    columns = (
        Column(label, flexible=True),
        *build_number_columns("sess.", "calls"),
        Column("error rate"),
        Column("same mix"),
        Column("late − early"),
    )
    shown = [
        (
            row.name, f"{row.rate.sessions:,}", f"{row.rate.calls:,}", format_rate(row.rate),
            format_estimate(row.same_mix), format_difference(row.same_tool),
        )
        for row in rows[:_MAX_GROUPS]
    ]  # fmt: skip
    write_table(columns, shown)
    _print_remaining_count(len(rows) - _MAX_GROUPS)


def _write_positions(found: Insights) -> None:
    if not found.positions:
        return
    print_line()
    print_line("By call number")
    top = find_scale_top(step.rate for step in found.positions)
    columns = (
        Column("calls"),
        Column("sess.", right=True),
        Column("error rate"),
        Column("", style="cyan"),
        Column("change since first 10, same tool"),
    )
    rows = [
        (
            f"{step.first}–{step.last}" if step.last else f"{step.first}+", f"{step.sessions:,}",
            format_rate(step.rate), draw_rate(step.rate, top), format_difference(step.change),
        )
        for step in found.positions
    ]  # fmt: skip
    write_table(columns, rows)


def _write_tools(found: Insights) -> None:
    if not found.tools:
        return
    print_line()
    print_line("By tool")
    shown = found.tools[:_MAX_TOOLS]
    top = find_scale_top(tool.rate for tool in shown)
    columns = (
        Column("tool", flexible=True),
        *build_number_columns("sess.", "calls", "errors", "agent"),
        Column("error rate"),
        Column("", style="cyan"),
    )
    rows = [
        (
            tool.name, f"{tool.rate.sessions:,}", f"{tool.rate.calls:,}", f"{tool.rate.errors:,}",
            f"{tool.agent:,}", format_rate(tool.rate), draw_rate(tool.rate, top, 16),
        )
        for tool in shown
    ]  # fmt: skip
    write_table(columns, rows)
    _print_remaining_count(len(found.tools) - _MAX_TOOLS)


def _write_compression(found: Insights) -> None:
    around = found.compression
    if not around.compressions:
        return
    print_line()
    print_line(f"Around {format_count(around.compressions, 'compression')}, 20 calls on each side")
    before, after = around.before, around.after
    print_line(f"before    {format_rate(before)}  {_format_sample_size(before)}")
    print_line(f"after     {format_rate(after)}  {_format_sample_size(after)}")
    if around.change:
        print_line(
            f"change    {format_difference(around.change)} points;"
            f" same tool {format_difference(around.same_tool)}"
        )
    else:
        print_line("change    not enough data")


def _format_sample_size(rate: Rate) -> str:
    return f"{format_count(rate.calls, 'call')}, {format_count(rate.sessions, 'compression')}"


def _write_claim(claim: Claim) -> None:
    print_line()
    print_line(f"Claim: {claim.text}")
    print_line(f"  → {claim.verdict}")
    columns = (
        Column("reading"),
        Column("difference"),
        *build_number_columns("sessions", "calls"),
        Column("verdict", style="bold"),
    )
    rows = [_format_reading(reading) for reading in claim.readings]
    rows += [_format_reading(trap, "trap: ") for trap in claim.traps]
    write_table(columns, rows)


def _format_reading(reading: ClaimReading, mark: str = "") -> Sequence[str]:
    before, after = reading.before, reading.after
    return (
        f"{mark}{reading.name}", format_difference(reading.difference),
        f"{abbreviate_count(before.sessions)}|{abbreviate_count(after.sessions)}",
        f"{abbreviate_count(before.calls)}|{abbreviate_count(after.calls)}",
        reading.verdict,
    )  # fmt: skip


def _print_remaining_count(left: int) -> None:
    if left > 0:
        print_line(f"… and {left:,} more; use --json to see all")
