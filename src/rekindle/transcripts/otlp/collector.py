"""Send spans to a collector over OTLP/HTTP, with the settings of OpenTelemetry's environment.

`OTEL_EXPORTER_OTLP_ENDPOINT`, `_HEADERS`, `_PROTOCOL`, `_COMPRESSION` and `_TIMEOUT` are respected, and
the same with `TRACES_`, which come first. Headers are secrets: nothing here shows them.
"""

from __future__ import annotations

import gzip
import http.client
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from rekindle import __version__
from rekindle.errors import CollectorError, InvalidInput

from .encoding import (
    SpanResource,
    build_request,
    decode_answer,
    encode_json,
    encode_protobuf,
)

_PATH = "/v1/traces"
_RETRIED = (429, 502, 503, 504)  # as OTLP says; any other error stays
_TOO_MUCH = (400, 413)  # fewer spans, or all but one, may be accepted
_MAX_DELAY, _MAX_RETRY_AFTER = 30.0, 300.0
_MAX_ANSWER_BYTES = 1 << 20
_DEFAULT_TIMEOUT = 10.0

Wait = Callable[[float], bool]  # wait that many seconds; return whether to give up


class SendReport(NamedTuple):
    """How many spans a collector accepted and rejected, and why."""

    spans: int = 0
    rejected: int = 0
    reason: str = ""

    def add(self, other: SendReport) -> SendReport:
        """Return the sum of both reports."""
        reason = self.reason or other.reason
        return SendReport(self.spans + other.spans, self.rejected + other.rejected, reason)


class CollectorSettings(NamedTuple):
    """How to send: the protocol, how often to try, and what sends."""

    is_json: bool = False
    is_gzip: bool = False
    timeout: float = _DEFAULT_TIMEOUT
    attempts: int | None = 6  # None to try until it works
    first_delay: float = 1.0
    resource: SpanResource = SpanResource()


DEFAULT_SETTINGS = CollectorSettings()


class _Answer(NamedTuple):
    status: int
    body: bytes
    retry_after: float | None
    problem: str = ""  # why there is no answer


