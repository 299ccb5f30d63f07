"""The name of a gateway is kept for its next life, and held by one at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from rekindle.gateway.service.instance import claim_instance, list_running_instances

HOLD = """
import sys, time
from pathlib import Path
from rekindle.gateway.service.instance import claim_instance
with claim_instance(Path(sys.argv[1])) as instance:
    print(instance.name, flush=True)
    time.sleep(60)
"""


def test_the_next_life_has_the_same_name(tmp_path: Path) -> None:
    with claim_instance(tmp_path) as first:
        name = first.name
    with claim_instance(tmp_path) as again:
        assert again.name == name


def test_two_that_live_at_once_have_two_names_and_each_finds_its_own_again(tmp_path: Path) -> None:
    with claim_instance(tmp_path) as one, claim_instance(tmp_path) as two:
        names = (one.name, two.name)
        assert one.name != two.name
    with claim_instance(tmp_path) as one, claim_instance(tmp_path) as two:
        assert (one.name, two.name) == names


def test_a_killed_gateway_lets_go_of_its_name(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    name = holder.stdout.readline().strip()
    with claim_instance(tmp_path) as other:
        assert other.name != name
    os.kill(holder.pid, signal.SIGKILL)
    holder.communicate()
    with claim_instance(tmp_path) as heir:
        assert heir.name == name


def test_only_the_living_are_told_of(tmp_path: Path) -> None:
    assert list_running_instances(tmp_path) == []
    with claim_instance(tmp_path) as one:
        assert list_running_instances(tmp_path) == [], "it has said nothing yet"
        one.write_status({"pid": 7})
        assert list_running_instances(tmp_path) == [{"pid": 7}]
    assert list_running_instances(tmp_path) == []


def test_a_damaged_name_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "gateway").mkdir()
    (tmp_path / "gateway" / "1.instance").write_bytes(b"\xff\0 \n")
    with claim_instance(tmp_path) as one:
        assert one.name.startswith("gateway-")
