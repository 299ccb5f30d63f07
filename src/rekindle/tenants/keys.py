"""API keys: random tokens that are shown once and stored as a hash."""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import NamedTuple, cast

from rekindle.errors import InvalidApiKey, InvalidInput, NotFound
from rekindle.store.tenants.directory import ApiKeyRow, TenantDirectory

from .access import Access, Scope, parse_scopes

PREFIX = "rk"
_MAX_TOKEN_CHARS = 200
_WRONG_KEY = "This API key is not valid."


class NewKey(NamedTuple):
    """A new key. The token is not stored: it cannot be shown again."""

    id: str
    token: str


class ApiKeys:
    """The API keys of all tenants."""

    def __init__(self, directory: TenantDirectory, clock: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._clock = clock

    def authenticate(self, token: str) -> Access:
        """Return what a token gives access to; raise `InvalidApiKey` without saying what is wrong."""
        prefix, _, rest = token.partition("_")
        id, _, secret = rest.partition("_")
        is_formed = prefix == PREFIX and bool(secret) and len(token) <= _MAX_TOKEN_CHARS
        key = self._directory.find_key(id) if is_formed else None
        # Compared even if there is no such key, so that the time does not tell.
        is_equal = hmac.compare_digest(_hash_token(token), key.hash if key else _hash_token(""))
        if key is None or not is_equal or key.revoked is not None:
            raise InvalidApiKey(_WRONG_KEY)
        if key.expires is not None and key.expires <= self._clock():
            raise InvalidApiKey("This API key has expired.")
        try:
            tenant = self._directory.get_tenant_by_id(key.tenant)
        except NotFound:
            raise InvalidApiKey(_WRONG_KEY) from None
        self._directory.mark_used(key)
        return Access(
            tenant=tenant.name,
            key_id=key.id,
            member=key.member,
            scopes=cast("frozenset[Scope]", frozenset(key.scopes)),
            projects=None if key.projects is None else frozenset(key.projects),
        )

    def add(
        self,
        tenant: str,
        *,
        scopes: Iterable[str] = ("read",),
        member: str | None = None,
        projects: Iterable[str] | None = None,
        expires: float | None = None,
    ) -> NewKey:
        """Add a key to a tenant and return its token, which is shown this once."""
        allowed = parse_scopes(scopes)
        chosen = None if projects is None else tuple(sorted({*projects}))
        if chosen is not None and "admin" in allowed:
            raise InvalidInput("A key with the admin scope cannot be limited to projects.")
        id = secrets.token_hex(6)
        token = f"{PREFIX}_{id}_{secrets.token_urlsafe(32)}"
        self._directory.add_key(
            ApiKeyRow(
                id=id,
                tenant=self._directory.get_tenant(tenant).id,
                member=member,
                hash=_hash_token(token),
                scopes=tuple(sorted(allowed)),
                projects=chosen,
                created=self._clock(),
                expires=expires,
                revoked=None,
                used=None,
            )
        )
        return NewKey(id, token)

    def list(self, tenant: str) -> list[ApiKeyRow]:
        """Return the keys of a tenant, oldest first."""
        return self._directory.list_keys(self._directory.get_tenant(tenant).id)

    def revoke(self, tenant: str, id: str) -> bool:
        """Revoke a key of a tenant; return False if it was revoked before."""
        return self._directory.revoke_key(self._directory.get_tenant(tenant).id, id)


def _hash_token(token: str) -> str:
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
