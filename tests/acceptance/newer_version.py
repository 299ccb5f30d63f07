"""Run the command as a later version of Rekindle would, with a schema that is one version higher.

    python newer_version.py (adds | breaks) WORD…

Its migration adds a table, a column and an index; with `breaks`, older versions cannot go on with it.
"""

from __future__ import annotations

import runpy
import sys

from rekindle.store.core import tables
from rekindle.store.core.columns import Index, Table

PARTS = [part for table in tables.TABLES for part in (table, *table.parts)]
VERSION = 1 + max(tables.ENGINE_VERSION, *(part.since for part in PARTS))


def extend_tables() -> None:
    """Add to the tables before the migrations are built from them."""
    assert "rekindle.store.core.migrations" not in sys.modules
    extended = [
        table.extend(
            f"mood text default='calm' since={VERSION}",
            Index(f"{table.name}_mood", "mood WHERE mood <> 'calm'", since=VERSION),
        )
        if table.name in ("inbox", "messages")
        else table
        for table in tables.TABLES
    ]
    tables.TABLES = (*extended, Table("moods", "num serial, text text", since=VERSION))


if __name__ == "__main__":
    kind, *words = sys.argv[1:]
    extend_tables()
    if kind == "breaks":
        from rekindle.store.core import migrations

        migrations.OLDEST_COMPATIBLE = VERSION
    sys.argv = ["rekindle", *words]
    runpy.run_module("rekindle.cli", run_name="__main__", alter_sys=True)
