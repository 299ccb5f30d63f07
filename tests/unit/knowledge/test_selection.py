"""Which template and patterns a new session is given: what fits, what may be used, or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rekindle.knowledge.pattern_index import (
    CandidatePattern,
    TemplateStats,
    WordCounts,
    weigh_pattern_words,
)
from rekindle.knowledge.selection import Selection, SelectionRequest, select_template
from rekindle.types import JSON, Pattern, PatternStep, Template, replace_fields


def has_command(arguments: Mapping[str, JSON]) -> bool:
    return "command" in arguments


def anything(_: Mapping[str, JSON]) -> bool:
    return True


def nothing(_: Mapping[str, JSON]) -> bool:
    return False


TOOLS = {"terminal": has_command}


def pattern(asked: str, command: str, **more: Any) -> Pattern:
    known: dict[str, Any] = {"id": f"{asked}{command}", "kind": "example", "seen_in": 3}
    return Pattern(
        steps=(PatternStep("terminal", {"command": command}),), asked=asked, **{**known, **more}
    )


def template(id: str, *patterns: Pattern, **more: Any) -> Template:
    return Template(id, id.title(), patterns=patterns, **more)


ROWS = pattern("count the rows of sales.csv by region", "rowctl tally --in <path:csv> --by <word>")
TESTS = pattern("run the failing tests of auth.py", "uv run pytest -q <path:py>")
SERVICES = pattern("start the docker services", "docker compose up -d --wait")
EVERYTHING = template("work", ROWS, TESTS, SERVICES)


def chosen(
    text: str, *templates: Template, records: Mapping[str, TemplateStats] | None = None, **more: Any
) -> Selection:
    candidates = [
        CandidatePattern(
            one._replace(patterns=()), each, more.get("folders", {}).get(each.id, frozenset())
        )
        for one in templates
        for each in one.patterns
    ]
    known = Counter(word for one in candidates for word in weigh_pattern_words(one.pattern).words)
    ask = SelectionRequest(
        text, more.get("tools", TOOLS), more.get("folder"), 0.0, more.get("seed", "s")
    )
    limits = {name: more[name] for name in ("patterns", "floor") if name in more}
    given = records or {}

    def ask_records(ids: Sequence[str]) -> Mapping[str, TemplateStats]:
        return given

    return select_template(ask, candidates, WordCounts(known, 200), ask_records, **limits)


def test_what_is_alike_is_chosen_and_what_is_not_stays_out() -> None:
    found = chosen("how many rows per region has march.csv?", EVERYTHING)
    assert found.template is not None
    assert found.template.id == "work"
    assert found.patterns == (ROWS,)
    assert "region" in found.picked[0].words


def test_what_a_call_named_when_it_was_made_is_looked_for_too() -> None:
    made = {"command": "go test ./internal/auth/login_test.go"}
    step = PatternStep("terminal", {"command": "go test <path>"}, example=made)
    tests = pattern("review the changes", "")._replace(steps=(step,))
    found = chosen("running the test in internal/auth", template("work", tests, SERVICES))
    assert found.patterns == (tests,)
    assert {"test", "auth"} <= {*found.picked[0].words}
    assert chosen("does the login work?", template("work", tests, SERVICES)).patterns


def test_words_in_common_are_told_as_the_request_says_them() -> None:
    found = chosen("Counting rows of the regions", EVERYTHING)
    assert set(found.picked[0].words) == {"counting", "rows", "regions"}


def test_nothing_is_chosen_where_nothing_fits_and_the_reason_is_said() -> None:
    found = chosen("write a poem about the sea", EVERYTHING)
    assert found.template is None
    assert found.patterns == ()
    assert "nothing fits" in found.reason
    assert chosen("ok", EVERYTHING).template is None
    assert chosen("count rows", template("empty")).template is None


def test_the_floor_can_be_raised() -> None:
    text = "count the rows somewhere in the billing archive of last summer"
    assert chosen(text, EVERYTHING, floor=0.2).template is not None
    assert chosen(text, EVERYTHING, floor=0.9).template is None


def test_a_template_that_waits_or_is_retired_is_not_used() -> None:
    for state in ("quarantined", "retired"):
        found = chosen("count the rows of x.csv", replace_fields(EVERYTHING, state=state))
        assert found.template is None
        assert found.considered[0].reason == f"it is {state}"


def test_a_pattern_that_only_strangers_vouch_for_is_not_used() -> None:
    for sessions in (1, 2, 50):  # they may have read the same page
        bad = replace_fields(ROWS, tainted=True, seen_in=sessions)
        assert chosen("count the rows of x.csv", template("bad", bad)).template is None
    good = replace_fields(ROWS, seen_in=2)
    assert chosen("count the rows of x.csv", template("good", good)).template is not None


def test_patterns_for_tools_that_are_not_here_are_not_used() -> None:
    other = {"send_letter": anything}
    found = chosen("count the rows of x.csv", EVERYTHING, tools=other)
    assert found.template is None
    strict = {"terminal": nothing}
    assert chosen("count the rows of x.csv", EVERYTHING, tools=strict).template is None


def test_no_more_patterns_are_taken_than_asked_for_and_they_differ() -> None:
    alike = [
        pattern(f"count the rows of file{n}.csv", "rowctl tally --in <path:csv>", id=str(n))
        for n in range(6)
    ]
    other = pattern("count the rows of a table in the database", "dbq --count <word>", id="z")
    found = chosen(
        "count the rows of march.csv and of the table", template("t", *alike, other), patterns=2
    )
    assert len(found.patterns) == 2
    assert other in found.patterns


def test_what_was_seen_in_the_same_folder_is_preferred() -> None:
    here = replace_fields(ROWS, id="here")
    there = replace_fields(ROWS, id="there", score=0.1)
    folders = {"here": frozenset({"/home/ada/shop"})}
    one = template("t", there, here)
    text = "count the rows of x.csv by region"
    found = chosen(text, one, folders=folders, folder="/home/ada/shop/web", patterns=1)
    assert found.patterns == (here,)
    assert found.picked[0].here
    assert chosen(text, one, folders=folders, folder="/srv", patterns=1).patterns == (there,)


def test_among_templates_that_fit_equally_the_better_results_mostly_win_but_not_always() -> None:
    good, bad = template("good", ROWS), template("bad", ROWS)
    records = {"good": TemplateStats(40, 400, 12), "bad": TemplateStats(40, 400, 80)}
    text = "count the rows of x.csv by region"
    wins = Counter(
        found.template.id
        for n in range(200)
        if (found := chosen(text, good, bad, records=records, seed=str(n))).template
    )
    assert wins["good"] > 190
    unknown = Counter(
        found.template.id
        for n in range(200)
        if (found := chosen(text, good, bad, records={}, seed=str(n))).template
    )
    assert min(unknown["good"], unknown["bad"]) > 60


def test_a_template_that_fits_much_better_is_taken_whatever_became_of_others() -> None:
    fits, famous = template("fits", ROWS), template("famous", SERVICES)
    records = {"fits": TemplateStats(10, 100, 30), "famous": TemplateStats(50, 500, 0)}
    for n in range(20):
        found = chosen(
            "count the rows of x.csv by region", fits, famous, records=records, seed=str(n)
        )
        assert found.template is not None
        assert found.template.id == "fits"


def test_the_same_question_with_the_same_seed_has_the_same_answer() -> None:
    many = [template(f"t{n}", ROWS, TESTS) for n in range(8)]
    assert chosen("count the rows of x.csv", *many) == chosen(
        "count the rows of x.csv", *reversed(many)
    )


def test_a_way_that_repeats_the_calls_of_a_better_pattern_is_left_out() -> None:
    check = pattern("check the code of x.go", "mise run lint")
    tests = pattern("test the code of x.go", "mise run test")
    both = pattern("check and test the code of x.go", "mise run lint")
    both = replace_fields(both, id="both", steps=(*check.steps, *tests.steps), kind="sequence")
    found = chosen("test the code of y.go", template("t", check, tests, both), patterns=5)
    assert (tests in found.patterns) is not (both in found.patterns)
