"""The directory of tenants: who shares this server, with which keys and limits, and what they did."""

from __future__ import annotations

from .columns import Index, Table

TENANTS = Table(
    "tenants",
    "id key primary",  # random, so that a name can be used again after its tenant was removed
    "name key unique, created real",
    # Limits; none if NULL.
    "max_sessions integer null, messages_per_day integer null, bytes_per_day integer null",
    has_rowid=False,
    since=19,
)
TENANT_MEMBERS = Table(
    "tenant_members",
    "tenant key, name key",
    "role text",  # admin, member
    "added real",
    key="tenant, name",
    has_rowid=False,
    since=19,
)
API_KEYS = Table(
    "api_keys",
    "id key primary, tenant key",
    "member key null",
    "hash text",  # SHA-256 of the token, which is random
    "scopes text",  # separated by spaces
    "projects text null",  # as JSON; NULL: all
    "created real, expires real null, revoked real null",
    "used real null",  # to the hour
    Index("api_keys_tenant", "tenant", since=19),
    has_rowid=False,
    since=19,
)
# What a tenant stored on a day (UTC), for its quotas.
TENANT_USAGE = Table(
    "tenant_usage",
    "tenant key, day text, messages integer, bytes integer",
    key="tenant, day",
    has_rowid=False,
    since=19,
)
AUDIT_LOG = Table(
    "audit_log",
    "num serial, time real",
    "tenant key",  # a name: entries outlive their tenant
    "actor text",  # key:ID, member:NAME or operator
    "action text, detail text",
    Index("audit_log_tenant", "tenant, num", since=19),
    Index("audit_log_time", "time", since=19),
    since=19,
)
