"""What an API key may do: its tenant, its scopes and its projects."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from rekindle.errors import AccessDenied, InvalidInput
from rekindle.store.core.filter import Filter

Scope: TypeAlias = Literal["read", "write", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)


@dataclass(frozen=True, slots=True)
class Access:
    """The rights of one API key. Without `projects`, it reaches all projects of its tenant."""

    tenant: str
    key_id: str
    member: str | None
    scopes: frozenset[Scope]
    projects: frozenset[str] | None = None

    def has_scope(self, scope: Scope) -> bool:
        """Return whether the key has a scope; `admin` includes the others, `write` not `read`."""
        return scope in self.scopes or "admin" in self.scopes

    def require_scope(self, scope: Scope) -> None:
        """Raise `AccessDenied` unless the key has a scope."""
        if not self.has_scope(scope):
            raise AccessDenied(f"This API key has no {scope} scope.")

    def allows_project(self, project: str | None) -> bool:
        """Return whether the key reaches sessions of a project; None is a session without one."""
        return self.projects is None or project in self.projects

    def limit_filter(self, where: Filter) -> Filter:
        """Return a filter for those of its sessions that the key reaches."""
        if self.projects is None:
            return where
        chosen = self.projects if where.projects is None else self.projects & {*where.projects}
        return where.with_(projects=tuple(sorted(chosen)))


def parse_scopes(names: Iterable[str]) -> frozenset[Scope]:
    """Convert names to scopes; raise `InvalidInput` if one is unknown or there is none."""
    given = {name.strip() for name in names} - {""}
    found: frozenset[Scope] = frozenset(scope for scope in SCOPES if scope in given)
    if not found or given - found:
        raise InvalidInput(f"scopes: expected some of {', '.join(SCOPES)}, got {sorted(given)}")
    return found
