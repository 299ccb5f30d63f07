"""Those who write to the bot: with plain requests, or with a client that encrypts."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import nio
from nio.store import SqliteStore

from .synapse import Synapse, call

API = "/_matrix/client/v3"
_FILTER = {"room": {"timeline": {"limit": 1000}}}
ENCRYPTION = {"algorithm": "m.megolm.v1.aes-sha2"}
_numbers = itertools.count(1)


def make_name(word: str) -> str:
    """Return a name that nobody has yet, on a server that other tests use too."""
    return f"{word}{next(_numbers)}-{uuid.uuid4().hex[:6]}"


class Person:
    """A user with an access token, who does what a client does, without encryption."""

    def __init__(self, synapse: Synapse, word: str = "ada", display_name: str = "") -> None:
        self.synapse = synapse
        self.name = make_name(word)
        self.id, self.token = synapse.register(self.name, display_name=display_name)

    def request(self, method: str, *parts: str, body: Any = None, query: str = "") -> Any:
        path = "/".join((API, *(quote(part, safe="") for part in parts)))
        return call(self.synapse.url, method, path + query, body, self.token)

    def create_room(
        self,
        *invited: str,
        is_direct: bool = False,
        encrypted: bool = False,
        name: str = "",
        preset: str = "private_chat",
    ) -> str:
        state = [{"type": "m.room.encryption", "content": ENCRYPTION}] if encrypted else []
        body: dict[str, Any] = {
            "preset": preset,
            "invite": list(invited),
            "is_direct": is_direct,
            "initial_state": state,
        }
        if name:
            body["name"] = name
        return self.request("POST", "createRoom", body=body)["room_id"]

    def join(self, room: str) -> None:
        self.request("POST", "rooms", room, "join", body={})

    def say(self, room: str, text: str, **content: Any) -> str:
        body = {"msgtype": "m.text", "body": text, **content}
        return self.send(room, "m.room.message", body)

    def send(self, room: str, kind: str, content: Mapping[str, Any]) -> str:
        path = ("rooms", room, "send", kind, uuid.uuid4().hex)
        return self.request("PUT", *path, body=content)["event_id"]

    def redact(self, room: str, event_id: str) -> None:
        self.request("PUT", "rooms", room, "redact", event_id, uuid.uuid4().hex, body={})

    def upload(self, data: bytes) -> str:
        path = "/_matrix/media/v3/upload"
        return call(self.synapse.url, "POST", path, data, self.token)["content_uri"]

    def list_events(self, room: str) -> list[dict[str, Any]]:
        """Return everything in a room, oldest first."""
        found: list[dict[str, Any]] = []
        start = ""
        while True:
            query = f"?dir=f&limit=500{start}"
            answer = self.request("GET", "rooms", room, "messages", query=query)
            found += answer["chunk"]
            if "end" not in answer or not answer["chunk"]:
                return found
            start = f"&from={answer['end']}"

    def list_texts(self, room: str, sender: str) -> list[str]:
        """Return what someone said in a room, edits applied, in order."""
        return show_texts(self.list_events(room), sender)


def show_texts(events: Sequence[Mapping[str, Any]], sender: str) -> list[str]:
    """Return what a client shows of someone's messages."""
    shown: dict[str, str] = {}
    for event in events:
        content = event["content"]
        if event["type"] != "m.room.message" or event["sender"] != sender or not content:
            continue
        relation = content.get("m.relates_to", {})
        if relation.get("rel_type") == "m.replace":
            shown[relation["event_id"]] = content["m.new_content"]["body"]
        else:
            shown[event["event_id"]] = content["body"]
    return list(shown.values())


class Device:
    """A client with end-to-end encryption, on one device of a person."""

    def __init__(self, person: Person, folder: Path) -> None:
        self.person = person
        self._folder = folder
        self.events: list[dict[str, Any]] = []  # decrypted, of all rooms
        self.client: Any = None

    async def open(self, *, second: bool = False) -> Device:
        """Log in: as the device that the person has, or as one more."""
        self._folder.mkdir(parents=True, exist_ok=True)
        config = nio.AsyncClientConfig(
            store=SqliteStore, store_name="keys.db", max_timeout_retry_wait_time=1
        )
        person = self.person
        client = nio.AsyncClient(
            person.synapse.url, person.id, store_path=str(self._folder), config=config
        )
        if second:
            answer = await client.login(person.name, device_name="another")
            assert isinstance(answer, nio.LoginResponse), answer
        else:
            whoami = person.request("GET", "account", "whoami")
            client.restore_login(person.id, whoami["device_id"], person.token)
        self.client = client
        await self.sync()
        return self

    async def sync(self, milliseconds: int = 0) -> None:
        """Take what is new, and do what a client does after it."""
        client = self.client
        response = await client.sync(
            milliseconds, sync_filter=_FILTER, full_state=client.next_batch is None
        )
        assert isinstance(response, nio.SyncResponse), response
        if client.should_upload_keys:
            await client.keys_upload()
        if client.should_query_keys:
            await client.keys_query()
        if client.should_claim_keys:
            await client.keys_claim(client.get_users_for_key_claiming())
        await client.send_to_device_messages()
        for room_id, info in response.rooms.join.items():
            for event in info.timeline.events:
                self.events.append({**event.source, "room_id": room_id, "parsed": event})
        self._decrypt_late()

    def _decrypt_late(self) -> None:
        """Decrypt what came before its key."""
        for number, event in enumerate(self.events):
            if isinstance(event["parsed"], nio.MegolmEvent):
                try:
                    parsed = self.client.decrypt_event(event["parsed"])
                except nio.EncryptionError:
                    continue
                self.events[number] = {**parsed.source, "room_id": event["room_id"],
                                       "parsed": parsed}  # fmt: skip

    async def say(self, room: str, text: str, **content: Any) -> str:
        """Say something, encrypted if the room is."""
        return await self.send(room, {"msgtype": "m.text", "body": text, **content})

    async def send(self, room: str, content: dict[str, Any], transaction: str | None = None) -> str:
        await self.sync()
        answer = await self.client.room_send(
            room, "m.room.message", content, transaction, ignore_unverified_devices=True
        )
        assert isinstance(answer, nio.RoomSendResponse), answer
        return answer.event_id

    def list_texts(self, room: str, sender: str) -> list[str]:
        """Return what this device could read of someone's messages, edits applied."""
        events = {e["event_id"]: e for e in self.events if e["room_id"] == room}
        return show_texts(list(events.values()), sender)

    async def close(self) -> None:
        await self.client.close()
