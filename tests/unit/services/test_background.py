from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from rekindle.errors import HomeServerError
from rekindle.services.background import BackgroundRunner, ServerProgram, require_alive
from rekindle.services.definition import render_systemd_unit
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def make_program(folder: Path, code: str) -> ServerProgram:
    command = (sys.executable, "-c", code)
    return ServerProgram("test-server", "A server", command, folder / "out")


def test_a_server_outlives_who_started_it_and_is_stopped_by_another(tmp_path: Path) -> None:
    program = make_program(tmp_path, "import time; time.sleep(600)")
    assert BackgroundRunner(tmp_path).start(program) is True
    pid = BackgroundRunner(tmp_path).get_pid(program)
    assert pid is not None
    assert BackgroundRunner(tmp_path).start(program) is False
    runner = BackgroundRunner(tmp_path)
    runner.stop(program)
    assert runner.get_pid(program) is None
    runner.stop(program)


def test_a_server_that_ignores_the_signal_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import signal, time; signal.signal(15, signal.SIG_IGN);"
        "print('ready', flush=True); time.sleep(600)"
    )
    program = make_program(tmp_path, code)
    runner = BackgroundRunner(tmp_path)
    runner.start(program)
    wait_until(lambda: "ready" in (tmp_path / "out").read_text())
    monkeypatch.setattr("rekindle.services.background._STOP_SECONDS", 0.2)
    runner.stop(program)
    assert runner.get_pid(program) is None


def test_a_process_that_has_the_number_of_a_server_is_not_touched(tmp_path: Path) -> None:
    program = make_program(tmp_path, "import time; time.sleep(600)")
    runner = BackgroundRunner(tmp_path)
    runner.start(program)
    mark = tmp_path / "test-server.pid"
    boot, stat = mark.read_text().splitlines()
    pid = int(stat.split()[0])
    fields = stat.split()
    fields[21] = str(int(fields[21]) - 1)  # started at another time
    for text in (f"{boot}\n{' '.join(fields)}\n", f"other-boot\n{stat}\n", "damaged", ""):
        mark.write_text(text)
        assert runner.get_pid(program) is None
        runner.stop(program)
        os.kill(pid, 0)
    os.kill(pid, signal.SIGKILL)


def test_the_last_words_of_a_server_are_part_of_the_error(tmp_path: Path) -> None:
    program = make_program(tmp_path, "raise SystemExit('no space left')")
    runner = BackgroundRunner(tmp_path)
    runner.start(program)
    wait_until(lambda: runner.get_pid(program) is None)
    with pytest.raises(HomeServerError, match="no space left"):
        require_alive(runner, program)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o600


def test_a_unit_waits_for_the_servers_that_it_needs(tmp_path: Path) -> None:
    program = make_program(tmp_path, "")._replace(after=("base",), stop_signal=signal.SIGINT)
    unit = render_systemd_unit(program.build_definition()).splitlines()
    assert "After=rekindle-base.service" in unit
    assert "Wants=rekindle-base.service" in unit
    assert "KillSignal=SIGINT" in unit
    assert unit.index("After=rekindle-base.service") < unit.index("[Service]")