class Collector:
    """A collector's endpoint for traces."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        settings: CollectorSettings = DEFAULT_SETTINGS,
    ) -> None:
        self._url = parse_url(url)
        self._headers = dict(headers or {})
        self.settings = settings
        self.report_retry: Callable[[str], None] = lambda text: None

    @property
    def address(self) -> str:
        """The endpoint without a query, which may hold a key."""
        return f"{self._url.scheme}://{self._url.netloc}{self._url.path}"

    def send(self, spans: Sequence[Mapping[str, Any]], wait: Wait) -> SendReport:
        """Send spans, again and again while the collector is busy or away.

        Spans that it rejects are counted. Raise CollectorError if it cannot be reached, or refuses
        the request whatever it contains.
        """
        request = build_request(spans, self.settings.resource)
        is_json = self.settings.is_json
        answer = self._post(encode_json(request) if is_json else encode_protobuf(request), wait)
        if 200 <= answer.status < 300:
            partial = decode_answer(answer.body, is_json=is_json)
            rejected = min(max(0, partial.rejected), len(spans))
            return SendReport(len(spans) - rejected, rejected, _shorten_text(partial.message))
        if answer.status not in _TOO_MUCH:
            raise CollectorError(f"{self.address}: {_describe_answer(answer)}")
        if len(spans) == 1:
            return SendReport(0, 1, _describe_answer(answer))
        middle = len(spans) // 2
        return self.send(spans[:middle], wait).add(self.send(spans[middle:], wait))

    def _post(self, body: bytes, wait: Wait) -> _Answer:
        if self.settings.is_gzip:
            body = gzip.compress(body, 5, mtime=0)
        delay, attempt = self.settings.first_delay, 1
        while True:
            answer = self._post_once(body)
            is_final = answer.status not in (0, *_RETRIED)
            if is_final or attempt == self.settings.attempts:
                return answer
            pause = min(answer.retry_after or 0.0, _MAX_RETRY_AFTER)
            pause = pause or delay * random.uniform(0.8, 1.2)
            self.report_retry(
                f"{self.address}: {_describe_answer(answer)} Trying again in {pause:.0f} s."
            )
            if wait(pause):
                return answer
            delay, attempt = min(2 * delay, _MAX_DELAY), attempt + 1

    def _post_once(self, body: bytes) -> _Answer:
        url, settings = self._url, self.settings
        kind = "json" if settings.is_json else "x-protobuf"
        headers = {
            "User-Agent": f"rekindle/{__version__}",
            **self._headers,
            "Content-Type": f"application/{kind}",
        }
        if settings.is_gzip:
            headers["Content-Encoding"] = "gzip"
        connect = (
            http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        )
        try:
            connection = connect(url.hostname or "", url.port, timeout=settings.timeout)
            try:
                target = f"{url.path}?{url.query}" if url.query else url.path
                connection.request("POST", target, body, headers)
                answer = connection.getresponse()
                text = answer.read(_MAX_ANSWER_BYTES)
            finally:
                connection.close()
        except TimeoutError:
            return _Answer(0, b"", None, f"no answer within {settings.timeout:g} s.")
        except (OSError, http.client.HTTPException) as error:
            return _Answer(0, b"", None, f"{error or type(error).__name__}.")
        return _Answer(answer.status, text, _parse_seconds(answer.getheader("Retry-After")))


def open_collector(
    env: Mapping[str, str], to: str | None = None, *, attempts: int | None = 6
) -> Collector:
    """Return the collector that `to` or OpenTelemetry's environment variables name.

    Raise InvalidInput if neither does, or if a value is invalid.
    """
    url = to or _get_setting(env, "ENDPOINT")
    if not url:
        raise InvalidInput(
            "No collector: pass --to http://localhost:4318, or set OTEL_EXPORTER_OTLP_ENDPOINT."
        )
    is_exact = not to and bool(env.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"))
    url = url if is_exact else _append_path(url)
    protocol = _get_setting(env, "PROTOCOL") or "http/protobuf"
    if protocol not in ("http/protobuf", "http/json"):
        raise InvalidInput(
            f"OTEL_EXPORTER_OTLP_PROTOCOL: expected http/protobuf or http/json, got {protocol!r:.80}"
        )
    milliseconds = _parse_seconds(_get_setting(env, "TIMEOUT"))
    settings = CollectorSettings(
        is_json=protocol == "http/json",
        is_gzip=_get_setting(env, "COMPRESSION") == "gzip",
        timeout=milliseconds / 1000 if milliseconds else _DEFAULT_TIMEOUT,
        attempts=attempts,
        resource=load_resource(env),
    )
    return Collector(url, _parse_headers(_get_setting(env, "HEADERS")), settings)


def load_resource(env: Mapping[str, str]) -> SpanResource:
    """Return what sends the spans, from `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME`."""
    attributes = {"service.name": "rekindle", **_parse_pairs(env.get("OTEL_RESOURCE_ATTRIBUTES"))}
    if name := env.get("OTEL_SERVICE_NAME"):
        attributes["service.name"] = name
    return SpanResource(attributes)


def parse_url(url: str) -> SplitResult:
    """Return the parts of a collector's URL; raise InvalidInput if it is none."""
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid, parts = False, SplitResult("", "", "", "", "")
    if not is_valid:
        raise InvalidInput("The collector's URL must be http://host:port or https://host.")
    if parts.username or parts.password:
        raise InvalidInput(
            "The collector's URL must not contain a password;"
            " put it into OTEL_EXPORTER_OTLP_HEADERS: authorization=Basic%20…"
        )
    if any(ord(char) <= 32 or ord(char) > 126 for char in url):
        raise InvalidInput("The collector's URL contains a character that needs to be escaped.")
    return parts


def _append_path(url: str) -> str:
    parts = parse_url(url)
    path = parts.path.rstrip("/")
    return parts._replace(path=path if path.endswith(_PATH) else path + _PATH).geturl()


def _get_setting(env: Mapping[str, str], name: str) -> str | None:
    return env.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}") or env.get(f"OTEL_EXPORTER_OTLP_{name}")


def _parse_headers(text: str | None) -> dict[str, str]:
    headers = _parse_pairs(text)
    for name, value in headers.items():
        is_name = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
        if not is_name or not value.isprintable() or not value.isascii():
            # The value is a secret: it is not shown.
            raise InvalidInput(
                "OTEL_EXPORTER_OTLP_HEADERS: expected name=value,name=value with values in ASCII."
            )
    return headers


def _parse_pairs(text: str | None) -> dict[str, str]:
    """Parse `name=value,name=value` with escapes as in URLs."""
    pairs = (part.partition("=") for part in (text or "").split(","))
    return {
        unquote(name.strip()): unquote(value.strip())
        for name, sign, value in pairs
        if sign and name
    }


def _parse_seconds(text: str | None) -> float | None:
    """Parse a positive number; a date, which `Retry-After` may be too, counts as none."""
    try:
        seconds = float(text or "")
    except ValueError:
        return None
    return seconds if 0 < seconds < 1e9 else None


def _describe_answer(answer: _Answer) -> str:
    if not answer.status:
        return answer.problem
    meaning = {
        401: "the collector wants other credentials; set OTEL_EXPORTER_OTLP_HEADERS",
        403: "the collector does not allow it; check OTEL_EXPORTER_OTLP_HEADERS",
        404: "there is no collector at this address",
        413: "too large for the collector",
        415: "the collector wants another OTEL_EXPORTER_OTLP_PROTOCOL",
        429: "the collector is busy",
        503: "the collector is busy",
    }.get(answer.status, "the collector refused the spans")
    return f"{meaning} (HTTP {answer.status})."


def _shorten_text(text: str) -> str:
    return " ".join(text.split())[:200]
