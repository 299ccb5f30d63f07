"""A person in the test chat network, who sends a message and reads the reply."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

from rekindle.routing.source import to_json
from rekindle.types import Source

from .platform import PLATFORM_NAME

_POLL_SECONDS = 0.1  # seconds
_UNFINISHED_SUFFIX = "…"  # ends a reply that is still being streamed


def send_and_wait(address: str, text: str, *, user: str = "Ada", seconds: float = 30.0) -> str:
    """Send a message to the bot in a direct chat, and return its reply."""
    host, _, port = address.rpartition(":")
    source = Source(PLATFORM_NAME, user.lower(), user_id=user.lower(), user_name=user)
    with socket.create_connection((host, int(port)), timeout=seconds) as connection:
        stream = connection.makefile("rw", encoding="utf-8")

        def send_request(**asked: Any) -> dict[str, Any]:
            stream.write(json.dumps({**asked, "ref": 1}) + "\n")
            stream.flush()
            return json.loads(stream.readline())

        def list_replies() -> list[str]:
            return [shown for _, _, shown in send_request(op="seen", chat=source.chat_id)["seen"]]

        before, end = len(list_replies()), time.monotonic() + seconds
        send_request(op="say", source=to_json(source), text=text)
        while time.monotonic() < end:
            replies = list_replies()[before:]
            if replies and not replies[-1].endswith(_UNFINISHED_SUFFIX):
                return "\n".join(replies)
            time.sleep(_POLL_SECONDS)
    raise TimeoutError(f"no reply within {seconds:g} s; is a gateway connected to {address}?")
