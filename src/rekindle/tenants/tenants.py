"""The tenants of a server: their stores, members, keys, quotas and audit log."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rekindle.errors import AccessDenied, InvalidInput
from rekindle.store import Store, open_store
from rekindle.store.tenants.directory import AuditEntry, Quota, Tenant, TenantMember
from rekindle.store.tenants.tenant_store import (
    TENANTS_FOLDER,
    TenantStore,
    delete_tenant_data,
    is_server,
    open_tenant_store,
)

from .access import Access
from .keys import ApiKeys

if TYPE_CHECKING:
    from types import TracebackType

OPERATOR = "operator"  # whoever has the files or the database of the server
_NAME = r"[a-z0-9][a-z0-9-]{0,62}"
_MAX_MEMBER_CHARS = 200
ROLES = ("admin", "member")


class Tenants:
    """The tenants of a server. Open them with `open_tenants`; also a context manager."""

    def __init__(
        self,
        target: str,
        directory: Store,
        clock: Callable[[], float],
        options: dict[str, Any],
    ) -> None:
        self._target = target
        self._store = directory
        self._directory = directory.tenants
        self._clock = clock
        self._options = options
        self.keys = ApiKeys(self._directory, clock)

    # -- tenants

    def add(self, name: str) -> Tenant:
        """Add a tenant."""
        if not re.fullmatch(_NAME, name):
            raise InvalidInput(
                f"tenant {name!r:.80}: expected lower-case letters, digits and dashes, at most 63"
            )
        tenant = self._directory.add_tenant(secrets.token_hex(8), name)
        self.record(name, OPERATOR, "tenant.add")
        return tenant

    def get(self, name: str) -> Tenant:
        """Return a tenant by its name."""
        return self._directory.get_tenant(name)

    def list(self) -> list[Tenant]:
        """Return all tenants by name."""
        return self._directory.list_tenants()

    def remove(self, name: str) -> None:
        """Delete a tenant with everything it has stored; only its audit log is kept."""
        tenant = self._directory.get_tenant(name)
        self.record(name, OPERATOR, "tenant.remove")
        for key in self._directory.list_keys(tenant.id):  # first: nobody may write meanwhile
            self._directory.revoke_key(tenant.id, key.id)
        delete_tenant_data(self._target, tenant.id)
        self._directory.delete_tenant(tenant.id)

    def open_store(
        self, access: Access | str, *, readonly: bool = False, checks_projects: bool = False
    ) -> TenantStore:
        """Open the store of a tenant, by its name or with the rights of a key.

        A key without the scope `write` opens it read-only. A key that is limited to projects is
        refused, unless the caller `checks_projects` of every session, see `Access.limit_filter` and
        `Access.allows_project`.
        """
        name = access if isinstance(access, str) else access.tenant
        if isinstance(access, Access):
            readonly = readonly or not access.has_scope("write")
            if access.projects is not None and not checks_projects:
                raise AccessDenied("This API key is limited to projects.")
            if not access.has_scope("read") and not access.has_scope("write"):
                raise AccessDenied("This API key has neither the read nor the write scope.")
        tenant = self._directory.get_tenant(name)
        if readonly and not is_server(self._target):  # a file must exist to be read
            self._open(tenant, readonly=False).close()
        return self._open(tenant, readonly=readonly)

    def _open(self, tenant: Tenant, *, readonly: bool) -> TenantStore:
        return open_tenant_store(
            self._target,
            tenant.id,
            quota=tenant.quota,
            charge=partial(self._directory.charge, tenant.id, tenant.quota),
            check=partial(self._directory.check_quota, tenant.id, tenant.quota),
            readonly=readonly,
            clock=self._clock,
            **self._options,
        )

    # -- members

    def add_member(self, tenant: str, name: str, role: str = "member") -> None:
        """Add a member to a tenant, or change the role of one."""
        if role not in ROLES:
            raise InvalidInput(f"role: expected {' or '.join(ROLES)}, got {role!r}")
        if not name.strip() or len(name) > _MAX_MEMBER_CHARS:
            raise InvalidInput(f"member: expected 1 to {_MAX_MEMBER_CHARS} characters")
        self._directory.save_member(self.get(tenant).id, name, role)
        self.record(tenant, OPERATOR, "member.add", f"{name} as {role}")

    def list_members(self, tenant: str) -> list[TenantMember]:
        """Return the members of a tenant by name."""
        return self._directory.list_members(self.get(tenant).id)

    def remove_member(self, tenant: str, name: str) -> int:
        """Remove a member and revoke their keys; return the number of keys."""
        count = self._directory.delete_member(self.get(tenant).id, name)
        self.record(tenant, OPERATOR, "member.remove", f"{name}, {count} keys revoked")
        return count

    # -- quotas and audit log

    def set_quota(self, tenant: str, quota: Quota) -> None:
        """Set the limits of a tenant; stores that are open keep theirs."""
        if any(limit is not None and limit < 0 for limit in quota):
            raise InvalidInput("quota: expected 0 or more")
        self._directory.set_quota(self.get(tenant).id, quota)
        limits = ", ".join(
            f"{k} {'unlimited' if v is None else v}" for k, v in quota._asdict().items()
        )
        self.record(tenant, OPERATOR, "quota.set", limits)

    def get_usage(self, tenant: str) -> tuple[int, int]:
        """Return the messages and bytes stored today, counted for tenants with a daily quota."""
        return self._directory.get_usage(self.get(tenant).id)

    def record(self, tenant: str, actor: Access | str, action: str, detail: str = "") -> None:
        """Add an entry to the audit log; never pass it a token or a person's words."""
        name = actor if isinstance(actor, str) else f"key:{actor.key_id}"
        self._directory.add_entry(tenant, name, action, detail)

    def list_entries(self, tenant: str | None = None, limit: int = 100) -> list[AuditEntry]:
        """Return entries of the audit log, newest first, also of tenants that were removed."""
        return self._directory.list_entries(tenant, limit)

    def close(self) -> None:
        """Close the directory. Stores that were opened stay open."""
        self._store.close()

    def __enter__(self) -> Tenants:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_tenants(
    target: str | Path,
    *,
    durability: Literal["full", "relaxed"] = "full",
    busy_seconds: float = 30.0,
    clock: Callable[[], float] = time.time,
    **options: float,
) -> Tenants:
    """Open the tenants of a server by its store: a SQLite file or a `postgresql://` database.

    Next to a file, each tenant has a file of its own. In a database, all share tables whose rows are
    separated by views and by row-level security. Other options are those of `open_store`.
    """
    location = str(target)
    settings: dict[str, Any] = {"durability": durability, "busy_seconds": busy_seconds}
    if is_server(location):
        directory = open_store(location, clock=clock, **settings)
    else:
        folder = Path(location).parent / TENANTS_FOLDER
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        directory = open_store(folder / "directory.db", clock=clock, **settings)
    return Tenants(location, directory, clock, {**settings, **options})
