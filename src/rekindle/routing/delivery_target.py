"""Where the result of a job goes: `origin`, `local`, a platform's home chat, or a certain chat."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rekindle.errors import InvalidInput
from rekindle.types import Source

from .source import LOCAL

ORIGIN = "origin"
FOLDER = "folder"  # the platform that keeps results as files on this machine


def resolve_target(
    text: str, *, origin: Source | None, homes: Mapping[str, Source], platforms: Collection[str]
) -> Source:
    """Return the chat that a target names; `platforms` are those that can be delivered to.

    A chat and a thread are ids of their platform. An id such as `!room:server` is taken whole.
    """
    if text == ORIGIN:
        if origin is None or origin.platform == LOCAL:
            return build_local_target()
        return origin
    if text == LOCAL:
        return build_local_target()
    platform, colon, chat = text.partition(":")
    if not colon and platform in homes:
        return homes[platform]
    if platform not in platforms:
        known = ", ".join([ORIGIN, LOCAL, *sorted(platforms)])
        raise InvalidInput(f"target: unknown platform {platform!r:.40}; known: {known}")
    if not colon:
        raise InvalidInput(
            f"target: {platform} has no home chat; send /sethome there, or name a chat:"
            f" {platform}:<chat id>"
        )
    chat_id, _, thread = chat.partition(":")
    if not chat_id:
        raise InvalidInput(f"target: {text!r:.80} names no chat; write {platform}:<chat id>")
    if chat_id[0] in "!@#$":  # such ids name their server too: !room:server
        server, _, thread = thread.partition(":")
        chat_id = f"{chat_id}:{server}" if server else chat_id
    return Source(platform, chat_id, chat_type="group", thread_id=thread or None)


def build_local_target() -> Source:
    """Return the target that keeps results in a folder of this machine."""
    return Source(FOLDER, "results")
