"""Convert Markdown to the HTML that Matrix clients show, and build the content of messages.

Raw HTML in the text is shown as text. Links lead to the web or to mail only, and images become
links, because clients show no pictures from elsewhere. Nobody is notified by a name in the text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

# An event has at most 65,536 bytes. Encryption turns 3 bytes into 4, and the homeserver adds some.
MAX_CONTENT_BYTES = 44_000
_PREVIEW_CHARS = 200
_SCHEMES = ("https://", "http://", "mailto:")
_ATTRIBUTES = {"a": ("href",), "code": ("class",), "ol": ("start",)}
_PLAIN_TOKENS = {"paragraph_open", "paragraph_close", "inline", "text", "softbreak", "hardbreak"}


def build_content(text: str, kind: str) -> dict[str, Any]:
    """Build the content of a message; it is formatted if that makes a difference and fits."""
    content: dict[str, Any] = {"msgtype": kind, "body": text, "m.mentions": {}}
    if html := render_html(text):
        formatted = {
            **content,
            "format": "org.matrix.custom.html",
            "formatted_body": html,
        }
        if measure_content(formatted) <= MAX_CONTENT_BYTES:
            return formatted
    return content


def build_edit(text: str, kind: str, message_id: str) -> dict[str, Any]:
    """Build the content of a message that replaces another one."""
    preview = text if len(text) <= _PREVIEW_CHARS else f"{text[:_PREVIEW_CHARS]}…"
    return {
        "msgtype": kind,
        "body": f"* {preview}",  # what a client shows that knows no edits
        "m.mentions": {},
        "m.new_content": build_content(text, kind),
        "m.relates_to": {"rel_type": "m.replace", "event_id": message_id},
    }


def measure_content(content: Mapping[str, Any]) -> int:
    """Return the number of bytes that a content has before it is encrypted."""
    return len(json.dumps(content, separators=(",", ":")))


def render_html(text: str) -> str:
    """Return a text as HTML, or nothing if it has no markup."""
    parser = _get_parser()
    tokens = parser.parse(text)
    if _is_plain(tokens):
        return ""
    _clean_tokens(tokens)
    return str(parser.renderer.render(tokens, parser.options, {})).strip()


@cache
def _get_parser() -> MarkdownIt:
    options = {"html": False, "breaks": True, "linkify": False}
    return MarkdownIt("commonmark", options).enable(["table", "strikethrough"])


def _is_plain(tokens: Iterable[Token]) -> bool:
    flat = [token for outer in tokens for token in (outer, *(outer.children or ()))]
    has_one_paragraph = sum(token.type == "paragraph_open" for token in flat) <= 1
    return has_one_paragraph and all(token.type in _PLAIN_TOKENS for token in flat)


def _clean_tokens(tokens: Iterable[Token]) -> None:
    for token in tokens:
        if token.type == "image":
            _replace_image(token)
        if token.tag == "s":
            token.tag = "del"
        allowed = _ATTRIBUTES.get(token.tag, ())
        token.attrs = {name: value for name, value in token.attrs.items() if name in allowed}
        href = token.attrs.get("href")
        if href is not None and not str(href).lower().startswith(_SCHEMES):
            del token.attrs["href"]
        _clean_tokens(token.children or ())


def _replace_image(token: Token) -> None:
    source = str(token.attrs.get("src", ""))
    token.type, token.tag = "text", ""
    token.content = f"{token.content} ({source})" if token.content else source
    token.children = None
