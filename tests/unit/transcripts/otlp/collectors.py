"""A collector for tests: it keeps the spans that it receives."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Received(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def spans(self) -> list[dict[str, Any]]:
        groups = json.loads(self.body)["resourceSpans"]
        return [span for one in groups for scope in one["scopeSpans"] for span in scope["spans"]]


class TestCollector(ThreadingHTTPServer):
    __test__ = False
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[Received] = []
        # Answers to give first: a status and headers.
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.max_spans: int | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def spans(self) -> list[dict[str, Any]]:
        return [span for request in self.requests for span in request.spans]

    @property
    def ids(self) -> list[str]:
        return [span["spanId"] for span in self.spans]


class _Handler(BaseHTTPRequestHandler):
    server: TestCollector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        headers = {name.lower(): value for name, value in self.headers.items()}
        received = Received(self.path, headers, body)
        status, given = self.server.answers.pop(0) if self.server.answers else (200, {})
        most = self.server.max_spans
        if most is not None and len(received.spans) > most:
            status = 413
        if status == 200:
            self.server.requests.append(received)
        self.send_response(status)
        for name, value in given.items():
            self.send_header(name, value)
        self.end_headers()
        if status == 200 and headers["content-type"] == "application/json":
            self.wfile.write(b"{}")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def run_collector() -> Iterator[TestCollector]:
    """Run a collector on a free port."""
    with TestCollector() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def get_attributes(span: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a span by name."""
    found: dict[str, Any] = {}
    for one in span["attributes"]:
        ((kind, value),) = one["value"].items()
        found[one["key"]] = int(value) if kind == "intValue" else value
    return found
