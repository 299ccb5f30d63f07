"""End-to-end encryption: the keys of the bot's device, and of those it writes to.

The key of a room's messages is shared with every device of the people in the room, verified or not:
there is nobody at the bot's side who could compare fingerprints.
"""

# pyright: reportMissingTypeStubs=false
from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any, cast
from uuid import uuid4

import nio
from nio.exceptions import EncryptionError, LocalProtocolError
from nio.store import SqliteStore

from rekindle.errors import PlatformError

from .account import KEYS_NAME, Account
from .homeserver import build_path

logger = logging.getLogger(__name__)


class Encryption:
    """The device of the bot, which also keeps track of the rooms and their members."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._homeserver = account.homeserver
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        # matrix-nio is only partly typed.
        self._client: Any = None

    async def open(self) -> None:
        """Load the keys, or create them; raise PlatformError if they belong to a lost device."""
        await self.close()
        account = self._account
        config = nio.AsyncClientConfig(
            store=SqliteStore, store_name=KEYS_NAME, encryption_enabled=True
        )
        folder = str(account.state.folder)
        client = nio.AsyncClient(
            self._homeserver.url, account.user_id, account.device_id, folder, config
        )
        client.restore_login(account.user_id, account.device_id, self._homeserver.token)
        self._client = client
        await self._check_device()

    @property
    def rooms(self) -> Mapping[str, Any]:
        """The rooms that the bot is in."""
        return cast(Mapping[str, Any], self._client.rooms)

    async def process_sync(self, answer: dict[str, Any]) -> None:
        """Process the response of a sync: keys, rooms, members."""
        response: Any = nio.SyncResponse.from_dict(deepcopy(answer))  # it changes what it parses
        if not isinstance(response, nio.SyncResponse):
            raise PlatformError(f"unexpected response from the homeserver: {response}")
        try:
            await self._client.receive_response(response)
        except Exception:  # an odd event of anyone in any room must not stop the others
            logger.exception("a part of a sync could not be processed")
        for room in self.rooms.values():
            room.members_synced = True  # no sync leaves members out

    def decrypt(self, source: Mapping[str, Any], room_id: str) -> dict[str, Any] | None:
        """Return an event decrypted, or None if its key is missing."""
        event: Any = nio.Event.parse_event(deepcopy(dict(source)))
        if type(event) is not nio.MegolmEvent:
            return None
        event.room_id = room_id
        try:
            return cast(dict[str, Any], self._client.decrypt_event(event).source)
        except EncryptionError:
            return None
        except Exception:  # whoever sent it must not stop the others
            logger.exception("an event could not be decrypted")
            return None

    async def maintain(self) -> None:
        """Upload new keys, query those of others, and send pending to-device messages."""
        client = self._client
        if self._account.has_new_login:
            await self._check_device()
        if client.should_upload_keys:
            await self._upload_keys()
        if client.should_query_keys:
            await self._query_keys(client.users_for_key_query)
        if client.should_claim_keys:
            await self._claim_keys(client.get_users_for_key_claiming())
        for message in list(client.outgoing_to_device_messages):
            await self._send_to_device(message.type, message.as_dict())
            client.olm.handle_response(nio.ToDeviceResponse(message))

    async def request_key(self, source: Mapping[str, Any], room_id: str) -> None:
        """Ask the bot's other devices and the sender's device for the key of an event."""
        content = source.get("content", {})
        event: Any = nio.Event.parse_event(deepcopy(dict(source)))
        if type(event) is not nio.MegolmEvent:
            return
        event.room_id = room_id
        account = self._account
        request: Any = event.as_key_request(account.user_id, account.device_id)
        wanted: Any = request.content
        targets: dict[str, dict[str, Any]] = {account.user_id: {"*": wanted}}
        targets.setdefault(event.sender, {})[str(content.get("device_id") or "*")] = wanted
        await self._send_to_device("m.room_key_request", {"messages": targets})
        session_id = str(event.session_id)
        if session_id not in self._client.outgoing_key_requests:
            self._client.olm.handle_response(
                nio.RoomKeyRequestResponse(session_id, session_id, room_id, event.algorithm)
            )

    def is_encrypted(self, room_id: str) -> bool:
        room = self.rooms.get(room_id)
        return room is not None and bool(room.encrypted)

    async def encrypt(
        self, room_id: str, kind: str, content: dict[str, Any]
    ) -> tuple[str, dict[str, Any]]:
        """Encrypt a content for everyone in a room, and return its type and content to send."""
        async with self._locks[room_id]:
            client = self._client
            if client.should_query_keys:
                await self._query_keys(client.users_for_key_query)
            if client.olm.should_share_group_session(room_id):
                await self._share_session(room_id)
            try:
                return cast(
                    tuple[str, dict[str, Any]], client.encrypt(room_id, kind, dict(content))
                )
            except (EncryptionError, LocalProtocolError) as error:
                raise PlatformError(f"the message cannot be encrypted: {error}") from error

    def get_fingerprint(self) -> str:
        """Return the public key by which others can verify the device."""
        return str(self._client.olm.account.identity_keys["ed25519"])

    def build_device_keys(self) -> dict[str, Any]:
        """Return the public keys of the device, without signatures."""
        device_id, keys = self._account.device_id, self._client.olm.account.identity_keys
        return {
            "algorithms": list(self._client.olm._algorithms),
            "device_id": device_id,
            "user_id": self._account.user_id,
            "keys": {f"{kind}:{device_id}": keys[kind] for kind in ("curve25519", "ed25519")},
        }

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            if self._client.store is not None:
                self._client.store.database.close()

    async def _share_session(self, room_id: str) -> None:
        """Send the key of a room's messages to the devices in it; all of them get it, or we retry."""
        client, room = self._client, self.rooms[room_id]
        if missing := client.get_missing_sessions(room_id):
            await self._claim_keys(missing)
        users = list(room.users)
        parts = list(
            client.olm.share_group_session_parallel(room_id, users, ignore_unverified_devices=True)
        )
        session = client.olm.outbound_group_sessions[room_id]
        for devices, messages in parts:
            await self._send_to_device("m.room.encrypted", messages)
            session.users_shared_with.update(devices)
        session.shared = True

    async def _upload_keys(self) -> None:
        """Upload new keys; they are saved first, so that a crash loses none."""
        olm = self._client.olm
        keys = olm.share_keys()
        olm.save_account()
        try:
            await self._call("POST", build_path("keys", "upload"), keys, nio.KeysUploadResponse)
        except PlatformError as error:
            if "already exists" not in str(error):
                raise
            # The key store was restored from a backup, and counts anew: skip these numbers.
            logger.warning("some keys of the device were used before: %s", error)
            olm.mark_keys_as_published()
            olm.save_account()

    async def _query_keys(self, users: Iterable[str]) -> None:
        wanted: dict[str, Any] = {"device_keys": {user: [] for user in users}}
        await self._call("POST", build_path("keys", "query"), wanted, nio.KeysQueryResponse)

    async def _claim_keys(self, users: Mapping[str, Iterable[str]]) -> None:
        wanted = {
            user: dict.fromkeys(devices, "signed_curve25519") for user, devices in users.items()
        }
        body = {"one_time_keys": wanted}
        await self._call("POST", build_path("keys", "claim"), body, nio.KeysClaimResponse)

    async def _call(self, method: str, path: str, body: dict[str, Any], kind: Any) -> None:
        answer = await self._homeserver.request(method, path, body)
        response: Any = kind.from_dict(answer)
        if not isinstance(response, kind):
            raise PlatformError(f"unexpected response from the homeserver: {response}")
        await self._client.receive_response(response)

    async def _send_to_device(self, kind: str, messages: Mapping[str, Any]) -> None:
        path = build_path("sendToDevice", kind, uuid4().hex)
        await self._homeserver.request("PUT", path, messages)

    async def _check_device(self) -> None:
        """See whether the homeserver has our keys: they are gone after a logout of the device.

        Keys that others know are not replaced: they would not accept new ones.
        """
        account = self._account
        body = {"device_keys": {account.user_id: [account.device_id]}}
        answer = await self._homeserver.request("POST", build_path("keys", "query"), body)
        devices: dict[str, Any] = answer.get("device_keys", {}).get(account.user_id, {})
        account.has_new_login = False
        if account.device_id not in devices:
            self._client.olm.account.shared = False
            return
        keys: dict[str, str] = devices[account.device_id].get("keys", {})
        if keys.get(f"ed25519:{account.device_id}") != self.get_fingerprint():
            raise PlatformError(
                f"the keys of the device {account.device_id} are not in {account.state.folder}."
                " Restore the folder, or log in as a new device and enter its access token with"
                " `rekindle gateway setup matrix`.",
                permanent=True,
            )
