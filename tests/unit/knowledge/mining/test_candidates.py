from __future__ import annotations

from rekindle.knowledge.mining import candidates, merge
from rekindle.knowledge.mining.call_reader import MinedCall
from rekindle.types import Pattern, PatternKind, PatternStep
from tests.unit.knowledge.mining.mining_sessions import Did, run

NOW = 1_000_000.0


def kinds(deeds: list[MinedCall], kind: str) -> list[list[str]]:
    """The commands of the candidates of a kind."""
    found: list[list[str]] = []
    for one in candidates.find_candidates(deeds):
        if one.kind == kind:
            found.append([deeds[number].signature.work for number in one.call_indexes])
    return found


def together(kind: PatternKind, *sessions: list[MinedCall]) -> list[Pattern]:
    """The patterns of a kind that several sessions make."""
    found: dict[int, list[merge.Occurrence]] = {}
    for number, deeds in enumerate(sessions):
        for one in candidates.find_candidates(deeds):
            if one.kind == kind:
                own = tuple(deeds[place] for place in one.call_indexes)
                found.setdefault(one.shape, []).append(
                    merge.Occurrence(
                        f"s{number}", number, NOW - number, own, one.support, one.tainted
                    )
                )
    made = [
        merge.build_pattern(kind, places, {}, (len({p.family for p in places}), len(places)), NOW)
        for places in found.values()
        if kind == "retry" or len({p.family for p in places}) > 1
    ]
    return merge.select_patterns([one for one in made if one is not None], 20)


def commands(pattern: Pattern) -> list[object]:
    return [step.arguments.get("command", step.arguments) for step in pattern.steps]


def test_a_literal_that_recurs_stays_and_what_varies_becomes_a_slot() -> None:
    made = together(
        "example",
        run("uv run pytest -q tests/a.py"),
        run("uv run pytest -q tests/b.py"),
        run("uv run pytest -q tests/c.py"),
    )
    assert [commands(one) for one in made] == [["uv run pytest -q <path:py>"]]
    assert made[0].seen_in == 3


def test_the_same_file_in_every_session_stays_as_it_is() -> None:
    made = together(
        "example", run("uv run tool check docs/plan.md"), run("uv run tool check docs/plan.md")
    )
    assert [commands(one) for one in made] == [["uv run tool check docs/plan.md"]]


def test_what_only_one_session_did_is_no_pattern() -> None:
    assert together("example", run("make docs"), run("make tests")) == []


def test_a_call_that_failed_or_may_have_failed_is_no_example() -> None:
    assert kinds(run(Did("make docs", ok=False), Did("make docs", sure=0.4)), "example") == []


def test_what_destroys_is_no_example() -> None:
    for command in ("make x && rm -rf build", "git reset --hard && make", "sudo make install"):
        assert kinds(run(command), "example") == [], command


def test_what_everybody_knows_is_no_example() -> None:
    assert kinds(run("ls -la", "cat a.txt", "git status", "pwd"), "example") == []


def test_a_bare_script_of_the_moment_is_no_pattern() -> None:
    assert together("example", run("python3 try.py"), run("python3 try.py")) == []


def test_a_session_opens_and_closes() -> None:
    deeds = run(
        ("ls"),
        Did(("read_file", {"path": "docs/guide.md"})),
        "make setup",
        "make docs",
        "make check",
    )
    assert ["read_file"] in kinds(deeds, "init")
    assert kinds(deeds, "final")[-1] == [
        "terminal make setup",
        "terminal make docs",
        "terminal make check",
    ]


def test_steps_in_a_row_are_a_sequence_and_grow_as_far_as_sessions_agree() -> None:
    sessions = [run("make fmt", "make lint", "make check", last) for last in ("make a", "make b")]
    (pair,) = [
        one
        for one in candidates.find_candidates(sessions[0])
        if one.kind == "sequence" and one.call_indexes == (0, 1)
    ]
    ways = candidates.extend_sequence(sessions[0], pair.call_indexes)
    assert ways == [[0, 1], [0, 1, 2], [0, 1, 2, 3]]


def test_the_same_step_again_and_again_is_one() -> None:
    deeds = run("make fmt", "make fmt", "make check")
    assert kinds(deeds, "sequence") == [["terminal make fmt", "terminal make check"]]


def test_a_sequence_does_not_reach_over_a_new_request() -> None:
    assert kinds(run("make fmt", "make check", users=(0, 2)), "sequence") == []


