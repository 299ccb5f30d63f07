"""`rekindle warm replay`: what recall would have been worth on one's own history."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from html import escape
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rekindle.cli.insights.mapping import JobsOption, SchedulerOption, open_work_mapper
from rekindle.cli.output import (
    Column,
    JsonOption,
    StyledText,
    escape_control_chars,
    format_count,
    print_json,
    print_line,
    show_progress,
    to_one_line,
    write_styled,
    write_table,
)
from rekindle.cli.store_access import load_settings, open_for_notes
from rekindle.errors import InvalidInput, NotFound
from rekindle.files import write_new_file

from .options import describe_missing_project

if TYPE_CHECKING:
    from rekindle.analytics.cluster_stats import Rate
    from rekindle.knowledge.notes.replay import ReplayedRecall, ReplayResult
    from rekindle.learning.notes.replay_figures import ReplayFigures

_MAX_READ = 10
_MAX_ASKED_CHARS = 100
_LIMIT = "limit"  # the name of the answer that tells everything
_EXPLANATION = (
    "naive list: the 12 commonest commands and 8 commonest files; limit: all that was known before"
)


def replay_history(
    project: Annotated[
        str | None,
        typer.Option(
            metavar="PROJECT", help="Only this project, e.g. owner/name.", show_default=False
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a page to this file.", show_default=False),
    ] = None,
    jobs: JobsOption = None,
    scheduler: SchedulerOption = None,
    json: JsonOption = False,
) -> None:
    """Replay your history: which notes would each session have got, and did they come true?

    Every session of a project with five or more earlier ones is asked for, with what was learned
    from the earlier ones only. Compared are the naive list (the 12 commonest commands and the 8
    commonest files) and the limit (everything that was known before). No model is used. The figures of
    one project are kept for `rekindle web`. A replay that was interrupted goes on where it was.

    \b
    Examples:
      rekindle warm replay
      rekindle warm replay --project owner/name --json
      rekindle warm replay --html replay.html
      rekindle warm replay --scheduler tcp://10.0.0.5:8786
    """
    from rekindle.learning.notes.replay import choose_projects, replay_projects
    from rekindle.learning.notes.replay_figures import save_replay, summarize_replay

    if html is not None and not html.expanduser().absolute().parent.is_dir():
        raise typer.BadParameter(f"folder not found: {html.parent}")
    home = load_settings().home
    with (
        open_work_mapper(jobs, scheduler) as mapper,
        open_for_notes() as store,
        show_progress("Replaying") as progress,
    ):
        results = replay_projects(store, project, progress=progress, mapper=mapper, home=home)
        known = [one for one, _, _ in store.observations.list_projects()]
    chosen = choose_projects(known, project)
    if project is not None and not chosen:
        raise NotFound(describe_missing_project(known, project))
    _require_scores(results)
    if len(chosen) == 1:
        with suppress(OSError):  # a home that cannot be written to
            save_replay(home, chosen[0], results, time.time())
    if html is not None:
        write_new_file(html.expanduser(), "".join(_render_page(results, project)))
    if json:
        print_json([_figures_to_dict(one) for one in summarize_replay(results)])
    elif html is not None:
        print_line(f"Wrote {html}")
    else:
        _write_result_table(results)
        _write_recalls(results[0])


def _require_scores(results: Sequence[ReplayResult]) -> None:
    if not results[0].scores:
        raise InvalidInput(
            "no sessions to replay: expected a project with six or more sessions with tool calls."
            " List sessions with `rekindle sessions list`"
        )


def _write_result_table(results: Sequence[ReplayResult]) -> None:
    """Write the figures; on a narrow terminal without intervals, then also without the limit."""
    print_line(f"{format_count(len(results[0].scores), 'session')} replayed.\n")
    names = [one.name for one in results]
    columns = [Column(""), *(Column(one, right=True, optional=one == _LIMIT) for one in names)]
    rows = _build_rows(results, with_intervals=True)
    lengths = (max(map(len, cells)) + 2 for cells in zip(["", *names], *rows, strict=True))
    if sys.stdout.isatty() and sum(lengths) - 2 > get_terminal_size().columns:
        rows = _build_rows(results, with_intervals=False)
    write_table(columns, rows)
    print_line()
    write_styled([[StyledText(_EXPLANATION)]])


def _build_rows(results: Sequence[ReplayResult], *, with_intervals: bool) -> list[list[str]]:
    from rekindle.learning.notes.replay_figures import METRIC_TITLES

    rates = [one.compute_rates() for one in results]
    rows = [
        [title, *(_format_rate(each[metric], with_interval=with_intervals) for each in rates)]
        for metric, title in METRIC_TITLES.items()
    ]
    per_start = [_format_number(one.tokens_per_start) for one in results]
    per_failure = [_format_number(one.tokens_per_failure) for one in results]
    return [*rows, ["tokens per start", *per_start], ["tokens per failure", *per_failure]]


def _format_rate(rate: Rate, *, with_interval: bool = True) -> str:
    if rate.rate is None:
        return "no evidence"
    interval = ""
    if with_interval and rate.range is not None:
        interval = f" ({rate.range.low:.0%} to {rate.range.high:.0%})"
    return f"{rate.rate:.0%} of {rate.calls}{interval}"


def _format_number(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}"


def _write_recalls(result: ReplayResult) -> None:
    """Write the best and the worst recalls, to be read."""
    for title, chosen in _rank_recalls(result):
        print_line(f"\n{title}:")
        for one in chosen:
            _write_recall(one)


def _rank_recalls(result: ReplayResult) -> tuple[tuple[str, list[ReplayedRecall]], ...]:
    recalls = [one for score in result.scores for one in score.recalls if one.text]
    ranked = sorted(recalls, key=lambda one: one.misses - one.hits)
    return ("Best", ranked[:_MAX_READ]), ("Worst", ranked[: -_MAX_READ - 1 : -1])


def _write_recall(one: ReplayedRecall) -> None:
    print_line(f"\n{one.session} at the {one.moment}: {one.hits} came true, {one.misses} did not")
    if one.asked:
        print_line(f"    asked: {to_one_line(one.asked, _MAX_ASKED_CHARS)}")
    for line in one.text.splitlines():
        print_line(f"    {line}")


def _figures_to_dict(one: ReplayFigures) -> dict[str, Any]:
    import msgspec

    rates = {
        metric: {
            "hits": rate.errors,
            "of": rate.calls,
            "sessions": rate.sessions,
            "rate": rate.rate,
            "low": rate.low,
            "high": rate.high,
        }
        for metric, rate in one.rates.items()
    }
    return {**msgspec.structs.asdict(one), "rates": rates}


# ── the page


def _render_page(results: Sequence[ReplayResult], project: str | None) -> Iterator[str]:
    """Yield the page piece by piece: no scripts, no network, all foreign text escaped."""
    from rekindle.cli.insights.page.style import STYLE
    from rekindle.pages.style import render_head

    rates = [one.compute_rates() for one in results]
    where = f" in {escape(project)}" if project else ""
    yield render_head("Replay of recall", f"{STYLE}\n{_PAGE_STYLE}")
    sessions = format_count(len(results[0].scores), "session")
    yield (
        f"<header><h1>What would they have been told?</h1>\n<p class=lead>{sessions}{where}, "
        "each asked for with what was learned from earlier sessions only. No model was used.</p>"
        "</header>\n<main>\n"
    )
    yield from _render_rates(results, rates)
    for title, chosen in _rank_recalls(results[0]):
        yield f"<section><h2>{title} recalls</h2>\n"
        for one in chosen:
            yield _render_recall(one)
        yield "</section>\n"
    yield "</main>\n</body>\n</html>\n"


_PAGE_STYLE = """
.bar{display:block;height:.5rem;border-radius:3px;background:var(--raw);min-width:2px}
.bar.other{background:var(--e)}
h3{text-transform:none;letter-spacing:0}
pre{white-space:pre-wrap;overflow-wrap:anywhere;font-size:.84rem;margin:.4rem 0 1.2rem}
""".strip()


def _render_rates(
    results: Sequence[ReplayResult], rates: Sequence[dict[str, Rate]]
) -> Iterator[str]:
    from rekindle.learning.notes.replay_figures import METRIC_TITLES

    yield "<section><h2>How it did</h2>\n<table class=rows><thead><tr><th></th>"
    yield "".join(f"<th>{escape(one.name)}</th>" for one in results)
    yield "</tr></thead><tbody>\n"
    for metric, title in METRIC_TITLES.items():
        cells = ""
        for number, (one, each) in enumerate(zip(results, rates, strict=True)):
            rate = each[metric]
            kind = "bar" if number == 0 else "bar other"
            bar = f'<i class="{kind}" style="width:{100 * (rate.rate or 0):.0f}%"></i>'
            cells += f'<td data-label="{escape(one.name)}">{bar}{escape(_format_rate(rate))}</td>'
        yield f"<tr><th>{title}</th>{cells}</tr>\n"
    tokens = "".join(
        f'<td data-label="{escape(one.name)}">{_format_number(one.tokens_per_start)}'
        f" and {_format_number(one.tokens_per_failure)}</td>"
        for one in results
    )
    yield f"<tr><th>tokens at a start, at a failure</th>{tokens}</tr></tbody></table></section>\n"


def _render_recall(one: ReplayedRecall) -> str:
    moment = f"{one.hits} came true, {one.misses} did not"
    return (
        f"<h3>{escape(escape_control_chars(one.session))}, {one.moment}: {moment}</h3>\n"
        f"<p class=note>{escape(escape_control_chars(one.asked[:200]))}</p>\n"
        f"<pre>{escape(escape_control_chars(one.text))}</pre>\n"
    )
