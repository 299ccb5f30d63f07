"""Save files that people send into the workspace, where the tools can read them.

Names and contents come from others. A file is only fetched from people whose tools may use it, has a
limited size, and gets a name of our own making. The workspace may hold links that an agent made; they
are not followed.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rekindle.agent.tools.sandbox_paths import replace_file, resolve_path
from rekindle.agent.tools.tool import ToolContext
from rekindle.errors import PlatformError, ToolError
from rekindle.platforms import Attachment
from rekindle.routing.sanitize import clean_text
from rekindle.types import JSON

logger = logging.getLogger(__name__)

FOLDER = "attachments"  # in the workspace
MAX_FILES = 10  # of one message
MAX_IMAGE_BYTES = 4 * 1024 * 1024  # of an image that is shown to the model
_IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_NAME_CHARS = 60


class FileRules(NamedTuple):
    """Where files go, how large they may be, and whether the model is shown images."""

    workspace: Path
    max_bytes: int
    shows_images: bool = False


class ReceivedFiles(NamedTuple):
    """What became of the files of a message: lines that say it, and images for the model."""

    lines: tuple[str, ...] = ()
    images: tuple[dict[str, JSON], ...] = ()


async def receive_files(
    attachments: Sequence[Attachment], message_id: str, rules: FileRules
) -> ReceivedFiles:
    """Fetch and save the files of a message; a file that cannot be had is named with the reason."""
    lines: list[str] = []
    images: list[dict[str, JSON]] = []
    for number, attachment in enumerate(attachments):
        name = clean_text(attachment.name) or "file"
        try:
            if number >= MAX_FILES:
                raise PlatformError(f"a message may have {MAX_FILES} files")
            data = await _fetch_file(attachment, rules.max_bytes)
            path = _save_file(data, attachment.name, f"{message_id}/{number}", rules.workspace)
        except (PlatformError, ToolError, OSError) as error:
            logger.warning("a file was not received: %s", error)
            lines.append(f"[File {name}: not received: {clean_text(str(error), 200)}]")
            continue
        lines.append(f"[File {name}: {_format_size(len(data))}, saved as {path}]")
        if rules.shows_images and (image := _make_image(attachment, data)):
            images.append(image)
    return ReceivedFiles(tuple(lines), tuple(images))


def describe_refused(attachments: Sequence[Attachment]) -> ReceivedFiles:
    """Return lines for files of someone whose files are not taken."""
    names = (clean_text(attachment.name) or "file" for attachment in attachments[:MAX_FILES])
    return ReceivedFiles(tuple(f"[File {name}: not received]" for name in names))


async def _fetch_file(attachment: Attachment, max_bytes: int) -> bytes:
    if not max_bytes:
        raise PlatformError("files are not accepted here")
    if (attachment.size or 0) > max_bytes:
        raise PlatformError(f"larger than {_format_size(max_bytes)}")
    data = await attachment.fetch(max_bytes)
    if len(data) > max_bytes:
        raise PlatformError(f"larger than {_format_size(max_bytes)}")
    return data


def _save_file(data: bytes, name: str, identity: str, workspace: Path) -> str:
    """Save a file and return its path in the workspace; a redelivered message has the same one."""
    stem = _UNSAFE.sub("-", name).strip("-.")[-_NAME_CHARS:].lstrip("-.") or "file"
    mark = hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()[:8]
    path = f"{FOLDER}/{mark}-{stem}"
    context = ToolContext(session="", cwd=workspace, folders=(workspace,))
    replace_file(resolve_path(context, path), data)
    return path


def _make_image(attachment: Attachment, data: bytes) -> dict[str, JSON] | None:
    if attachment.media_type not in _IMAGE_TYPES or len(data) > MAX_IMAGE_BYTES:
        return None
    encoded = base64.b64encode(data).decode("ascii")
    url = f"data:{attachment.media_type};base64,{encoded}"
    return {"type": "image_url", "image_url": {"url": url}}


def _format_size(size: int) -> str:
    return f"{size} bytes" if size < 1000 else f"{size / 1000:,.0f} KB"
