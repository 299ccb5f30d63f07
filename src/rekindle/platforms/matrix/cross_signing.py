"""Cross-signing: the account vouches for its device, so that other clients write to it.

An account without cross-signing keys gets its own, which are kept in the state folder. If it has keys
of another client, that client has to verify the device.
"""

from __future__ import annotations

import json
import logging
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

from Crypto.PublicKey import ECC
from Crypto.Signature import eddsa

from rekindle.errors import PlatformError

from .account import Account
from .homeserver import build_path

logger = logging.getLogger(__name__)

SIGNING_NAME = "signing.json"
_USAGES = ("master", "self_signing", "user_signing")


async def sign_device(account: Account, device_keys: Mapping[str, Any]) -> None:
    """Sign the device with the keys of the account, which are created if it has none.

    Without this the bot still works with clients that write to every device, so failures are logged.
    """
    try:
        known = await _query_keys(account)
        master = _get_key(known.get("master_keys", {}).get(account.user_id))
        seeds = account.state.read(SIGNING_NAME)
        if master is None:
            seeds = await _create_keys(account)
        elif set(seeds) != set(_USAGES) or master != _SigningKey(seeds["master"]).public:
            logger.warning(
                "matrix: another client holds the cross-signing keys of %s; verify the device %s"
                " there, or some clients will not write to it",
                account.user_id, account.device_id,
            )  # fmt: skip
            return
        key = _SigningKey(seeds["self_signing"])
        device = known.get("device_keys", {}).get(account.user_id, {}).get(account.device_id, {})
        signatures = device.get("signatures", {}).get(account.user_id, {})
        if f"ed25519:{key.public}" not in signatures:
            signed = key.sign(device_keys, account.user_id)
            body = {account.user_id: {account.device_id: signed}}
            path = build_path("keys", "signatures", "upload")
            answer = await account.homeserver.request("POST", path, body)
            if answer.get("failures"):
                logger.warning("matrix: the device was not signed: %s", answer["failures"])
    except PlatformError as error:
        if not error.permanent:
            raise
        logger.warning("matrix: the device cannot be cross-signed: %s", error)
    except ValueError as error:
        path = account.state.folder / SIGNING_NAME
        logger.warning("matrix: the keys in %s are damaged: %s", path, error)


class _SigningKey:
    """An Ed25519 key that signs JSON objects, made from its seed."""

    def __init__(self, seed: str) -> None:
        self._key = ECC.construct(curve="Ed25519", seed=_decode_base64(seed))
        self.public = _encode_base64(self._key.public_key().export_key(format="raw"))

    @classmethod
    def make_seed(cls) -> str:
        return _encode_base64(ECC.generate(curve="Ed25519").seed)

    def sign(self, value: Mapping[str, Any], user_id: str) -> dict[str, Any]:
        """Return the object with our signature."""
        signed = {name: part for name, part in value.items() if name != "signatures"}
        text = json.dumps(signed, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        signature = eddsa.new(self._key, "rfc8032").sign(text.encode())
        return {
            **signed,
            "signatures": {user_id: {f"ed25519:{self.public}": _encode_base64(signature)}},
        }


async def _query_keys(account: Account) -> dict[str, Any]:
    body: dict[str, Any] = {"device_keys": {account.user_id: []}}
    return await account.homeserver.request("POST", build_path("keys", "query"), body)


async def _create_keys(account: Account) -> dict[str, str]:
    """Create the keys of the account; they are written down before anybody knows them."""
    seeds = {usage: _SigningKey.make_seed() for usage in _USAGES}
    account.state.write(SIGNING_NAME, seeds)
    master = _SigningKey(seeds["master"])
    body: dict[str, Any] = {}
    for usage, seed in seeds.items():
        public = _SigningKey(seed).public
        key: dict[str, Any] = {
            "user_id": account.user_id,
            "usage": [usage],
            "keys": {f"ed25519:{public}": public},
        }
        is_master = usage == "master"
        body[f"{usage}_key"] = key if is_master else master.sign(key, account.user_id)
    await account.homeserver.request("POST", build_path("keys", "device_signing", "upload"), body)
    logger.info("matrix: created cross-signing keys for %s", account.user_id)
    return seeds


def _get_key(value: Any) -> str | None:
    keys = value.get("keys") if isinstance(value, dict) else None  # pyright: ignore
    return next(iter(keys.values()), None) if isinstance(keys, dict) else None  # pyright: ignore


def _encode_base64(data: bytes) -> str:
    return b64encode(data).decode().rstrip("=")


def _decode_base64(text: str) -> bytes:
    return b64decode(text + "=" * (-len(text) % 4))
