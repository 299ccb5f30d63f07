"""Tenants: organisations that share a server, their members, API keys, quotas and audit log."""

from rekindle.store.tenants.directory import Quota

from .access import SCOPES, Access, Scope, parse_scopes
from .keys import ApiKeys, NewKey
from .tenants import Tenants, open_tenants

__all__ = [
    "SCOPES",
    "Access",
    "ApiKeys",
    "NewKey",
    "Quota",
    "Scope",
    "Tenants",
    "open_tenants",
    "parse_scopes",
]
