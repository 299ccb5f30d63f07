"""HTTP by httptools, with the limits that its parser lacks. To import it needs httptools."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 65_536  # of a request without its body, as h11 has it
MAX_COUNTED_BODY = 8_000_000


class LimitedProtocol(HttpToolsProtocol):
    """Refuses requests whose address, headers or trailers are too long.

    The parser keeps them in memory before anybody is asked for a key. The division of a body into chunks
    takes bytes, too: it may take as many as the body.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._body_bytes = 0
        self._other_bytes = 0

    def data_received(self, data: bytes) -> None:
        self._other_bytes += len(data)
        super().data_received(data)
        allowed = MAX_HEAD_BYTES + min(self._body_bytes, MAX_COUNTED_BODY)
        if self._other_bytes > allowed and not self.transport.is_closing():
            self.send_400_response("The address and headers are too long.")

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        self._other_bytes -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._body_bytes = self._other_bytes = 0
        super().on_message_complete()
