"""Fakes for tests and demos: a scripted model and a chat network. Nothing in the package uses them."""

from .model import ScriptedModel
from .network import ChatServer, Faults, Shown
from .platform import MemoryPlatform, connect
from .script import THE_END, Fault, Reply, Request, Script, ScriptedCall, Step, Turn, reply_to

__all__ = [
    "THE_END",
    "ChatServer",
    "Fault",
    "Faults",
    "MemoryPlatform",
    "Reply",
    "Request",
    "Script",
    "ScriptedCall",
    "ScriptedModel",
    "Shown",
    "Step",
    "Turn",
    "connect",
    "reply_to",
]
