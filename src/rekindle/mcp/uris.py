"""The URIs of resources: `rekindle://session/ID` and `rekindle://playbook/PROJECT`."""

from __future__ import annotations

from urllib.parse import quote, unquote

SCHEME = "rekindle"
_SESSION_PREFIX = f"{SCHEME}://session/"
_PLAYBOOK_PREFIX = f"{SCHEME}://playbook/"


def make_session_uri(id: str) -> str:
    """Return the URI of a session."""
    return _SESSION_PREFIX + quote(id, safe="", errors="surrogatepass")


def make_playbook_uri(project: str) -> str:
    """Return the URI of a project's playbook."""
    return _PLAYBOOK_PREFIX + quote(project, safe="/:", errors="surrogatepass")


def read_session_id(text: str) -> str:
    """Return the id of a session that is named by its id or its URI."""
    if text.startswith(_SESSION_PREFIX):
        return decode_name(text.removeprefix(_SESSION_PREFIX))
    return text


def decode_name(text: str) -> str:
    """Decode a name in a URI; what is no valid text becomes a name that nothing has."""
    try:
        return unquote(text, errors="surrogatepass")
    except UnicodeDecodeError:
        return unquote(text, errors="replace")
