"""Commands in a shell: asked about, run, read and ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from rekindle.agent.tools.builtin.terminal import OUTPUT_CHARACTERS, TERMINAL
from rekindle.agent.tools.registry import ToolRegistry
from rekindle.agent.tools.tool import ApprovalRequest, ToolContext
from rekindle.types import ToolCall
from tests.unit.agent.tools.calling import call, error, name_sleep, remains_asleep
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def said(context: ToolContext, command: str, **arguments: Any) -> dict[str, Any]:
    return json.loads(call(TERMINAL, context, command=command, **arguments).content)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_for(file: Path) -> str:
    wait_until(lambda: file.exists() and file.read_text().strip())
    return file.read_text().strip()


def test_output_and_exit_code_come_back_as_json(context: ToolContext) -> None:
    assert said(context, "echo out; echo err >&2; exit 3") == {
        "output": "out\nerr\n",
        "exit_code": 3,
        "error": None,
    }
    result = call(TERMINAL, context, command="exit 3")
    assert result.meta["exit_code"] == 3
    assert not result.is_error


def test_a_command_ended_by_a_signal_counts_as_a_shell_counts(context: ToolContext) -> None:
    assert said(context._replace(approval="never"), "kill -9 $$")["exit_code"] == 137


def test_a_command_runs_where_it_should(context: ToolContext, work: Path) -> None:
    (work / "sub").mkdir()
    assert said(context, "pwd")["output"] == f"{work}\n"
    assert said(context, "pwd", workdir="sub")["output"] == f"{work}/sub\n"
    assert "outside the allowed folders" in error(TERMINAL, context, command="ls", workdir="/etc")
    assert "not a folder" in error(TERMINAL, context, command="ls", workdir="nowhere")


def test_there_is_no_input_to_wait_for(context: ToolContext) -> None:
    assert said(context, "cat", timeout=5) == {"output": "", "exit_code": 0, "error": None}


def test_secrets_of_our_environment_are_not_passed_on(context: ToolContext) -> None:
    environment = {
        **context.environment,
        "OPENAI_API_KEY": "k1",
        "GITHUB_TOKEN": "k2",
        "DB_PASSWORD": "k3",
        "DATABASE_URL": "postgres://u:k4@h/d",
        "AWS_SECRET_ACCESS_KEY": "k5",
        "KEEP_TOKEN": "k6",
        "EDITOR": "vi",
    }
    seen = said(
        context._replace(environment=environment, pass_on=frozenset({"KEEP_TOKEN"})), "env"
    )["output"]
    assert [key for key in ("k1", "k2", "k3", "k4", "k5") if key in seen] == []
    assert "KEEP_TOKEN=k6" in seen
    assert "EDITOR=vi" in seen


def test_long_output_keeps_its_head_and_tail_and_says_what_is_missing(context: ToolContext) -> None:
    output = said(context, "seq 1 200000")["output"]
    assert output.startswith("1\n2\n3\n")
    assert output.endswith("199999\n200000\n")
    total = len("".join(f"{n}\n" for n in range(1, 200_001)))
    assert f"{total - OUTPUT_CHARACTERS:,} characters left out" in output
    assert len(output) < OUTPUT_CHARACTERS + 100


def test_characters_of_several_bytes_are_never_cut(context: ToolContext) -> None:
    output = said(context, "for i in $(seq 1 40000); do printf 'ä€😀'; done")["output"]
    assert "\ufffd" not in output
    assert set(output.split("\n")[0]) <= set("ä€😀")
    assert said(context, "printf 'a\\xffb'")["output"] == "a\ufffdb"


def test_colours_and_control_characters_are_taken_out(context: ToolContext) -> None:
    assert (
        said(context, "printf '\\033[31mred\\033[0m\\a 10%%\\r20%%\\n'")["output"]
        == "red 10%\n20%\n"
    )


# -- asking


def asking(answer: bool) -> tuple[list[ApprovalRequest], Any]:
    asked: list[ApprovalRequest] = []

    async def approve(question: ApprovalRequest) -> bool:
        asked.append(question)
        return answer

    return asked, approve


def test_a_dangerous_command_runs_only_after_a_yes(context: ToolContext, work: Path) -> None:
    (work / "x").mkdir()
    asked, approve = asking(False)
    result = call(TERMINAL, context._replace(approve=approve), command="rm -r x")
    assert result.meta["refused"] is True
    assert "refused by the user" in result.content
    assert (work / "x").exists()
    assert asked == [
        ApprovalRequest(
            "terminal", "rm -r x", str(work), ("rm deletes folders and their contents",)
        )
    ]
    asked, approve = asking(True)
    assert said(context._replace(approve=approve), "rm -r x")["exit_code"] == 0
    assert not (work / "x").exists()
    assert len(asked) == 1


def test_a_harmless_command_runs_without_asking_in_a_pipe_too(context: ToolContext) -> None:
    asked, approve = asking(False)
    assert (
        said(context._replace(approve=approve), "printf 'b\\na\\n' | sort | head -1")["output"]
        == "a\n"
    )
    assert asked == []


def test_where_nobody_can_be_asked_dangerous_commands_are_refused(
    context: ToolContext, work: Path
) -> None:
    (work / "x").mkdir()
    result = call(TERMINAL, context, command="ls; rm -r x")
    assert result.meta["refused"] is True
    assert "nobody can be asked here" in json.loads(result.content)["error"]
    assert (work / "x").exists()
    assert said(context, "ls")["output"] == "x\n"


def test_the_setting_decides_when_to_ask(context: ToolContext, work: Path) -> None:
    asked, approve = asking(True)
    asking_context = context._replace(approve=approve)
    assert said(asking_context._replace(approval="always"), "echo a")["output"] == "a\n"
    assert len(asked) == 1
    assert "every command needs approval" in error(
        TERMINAL, context._replace(approval="always"), command="ls"
    )
    (work / "x").mkdir()
    assert "not allowed" in error(
        TERMINAL, asking_context._replace(approval="refuse"), command="rm -r x"
    )
    assert len(asked) == 1
    assert said(context._replace(approval="never"), "rm -r x")["exit_code"] == 0
    assert not (work / "x").exists()


# -- ending


def test_when_the_time_is_over_the_whole_group_is_ended(context: ToolContext, work: Path) -> None:
    command = f"(trap '' TERM; {name_sleep(61)} & echo > child; wait) & echo started; sleep 60"
    began = time.monotonic()
    answer = said(context._replace(approval="never"), command, timeout=2)
    assert time.monotonic() - began < 10
    assert answer["output"] == "started\n"
    assert "took longer than 2 s" in answer["error"]
    assert answer["exit_code"] != 0
    assert (work / "child").exists()
    assert not remains_asleep(name_sleep(61))


def test_a_child_that_left_the_group_is_ended_too(context: ToolContext, work: Path) -> None:
    command = f"setsid sh -c 'echo $$ > child; exec {name_sleep(62)}' & sleep 60"
    said(context._replace(approval="never"), command, timeout=2)
    assert (work / "child").exists()
    assert not remains_asleep(name_sleep(62))


def test_cancelling_ends_the_command_with_all_it_started(context: ToolContext, work: Path) -> None:
    async def main() -> None:
        box = ToolRegistry([TERMINAL]).select()
        arguments = json.dumps({"command": f"{name_sleep(63)} & echo $! > child; sleep 60"})
        task = asyncio.create_task(box.run(ToolCall("1", "terminal", arguments), context))
        while not (work / "child").exists() or not (work / "child").read_text():
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert not remains_asleep(name_sleep(63))


def test_what_is_left_in_the_background_is_ended_and_said(context: ToolContext, work: Path) -> None:
    began = time.monotonic()
    answer = said(context, f"{name_sleep(64)} & echo done")
    assert time.monotonic() - began < 10
    assert answer["output"] == "done\n"
    assert answer["exit_code"] == 0
    assert "left background processes running" in answer["error"]
    assert not remains_asleep(name_sleep(64))


def test_endless_output_takes_bounded_memory_and_time(context: ToolContext) -> None:
    answer = said(context, "yes", timeout=0.5)
    assert len(answer["output"]) < OUTPUT_CHARACTERS + 100
    assert "characters left out" in answer["output"]


def test_no_file_stays_open(context: ToolContext) -> None:
    said(context, "true")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        said(context, "true")
    said(context, "sleep 5", timeout=0.1)
    assert len(os.listdir("/proc/self/fd")) <= before
    assert signal.getsignal(signal.SIGTERM) is not None
