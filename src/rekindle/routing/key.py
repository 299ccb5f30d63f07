"""The key of the conversation that a source belongs to.

    agent:main:<platform>:dm                     direct messages to a bot with a single owner
    agent:main:<platform>:dm:<chat>              direct messages where several people can write
    agent:main:<platform>:<type>:<chat>          groups, channels and threads
    …:t=<thread>   …:u=<user>                    added, in this order, if the settings say so

Every value is escaped, so a key can be parsed back and different parts never give the same key. A value
too long for an index is replaced by `~` and its SHA-256: still unique, but not readable.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import NamedTuple

from rekindle.errors import InvalidInput
from rekindle.types import KeyRule, Overridable, Source

from . import overrides
from .sanitize import clean_text

KEY_PREFIX = "agent:main"

_MAX_VALUE_CHARS = 128  # of an escaped value, so that the longest key fits an index entry
_SAFE_CHAR = r"[A-Za-z0-9_.!$@#/+*&,;()|-]"
_UNSAFE_CHARS = re.compile(_SAFE_CHAR.replace("[", "[^", 1))
_PERCENT_RUN = re.compile(r"(?:%[0-9A-F]{2})+")
_VALUE = rf"((?:{_SAFE_CHAR}|%[0-9A-F]{{2}})*|~[0-9a-f]{{64}})"
_KEY = re.compile(rf"{KEY_PREFIX}:{_VALUE}:{_VALUE}(?::{_VALUE})?(?::t={_VALUE})?(?::u={_VALUE})?")


class KeyParts(NamedTuple):
    """The parts of a key; None means that a part is not used."""

    platform: str
    chat_type: str
    chat: str | None = None
    thread: str | None = None
    user: str | None = None


def get_key_rule(rules: Overridable[KeyRule], source: Source) -> KeyRule:
    """Return the key rule for a source, with the overrides for its platform and chat type."""
    return overrides.apply_overrides(rules, source.platform, source.chat_type)


def build_key_parts(source: Source, rule: KeyRule) -> KeyParts:
    """Build the parts of the key of a source's conversation."""
    has_chat = source.chat_type != "dm" or rule.direct == "shared"
    if has_chat and not source.chat_id:
        # An empty id would put all chats into one conversation.
        raise InvalidInput(f"source.chat_id: missing for {source.platform}; cannot build a key")
    return KeyParts(
        source.platform,
        source.chat_type,
        source.chat_id if has_chat else None,
        (source.thread_id or None) if rule.per_thread else None,
        (source.user_id or None) if rule.per_user else None,
    )


def build_key(source: Source, rule: KeyRule | None = None) -> str:
    """Build the key of a source's conversation."""
    return join_key(build_key_parts(source, rule or KeyRule()))


def join_key(parts: KeyParts) -> str:
    """Join the parts into a key."""
    segments = [KEY_PREFIX, _escape_value(parts.platform), _escape_value(parts.chat_type)]
    if parts.chat is not None:
        segments.append(_escape_value(parts.chat))
    if parts.thread is not None:
        segments.append("t=" + _escape_value(parts.thread))
    if parts.user is not None:
        segments.append("u=" + _escape_value(parts.user))
    return ":".join(segments)


def parse_key(key: str) -> KeyParts:
    """Parse a key into its parts; a value that was too long is returned as its digest."""
    if found := _KEY.fullmatch(key):
        platform, chat_type, *rest = found.groups()
        try:
            chat, thread, user = (None if part is None else _unescape_value(part) for part in rest)
            return KeyParts(
                _unescape_value(platform), _unescape_value(chat_type), chat, thread, user
            )
        except UnicodeDecodeError:
            pass  # escapes that do not decode to text
    raise InvalidInput(f"key: {key!r:.200} does not match {KEY_PREFIX}:<platform>:<type>…")


def describe_key(key: str) -> str:
    """Describe a key for display: "telegram group -100, thread 42"."""
    parts = parse_key(key)
    words = f"{clean_text(parts.platform)} {clean_text(parts.chat_type)}"
    if parts.chat is not None:
        words += f" {clean_text(parts.chat)}"
    if parts.thread is not None:
        words += f", thread {clean_text(parts.thread)}"
    if parts.user is not None:
        words += f", user {clean_text(parts.user)}"
    return words


def _escape_value(value: str) -> str:
    text = _UNSAFE_CHARS.sub(_percent_encode, value)
    if len(text) <= _MAX_VALUE_CHARS:
        return text
    return "~" + sha256(value.encode("utf-8", "surrogatepass")).hexdigest()


def _percent_encode(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass"))


def _unescape_value(text: str) -> str:
    return _PERCENT_RUN.sub(_percent_decode, text)


def _percent_decode(found: re.Match[str]) -> str:
    return bytes.fromhex(found[0].replace("%", "")).decode("utf-8", "surrogatepass")