def test_the_call_that_mended_an_error_tells_the_difference() -> None:
    (one,) = together("retry", run(Did("pytest tests/a.py", ok=False), "uv run pytest tests/a.py"))
    assert one.lesson == "Add `uv run`."
    assert one.before == PatternStep("terminal", {"command": "pytest tests/a.py"})
    assert commands(one) == ["uv run pytest tests/a.py"]
    (two,) = together("retry", run(Did("pytest tests/a.py", ok=False), "bin/test tests/a.py"))
    assert two.lesson == "Instead of `pytest` use `bin/test`."


def test_what_had_to_be_done_first_is_the_lesson() -> None:
    session = run(Did("npm run check", ok=False), "npm run format", "npm run check")
    (one,) = together("retry", session)
    assert one.lesson == "It worked after `npm run format`."


def test_another_file_is_no_lesson() -> None:
    assert together("retry", run(Did("make docs a.md", ok=False), "make docs b.md")) == []
    assert together("retry", run(Did("ls nowhere", ok=False), "ls")) == []


def test_the_fault_of_the_environment_teaches_nothing() -> None:
    failed = Did("pytest tests/a.py", ok=False, fault="environment")
    assert together("retry", run(failed, "uv run pytest tests/a.py")) == []


def test_an_edit_that_is_refused_sends_back_to_the_file() -> None:
    edit = {"path": "src/a.py", "old_string": "x", "new_string": "y"}
    session = [
        Did(("patch", edit), ok=False),
        Did(("read_file", {"path": "src/a.py"})),
        Did(("patch", edit)),
    ]
    (one,) = together("retry", run(*session), run(*session))
    assert "look at the file again" in one.lesson
    assert together("retry", run(*session)) == [], "one file of one session teaches nobody"


PAGE = Did(("web_extract", {"url": "https://example.org"}))


def test_after_words_of_strangers_the_rest_is_tainted_whatever_the_user_says() -> None:
    deeds = run("make a", PAGE, "make docs", "make b", users=(0, 6))
    assert [deed.tainted for deed in deeds] == [False, True, True, True]
    made = together("example", run(PAGE, "make docs"), run(PAGE, "make docs"))
    assert made[0].tainted
    later = run(PAGE, "make docs", users=(0, 2))
    assert together("example", later, later)[0].tainted


def test_what_was_also_done_before_any_stranger_had_a_say_is_clean() -> None:
    made = together("example", run(PAGE, "make docs"), run("make docs"))
    assert not made[0].tainted


def test_the_function_that_brings_strangers_in_was_called_before_they_had_a_say() -> None:
    asks = Did(("mcp__desk__get_ticket", {"number": 7}))
    deeds = run(asks, asks, "make docs")
    assert [deed.tainted for deed in deeds] == [False, True, True]
    fetched = run("curl -s https://example.org", "make docs")
    assert [deed.tainted for deed in fetched] == [True, True], "its last line would be told"


def test_a_clean_way_ends_where_strangers_may_have_had_a_say() -> None:
    deeds = run("make fmt", "make lint", "curl -s https://example.org", "make evil")
    assert candidates.extend_sequence(deeds, (0, 1)) == [[0, 1]]


def test_strangers_put_no_word_into_a_pattern_that_is_known_without_them() -> None:
    bad = run(PAGE, "deskctl add rooms/evil.json")
    made = together("example", bad, bad, bad, run("deskctl add rooms/blue.json"))
    clean = [one for one in made if not one.tainted]
    assert [commands(one) for one in clean] == [["deskctl add <path:json>"]]
    assert "evil" not in str(clean)


def test_what_may_not_be_used_does_not_swallow_what_may() -> None:
    clean = Pattern("a", "sequence", (make("fmt"), make("lint")), seen_in=3, score=0.2)
    tainted = Pattern(
        "b", "sequence", (make("fmt"), make("lint"), make("x")), seen_in=3, score=0.4, tainted=True
    )
    assert {one.id for one in merge.select_patterns([clean, tainted], 20)} == {"a", "b"}
    assert [
        one.id for one in merge.select_patterns([clean, tainted._replace(tainted=False)], 20)
    ] == ["b"]


def test_ids_and_dates_never_get_into_a_pattern() -> None:
    call = Did(("book", {"user_id": "ada_li_1234", "day": "2026-01-31", "cabin": "economy"}))
    (one,) = together("example", run(call), run(call), run(call))
    assert one.steps[0].arguments == {"user_id": "<id>", "day": "<date>", "cabin": "economy"}


def test_near_duplicates_are_merged() -> None:
    sessions = [
        run(f"make docs LANG={word} && make check --all --strict -v") for word in ("de", "fr", "it")
    ]
    assert len(together("example", *sessions, *sessions)) == 1


