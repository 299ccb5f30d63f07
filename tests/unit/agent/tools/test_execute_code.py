"""Python in a process of its own, within limits."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from rekindle.agent.tools.builtin.execute_code import EXECUTE_CODE, OUTPUT_CHARACTERS
from rekindle.agent.tools.tool import ToolContext
from tests.unit.agent.tools.calling import call, error, name_sleep, remains_asleep

pytestmark = pytest.mark.slow


def said(context: ToolContext, code: str, **arguments: Any) -> dict[str, Any]:
    return json.loads(call(EXECUTE_CODE, context, code=code, **arguments).content)


def test_what_a_script_prints_comes_back(context: ToolContext) -> None:
    assert said(context, "print('ä', 1 + 1)") == {"output": "ä 2\n", "exit_code": 0, "error": None}
    failed = said(context, "x = 1\nraise ValueError('no')")
    assert failed["exit_code"] == 1
    assert 'main.py", line 2, in <module>' in failed["output"]
    assert failed["output"].endswith("ValueError: no\n")


@pytest.mark.usefixtures("bubblewrap")
def test_it_has_an_empty_folder_that_goes_away(context: ToolContext) -> None:
    code = "import os; print(os.getcwd(), os.listdir()); open('x', 'w').write('y')"
    folder, _, names = said(context, code)["output"].partition(" ")
    assert names == "['main.py']\n"
    assert folder == "/scratch"
    assert said(context, "import os; print(os.listdir())")["output"] == "['main.py']\n"


@pytest.mark.usefixtures("bubblewrap")
def test_nothing_of_our_environment_reaches_it(context: ToolContext) -> None:
    secret = {**context.environment, "OPENAI_API_KEY": "k1", "ANYTHING": "k2", "PYTHONPATH": "/k3"}
    code = "import os, sys; print(dict(os.environ), open('/proc/self/environ').read(), sys.path)"
    output = said(context._replace(environment=secret), code)["output"]
    assert [key for key in ("k1", "k2", "k3") if key in output] == []
    assert "PATH" in output


def test_its_time_is_limited_and_its_children_end_with_it(context: ToolContext, work: Path) -> None:
    code = (
        "import subprocess, time\n"
        f"child = subprocess.Popen({name_sleep(65).split()}, start_new_session=True)\n"
        f"open({str(work / 'child')!r}, 'w').write(str(child.pid))\n"
        "print('on', flush=True)\ntime.sleep(60)"
    )
    began = time.monotonic()
    answer = said(context, code, timeout=3)
    assert time.monotonic() - began < 10
    assert answer["output"] == "on\n"
    assert answer["error"] == "took longer than 3 s and was stopped"
    assert (work / "child").exists()
    assert not remains_asleep(name_sleep(65))


def test_its_memory_is_limited(context: ToolContext) -> None:
    answer = said(context, "x = bytearray(3_000_000_000)\nprint(len(x))")
    assert answer["exit_code"] == 1
    assert answer["error"] == "exceeded 1024 MB of memory"


def test_its_files_are_limited(context: ToolContext) -> None:
    code = "f = open('x', 'wb')\nfor _ in range(300): f.write(b'x' * 1_048_576)\nprint('done')"
    answer = said(context, code)
    assert "done" not in answer["output"]
    assert answer["exit_code"] != 0


def test_its_output_is_limited(context: ToolContext) -> None:
    output = said(context, "for n in range(100_000): print(n)")["output"]
    assert len(output) < OUTPUT_CHARACTERS + 100
    assert "characters left out" in output
    assert output.endswith("99999\n")


def test_it_gets_no_input_and_leaves_us_alone(context: ToolContext) -> None:
    assert "EOFError" in said(context, "input()")["output"]
    assert said(context, "import os; os._exit(7)")["exit_code"] == 7
    assert said(context, "import sys; sys.exit(3)")["exit_code"] == 3


def test_code_that_is_no_code_is_told(context: ToolContext) -> None:
    assert "SyntaxError" in said(context, "def")["output"]
    assert "code: must not be empty" in error(EXECUTE_CODE, context, code="")
    assert "cannot be encoded" in error(EXECUTE_CODE, context, code="'\ud800'")
