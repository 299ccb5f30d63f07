"""The directory of tenants: their names, members, API keys, quotas and the audit log."""

from __future__ import annotations

from typing import Any, NamedTuple

from rekindle.errors import InvalidInput, NotFound, QuotaExceeded
from rekindle.store.core.engine import Row, StorePart, Transaction
from rekindle.store.core.rows import decode_json, encode_json
from rekindle.store.core.tables import API_KEYS, TENANT_MEMBERS, TENANTS
from rekindle.store.core.text_encoding import escape_text, unescape_text

_USED_STEP = 3600.0  # seconds between two updates of when a key was used
_DAY = 86_400


class Quota(NamedTuple):
    """What a tenant may store. None: no limit."""

    sessions: int | None = None
    messages_per_day: int | None = None
    bytes_per_day: int | None = None


class Tenant(NamedTuple):
    """An organisation that shares the server. `id` marks its rows and files."""

    id: str
    name: str
    created: float
    quota: Quota


class TenantMember(NamedTuple):
    """A member of a tenant; the role is admin or member."""

    name: str
    role: str
    added: float


class ApiKeyRow(NamedTuple):
    """An API key as it is stored: the hash of its token instead of the token."""

    id: str
    tenant: str
    member: str | None
    hash: str
    scopes: tuple[str, ...]
    projects: tuple[str, ...] | None
    created: float
    expires: float | None
    revoked: float | None
    used: float | None


class AuditEntry(NamedTuple):
    """Who did what. The tenant is its name at that time."""

    num: int
    time: float
    tenant: str
    actor: str
    action: str
    detail: str


