"""The gateway on chat networks: killed in the middle of an answer, it answers once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rekindle.testing import ScriptedModel
from tests import command
from tests.acceptance.stores import make_store
from tests.contract.network_worlds import NETWORKS
from tests.waiting import wait_until

ANSWER = "Once upon a time there was an answer that took its time."
SCRIPT = {"turns": [{"user": "tell", "steps": [{"text": ANSWER, "chunk": 4}]}]}
LIBRARIES = ("aiogram", "discord", "slack_sdk", "slack_bolt", "pywa", "nio", "aiohttp")


@pytest.fixture(params=NETWORKS, ids=lambda make: make.__name__)
def world(request: pytest.FixtureRequest) -> Iterator[Any]:
    with request.param() as made:
        yield made


@contextmanager
def run_gateway(env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = command.start(
        ["gateway", "run"], env=env, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def build_env(home: Path, model: ScriptedModel, platform: str, **more: str) -> dict[str, str]:
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("REKINDLE_", "OPENAI_"))}
    return {
        **kept,
        "HOME": str(home),
        "REKINDLE_HOME": str(home),
        "REKINDLE_STORE": str(home / "sessions.db"),
        "OPENAI_BASE_URL": model.url,
        "REKINDLE_MODEL": "scripted",
        "REKINDLE_GATEWAY_LEASE_SECONDS": "2",
        "REKINDLE_GATEWAY_EDIT_SECONDS": "0.1",
        "REKINDLE_GATEWAY_PLATFORMS": platform,
        "REKINDLE_GATEWAY_ALLOW": f"{platform}:*=owner",
        **more,
    }


@pytest.mark.networks
def test_an_answer_that_a_kill_cut_off_is_given_once(world: Any, tmp_path: Path) -> None:
    make_store(tmp_path / "sessions.db")
    with ScriptedModel(SCRIPT) as model:
        env = build_env(tmp_path, model, world.chat.platform, **world.env(tmp_path))
        with run_gateway(env) as process:
            world.say("hello")
            wait_until(lambda: world.seen() == ["You said: hello"])
            with model.hold_requests(max_chunks=4):
                world.say("tell")
                wait_until(lambda: len(model.requests) == 2)
                if world.can_edit:
                    wait_until(world.has_draft)
                    assert ANSWER not in world.seen()
                process.kill()
                process.wait()
        world.say("still there?")
        with run_gateway(env):
            expected = ["You said: hello", ANSWER, "You said: still there?"]
            try:
                wait_until(lambda: world.seen() == expected)
            except TimeoutError:
                assert world.seen() == expected


@pytest.mark.networks
def test_a_revoked_token_is_said_in_one_line_and_shown_by_status(
    world: Any, tmp_path: Path
) -> None:
    make_store(tmp_path / "sessions.db")
    platform, log = world.chat.platform, tmp_path / "gateway.log"
    with ScriptedModel(SCRIPT) as model:
        env = build_env(tmp_path, model, platform, **world.env(tmp_path))
        world.server.token = world.server.bot_token = "another"
        with log.open("wb") as file:
            process = command.start(["gateway", "run"], env=env, stderr=file)
        try:
            wait_until(lambda: b"does not accept" in log.read_bytes() or process.poll() is not None)

            def run_status() -> subprocess.CompletedProcess[str]:
                return command.run(["gateway", "status"], env=env, capture_output=True, text=True)

            # The gateway may listen on its platforms before it answers how it is.
            wait_until(lambda: f"\n  {platform}: " in run_status().stdout)
            status = run_status()
        finally:
            process.kill()
            process.wait()
    assert status.returncode == 1
    assert f"rekindle gateway setup {platform}" in status.stdout
    lines = log.read_text().splitlines()
    assert len([line for line in lines if "does not accept" in line]) == 1
    assert not any("Traceback" in line for line in lines)


def test_no_library_of_a_platform_is_loaded_or_needed_before_it_is_configured() -> None:
    blocked = "\n".join(f"sys.modules[{name!r}] = None" for name in LIBRARIES)
    code = (
        "import sys\n"
        f"{blocked}\n"
        "import rekindle, rekindle.platforms, rekindle.platforms.plugins as plugins\n"
        "import rekindle.gateway.service.service\n"
        "print(plugins.list_kind_names())\n"
        "from rekindle.cli import main\n"
        "sys.argv = ['rekindle', 'gateway', '--help']\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "telegram" in done.stdout


def test_a_missing_library_is_said_with_the_way_to_install_it(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "sys.modules['aiogram'] = None\n"
        "from rekindle.cli import main\n"
        "sys.argv = ['rekindle', 'gateway', 'run']\n"
        "main()\n"
    )
    env = {
        **os.environ,
        "REKINDLE_HOME": str(tmp_path),
        "REKINDLE_MODEL": "m",
        "REKINDLE_GATEWAY_PLATFORMS": "telegram",
    }
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.returncode == 2
    assert "pip install 'rekindle[telegram]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_platform_without_its_token_is_said_with_what_is_missing(tmp_path: Path) -> None:
    env = {
        **os.environ,
        "REKINDLE_HOME": str(tmp_path),
        "REKINDLE_MODEL": "m",
        "REKINDLE_GATEWAY_PLATFORMS": "slack",
    }
    done = command.run(["gateway", "run"], env=env, capture_output=True, text=True)
    assert done.returncode == 2
    assert "is missing; run `rekindle gateway setup slack`" in done.stderr
