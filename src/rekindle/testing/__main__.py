"""`python -m rekindle.testing`: run a fake as a program, until it is told to stop; or speak to one."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from .model import ScriptedModel
from .network import ChatServer
from .person import say
from .script import Script
from .server import until_told


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the fake that the arguments name."""
    parser = argparse.ArgumentParser(prog="python -m rekindle.testing")
    kinds = parser.add_subparsers(required=True, dest="kind")
    model = kinds.add_parser("model", help="a scripted model")
    model.add_argument("--script", type=Path, help="JSON file; without it the model repeats")
    model.add_argument("--log", type=Path, help="JSON lines: each request and what became of it")
    chats = kinds.add_parser("chats", help="a chat network")
    for one in (model, chats):
        one.add_argument("--port", type=int, default=0, help="0: a free one, which is printed")
    person = kinds.add_parser("say", help="say something in a chat network, and read the answer")
    person.add_argument("address", help="what `chats` printed")
    person.add_argument("text")
    person.add_argument("--user", default="Ada", help="who says it, in a chat of their own")
    given = parser.parse_args(arguments)
    if given.kind == "say":
        sys.stdout.write(f"{say(given.address, given.text, user=given.user)}\n")
        return 0
    if given.kind == "chats":
        with ChatServer(port=given.port) as server:
            until_told(server.address)
        return 0
    try:
        text = given.script.read_bytes() if given.script else b"{}"
        script = msgspec.json.decode(text, type=Script)
    except (OSError, msgspec.MsgspecError) as error:
        parser.error(f"--script {given.script}: {error}")
    with ScriptedModel(script, port=given.port, log=given.log) as running:
        until_told(running.url)
    return 0


if __name__ == "__main__":
    sys.exit(main())