def make(target: str) -> PatternStep:
    return PatternStep("terminal", {"command": f"make {target}"})


def test_only_sessions_that_hold_the_steps_are_counted_and_named() -> None:
    rare = [run("deskctl open", "deskctl find --all", f"deskctl book r{n}.json") for n in range(2)]
    usual = [run("deskctl open", f"deskctl show d{n}.json") for n in range(9)]
    made = together("init", *rare, *usual)
    seen = {tuple(commands(one)): (one.seen_in, set(one.sessions)) for one in made}
    opening = ("deskctl open", "deskctl show <path:json>")
    booking = ("deskctl open", "deskctl find --all")
    assert seen[opening] == (9, {f"s{n}" for n in range(2, 11)})
    assert [found for way, found in seen.items() if way[:2] == booking] == [(2, {"s0", "s1"})]


def test_what_is_dropped_lends_its_counts_only_to_what_its_sessions_show_too() -> None:
    def seen(kept: Pattern, dropped: Pattern) -> tuple[int, tuple[str, ...]]:
        (one,) = merge.select_patterns([kept, dropped], 20)
        assert one.id == kept.id
        return one.seen_in, one.sessions

    def one(kind: PatternKind, score: float, count: int, *targets: str) -> Pattern:
        steps = tuple(make(target) for target in targets)
        name = "".join(targets)
        return Pattern(
            name, kind, steps, score=score, seen_in=count, support=count, sessions=(name,)
        )

    assert seen(one("sequence", 0.4, 4, "b", "c"), one("sequence", 0.2, 5, "a", "b", "c")) == (
        5, ("bc", "abc"),
    )  # fmt: skip
    assert seen(one("sequence", 0.4, 4, "a", "b", "c"), one("sequence", 0.2, 5, "a", "b")) == (
        4, ("abc",),
    )  # fmt: skip
    assert seen(one("sequence", 0.4, 4, "a", "b"), one("sequence", 0.2, 5, "b", "a")) == (
        4,
        ("ab",),
    )
    assert seen(one("init", 0.4, 4, "b", "c"), one("init", 0.2, 5, "a", "b", "c")) == (4, ("bc",))
    assert seen(one("init", 0.4, 4, "a", "b"), one("init", 0.2, 5, "a", "b", "c")) == (
        5, ("ab", "abc"),
    )  # fmt: skip
    assert seen(one("final", 0.4, 4, "b", "c"), one("final", 0.2, 5, "a", "b", "c")) == (
        5, ("bc", "abc"),
    )  # fmt: skip


def test_a_usual_way_does_not_vanish_into_a_rare_one() -> None:
    usual = Pattern("a", "init", (make("a"), make("b")), score=0.2, seen_in=97)
    rare = Pattern("b", "init", (make("a"), make("b"), make("c")), score=0.6, seen_in=2)
    assert [one.seen_in for one in merge.select_patterns([usual, rare], 20)] == [2, 97]
    assert [
        one.seen_in for one in merge.select_patterns([usual._replace(seen_in=3), rare], 20)
    ] == [2]


def test_a_value_that_some_do_not_share_is_a_slot() -> None:
    sessions = [run(f"deskctl add {name}.json", "deskctl list") for name in ("a", "a", "a", "b")]
    (one,) = together("init", *sessions)
    assert commands(one) == ["deskctl add <path:json>", "deskctl list"]
    assert one.seen_in == 4


def test_more_sessions_errors_and_news_make_a_better_score() -> None:
    def scored(families: int, failed: int, age: float) -> float:
        deeds = tuple(run("make docs --strict"))
        found = [merge.Occurrence("s", n, NOW - age, deeds, 1, False) for n in range(families)]
        sorts = {"terminal make docs": merge.CallTypeStats(100, failed)}
        made = merge.build_pattern("example", found, sorts, (families, families), NOW)
        assert made is not None
        return made.score

    assert scored(5, 10, 0) > scored(2, 10, 0)
    assert scored(3, 30, 0) > scored(3, 2, 0)
    assert scored(3, 10, 0) > scored(3, 10, 400 * 86_400)


def test_a_copy_of_a_session_counts_once() -> None:
    deeds = tuple(deed._replace(id="toolu_01AbC3dE5fG7h") for deed in run("make docs --strict"))
    found = [merge.Occurrence(f"s{n}", n, NOW, deeds, 1, False) for n in range(2)]
    made = merge.build_pattern("example", found, {}, (2, 2), NOW)
    assert made is not None
    assert made.seen_in == 1
