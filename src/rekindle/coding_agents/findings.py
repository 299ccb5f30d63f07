"""What a diagnosis finds: values, and when each needs the user's attention."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from .agent import Scope

InstallState: TypeAlias = Literal["installed", "not installed", "stale", "broken"]
FindingKind: TypeAlias = Literal[
    "stale",  # an entry in an older form, or not complete
    "broken",  # a file that cannot be parsed, a program that is gone
    "disabled",  # hooks that the user has turned off
    "untrusted",  # hooks that the agent skips
    "hook-failures",
    "not-imported",
    "deletion",  # sessions that the agent will delete
]


@dataclass(frozen=True, slots=True)
class AgentFinding:
    """Something worth knowing about an agent, and what to do about it."""

    kind: FindingKind
    message: str
    action: str = ""
    needs_attention: bool = True


@dataclass(frozen=True, slots=True)
class Installation:
    """The state of one installation, and the files that it is in."""

    scope: Scope
    state: InstallState
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SessionDeletion:
    """A session file that the agent will delete, when, and whether the store has it."""

    file: str
    time: float
    is_imported: bool


@dataclass(frozen=True, slots=True)
class AgentReport:
    """All that is known about one agent."""

    name: str
    title: str
    is_present: bool  # its program or its sessions are on this machine
    installations: tuple[Installation, ...]
    session_files: int = 0
    pending_files: int = 0
    deletions: tuple[SessionDeletion, ...] = ()
    findings: tuple[AgentFinding, ...] = field(default=())

    @property
    def is_installed(self) -> bool:
        return any(one.state != "not installed" for one in self.installations)

    @property
    def needs_attention(self) -> bool:
        return any(finding.needs_attention for finding in self.findings)
