"""The key of the conversation that a source belongs to.

    agent:main:<platform>:dm                     direct messages to a bot with a single owner
    agent:main:<platform>:dm:<chat>              the same where several people can write
    agent:main:<platform>:<type>:<chat>          groups, channels and threads
    …:t=<thread>   …:u=<user>                    added, in this order, where the settings say so

Every value is escaped, so a key can be taken apart again and two slots never share one. A value too
long for an index is replaced by `~` and its SHA-256: still one of its own, but not readable.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import NamedTuple

from rekindle.errors import InvalidInput
from rekindle.types import KeyRule, Layered, Source

from . import overrides
from .sanitize import clean

AGENT = "agent:main"
# Anybody who knows the number can write there, whatever the settings say.
ALWAYS_SHARED = frozenset({"whatsapp"})

_LONGEST = 128  # characters of an escaped value: the longest key still fits an index entry
_PLAIN = r"[A-Za-z0-9_.!$@#/+*&,;()|-]"
_NOT_KEPT = re.compile(_PLAIN.replace("[", "[^", 1))
_PERCENTS = re.compile(r"(?:%[0-9A-F]{2})+")
_VALUE = rf"((?:{_PLAIN}|%[0-9A-F]{{2}})*|~[0-9a-f]{{64}})"
_KEY = re.compile(rf"{AGENT}:{_VALUE}:{_VALUE}(?::{_VALUE})?(?::t={_VALUE})?(?::u={_VALUE})?")


class Slot(NamedTuple):
    """What a key is made of: None is what takes no part in it."""

    platform: str
    chat_type: str
    chat: str | None = None
    thread: str | None = None
    user: str | None = None


def rule_for(rules: Layered[KeyRule], source: Source) -> KeyRule:
    """The rule for a source: that of its platform and type, platform, type, or the default."""
    return overrides.at(rules, source.platform, source.chat_type)


def slot_of(source: Source, rule: KeyRule) -> Slot:
    """What of a source tells its conversation apart."""
    shared = rule.direct == "shared" or source.platform.lower() in ALWAYS_SHARED
    has_chat = source.chat_type != "dm" or shared
    if has_chat and not source.chat_id:
        # An empty id would put everybody's messages into one conversation.
        raise InvalidInput(f"source.chat_id: {source.platform} gave none, so no key can be made")
    return Slot(
        source.platform,
        source.chat_type,
        source.chat_id if has_chat else None,
        (source.thread_id or None) if rule.thread else None,
        (source.user_id or None) if rule.user else None,
    )


def key_of(source: Source, rule: KeyRule | None = None) -> str:
    """The key of a source's conversation."""
    return join(slot_of(source, rule or KeyRule()))


def join(slot: Slot) -> str:
    """The key of a slot."""
    parts = [AGENT, _escaped(slot.platform), _escaped(slot.chat_type)]
    if slot.chat is not None:
        parts.append(_escaped(slot.chat))
    if slot.thread is not None:
        parts.append("t=" + _escaped(slot.thread))
    if slot.user is not None:
        parts.append("u=" + _escaped(slot.user))
    return ":".join(parts)


def parse(key: str) -> Slot:
    """Take a key apart. What was too long to be kept comes back as its digest."""
    if found := _KEY.fullmatch(key):
        platform, chat_type, *rest = found.groups()
        try:
            chat, thread, user = (None if part is None else _unescaped(part) for part in rest)
            return Slot(_unescaped(platform), _unescaped(chat_type), chat, thread, user)
        except UnicodeDecodeError:
            pass  # escapes that no text has
    raise InvalidInput(f"key: {key!r:.200} is not of the form {AGENT}:<platform>:<type>…")


def describe(key: str) -> str:
    """A key for people: "telegram group -100, thread 42"."""
    slot = parse(key)
    words = f"{clean(slot.platform)} {clean(slot.chat_type)}"
    if slot.chat is not None:
        words += f" {clean(slot.chat)}"
    if slot.thread is not None:
        words += f", thread {clean(slot.thread)}"
    if slot.user is not None:
        words += f", user {clean(slot.user)}"
    return words


def _escaped(value: str) -> str:
    text = _NOT_KEPT.sub(_percents, value)
    if len(text) <= _LONGEST:
        return text
    return "~" + sha256(value.encode("utf-8", "surrogatepass")).hexdigest()


def _percents(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass"))


def _unescaped(text: str) -> str:
    return _PERCENTS.sub(_char, text)


def _char(found: re.Match[str]) -> str:
    return bytes.fromhex(found[0].replace("%", "")).decode("utf-8", "surrogatepass")
