"""Somebody in the chat network of tests and demos, who says something and reads the answer."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

from rekindle.routing.source import to_json
from rekindle.types import Source

from .platform import NAME

_LOOK = 0.1  # seconds
_WRITING = "…"  # how an answer ends that is still being written


def say(address: str, text: str, *, user: str = "Ada", seconds: float = 30.0) -> str:
    """Say something to the bot in a chat of one's own, and return what it answers."""
    host, _, port = address.rpartition(":")
    source = Source(NAME, user.lower(), user_id=user.lower(), user_name=user)
    with socket.create_connection((host, int(port)), timeout=seconds) as line:
        stream = line.makefile("rw", encoding="utf-8")

        def ask(**asked: Any) -> dict[str, Any]:
            stream.write(json.dumps({**asked, "ref": 1}) + "\n")
            stream.flush()
            return json.loads(stream.readline())

        def seen() -> list[str]:
            return [shown for _, _, shown in ask(op="seen", chat=source.chat_id)["seen"]]

        before, end = len(seen()), time.monotonic() + seconds
        ask(op="say", source=to_json(source), text=text)
        while time.monotonic() < end:
            told = seen()[before:]
            if told and not told[-1].endswith(_WRITING):
                return "\n".join(told)
            time.sleep(_LOOK)
    raise TimeoutError(f"no answer within {seconds:g} s; does a gateway run on {address}?")
