"""Tenants: organisations that share a server, their members, API keys, quotas and audit log."""

from rekindle.store.tenants.directory import Quota

from .access import SCOPES, Access, Scope, parse_scopes
from .keys import ApiKeys, NewKey
from .person import EraseReport, erase_person, export_person
from .tenants import Tenants, open_tenants

__all__ = [
    "SCOPES",
    "Access",
    "ApiKeys",
    "EraseReport",
    "NewKey",
    "Quota",
    "Scope",
    "Tenants",
    "erase_person",
    "export_person",
    "open_tenants",
    "parse_scopes",
]