class TenantDirectory(StorePart):
    """The tenants of a server. Use `store.tenants`."""

    # -- tenants

    def add_tenant(self, id: str, name: str) -> Tenant:
        """Add a tenant; raise `InvalidInput` if the name is in use."""
        sql = f"{TENANTS.build_insert()} ON CONFLICT (name) DO NOTHING RETURNING id"
        row = (id, escape_text(name), self._clock(), None, None, None)
        if not self._write(lambda tx: tx.run(sql, row)):
            raise InvalidInput(f"Tenant {name} already exists.")
        return self.get_tenant(name)

    def get_tenant(self, name: str) -> Tenant:
        """Return a tenant by its name."""
        rows = self._select(f"{_SELECT_TENANTS} WHERE name = ?", (escape_text(name),))
        if not rows:
            raise NotFound(f"Tenant not found: {name}. List tenants with `rekindle tenants list`.")
        return _read_tenant(rows[0])

    def get_tenant_by_id(self, id: str) -> Tenant:
        """Return a tenant by the id that marks its rows."""
        rows = self._select(f"{_SELECT_TENANTS} WHERE id = ?", (id,))
        if not rows:
            raise NotFound("This tenant was removed.")
        return _read_tenant(rows[0])

    def list_tenants(self) -> list[Tenant]:
        """Return all tenants by name."""
        return [_read_tenant(row) for row in self._select(f"{_SELECT_TENANTS} ORDER BY name")]

    def delete_tenant(self, id: str) -> None:
        """Delete a tenant with its members, keys and counts; the audit log stays."""

        def delete_rows(tx: Transaction) -> None:
            for table in ("api_keys", "tenant_members", "tenant_usage"):
                tx.run(f"DELETE FROM {table} WHERE tenant = ?", (id,))
            tx.run("DELETE FROM tenants WHERE id = ?", (id,))

        self._write(delete_rows)

    # -- members

    def save_member(self, tenant: str, name: str, role: str) -> None:
        """Add a member, or change the role of one."""
        sql = TENANT_MEMBERS.build_upsert("tenant, name")
        row = (tenant, escape_text(name), role, self._clock())
        self._write(lambda tx: tx.run(sql, row))

    def list_members(self, tenant: str) -> list[TenantMember]:
        """Return the members of a tenant by name."""
        sql = "SELECT name, role, added FROM tenant_members WHERE tenant = ? ORDER BY name"
        return [
            TenantMember(unescape_text(name), role, added)
            for name, role, added in self._select(sql, (tenant,))
        ]

    def delete_member(self, tenant: str, name: str) -> int:
        """Delete a member and revoke their keys; return the number of keys."""
        now, member = self._clock(), escape_text(name)

        def delete_rows(tx: Transaction) -> int | None:
            sql = "DELETE FROM tenant_members WHERE tenant = ? AND name = ? RETURNING name"
            if not tx.run(sql, (tenant, member)):
                return None
            revoked = tx.run(
                "UPDATE api_keys SET revoked = ? WHERE tenant = ? AND member = ?"
                " AND revoked IS NULL RETURNING id",
                (now, tenant, member),
            )
            return len(revoked)

        count = self._write(delete_rows)
        if count is None:
            raise NotFound(f"Member not found: {name}.")
        return count

    # -- API keys

    def add_key(self, key: ApiKeyRow) -> None:
        """Store a key; raise `NotFound` if its member is none of the tenant."""
        member = None if key.member is None else escape_text(key.member)
        projects = None if key.projects is None else encode_json([*key.projects])
        row = (key.id, key.tenant, member, key.hash, " ".join(key.scopes), projects, *key[6:])

        def insert_key(tx: Transaction) -> bool:
            known = "SELECT 1 FROM tenant_members WHERE tenant = ? AND name = ?"
            if member is not None and not tx.run(known, (key.tenant, member)):
                return False
            tx.run(API_KEYS.build_insert(), row)
            return True

        if not self._write(insert_key):
            raise NotFound(f"Member not found: {key.member}.")

    def find_key(self, id: str) -> ApiKeyRow | None:
        """Return a key by its id."""
        rows = self._select(f"{_SELECT_KEYS} WHERE id = ?", (escape_text(id),))
        return _read_key(rows[0]) if rows else None

    def list_keys(self, tenant: str) -> list[ApiKeyRow]:
        """Return the keys of a tenant, oldest first."""
        sql = f"{_SELECT_KEYS} WHERE tenant = ? ORDER BY created, id"
        return [_read_key(row) for row in self._select(sql, (tenant,))]

    def revoke_key(self, tenant: str, id: str) -> bool:
        """Revoke a key of a tenant; return False if it was revoked before."""
        now = self._clock()

        def revoke(tx: Transaction) -> bool | None:
            where = "WHERE tenant = ? AND id = ?"
            params = (tenant, escape_text(id))
            if not tx.run(f"SELECT 1 FROM api_keys {where}", params):
                return None
            sql = f"UPDATE api_keys SET revoked = ? {where} AND revoked IS NULL RETURNING id"
            return bool(tx.run(sql, (now, *params)))

        done = self._write(revoke)
        if done is None:
            raise NotFound(f"API key not found: {id}.")
        return done

    def mark_used(self, key: ApiKeyRow) -> None:
        """Record that a key was used, at most once in an hour."""
        now = self._clock()
        if key.used is None or abs(now - key.used) >= _USED_STEP:
            sql = "UPDATE api_keys SET used = ? WHERE id = ?"
            self._write(lambda tx: tx.run(sql, (now, key.id)))

    # -- quotas

    def set_quota(self, tenant: str, quota: Quota) -> None:
        """Set the limits of a tenant."""
        sql = "UPDATE tenants SET max_sessions = ?, messages_per_day = ?, bytes_per_day = ? WHERE id = ?"
        self._write(lambda tx: tx.run(sql, (*quota, tenant)))

    def charge(
        self, tenant: str, quota: Quota, messages: int, size: int, refuses: bool = True
    ) -> None:
        """Count a tenant's stored data of today.

        If it is too much and that `refuses`, raise `QuotaExceeded` and count nothing. A negative
        number takes back what was not stored after all.
        """
        day = str(int(self._clock()) // _DAY)

        def count(tx: Transaction) -> None:
            [used] = tx.run(
                "INSERT INTO tenant_usage (tenant, day, messages, bytes) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (tenant, day) DO UPDATE SET"
                " messages = tenant_usage.messages + excluded.messages,"
                " bytes = tenant_usage.bytes + excluded.bytes RETURNING messages, bytes",
                (tenant, day, messages, size),
            )
            if refuses:
                self._refuse_above(quota, *used)

        self._write(count)

    def check_quota(self, tenant: str, quota: Quota) -> None:
        """Raise `QuotaExceeded` if a tenant may store nothing more today."""
        messages, size = self.get_usage(tenant)
        self._refuse_above(quota, messages + 1, size + 1)

    def _refuse_above(self, quota: Quota, messages: int, size: int) -> None:
        for limit, used, unit in (
            (quota.messages_per_day, messages, "messages"),
            (quota.bytes_per_day, size, "bytes"),
        ):
            if limit is not None and used > limit:
                raise QuotaExceeded(
                    f"The quota of {limit:,} {unit} per day is used up. It begins anew at"
                    " midnight UTC.",
                    retry_after=_DAY - int(self._clock()) % _DAY,
                )

    def get_usage(self, tenant: str) -> tuple[int, int]:
        """Return the messages and bytes that a tenant stored today, as far as they were counted."""
        rows = self._select(
            "SELECT messages, bytes FROM tenant_usage WHERE tenant = ? AND day = ?",
            (tenant, str(int(self._clock()) // _DAY)),
        )
        return (rows[0][0], rows[0][1]) if rows else (0, 0)

    # -- audit log

    def add_entry(self, tenant: str, actor: str, action: str, detail: str) -> None:
        """Add an entry to the audit log."""
        now = self._clock()
        self._write(
            lambda tx: tx.run(
                "INSERT INTO audit_log (time, tenant, actor, action, detail) VALUES (?, ?, ?, ?, ?)",
                (now, *(escape_text(text[:500]) for text in (tenant, actor, action, detail))),
            )
        )

    def list_entries(self, tenant: str | None = None, limit: int = 100) -> list[AuditEntry]:
        """Return entries of the audit log, newest first."""
        where, params = (
            ("", ()) if tenant is None else (" WHERE tenant = ?", (escape_text(tenant),))
        )
        rows = self._select(
            "SELECT num, time, tenant, actor, action, detail FROM audit_log"
            f"{where} ORDER BY num DESC LIMIT ?",
            (*params, limit),
        )
        return [AuditEntry(num, time, *map(unescape_text, texts)) for num, time, *texts in rows]


_SELECT_TENANTS = f"SELECT {TENANTS.list_names()} FROM tenants"
_SELECT_KEYS = f"SELECT {API_KEYS.list_names()} FROM api_keys"


def _read_tenant(row: Row) -> Tenant:
    id, name, created, *quota = row
    return Tenant(id=id, name=unescape_text(name), created=created, quota=Quota(*quota))


def _read_key(row: Row) -> ApiKeyRow:
    id, tenant, member, hash, scopes, projects, created, expires, revoked, used = row
    listed: list[Any] | None = None if projects is None else decode_json(projects)
    return ApiKeyRow(
        id=id,
        tenant=tenant,
        member=None if member is None else unescape_text(member),
        hash=hash,
        scopes=tuple(scopes.split()),
        projects=None if listed is None else tuple(map(str, listed)),
        created=created,
        expires=expires,
        revoked=revoked,
        used=used,
    )
