"""What many sessions show, as a page and on a terminal."""

import re
from decimal import Decimal
from html.parser import HTMLParser

import pytest

from rekindle.analytics.cluster_stats import Estimate, Rate
from rekindle.analytics.insights import Insights, compute_insights
from rekindle.analytics.overview.facts import (
    CommandCount,
    KnownFailures,
    Mend,
    RedTest,
    SessionFacts,
)
from rekindle.analytics.overview.overview import Overview, compute_overview
from rekindle.analytics.sample import collect_sample
from rekindle.cli.insights.page import render_page
from rekindle.cli.insights.render import (
    draw_interval,
    format_difference,
    format_rate,
    write_insight,
)
from rekindle.pages.plots import create_scale, format_tick
from rekindle.types import JudgedSession
from tests.unit.analytics.synthetic_sessions import RUN, judged, learning, survivors

VOID = {"meta", "line", "circle", "rect", "polygon", "br"}


class Page(HTMLParser):
    """Counts tags, and finds those that are not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, self.tags[-3:]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def many() -> list[JudgedSession]:
    compressed = [
        judged(f"c{n}", [n % 9 == 0 for n in range(60)], compressions=(60,)) for n in range(8)
    ]
    sessions = [*survivors(2, 200, lambda chances: chances.betavariate(1.2, 12)), *compressed]
    return [*sessions, *learning(3, 40, RUN)]


@pytest.fixture(scope="module")
def found() -> Insights:
    return compute_insights(many())


@pytest.fixture(scope="module")
def overview() -> Overview:
    return overview_of(many())


def overview_of(sessions: list[JudgedSession], name: str = "npm test") -> Overview:
    """The overview of sessions, each a day after the one before, of two projects."""
    facts = {
        one.session.id: SessionFacts(
            one.session,
            f"github.com/owner/app{number % 2}",
            20_000 + number,
            seconds=600.0,
            cost=Decimal(number),
            costs_by_day={20_000 + number: Decimal(number)},
            commands=[CommandCount(name, 3, number % 3)],
        )
        for number, one in enumerate(sessions)
    }
    ids = tuple(facts)[:2]
    known = KnownFailures(
        [Mend("github.com/owner/app0", name, name, f"npm ci && {name}", ids)],
        [RedTest("github.com/owner/app0", "TestClock", ids)],
    )
    return compute_overview(collect_sample(sessions), facts, known)


EMPTY = overview_of([])


def page_of(found: Insights, where: str = "", overview: Overview = EMPTY) -> tuple[Page, str]:
    text = "".join(render_page(overview, found, where))
    return Page(text), text


def test_the_overview_says_what_failed_how_often_and_what_mended_it(
    found: Insights, overview: Overview
) -> None:
    page, text = page_of(found, "owner/app", overview)
    assert page.open == []
    shown = " ".join(" ".join(page.text).split())
    totals, row = overview.totals, overview.commands[0]
    assert f"${totals.cost:,.2f}" in shown
    assert f"{row.rate.errors} of {row.rate.calls}" in shown
    assert "mended by npm ci before it" in shown
    assert "TestClock" in shown
    assert "github.com" not in shown
    assert text.index("What keeps failing") < text.index("Claims, tested")


def test_every_row_of_the_overview_leads_to_its_sessions(
    found: Insights, overview: Overview
) -> None:
    page, text = page_of(found, "owner/app", overview)
    ids = {attrs.get("id") for _, attrs in page.tags}
    links = {attrs["href"] for tag, attrs in page.tags if tag == "a" and attrs["href"] != "#"}
    assert {f"#{id}" for id in ids if id} >= links
    assert any(link and link.startswith("#w2") for link in links)
    rows = re.findall(r'<details class="row.*?</details>', text, re.DOTALL)
    assert len(rows) > 20
    assert all("rekindle resume " in row for row in rows)


def test_secrets_and_tags_in_foreign_text_do_not_reach_the_page(found: Insights) -> None:
    evil = overview_of(many(), "curl -H 'Authorization: Bearer abc' <script>alert(1)</script>")
    redact = lambda text: text.replace("abc", "***")  # noqa: E731
    text = "".join(render_page(evil, found, "<b>", redact))
    assert "<script" not in text
    assert "Bearer abc" not in text
    assert "&lt;b&gt;" in text


def test_every_tag_is_closed(found: Insights) -> None:
    page, _ = page_of(found)
    assert page.open == []


def test_the_page_needs_no_network_and_no_script(found: Insights) -> None:
    page, text = page_of(found)
    assert not {tag for tag, _ in page.tags} & {"script", "link", "img", "iframe", "object"}
    assert not re.search(r"https?:|url\(|@import|//[a-z]", text)
    assert "default-src 'none'" in text


def test_every_plot_says_in_words_what_it_shows(found: Insights) -> None:
    _, text = page_of(found)
    drawn = re.findall(r"<svg[^>]*>", text)
    told = [one for one in drawn if 'role="img"' in one]
    assert len(told) > 20
    assert len(re.findall(r'role="img"[^>]*><title>[^<]+</title>', text)) == len(told)
    for one in set(drawn) - set(told):
        assert "aria-hidden" in one or "preserveAspectRatio" in one, one


def test_every_subject_has_its_part(found: Insights) -> None:
    page, _ = page_of(found)
    ids = {attrs.get("id") for tag, attrs in page.tags if tag == "section"}
    assert ids >= {
        "whose", "claims", "positions", "lengths", "tasks", "tools", "sources", "models",
        "compression", "method",
    }  # fmt: skip
    links = {attrs["href"] for tag, attrs in page.tags if tag == "a"}
    assert links >= {f"#{id}" for id in ids - {"whose", "method", "lengths-by-source"}}


def test_numbers_come_with_intervals_and_sizes(found: Insights) -> None:
    page, _ = page_of(found)
    text = " ".join(page.text)
    row = found.lengths[1]
    assert row.rate.low is not None
    assert row.rate.high is not None
    assert f"{row.rate.rate:.1%}" in text
    assert f"{100 * row.rate.low:.1f}–{100 * row.rate.high:.1f}" in text
    assert f"{row.rate.errors:,} of {row.rate.calls:,}" in text
    for claim in found.claims:
        assert claim.text in text
        assert claim.verdict in text


def test_the_plot_has_a_bar_of_sessions_alive_under_each_step(found: Insights) -> None:
    page, _ = page_of(found)
    bars = [attrs for _, attrs in page.tags if attrs.get("class") == "alive"]
    assert len(bars) == len(found.positions)


def test_names_that_others_wrote_are_escaped() -> None:
    evil = [
        judged(
            f"s{n}", [n == 0] * 30, [("<script>x</script>", "file")] * 30, source='"><img src=x>'
        )
        for n in range(6)
    ]
    page, text = page_of(compute_insights(evil), "title~<b>")
    assert "<script>" not in text
    assert "<img" not in text
    assert page.open == []


def test_an_empty_store_still_gives_a_page() -> None:
    page, _ = page_of(compute_insights([]))
    assert page.open == []
    assert "not enough data" in " ".join(page.text)


def test_the_same_sessions_give_the_same_page(found: Insights) -> None:
    assert page_of(found)[1] == page_of(compute_insights(many()))[1]


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.0, 0.09, (0.0, 0.02, 0.04, 0.06, 0.08, 0.1)),
        (0.0, 1.0, (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)),
        (-0.03, 0.01, (-0.03, -0.02, -0.01, 0.0, 0.01)),
        (0.0, 0.0, (0.0, 0.001, 0.002, 0.003, 0.004, 0.005)),
    ],
)
def test_ticks_are_few_round_and_hold_zero(
    low: float, high: float, ticks: tuple[float, ...]
) -> None:
    assert create_scale(low, high).ticks == pytest.approx(ticks)


def test_what_lies_outside_a_scale_stands_at_its_edge() -> None:
    on = create_scale(0.0, 0.1)
    assert (on.to_percent(-1), on.to_percent(0.05), on.to_percent(7)) == (0, 50, 100)


def test_ticks_are_percent_or_signed_points() -> None:
    assert [format_tick(0.05), format_tick(0.005)] == ["5%", "0.5%"]
    assert [format_tick(-0.02, signed=True), format_tick(0.0, signed=True)] == ["−2", "0"]


def test_a_rate_is_told_with_its_interval_or_with_the_lack_of_one() -> None:
    assert format_rate(Rate(6, 100, 9, 0.06, 0.028, 0.125)) == "6.0% (2.8–12.5)"
    assert format_rate(Rate(1, 3, 1, 1 / 3)) == "33.3% (too few)"
    assert format_rate(Rate(0, 0, 0)) == "–"


def test_a_difference_is_told_in_points() -> None:
    assert format_difference(Estimate(-0.012, -0.024, 0.0004)) == "−1.2 [−2.4, 0.0]"
    assert format_difference(None) == "–"


def test_a_bar_shows_an_interval_on_its_scale() -> None:
    assert draw_interval(0.2, 0.5, 0.8, 1.0, 10) == "··───●───·"
    assert draw_interval(0, 0, 0, 0) == ""


def test_the_terminal_shows_the_claims_and_what_was_left_out(
    found: Insights, capsys: pytest.CaptureFixture[str]
) -> None:
    write_insight(found)
    shown = capsys.readouterr().out
    for part in (
        "By session length",
        "By call number",
        "By task",
        "By tool",
        "Around 8 compressions",
    ):
        assert part in shown
    assert "trap: survivors" in shown
    assert "excluded" in shown
    assert "→" in shown
