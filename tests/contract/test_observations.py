"""Learning on both engines: observations, projects and playbooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rekindle import Filter, Message, Store, ToolCall
from rekindle.config.schema import WarmSection
from rekindle.knowledge.render import MADE_UP_MARK
from rekindle.learning.advice import create_project_advisor
from rekindle.learning.notes.learner import build_playbook_chunk, learn_from_sessions
from rekindle.learning.notes.playbooks import (
    MAX_WAITING_NOTES,
    find_project,
    load_decisions,
    load_playbook,
    load_told_notes,
    propose_note,
)
from rekindle.learning.notes.recall import (
    recall_at_failure,
    recall_at_start,
    recall_before_call,
)
from rekindle.learning.notes.replay import replay_projects
from rekindle.learning.verdicts.session_outcomes import judge_outcomes, load_outcome
from rekindle.learning.warm_start import NewSession, WarmStartConfig, WarmStarter
from rekindle.parallel.tasks import Prepare, make_task, read_result, run_task
from rekindle.store.learning.observations import NoteDecision

FOLDER = "/gone/work/app"
DENIED = "cache: operation not permitted\nerror: build failed"


def tell(store: Store, name: str, *commands: tuple[str, str, bool], folder: str = FOLDER) -> str:
    """Store a session that runs commands, each with its output and whether it works."""
    session = store.begin(id=name, cwd=folder)
    messages = [Message("user", f"please work on {name}")]
    for number, (command, output, works) in enumerate(commands):
        call = ToolCall(f"{name}-{number}", "Bash", {"command": command})
        messages.append(Message("assistant", tool_calls=(call,)))
        text = output if works or output[:1] == "<" else f"Exit code 1\n{output}"
        messages.append(
            Message("tool", text, tool_call_id=call.id, name="Bash", meta={"is_error": not works})
        )
    store.append(session, *messages)
    return name


def tell_several(store: Store, count: int, *commands: tuple[str, str, bool]) -> None:
    for number in range(count):
        tell(store, f"s{number}", *commands)


class PicklingMapper:
    """Does all work as a worker would that has only the address of the store."""

    workers = 2
    chunk_seconds = 0.25

    def map_chunks(
        self, function: Any, chunks: Sequence[Any], *, prepare: Prepare | None = None
    ) -> Iterator[Any]:
        assert prepare is None
        for chunk in chunks:
            yield read_result(chunk.name, run_task(make_task(function, chunk, None)))

    def can_open(self, path: str) -> bool:
        return True


def test_workers_open_the_store_themselves(store: Store) -> None:
    tell_several(store, 7, ("make check", "ok", True), ("go vet", DENIED, False))
    mapper = PicklingMapper()
    assert learn_from_sessions(store, mapper=mapper).sessions == 7
    assert judge_outcomes(store, mapper=mapper) == 7
    assert len(replay_projects(store, mapper=mapper)[0].scores) == 2
    assert "`make check` (7 sessions)" in recall_at_start(store, FOLDER, "go on").text


def test_what_sessions_do_is_recalled_in_their_folder_alone(store: Store) -> None:
    tell_several(store, 6, ("make check", "ok", True))
    assert learn_from_sessions(store).sessions == 6
    assert "`make check` (6 sessions)" in recall_at_start(store, FOLDER, "go on").text
    assert "`make check`" in recall_at_start(store, f"{FOLDER}/", "go on").text
    assert recall_at_start(store, "/gone/work/other", "go on").text == ""


def test_files_that_are_gone_from_the_folder_are_not_told(store: Store, tmp_path: Path) -> None:
    names = [f"src/{name}.py" for name in ("core", "shop", "till", "tax")]
    (tmp_path / "src").mkdir()
    (tmp_path / ".git").mkdir()
    for name in names:
        (tmp_path / name).touch()
    lines = [(f"sed -n 1,9p {name}", "text", True) for name in names]
    for number in range(6):
        tell(store, f"s{number}", *lines, folder=str(tmp_path))
    learn_from_sessions(store)

    def list_told(folder: Path = tmp_path) -> list[str]:
        text = recall_at_start(store, str(folder), "please work on it").text
        return [name for name in names if f"`{name}`" in text]

    assert list_told() == list_told(tmp_path / "src") == names
    (tmp_path / names[-1]).unlink()
    assert list_told() == list_told(tmp_path / "src") == names[:-1]
    missing = ("Bash", {"command": "cat lib/tax.py"}, "cat: lib/tax.py: No such file or directory")
    assert "src/tax.py" not in recall_at_failure(store, str(tmp_path), *missing).text
    for name in names[:-1]:
        (tmp_path / name).unlink()
    assert list_told() == names  # the project's files are elsewhere
    assert "src/tax.py" in recall_at_failure(store, str(tmp_path), *missing).text


def test_a_second_run_looks_only_at_what_is_new(store: Store) -> None:
    tell_several(store, 3, ("make check", "ok", True))
    assert learn_from_sessions(store).sessions == 3
    assert learn_from_sessions(store).sessions == 0
    store.append("s1", Message("user", "and now?"))
    assert learn_from_sessions(store).sessions == 1


class EndingMapper(PicklingMapper):
    """Ends the run before a playbook is built, as a crash does."""

    def map_chunks(self, function: Any, chunks: Any, *, prepare: Any = None) -> Iterator[Any]:
        if function is build_playbook_chunk:
            raise KeyboardInterrupt
        return super().map_chunks(function, chunks, prepare=prepare)


def test_a_run_that_was_ended_is_finished_by_the_next_one(store: Store) -> None:
    tell_several(store, 3, ("make check", "ok", True))
    with pytest.raises(KeyboardInterrupt):
        learn_from_sessions(store, mapper=EndingMapper())
    assert "make check" not in recall_at_start(store, FOLDER, "go on").text
    assert learn_from_sessions(store) == (0, (f"folder:{FOLDER}",))
    assert "`make check` (3 sessions)" in recall_at_start(store, FOLDER, "go on").text
    assert learn_from_sessions(store) == (0, ())


def test_folders_of_other_machines_are_not_looked_at(store: Store, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    config = '[remote "origin"]\n\turl = https://github.com/owner/secret\n'
    (tmp_path / ".git" / "config").write_text(config)
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    tell(store, "a", ("make", "ok", True), folder=str(tmp_path))
    learn_from_sessions(store, reads_folders=False)
    assert store.session("a").project == f"folder:{tmp_path}"
    store.append("a", Message("user", "more"))
    tell(store, "b", ("make", "ok", True), folder=str(tmp_path / "inner"))
    learn_from_sessions(store)
    assert store.session("b").project == "github.com/owner/secret"


def test_sessions_are_assigned_to_the_repository_that_git_names(store: Store) -> None:
    report = "To github.com:owner/app.git\n   1..2  main -> main"
    tell(store, "a", ("git push", report, True))
    tell(store, "b", ("make", "ok", True), folder=f"{FOLDER}/.worktrees/2")
    learn_from_sessions(store)
    assert store.session("a").project == "github.com/owner/app"
    assert store.session("b").project == "github.com/owner/app"
    assert find_project(store, FOLDER) == "github.com/owner/app"
    where = Filter.parse("project=github.com/owner/app")
    assert {one.id for one in store.recent(where=where)} == {"a", "b"}


def test_sessions_are_assigned_to_the_repository_that_their_transcript_names(store: Store) -> None:
    tell(store, "a", ("make", "ok", True))
    store.update("a", repository="github.com/owner/app")
    learn_from_sessions(store)
    assert store.session("a").project == "github.com/owner/app"


def test_a_copy_without_a_remote_belongs_to_the_repository_whose_name_and_files_it_has(
    store: Store,
) -> None:
    files = [f"src/billing/{name}.py" for name in ("tax", "cart", "order", "invoice", "refund")]
    reads = [(f"cat {name}", "x = 1", True) for name in files]
    tell(store, "a", *reads)
    store.update("a", repository="github.com/owner/app")
    learn_from_sessions(store)
    tell(store, "copy", *reads, folder="/elsewhere/app")
    tell(store, "namesake", ("make check", "ok", True), folder="/another/app")
    tell(store, "other", *reads, folder="/elsewhere/shop")
    learn_from_sessions(store)
    assert store.session("copy").project == "github.com/owner/app"
    assert store.session("namesake").project == "folder:/another/app"
    assert store.session("other").project == "folder:/elsewhere/shop"


def test_a_folder_below_another_belongs_to_its_project_only_if_that_is_a_repository(
    store: Store,
) -> None:
    tell(store, "a", ("make check", "ok", True))
    learn_from_sessions(store)
    assert find_project(store, FOLDER) == f"folder:{FOLDER}"
    assert find_project(store, f"{FOLDER}/inner") is None
    store.update("a", repository="github.com/owner/app")
    store.append("a", Message("user", "more"))
    learn_from_sessions(store)
    assert find_project(store, f"{FOLDER}/inner") == "github.com/owner/app"


def test_a_project_that_is_found_later_takes_its_sessions_along(store: Store) -> None:
    tell(store, "a", ("make check", "ok", True))
    learn_from_sessions(store)
    assert store.session("a").project == f"folder:{FOLDER}"
    report = "From https://github.com/owner/app\n * branch main"
    tell(store, "b", ("git fetch", report, True))
    learn_from_sessions(store)
    assert store.session("a").project == "github.com/owner/app"
    assert len(load_playbook(store, "github.com/owner/app").sessions) == 2
    assert load_playbook(store, f"folder:{FOLDER}").sessions == ()


def test_assigning_a_project_makes_nothing_stale(store: Store) -> None:
    tell(store, "a", ("make check", "ok", True))
    learn_from_sessions(store)
    assert store.session("a").project
    assert learn_from_sessions(store) == (0, ())


def test_a_known_failure_recalls_its_fix(store: Store) -> None:
    tell(
        store,
        "a",
        ("go list ./...", DENIED, False),
        ("env GOCACHE=/tmp/c go list ./...", "ok", True),
    )
    learn_from_sessions(store)
    recall = recall_at_failure(store, FOLDER, "Bash", {"command": "go list ./x"}, DENIED)
    assert recall.notes[0].command == "env GOCACHE=/tmp/c go list ./..."
    other = recall_at_failure(store, "/elsewhere", "Bash", {"command": "go list ./x"}, DENIED)
    assert other.text == ""


def test_a_deleted_session_is_forgotten(store: Store) -> None:
    tell_several(store, 2, ("make check", "ok", True))
    learn_from_sessions(store)
    store.end("s0", "done")
    store.prune(Filter.parse("ended=done"))
    store.append("s1", Message("user", "more"))
    learn_from_sessions(store)
    assert [one.id for one in load_playbook(store, f"folder:{FOLDER}").sessions] == ["s1"]


def test_what_an_older_version_observed_is_observed_again(store: Store) -> None:
    tell_several(store, 3, ("make check", "ok", True))
    learn_from_sessions(store)
    old = [(one, b"of another shape") for one in store.observations.find_stale("none")]
    store.observations.save("0.0", old)
    learn_from_sessions(store, limit=1)
    assert len(load_playbook(store, f"folder:{FOLDER}").sessions) == 1
    learn_from_sessions(store)
    assert len(load_playbook(store, f"folder:{FOLDER}").sessions) == 3


def test_a_repair_forgets_what_can_be_learned_again(store: Store) -> None:
    tell(store, "a", ("make check", "ok", True))
    learn_from_sessions(store)
    store.repair()
    assert load_playbook(store, f"folder:{FOLDER}").sessions == ()
    assert learn_from_sessions(store).sessions == 1


def test_a_replay_asks_with_what_was_known_before(store: Store) -> None:
    tell_several(store, 7, ("make check", "ok", True))
    notes, naive, limit = replay_projects(store)
    assert [len(one.scores) for one in (notes, naive, limit)] == [2, 2, 2]
    assert notes.compute_rates()["commands_told"].rate == 1.0
    assert replay_projects(store, "nobody/nothing")[0].scores == []


KNOWN_TO_FAIL = (("make check", "error: no network", False), ("make check --offline", "ok", True))


def test_a_call_that_is_known_to_fail_is_told_in_its_project_alone(store: Store) -> None:
    for name in ("parser", "lexer"):
        tell(store, name, *KNOWN_TO_FAIL)
    learn_from_sessions(store)
    for folder, command, is_known in (
        (FOLDER, "make check", True),
        (FOLDER, "git add . && make check", True),
        (FOLDER, "make check --offline", False),
        ("/elsewhere", "make check", False),
    ):
        recall = recall_before_call(store, folder, "Bash", {"command": command})
        assert ("`make check --offline` then worked" in recall.text) is is_known, command


def test_a_session_is_advised_on_calls_as_its_settings_and_its_arm_want(store: Store) -> None:
    session = store.begin(cwd=FOLDER)

    def list_advice(arm: str | None, settings: WarmSection) -> list[bool]:
        advisor = create_project_advisor(settings, store, session._replace(arm=arm), FOLDER)
        return [advisor.after_call is not None, advisor.before_call is not None]

    before_call = WarmSection(before_call=True)
    assert list_advice(None, WarmSection()) == [True, False]
    assert list_advice("warm", before_call) == [True, True]
    assert list_advice(None, replace(before_call, at_failure=False)) == [False, True]
    assert list_advice(None, replace(before_call, enabled=False)) == [False, False]
    for arm in ("cold", "placebo"):
        assert list_advice(arm, before_call) == [False, False], arm


def end_with_red_tests(store: Store, name: str) -> None:
    """Let a session change a file and end with a red test."""
    edit = ToolCall(f"{name}-e", "Edit", {"file_path": f"{FOLDER}/a.go", "old_string": "x"})
    test = ToolCall(f"{name}-t", "Bash", {"command": "go test ./..."})
    red = "Exit code 1\n--- FAIL: TestCart (0.00s)\nFAIL\tshop/cart\t0.01s\nFAIL"
    messages = [
        Message("assistant", tool_calls=(edit,)),
        Message("tool", "ok", tool_call_id=edit.id, name="Edit"),
        Message("assistant", tool_calls=(test,)),
        Message("tool", red, tool_call_id=test.id, name="Bash", meta={"is_error": True}),
    ]
    store.append(store.session(name), *messages)


def test_what_only_sessions_that_failed_did_fixes_nothing(store: Store) -> None:
    for name in ("parser", "lexer"):
        end_with_red_tests(store, tell(store, name, *KNOWN_TO_FAIL))
    learn_from_sessions(store)
    failed = (store, FOLDER, "Bash", {"command": "make check"}, "error: no network")
    assert load_outcome(store, "parser").verdict == "failed"
    assert not recall_at_failure(*failed).notes
    tell(store, "printer", *KNOWN_TO_FAIL)
    learn_from_sessions(store)
    assert "`make check --offline` then worked (3 sessions)" in recall_at_failure(*failed).text


def test_a_call_that_was_interrupted_has_no_fix(store: Store) -> None:
    beside = "<tool_use_error>Sibling tool call errored</tool_use_error>"
    for number in range(6):
        tell(
            store,
            f"s{number}",
            ("make check", beside, False),
            ("make check --offline", "ok", True),
        )
    learn_from_sessions(store)
    playbook = load_playbook(store, find_project(store, FOLDER) or "")
    assert not playbook.fixes
    assert [(one.name, one.failed) for one in playbook.commands] == [("make check", 0)]
    (score,) = replay_projects(store)[0].scores
    assert score.counts["mended"] == (0, 0)


def test_a_replay_counts_the_calls_that_were_known_to_fail(store: Store) -> None:
    for name in ("parser", "lexer", "printer", "router", "planner", "reader"):
        tell(store, name, *KNOWN_TO_FAIL)
    notes, naive, _ = replay_projects(store)
    stopped = notes.compute_rates()["stopped"]
    assert (stopped.errors, stopped.calls) == (1, 1)
    assert [one.moment for one in notes.scores[0].recalls][:2] == ["start", "call"]
    assert naive.compute_rates()["stopped"].rate is None


def test_a_replay_tells_nothing_that_came_later(store: Store) -> None:
    for number in range(7):
        name = "odd" if number == 5 else "even"
        tell(store, f"s{number}", ("make check", "ok", True), (f"make {name}", "ok", True))
    notes, _, limit = replay_projects(store)
    starts = {score.session: score.recalls[0].text for score in notes.scores}
    assert "make check" in starts["s5"]
    assert "make odd" not in starts["s5"], "what only this session ran"
    assert notes.scores[0].counts["commands_told"] == (1, 2)
    everything = {score.session: score.recalls[0].text.splitlines() for score in limit.scores}
    known = ["make check", "make even"]
    assert everything == {"s5": known, "s6": [*known, "make odd"]}


def test_a_command_that_many_projects_run_counts_in_no_replay(store: Store) -> None:
    for project in ("app", "shop", "site"):
        for number in range(6):
            commands = ("make check", "make pack") if project == "app" else ("make check",)
            name, folder = f"{project}-{number}", f"/gone/work/{project}"
            tell(store, name, *((one, "ok", True) for one in commands), folder=folder)
    scores = {score.session: score for score in replay_projects(store)[0].scores}
    assert scores["app-5"].counts["commands_told"] == (1, 1)
    assert scores["shop-5"].counts["commands_told"] == (0, 0)


def test_a_replay_knows_the_repository_of_the_project(store: Store) -> None:
    unknown = "GraphQL: Could not resolve to a Repository with the name 'eve/app'. (repository)"
    commands = (
        ("git push", "To github.com:owner/app.git\n   1..2  main -> main", True),
        ("gh pr view 7 --repo eve/app", unknown, False),
        ("gh pr view 7 --json title", "title: Fix it", True),
    )
    tell_several(store, 7, *commands)
    notes, *_ = replay_projects(store, "github.com/owner/app")
    failures = [one for score in notes.scores for one in score.recalls if one.moment == "failure"]
    assert len(failures) == 2
    assert all("This project is `owner/app` on GitHub." in one.text for one in failures)


@pytest.mark.parametrize(("shared", "control_share"), [(False, 0.0), (True, 0.0), (False, 1.0)])
def test_a_new_session_starts_with_the_notes_unless_it_is_shared_or_cold(
    store: Store, shared: bool, control_share: float
) -> None:
    tell_several(store, 6, ("make check", "ok", True))
    learn_from_sessions(store)
    config = WarmStartConfig(control_share=control_share)
    starter = WarmStarter(store, config, shared=shared)
    prelude = starter.build_prelude(NewSession(store.begin(cwd=FOLDER), "go on", {}, FOLDER))
    is_warm = not shared and not control_share
    assert ("make check" in str(prelude.messages)) is is_warm
    assert (prelude.arm == "warm") is is_warm
    if is_warm:
        assert [one.role for one in prelude.messages] == ["system"]
        assert prelude.reason == "1 note of the project"


@pytest.mark.parametrize("shows_calls", [True, False])
def test_an_example_of_the_project_is_shown_as_a_turn(store: Store, shows_calls: bool) -> None:
    for number in (17, 25, 48):
        call = ToolCall("c", "Bash", {"command": f"quay load --boxes {number}"})
        store.append(
            store.begin(cwd=FOLDER),
            Message("user", f"Let quay book {number} boxes for the shop."),
            Message("assistant", tool_calls=(call,)),
            Message("tool", f"booked {number}", tool_call_id="c", name="Bash"),
            Message("assistant", f"Booked {number} boxes for the shop."),
        )
    learn_from_sessions(store)
    starter = WarmStarter(store, WarmStartConfig(control_share=0.0), shows_calls=shows_calls)
    tools = {"terminal": lambda arguments: "command" in arguments}
    asked = NewSession(store.begin(cwd=FOLDER), "Book 9 boxes for the shop.", tools, FOLDER)
    system, *turn = starter.build_prelude(asked).messages
    assert "Asked “Let quay book 34 boxes for the shop.”: `quay load --boxes 34`" in system.text
    if not shows_calls:
        assert turn == []
        return
    assert [one.role for one in turn] == ["user", "assistant", "tool", "assistant"]
    assert turn[0].text == f"{MADE_UP_MARK} Let quay book 34 boxes for the shop."
    (made,) = turn[1].tool_calls
    assert (made.name, made.arguments) == ("terminal", '{"command": "quay load --boxes 34"}')
    assert turn[3].text == "Booked 34 boxes for the shop."


def test_a_proposed_note_is_saved_once_and_waits(store: Store) -> None:
    note = propose_note(store, "p", "Ask  first.", 1.0)
    assert note is not None
    assert note.text == "Ask first."
    assert propose_note(store, "p", "Ask first.", 2.0) is None
    decisions = load_decisions(store, "p")
    assert [one.text for one in decisions.waiting] == ["Ask first."]
    assert decisions.added == ()
    assert load_told_notes(store, "p") == []


def test_new_decisions_are_found_in_all_projects(store: Store) -> None:
    for number, project in enumerate("pqr"):
        propose_note(store, project, "Ask first.", float(number))
    found = store.observations.find_new_decisions(1.0, 5)
    assert [(project, one.time, one.text) for project, one in found] == [
        ("r", 2.0, "Ask first."),
        ("q", 1.0, "Ask first."),
    ]
    assert len(store.observations.find_new_decisions(0.0, 1)) == 1


def test_only_so_many_proposed_notes_wait(store: Store) -> None:
    for number in range(MAX_WAITING_NOTES):
        assert propose_note(store, "p", f"Note {number}.", 1.0) is not None
    assert propose_note(store, "p", "One more.", 2.0) is None
    assert propose_note(store, "q", "Elsewhere.", 2.0) is not None


def test_a_note_that_was_shared_without_its_origin_is_told_in_other_projects_only(
    store: Store,
) -> None:
    text = "Ask first. (shared from me/shop)"
    store.observations.save_decision("*", NoteDecision("ab", "added", text, 1.0))
    (told,) = load_decisions(store, "github.com/me/other").shared
    assert (told.kind, told.text) == ("wish", text)
    assert load_decisions(store, "github.com/me/shop").shared == ()
