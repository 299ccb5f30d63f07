"""`python -m rekindle.testing`: run a fake as a program until it is stopped, or talk to one."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from .model import ScriptedModel
from .network import ChatServer
from .person import send_and_wait
from .script import Script
from .server import wait_for_signal


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the fake that the arguments name."""
    parser = argparse.ArgumentParser(prog="python -m rekindle.testing")
    commands = parser.add_subparsers(required=True, dest="kind")
    model = commands.add_parser("model", help="a scripted model")
    model.add_argument("--script", type=Path, help="JSON file; without it the model repeats")
    model.add_argument("--log", type=Path, help="JSON lines: each request and what became of it")
    chats = commands.add_parser("chats", help="a chat network")
    for command in (model, chats):
        command.add_argument("--port", type=int, default=0, help="0: a free one, which is printed")
    person = commands.add_parser("say", help="say something in a chat network, and read the answer")
    person.add_argument("address", help="what `chats` printed")
    person.add_argument("text")
    person.add_argument("--user", default="Ada", help="who says it, in a chat of their own")
    options = parser.parse_args(arguments)
    if options.kind == "say":
        sys.stdout.write(f"{send_and_wait(options.address, options.text, user=options.user)}\n")
        return 0
    if options.kind == "chats":
        with ChatServer(port=options.port) as server:
            wait_for_signal(server.address)
        return 0
    try:
        text = options.script.read_bytes() if options.script else b"{}"
        script = msgspec.json.decode(text, type=Script)
    except (OSError, msgspec.MsgspecError) as error:
        parser.error(f"--script {options.script}: {error}")
    with ScriptedModel(script, port=options.port, log=options.log) as running:
        wait_for_signal(running.url)
    return 0


if __name__ == "__main__":
    sys.exit(main())
