"""Generated ids for entries that have none in their file."""

from __future__ import annotations

import hashlib
from pathlib import Path

# Some exports mask ids; a masked id identifies nothing.
MASKED_IDS = frozenset({"", "REDACTED"})


def make_path_id(kind: str, path: Path | str, position: str) -> str:
    """Return an id that is stable while the file grows and unique across files.

    A `path` given as text must already be resolved, since resolving it checks every parent folder.
    """
    resolved = path if isinstance(path, str) else path.resolve()
    return make_hash_id(kind, f"{resolved}\n{position}")


def make_hash_id(kind: str, identity: str) -> str:
    """Return an id derived from the hash of `identity`."""
    return f"{kind}-{hashlib.sha256(identity.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
