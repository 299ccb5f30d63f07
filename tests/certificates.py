"""No authorities to trust: a client of HTTP reads all there are before its first request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def hide_certificates(empty: Path) -> Iterator[None]:
    """Let clients look for certificates in an empty folder; where nobody speaks TLS."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SSL_CERT_FILE", raising=False)  # it would come first
        patch.setenv("SSL_CERT_DIR", str(empty))
        yield
