from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from rekindle.processes.backends.local import process_tree
from rekindle.processes.backends.local.process_tree import ProcInfo, TreeRoot, find_members
from tests.processes import alive, runs
from tests.waiting import PATIENCE


def test_a_recycled_process_id_is_never_touched() -> None:
    other = subprocess.Popen(["sleep", "30"])
    try:
        seen = process_tree.read_process(other.pid)
        assert seen
        assert process_tree.is_alive(other.pid, seen.started)
        assert not process_tree.is_alive(other.pid, seen.started - 1)
        process_tree.send_signals(other.pid, seen.started - 1, signal.SIGKILL)
        assert alive(other.pid)
        process_tree.send_signals(other.pid, seen.started, signal.SIGKILL)
        assert other.wait(PATIENCE) == -signal.SIGKILL
    finally:
        other.kill()
        other.wait()


@runs
async def test_ending_a_tree_whose_root_is_another_process_now_ends_nothing() -> None:
    other = subprocess.Popen(["sleep", "30"], start_new_session=True)
    try:
        seen = process_tree.read_process(other.pid)
        assert seen
        await process_tree.kill_tree(
            TreeRoot("pgone", other.pid, seen.started - 5), process_tree.ProcessTable(), 0.1
        )
        assert alive(other.pid)
    finally:
        other.kill()
        other.wait()


def test_who_came_after_the_list_was_made_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the child of one that forks and ends before it is looked at."""
    late = subprocess.Popen(["sleep", "30"], env={"REKINDLE_PROCESS": "plate"})
    whole, lists = os.listdir, iter([lambda names: names - {str(late.pid)}])

    def listed(folder: str) -> set[str]:
        return next(lists, lambda names: names)(set(whole(folder)))

    monkeypatch.setattr(process_tree.os, "listdir", listed)
    try:
        assert process_tree.ProcessTable()._scan_proc()[late.pid].mark == "plate"
    finally:
        late.kill()
        late.wait()


def test_a_tree_is_found_by_parent_by_session_by_mark_and_by_what_was_known() -> None:
    seen = {
        10: ProcInfo(1, 10, 100, "T"),
        11: ProcInfo(10, 10, 101, "S"),
        12: ProcInfo(11, 12, 102, "S"),  # below it, in a session of its own
        13: ProcInfo(1, 10, 103, "S"),  # of its session, adopted by init
        14: ProcInfo(1, 14, 104, "S", "pone"),  # has left both, but bears the mark
        15: ProcInfo(14, 15, 105, "R"),  # below that one
        16: ProcInfo(1, 16, 106, "S"),  # was found before
        17: ProcInfo(1, 17, 107, "S"),  # a stranger
        18: ProcInfo(10, 10, 108, "Z"),
    }
    root = TreeRoot("pone", 10, 100)
    found = find_members(root, seen, {16: 106, 17: 1})
    assert found.alive == {11: 101, 12: 102, 13: 103, 14: 104, 15: 105, 16: 106}
    assert found.dead == {18}


def test_a_session_is_no_sign_after_its_leader_is_gone() -> None:
    seen = {10: ProcInfo(1, 10, 999, "S"), 11: ProcInfo(10, 10, 1000, "S")}
    assert find_members(TreeRoot("pone", 10, 100), seen, {}).alive == {}


def test_what_is_spared_is_not_found_nor_what_is_below_it() -> None:
    seen = {10: ProcInfo(1, 10, 1, "S"), 11: ProcInfo(10, 10, 2, "S"), 12: ProcInfo(11, 12, 3, "S")}
    assert find_members(TreeRoot("pone", 10, 1), seen, {}, frozenset((11,))).alive == {}


def test_this_boot_and_namespace_have_one_name() -> None:
    code = "from rekindle.processes.backends.local.process_tree import get_boot_id; print(get_boot_id())"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == process_tree.get_boot_id()
    assert os.readlink("/proc/self/ns/pid") in process_tree.get_boot_id()
