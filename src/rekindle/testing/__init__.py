"""Fakes for tests and demos: a scripted model and a chat network. The package does not use them."""

from .model import ScriptedModel
from .network import ChatServer, NetworkFaults, SentMessage
from .platform import MemoryPlatform, connect
from .script import (
    END_OF_SCRIPT,
    ReceivedRequest,
    Script,
    ScriptedCall,
    ScriptedFault,
    ScriptedReply,
    ScriptedStep,
    ScriptedTurn,
    build_reply,
)

__all__ = [
    "END_OF_SCRIPT",
    "ChatServer",
    "MemoryPlatform",
    "NetworkFaults",
    "ReceivedRequest",
    "Script",
    "ScriptedCall",
    "ScriptedFault",
    "ScriptedModel",
    "ScriptedReply",
    "ScriptedStep",
    "ScriptedTurn",
    "SentMessage",
    "build_reply",
    "connect",
]
