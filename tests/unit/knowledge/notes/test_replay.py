"""The figures of a replay, computed by hand for a small history."""

from __future__ import annotations

from rekindle.knowledge.notes.calls import ObservedCall
from rekindle.knowledge.notes.replay import (
    METRICS,
    PARTS,
    ReplayResult,
    ReplaySession,
    SessionScore,
    replay_session,
)
from tests.unit.knowledge.notes.test_recall import ROOT, bash, observe, read

NO_NETWORK = "error: no network"
# In five sessions: a command and two files that each used, a failure and its fix in three.
FAILURE = (bash("make test", failed=True, result=NO_NETWORK), bash("make test --offline"))
EARLIER = [
    observe(number, request, bash("make check"), read("src/a.py"), read("src/c.py"), *more)
    for number, (request, more) in enumerate(
        [
            ("fix the parser", FAILURE),
            ("rename the lexer", FAILURE),
            ("profile the printer", FAILURE),
            ("tidy the router", ()),
            ("split the planner", ()),
        ]
    )
]


def replay(*calls: ObservedCall, common: frozenset[str] = frozenset()) -> dict[str, SessionScore]:
    request = "fix the reader"
    session = ReplaySession(observe(9, request, *calls), ROOT, request, calls)
    return dict(replay_session(session, EARLIER, common))


def count(score: SessionScore, *metrics: str) -> list[tuple[int, int]]:
    return [score.counts[metric] for metric in metrics]


def test_every_figure_of_a_session_is_that_of_a_count_by_hand() -> None:
    # Named are two commands and two files; used are three commands and two files.
    used = (bash("make check"), read("src/a.py"), read("src/b.py"), *FAILURE, bash("make pack"))
    for name, score in replay(*used).items():
        assert count(score, "given", "came_true") == [(1, 1), (3, 4)], name
        assert count(score, "commands_true", "commands_told") == [(2, 2), (2, 3)], name
        assert count(score, "files_true", "files_told") == [(1, 2), (1, 2)], name
        assert count(score, "mended", "beside") == [(1, 1), (0, 1)], name
        assert score.answered_failures == 1, name
        assert min(score.tokens) > 0, name


def test_what_was_not_used_or_failed_did_not_come_true() -> None:
    score = replay(bash("make check", failed=True, result="red"), read("src/z.py"))["notes"]
    assert count(score, "came_true", "commands_told", "files_told") == [(0, 4), (0, 0), (0, 1)]


def test_what_other_projects_run_too_counts_neither_way() -> None:
    score = replay(bash("make check"), common=frozenset({"make check"}))["notes"]
    assert count(score, "commands_true", "commands_told") == [(0, 1), (0, 0)]


def test_another_fix_than_the_one_that_was_told_is_beside_the_point() -> None:
    fixed = bash("make test JOBS=1")
    score = replay(FAILURE[0], fixed)["notes"]
    assert count(score, "mended", "beside") == [(0, 1), (1, 1)]


def test_a_failure_counts_only_if_it_was_fixed_within_six_calls() -> None:
    others = [bash(f"make step{number}") for number in range(6)]
    for calls in ([FAILURE[0]], [FAILURE[0], *others, FAILURE[1]], [FAILURE[0], FAILURE[0]]):
        assert count(replay(*calls)["notes"], "mended", "beside") == [(0, 0), (0, 0)]
    assert count(replay(FAILURE[0], *others[:5], FAILURE[1])["notes"], "mended") == [(1, 1)]


def test_without_anything_known_nothing_is_given() -> None:
    session = ReplaySession(observe(9, "fix it", bash("make check")), ROOT, "fix it", ())
    for name, score in replay_session(session, [], frozenset()):
        assert count(score, "given", "came_true") == [(0, 1), (0, 0)], name


def test_the_interval_of_a_rate_takes_a_session_as_one_observation() -> None:
    def score(session: str, hits: int) -> SessionScore:
        counts = dict.fromkeys(METRICS + PARTS, (hits, 10))
        return SessionScore(session, {**counts}, (10, 0), 0)

    scores = [score(f"s{number}", 10 * (number % 2)) for number in range(20)]
    found = ReplayResult("notes", scores).compute_rates()["came_true"]
    assert (found.errors, found.calls, found.rate) == (100, 200, 0.5)
    assert found.range is not None
    # Of 200 independent ones, half came true: 0.43 to 0.57.
    assert found.range.low < 0.35
    assert found.range.high > 0.65
    families = {f"s{number}": f"s{number % 10}" for number in range(20)}
    wider = ReplayResult("notes", scores, families).compute_rates()["came_true"]
    assert wider.range is not None
    assert wider.rate == 0.5
    assert wider.range.low < found.range.low, "a fork repeats its parent"
