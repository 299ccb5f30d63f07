"""The requests to Synapse that create users and check that it answers."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
from typing import Any, NamedTuple, cast
from urllib.parse import quote

from rekindle.errors import HomeServerError, InvalidInput

_SECONDS = 60.0
_DEVICE_NAME = "Rekindle"
# Enough for replies that are edited while they are written.
_BOT_LIMITS = {"messages_per_second": 10, "burst_count": 50}


class LoginResult(NamedTuple):
    """A new access token and its device."""

    access_token: str
    device_id: str


class ClientApi:
    """The API of a Synapse on this machine."""

    def __init__(self, port: int) -> None:
        self._port = port

    def is_healthy(self) -> bool:
        """Return whether Synapse answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def create_user(self, name: str, password: str, secret: str, *, is_admin: bool) -> bool:
        """Create a user; return False if there is one of this name."""
        path = "/_synapse/admin/v1/register"
        _, given = self._send_request("GET", path)
        nonce = str(given.get("nonce", ""))
        kind = "admin" if is_admin else "notadmin"
        text = "\0".join((nonce, name, password, kind)).encode()
        body = {
            "nonce": nonce,
            "username": name,
            "password": password,
            "admin": is_admin,
            "inhibit_login": True,
            "mac": hmac.new(secret.encode(), text, hashlib.sha1).hexdigest(),
        }
        status, answer = self._send_request("POST", path, body)
        if status == 400 and answer.get("errcode") == "M_USER_IN_USE":
            return False
        if status == 400:
            raise InvalidInput(f"The server refused the user: {_describe_error(answer)}.")
        _require_success(status, answer)
        return True

    def log_in(self, user: str, password: str, device_id: str = "") -> LoginResult:
        """Log in and return the access token."""
        body: dict[str, Any] = {
            "type": "m.login.password",
            "identifier": {"type": "m.id.user", "user": user},
            "password": password,
            "initial_device_display_name": _DEVICE_NAME,
        }
        if device_id:
            body["device_id"] = device_id
        answer = _require_success(*self._send_request("POST", "/_matrix/client/v3/login", body))
        return LoginResult(str(answer["access_token"]), str(answer["device_id"]))

    def log_out(self, token: str) -> None:
        """End the session of a token."""
        _require_success(*self._send_request("POST", "/_matrix/client/v3/logout", {}, token))

    def find_user(self, token: str) -> str | None:
        """Return the user of a token, or None if the token is not valid."""
        status, answer = self._send_request("GET", "/_matrix/client/v3/account/whoami", token=token)
        if status == 401:
            return None
        return str(_require_success(status, answer)["user_id"])

    def find_device_key(self, token: str, user: str, device_id: str) -> str | None:
        """Return the public key by which others verify a device; None before it has one."""
        body = {"device_keys": {user: [device_id]}}
        path = "/_matrix/client/v3/keys/query"
        answer = _require_success(*self._send_request("POST", path, body, token))
        device = answer.get("device_keys", {}).get(user, {}).get(device_id, {})
        key = device.get("keys", {}).get(f"ed25519:{device_id}")
        return str(key) if key else None

    def raise_limits(self, user: str, token: str) -> None:
        """Let the bot send more often than people; `token` is of an administrator."""
        path = f"/_synapse/admin/v1/users/{quote(user)}/override_ratelimit"
        _require_success(*self._send_request("POST", path, _BOT_LIMITS, token))

    def _send_request(
        self, method: str, path: str, body: dict[str, Any] | None = None, token: str = ""
    ) -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_SECONDS)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, headers)
            response = connection.getresponse()
            answer: Any = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise HomeServerError(
                f"The Matrix server does not answer on port {self._port}: {error or 'no answer'}."
                " See `rekindle matrix status`."
            ) from None
        finally:
            connection.close()
        if not isinstance(answer, dict):
            raise HomeServerError(f"The program on port {self._port} is not a Matrix server.")
        return response.status, cast("dict[str, Any]", answer)


def _describe_error(answer: dict[str, Any]) -> str:
    return str(answer.get("error") or answer.get("errcode") or "no reason given").rstrip(".")


def _require_success(status: int, answer: dict[str, Any]) -> dict[str, Any]:
    if status == 429:
        seconds = int(answer.get("retry_after_ms", 60_000)) // 1000 + 1
        raise HomeServerError(f"Too many attempts. Try again in {seconds} seconds.")
    if status != 200:
        raise HomeServerError(f"The Matrix server refused a request: {_describe_error(answer)}.")
    return answer
