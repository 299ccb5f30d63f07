"""Tenants: organisations that share a server, their members, API keys, quotas and audit log."""

from .access import SCOPES, Access, Scope, parse_scopes

__all__ = ["SCOPES", "Access", "Scope", "parse_scopes"]
