"""Files: those received with messages, and those sent."""

# pyright: reportMissingTypeStubs=false
from __future__ import annotations

import mimetypes
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from nio.crypto.attachments import decrypt_attachment, encrypt_attachment
from nio.exceptions import EncryptionError

from rekindle.errors import PlatformError
from rekindle.platforms import Attachment

from .homeserver import HomeserverClient

FILE_TYPES = ("m.image", "m.file", "m.audio", "m.video")
_MEDIA_API = "/_matrix/client/v1/media"
_UPLOAD_SECONDS = 600.0
_MAX_NAME_CHARS = 255


def read_attachment(content: Mapping[str, Any], homeserver: HomeserverClient) -> Attachment | None:
    """Return the file that a message brings, if it brings one; nothing is downloaded yet."""
    if content.get("msgtype") not in FILE_TYPES:
        return None
    encrypted = _get_object(content, "file")
    url = encrypted.get("url") or content.get("url")
    if not isinstance(url, str):
        return None
    info = _get_object(content, "info")
    size = info.get("size")
    media_type = info.get("mimetype")
    name = str(content.get("filename") or content.get("body") or "file")[:_MAX_NAME_CHARS]

    async def fetch(max_bytes: int) -> bytes:
        data = await homeserver.download(_build_media_path(url), max_bytes)
        return _decrypt_file(data, encrypted) if encrypted else data

    return Attachment(
        name,
        media_type if isinstance(media_type, str) else "application/octet-stream",
        size if isinstance(size, int) and size >= 0 else None,
        fetch,
    )


def read_caption(content: Mapping[str, Any]) -> str:
    """Return the text that was written with a file; its name is not one."""
    body, name = str(content.get("body") or ""), content.get("filename")
    return body if isinstance(name, str) and name != body else ""


async def upload_file(
    homeserver: HomeserverClient, file: Path, *, encrypts: bool
) -> dict[str, Any]:
    """Upload a file and return the content of the message that shows it."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise PlatformError(f"{file.name} cannot be read: {error}", permanent=True) from error
    media_type = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    main_type = media_type.partition("/")[0]
    content: dict[str, Any] = {
        "msgtype": f"m.{main_type}" if main_type in ("image", "audio", "video") else "m.file",
        "body": file.name,
        "filename": file.name,
        "info": {"mimetype": media_type, "size": len(data)},
        "m.mentions": {},
    }
    keys: dict[str, Any] = {}
    sent_type, query = media_type, {"filename": file.name}
    if encrypts:
        data, keys = encrypt_attachment(data)
        sent_type, query = "application/octet-stream", {}
    answer = await homeserver.upload(
        "POST", "/_matrix/media/v3/upload", data, query, media_type=sent_type,
        seconds=_UPLOAD_SECONDS,
    )  # fmt: skip
    if encrypts:
        content["file"] = {**keys, "url": answer["content_uri"]}
    else:
        content["url"] = answer["content_uri"]
    return content


def _decrypt_file(data: bytes, keys: Mapping[str, Any]) -> bytes:
    try:
        key = str(_get_object(keys, "key")["k"])
        hashes = _get_object(keys, "hashes")
        return decrypt_attachment(data, key, str(hashes["sha256"]), str(keys["iv"]))
    except (EncryptionError, KeyError, ValueError) as error:
        raise PlatformError(f"the file cannot be decrypted: {error}", permanent=True) from error


def _build_media_path(url: str) -> str:
    server, slash, media_id = url.removeprefix("mxc://").partition("/")
    if not url.startswith("mxc://") or not slash or not server or not media_id:
        raise PlatformError("the file has no valid address", permanent=True)
    return f"{_MEDIA_API}/download/{quote(server, safe='')}/{quote(media_id, safe='')}"


def _get_object(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = value.get(name)
    return cast(dict[str, Any], found) if isinstance(found, dict) else {}
