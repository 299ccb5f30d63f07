"""The proof of the proof: what is recorded, what each arm begins with, what is taken up again."""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from bench.warm import agent, arms, command, proof_run, right_calls
from bench.warm.model import model_server
from bench.warm.model.model_server import ModelError, ServedModel
from bench.warm.proof_run import ProofRun
from bench.warm.tasks import task_sets
from bench.warm.tasks.handbook import WAYS, build_first_message
from bench.warm.tasks.harbour_tasks import FAMILIES, Task, list_tasks
from bench.warm.tasks.harbour_world import World

from rekindle import Message, Store
from rekindle.learning.library import TemplateLibrary
from rekindle.learning.notes.learner import learn_from_sessions
from rekindle.testing import ScriptedModel
from rekindle.types import ToolCall
from tests.new_store import open_new_store
from tests.unit.bench_warm.solving import words_for

pytestmark = pytest.mark.slow

BELL = Task("bell-test-00", "prove", "test", "Ring the bell of tower 7.", {"held": "7"})


def calling(command: str) -> dict[str, Any]:
    return {"calls": [{"name": "terminal", "arguments": {"command": command}}]}


def solved(task: Task) -> dict[str, Any]:
    """The turn of a model that knows the way."""
    command = shlex.join(["quay", *words_for(task)]) if task.family != "papers" else "ls docs"
    return {"user": task.ask, "steps": [calling(command), {"text": "It says: {result}"}]}


@pytest.fixture(autouse=True, scope="module")
def new_stores() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proof_run, "open_store", open_new_store)
        yield


@pytest.fixture(scope="module")
def served() -> Iterator[ServedModel]:
    script = {"turns": [solved(task) for task in [*list_tasks("train"), *list_tasks("test")]]}
    with ScriptedModel(script) as model:
        yield ServedModel(model.url, "scripted", 0)


@pytest.fixture(scope="module")
def recorded_once(
    served: ServedModel, tmp_path_factory: pytest.TempPathFactory, new_stores: None
) -> ProofRun:
    one = ProofRun("scripted", is_slice=True, root=tmp_path_factory.mktemp("recorded"))
    proof_run.record_training(one, served)
    return one


