"""From an empty machine to a chat with the agent in an encrypted room, as docs/matrix.md tells it."""

from __future__ import annotations

import asyncio
import subprocess
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rekindle.testing import ScriptedModel
from tests import command
from tests.waiting import until, wait_until

from .lab import NAME, MatrixLab

try:
    import rekindle.platforms.matrix  # noqa: F401
    from tests.matrix.people import Device
except ImportError as error:
    warnings.warn(f"THE CHAT WITH THE AGENT IS NOT TESTED: {error}", stacklevel=1)
    pytest.skip(f"there is no adapter: {error}", allow_module_level=True)

BOT = f"@rekindle:{NAME}"


def test_the_agent_answers_in_an_encrypted_room_on_the_own_server(lab: MatrixLab) -> None:
    lab.set_up()
    lab("matrix", "create-user", "ada", "--password-stdin", stdin="adas-password\n")
    lab("gateway", "allow", f"matrix:@ada:{NAME}", "--role", "owner")
    ada = lab.log_in("ada", "adas-password")
    with ScriptedModel({}) as model:
        env = {**lab.env, "OPENAI_BASE_URL": model.url, "REKINDLE_MODEL": "scripted"}
        gateway = command.start(
            ["gateway", "run"],
            env=env,
            cwd=lab.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            # Without keys of the bot's device nobody can write to it.
            wait_until(lambda: lab.status()["device"]["key"] or gateway.poll() is not None)
            assert gateway.poll() is None, gateway.communicate()[1][-2000:]
            room = ada.create_room(BOT)
            asyncio.run(chat(lab, ada, room))
        finally:
            gateway.kill()
            gateway.communicate()
    assert ada.read(room) == [], "nothing is readable on the server"


async def chat(lab: MatrixLab, ada: Any, room: str) -> None:
    """Say something from a device that encrypts, and wait for the answer."""

    def request(_: str, *parts: str) -> Any:
        return ada.get("/_matrix/client/v3/" + "/".join(parts))

    person: Any = SimpleNamespace(
        synapse=SimpleNamespace(url=f"http://127.0.0.1:{lab.port}"),
        id=f"@ada:{NAME}",
        name="ada",
        token=ada.token,
        request=request,
    )
    device = await Device(person, Path(lab.folder / "ada")).open()

    async def has_joined() -> bool:
        await device.sync(200)
        path = f"/_matrix/client/v3/rooms/{room}/joined_members"
        return BOT in ada.get(path)["joined"]

    async def has_answer() -> bool:
        await device.sync(200)
        return device.list_texts(room, BOT) == ["You said: a secret"]

    try:
        await until(has_joined)
        await device.say(room, "a secret")
        await until(has_answer, lambda: device.list_texts(room, BOT))
    finally:
        await device.close()
