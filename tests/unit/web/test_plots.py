"""Plots: SVG that the policy of pages allows, with links and words for every point."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Environment

from rekindle.pages.plots import (
    ForestRow,
    PlotPoint,
    Svg,
    create_scale,
    fit_scale,
    format_amount,
    format_points,
    render_bars,
    render_forest,
    render_key,
    render_line,
    render_sparkline,
    render_whisker,
)
from rekindle.web.rendering import load_static_files

HOSTILE = "<script>alert('x')</script>\" onload='x' &amp;"
POINTS = [
    PlotPoint("1 Jun", 0.10, 0.05, 0.20, "week of 1 June: 10%", "/calls?week=1&verdict=failed"),
    PlotPoint("8 Jun", 0.50, words="week of 8 June: 50%, too few calls", href="/calls?week=8"),
    PlotPoint("15 Jun", None),
    PlotPoint("22 Jun", 0.12, 0.08, 0.18, "week of 22 June: 12%", "/calls?week=22"),
    PlotPoint("29 Jun", 0.0, 0.0, 0.03, "week of 29 June: 0%", "/calls?week=29"),
]


def parse(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(f"<div>{svg}</div>")


def list_texts(root: ElementTree.Element, name: str) -> list[str]:
    return ["".join(one.itertext()) for one in root.iter(name)]


@pytest.mark.parametrize("render", [render_line, render_bars])
def test_every_point_is_a_link_with_its_words(render) -> None:
    root = parse(render("Failures by week", POINTS))
    links = {one.get("href"): one.get("aria-label") for one in root.iter("a")}
    assert links["/calls?week=1&verdict=failed"] == "week of 1 June: 10%"
    assert len(links) == 4
    assert "week of 8 June: 50%, too few calls" in list_texts(root, "desc")[0]
    assert list_texts(root, "title")[0] == "Failures by week"


@pytest.mark.parametrize("render", [render_line, render_bars])
def test_a_plot_with_links_is_no_picture(render) -> None:
    bare = [point._replace(href="") for point in POINTS]
    roles = [next(parse(render("x", points)).iter("svg")).get("role") for points in (POINTS, bare)]
    assert roles == ["group", "img"]


def test_a_line_stops_where_data_is_missing_or_too_little() -> None:
    root = parse(render_line("x", POINTS))
    segments = [one for one in root.iter("line") if one.get("stroke") == "currentColor"]
    assert len(segments) == 1  # only the last two points are both certain
    hollow = [one for one in root.iter("circle") if "few" in (one.get("class") or "")]
    assert len(hollow) == 1


def test_uncertain_bars_are_pale_only_beside_certain_ones() -> None:
    assert render_bars("x", POINTS).count("bar few") == 1
    amounts = [PlotPoint("a", 3.0), PlotPoint("b", 5.0)]
    assert "few" not in render_bars("x", amounts, format_value=format_amount)


def test_a_forest_plot_is_a_table_with_linked_names() -> None:
    rows = [
        ForestRow(
            PlotPoint("Bash", 0.1, 0.05, 0.2, "", "/calls?tool=Bash"), "10%", "5–20%", ("300",)
        ),
        ForestRow(PlotPoint("Read", None), "–", "", ("2",), "too few"),
    ]
    root = parse(render_forest("Failures by tool", rows, names=("Tool", "Failed", "Calls")))
    assert list_texts(root, "th")[0] == "Tool"
    assert [one.get("href") for one in root.iter("a")] == ["/calls?tool=Bash"] * 2
    keyed = [one for one in root.iter("a") if one.get("tabindex") != "-1"]
    assert len(keyed) == 1
    assert list_texts(root, "td")[2:4] == ["10%5–20%", "300"]
    assert "too few" in list_texts(root, "th")[-1]


def test_hostile_text_stays_text() -> None:
    point = PlotPoint(HOSTILE, 0.2, 0.1, 0.3, HOSTILE, f"/x?{HOSTILE}")
    drawn = [
        render_line(HOSTILE, [point]),
        render_bars(HOSTILE, [point]),
        render_forest(HOSTILE, [ForestRow(point, HOSTILE, HOSTILE, (HOSTILE,), HOSTILE)]),
        render_whisker(create_scale(0, 1), point),
        render_sparkline(HOSTILE, [1.0, None, 2.0]),
        render_key((("c1"), HOSTILE)),
    ]
    for svg in drawn:
        root = parse(svg)
        assert "script" not in {one.tag for one in root.iter()}
        assert not any("onload" in one.attrib for one in root.iter())
        assert HOSTILE in "".join(
            [*root.itertext(), *(value for one in root.iter() for value in one.attrib.values())]
        )


def test_nothing_needs_an_inline_style() -> None:
    rows = [ForestRow(point, "x") for point in POINTS]
    for svg in (render_line("x", POINTS), render_bars("x", POINTS), render_forest("x", rows)):
        assert "style" not in svg


def test_templates_insert_plots_as_they_are() -> None:
    page = Environment(autoescape=True).from_string("{{ plot }}{{ text }}")
    assert page.render(plot=render_key(("c1", "<b>")), text="<b>").startswith(
        '<ul class="plot-key">'
    )
    assert isinstance(render_sparkline("x", [1.0]), Svg)


def test_the_classes_of_plots_have_a_style() -> None:
    style = load_static_files()["plots.css"].decode()
    used = set(re.findall(r'class="([^"]+)"', render_line("x", POINTS) + render_bars("x", POINTS)))
    for name in {name for names in used for name in names.split()}:
        assert f".{name}" in style


@given(
    st.lists(
        st.tuples(
            st.floats(-1e9, 1e9), st.none() | st.floats(0, 1e9), st.none() | st.floats(0, 1e9)
        ),
        max_size=30,
    )
)
def test_any_numbers_can_be_drawn(numbers: list[tuple[float, float | None, float | None]]) -> None:
    points = [
        PlotPoint("x", value, value - low, value + high)
        if low is not None and high is not None
        else PlotPoint("x", value)
        for value, low, high in numbers
    ]
    scale = fit_scale(points)
    assert 2 <= len(scale.ticks) <= 8
    shown = [point for point in points if point.is_certain] or points
    assert scale.low - 1e-6 <= min([0.0, *(point.value or 0.0 for point in shown)])
    for svg in (
        render_line("x", points),
        render_bars("x", points),
        render_sparkline("x", [point.value for point in points]),
    ):
        parse(svg)
        assert "nan" not in svg
        assert "inf" not in svg


def test_uncertain_values_do_not_flatten_the_others() -> None:
    certain = PlotPoint("a", 0.04, 0.03, 0.05)
    assert fit_scale([certain, PlotPoint("b", 1.0)]).high == 0.05
    assert fit_scale([certain, PlotPoint("b", 0.05, 0.0, 0.9)]).high == 0.2
    assert fit_scale([PlotPoint("b", 1.0)]).high == 1.0


def test_ticks_are_round() -> None:
    assert create_scale(0, 0.23).ticks == (0.0, 0.05, 0.1, 0.15, 0.2, 0.25)
    assert create_scale(-0.04, 0.02).ticks == (-0.04, -0.02, 0.0, 0.02)
    assert create_scale(0, 730).ticks == (0.0, 200.0, 400.0, 600.0, 800.0)
    assert format_points(-0.025) == "−2.5"
    assert format_amount(12_345) == "12.3k"