@pytest.fixture
def recorded(recorded_once: ProofRun, tmp_path: Path) -> ProofRun:
    """A proof of which all training tasks are recorded."""
    shutil.copytree(recorded_once.folder, tmp_path / recorded_once.folder.name)
    return recorded_once._replace(root=tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_new_store(str(tmp_path / "s.db")) as store:
        yield store


def bells(store: Store, where: Path) -> TemplateLibrary:
    """A project in which bells were rung."""
    for tower in range(3):
        session = store.begin(source=proof_run.TRAINING, cwd=str(World(where).work))
        said = [Message("user", f"Ring the bell of tower {tower} with carillon.")]
        for number, run in enumerate(("carillon test --bells", "make bells")):
            call = ToolCall(f"c{number}", "terminal", {"command": run})
            said += [
                Message("assistant", None, (call,)),
                Message("tool", "ding", tool_call_id=call.id, meta={"exit_code": 0}),
            ]
        store.append(session, *said)
    learn_from_sessions(store)
    return TemplateLibrary(where.with_name("templates"))


# -- what a session begins with


def test_only_tasks_to_learn_from_come_with_the_way_they_are_done() -> None:
    for task in list_tasks("train"):
        assert build_first_message(task).startswith(task.ask)
        way = build_first_message(task).splitlines()[-2]
        assert shlex.split(way) == ["quay", *words_for(task)]
    assert all(build_first_message(task) == task.ask for task in list_tasks("test"))
    assert WAYS.keys() == {name for name in FAMILIES if "train" in FAMILIES[name].splits}


def test_each_arm_differs_from_cold_by_what_it_is_given_alone(tmp_path: Path, store: Store) -> None:
    past = arms.TrainedStore(store, bells(store, tmp_path / "w"))
    given = {a: past.build_start(a, store.begin(), BELL, tmp_path / "w") for a in arms.ARMS}
    assert given["cold"].opening == (Message("system", task_sets.FIRST_SYSTEM),)
    assert all(one.opening[0].text.startswith(task_sets.FIRST_SYSTEM) for one in given.values())
    said = {arm: repr(one.opening) for arm, one in given.items()}
    assert "carillon test --bells" in said["warm"]
    assert "General notes:" in said["placebo"]
    assert "carillon" not in said["placebo"]
    assert "carillon" in said["naive"]
    assert (given["cold"].tokens, given["naive"].notes) == (0, 2)
    assert abs(given["placebo"].tokens - given["warm"].tokens) < 30
    assert len({one.sign for one in given.values()}) == len(arms.ARMS)


def test_where_nothing_is_known_a_session_begins_as_in_the_cold_arm(
    tmp_path: Path, store: Store
) -> None:
    past = arms.TrainedStore(store, bells(store, tmp_path / "w"))
    cold, *others = (
        past.build_start(a, store.begin(), BELL, tmp_path / "other") for a in arms.ARMS
    )
    for one in others:
        assert one.sign == cold.sign
        assert (one.tokens, one.notes) == (0, 0)


def test_the_placebo_is_the_same_when_a_run_is_taken_up_again(tmp_path: Path, store: Store) -> None:
    past = arms.TrainedStore(store, bells(store, tmp_path / "w"))
    once, again = (
        past.build_start("placebo", store.begin(), BELL, tmp_path / "w") for _ in range(2)
    )
    assert once.sign == again.sign


# -- one task


def test_calls_errors_and_repetitions_are_counted() -> None:
    def call(id: str, arguments: Any) -> Message:
        return Message("assistant", None, (ToolCall(id, "terminal", arguments),))

    def result(id: str, code: int) -> Message:
        return Message("tool", "", tool_call_id=id, meta={"exit_code": code})

    messages = [
        Message("user", "x"),
        call("a", {"command": "ls"}), result("a", 0),
        call("b", '{"command":"ls"}'), result("b", 0),
        call("c", {"command": "quay"}), result("c", 2),
    ]  # fmt: skip
    assert agent.count_calls(messages) == (3, 1, 3, 1)
    assert agent.count_calls([call(str(n), {"n": n}) for n in range(12)])[0] == 12


def test_the_model_is_told_that_it_must_call_as_long_as_nothing_went_well(
    tmp_path: Path, store: Store
) -> None:
    task = list_tasks("test")[0]
    steps = [calling("quay tests"), solved(task)["steps"][0], {"text": "{result}"}]
    with ScriptedModel({"turns": [{"user": task.ask, "steps": steps}]}) as model:
        session = store.begin()
        store.append(session, Message("user", task.ask))
        begun = [Message("system", task_sets.FIRST_SYSTEM)]
        doing = agent.run_task(
            store, ServedModel(model.url, "m", 0), session, task, tmp_path / "quayside", begun
        )
        done = asyncio.run(doing)
        held = [one.body["chat_template_kwargs"]["must_call"] for one in model.requests]
    assert held == [True, True, False]
    assert done.success
    assert (done.calls, done.errors, done.first, done.repeats) == (2, 1, 2, 0)


def test_a_task_without_an_answer_is_not_done_and_nobody_learns_from_it(
    tmp_path: Path, store: Store
) -> None:
    task = list_tasks("test")[0]
    endless = {**calling("quay tests"), "endless": True}
    with ScriptedModel({"otherwise": [endless]}) as model:
        session = store.begin()
        store.append(session, Message("user", task.ask))
        doing = agent.run_task(
            store, ServedModel(model.url, "m", 0), session, task, tmp_path / "quayside", []
        )
        done = asyncio.run(doing)
    assert not done.success
    assert (done.calls, done.errors, done.repeats) == (agent.STEPS, agent.STEPS, agent.STEPS - 1)
    assert store.resolve(session.id).end_reason == "max_steps"


# -- the proof


def test_a_course_is_taken_up_where_it_was_stopped(recorded: ProofRun, served: ServedModel) -> None:
    one, first = recorded, proof_run.read_rows(recorded.recorded)
    assert [row["task"] for row in first] == [task.id for task in one.list_tasks("train")]
    assert all(row["success"] for row in first)

    lines = one.recorded.read_text().splitlines()
    one.recorded.write_text("\n".join(lines[:-1]) + "\n" + lines[-1][:20])
    again = proof_run.record_training(one, served)
    assert again[:-1] == first[:-1]
    assert (again[-1]["task"], again[-1]["session"] != first[-1]["session"]) == (
        first[-1]["task"],
        True,
    )
    with one.store("past") as store:
        assert store.resolve(first[-1]["session"]).end_reason == "completed"
        assert len(store.recent(100)) == len(first) + 1


def test_what_another_agent_recorded_is_not_mixed_with_ours(
    recorded: ProofRun, served: ServedModel
) -> None:
    first = proof_run.read_rows(recorded.recorded)
    recorded.recorded.write_text(json.dumps({**first[0], "begun": "other"}) + "\n")
    with pytest.raises(ModelError, match="remove it"):
        proof_run.record_training(recorded, served)


def test_a_failing_engine_stops_the_run_and_counts_for_no_arm(tmp_path: Path, store: Store) -> None:
    task = list_tasks("test")[0]
    broken = {"text": "x", "faults": [{"status": 400, "message": "no", "always": True}]}
    with ScriptedModel({"otherwise": [broken]}) as model:
        session = store.begin()
        store.append(session, Message("user", task.ask))
        doing = agent.run_task(
            store, ServedModel(model.url, "m", 0), session, task, tmp_path / "quayside", []
        )
        with pytest.raises(ModelError, match=task.id):
            asyncio.run(doing)


def test_a_session_that_was_killed_is_no_example(recorded: ProofRun, served: ServedModel) -> None:
    with recorded.store("past") as store:
        half = store.begin(source=proof_run.TRAINING)
        store.append(half, Message("user", "x"))
    proof_run.record_training(recorded, served)
    with recorded.store("past") as store:
        assert store.resolve(half.id).end_reason == "killed"


def test_every_test_task_is_run_in_every_arm_once(tmp_path: Path, served: ServedModel) -> None:
    one = ProofRun("scripted", is_slice=True, root=tmp_path)
    with one.store("past") as store:
        bells(store, one.project.with_name("elsewhere"))  # so that all arms begin alike
    rows = proof_run.run_tests(one, served)
    wanted = {(task.id, arm) for task in one.list_tasks("test") for arm in one.arms}
    assert {(row["task"], row["arm"]) for row in rows} == wanted
    assert len(rows) == len(wanted)
    assert all(row["success"] for row in rows if row["family"] != "papers")
    begun = {(row["task"], row["begun"]) for row in rows}
    assert (
        len({row["session"] for row in rows}) == len(begun) < len(rows)
    )  # alike ones are run once
    assert proof_run.run_tests(one, served) == rows


def test_the_command_goes_from_nothing_to_the_table(
    tmp_path: Path,
    served: ServedModel,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(command, "ProofRun", partial(ProofRun, root=tmp_path))
    monkeypatch.setattr(model_server, "serve_model", lambda *_: nullcontext(served))
    args = argparse.Namespace(
        step="run",
        model="1.5b",
        slice=True,
        threads=1,
        server=None,
        native=False,
        tasks="first",
        each=None,
    )
    command.run(args)
    told = capsys.readouterr().out
    assert "15 training sessions, 15 of them did their task" in told
    assert "template “harbour”: " in told
    args.step = "table"
    command.run(args)
    table = capsys.readouterr().out
    for arm in ("cold", "warm", "placebo", "naive"):
        assert f"| {arm} | 5 of 5 = 100% " in told
        assert f"| {arm} | 5 of 5 = 100% " in table


def test_a_task_is_run_again_when_its_beginning_changed(
    tmp_path: Path, served: ServedModel
) -> None:
    one = ProofRun("scripted", is_slice=True, root=tmp_path)
    with one.store("past") as store:
        bells(store, one.project)
    rows = proof_run.run_tests(one, served, ["cold"])
    rows[0]["begun"] = "other"
    one.ran.write_text("".join(json.dumps(row) + "\n" for row in rows))
    again = proof_run.run_tests(one, served, ["cold"])
    assert [row["task"] for row in again[len(rows) :]] == [rows[0]["task"]]


def test_each_arm_comes_first_in_its_turn() -> None:
    assert [proof_run.rotate_arms(arms.ARMS, n)[0] for n in range(5)] == [*arms.ARMS, "cold"]
    assert all(sorted(proof_run.rotate_arms(arms.ARMS, n)) == sorted(arms.ARMS) for n in range(5))


def test_a_slice_has_every_family_and_fewer_tasks() -> None:
    whole, part = ProofRun("m"), ProofRun("m", is_slice=True)
    for split in ("train", "test"):
        assert {t.family for t in whole.list_tasks(split)} == {
            t.family for t in part.list_tasks(split)
        }
        assert len(part.list_tasks(split)) < len(whole.list_tasks(split))
    assert whole.folder != part.folder


def test_the_right_call_has_every_word_of_the_way_or_reads_its_file() -> None:
    task = Task("prove-test-00", "prove", "test", "Prove the tides.", {"module": "tides"})

    def made(arguments: dict[str, Any], **meta: Any) -> bool | None:
        call = Message("assistant", None, (ToolCall("1", "terminal", arguments),))
        result = Message("tool", "", tool_call_id="1", meta=meta)
        return right_calls.has_right_call(task, WAYS, [call, result])

    assert made({"command": "quay prove tides --lane dry"})
    assert made({"command": "cd x; quay prove --lane dry tides"})
    assert made({"path": "tides"})
    assert not made({"command": "quay prove tides --lane dry"}, exit_code=2)
    assert not made({"command": "quay prove ropes --lane dry"})
    assert not made({"command": "quay prove 'tides"})
    assert right_calls.has_right_call(task._replace(family="papers"), WAYS, []) is None
