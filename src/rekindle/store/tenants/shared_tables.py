"""Tables that all tenants of a PostgreSQL database share, and the two walls between their rows.

The tables of the store stand in a schema of their own, each with a column `tenant` that is part of
every key. The first wall is a schema of views with the same names that show the rows of one tenant: the
statements of the store run on them unchanged. The second wall is row-level security on the tables,
which holds if a statement reaches them without a view.

Both compare `tenant` with the setting `rekindle.tenant`, which lasts for one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from rekindle.store.core.columns import ROWID, SERIAL, Table
from rekindle.store.core.migrations import ADD_WORD_COLUMNS, LATEST_VERSION, OLDEST_COMPATIBLE
from rekindle.store.core.tables import (
    DERIVED_VALUES,
    DIRECTORY_TABLES,
    DROPPED_TABLES,
    TABLES,
)

from . import title_tables, word_tables

ROLE = "rekindle_tenants"  # owns the views, and is subject to row-level security
SETTING = "rekindle.tenant"
_CURRENT = f"current_setting('{SETTING}')"
_TENANT = f"tenant TEXT COLLATE \"C\" NOT NULL DEFAULT {_CURRENT} CHECK (tenant <> '')"
_VERSION_TABLE = "rekindle_version"

Run = Callable[..., list[tuple[Any, ...]]]

SHARED_TABLES = tuple(table for table in TABLES if table not in DIRECTORY_TABLES)
# What only PostgreSQL has, see `migrations/postgres.sql`.
ENGINE_TABLES = {
    "words": word_tables.COLUMNS,
    word_tables.MATCHES: word_tables.COLUMNS,
    "title_parts": title_tables.COLUMNS,
    title_tables.MATCHES: title_tables.COLUMNS,
    "project_numbers": ("project", "earlier"),
    "writers": ("name", "number", "time"),
}
_WRITERS = f"""CREATE TABLE writers ({_TENANT}, name TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL, time DOUBLE PRECISION NOT NULL, PRIMARY KEY (tenant, name))"""
_COLUMNS_VERSION, _INDEX_VERSION, _TITLES_VERSION = 21, 22, 23  # of words and titles
# Partitions that a search reads, and what their policies demand besides the tenant.
_SEARCHED = {
    word_tables.MATCHES: word_tables.IS_ASKED_FOR,
    title_tables.MATCHES: title_tables.IS_ASKED_FOR,
}


class SchemaNames(NamedTuple):
    """The schemas of the tables and of the views, next to the schema of the directory."""

    tables: str
    views: str


def build_schema_names(directory: str) -> SchemaNames:
    """Return the names of the schemas that belong to a directory in a schema."""
    return SchemaNames(f"{directory}_tenant_tables", f"{directory}_tenants")


def create_or_upgrade(run: Run, names: SchemaNames) -> None:
    """Create the tables and views of tenants, or bring them to the latest version."""
    if not run("SELECT 1 FROM pg_namespace WHERE nspname = ?", (names.tables,)):
        run(f'CREATE SCHEMA "{names.tables}"')
        run(f'CREATE SCHEMA "{names.views}"')
    run("SELECT set_config('search_path', ?, true)", (f'"{names.tables}"',))
    run(f"CREATE TABLE IF NOT EXISTS {_VERSION_TABLE} (version INTEGER NOT NULL, oldest INTEGER)")
    version = next((row[0] for row in run(f"SELECT version FROM {_VERSION_TABLE}")), 0)
    if version == LATEST_VERSION:
        return
    for name in _list_tables() if version else ():  # changes concern the rows of all tenants
        run(f"ALTER TABLE IF EXISTS {name} NO FORCE ROW LEVEL SECURITY")
    for sql in _build_changes(version):
        run(sql)
    run(f"DELETE FROM {_VERSION_TABLE}")
    run(f"INSERT INTO {_VERSION_TABLE} VALUES (?, ?)", (LATEST_VERSION, OLDEST_COMPATIBLE))
    role, shown = _find_role(run), f'"{names.views}".{_VERSION_TABLE}'
    run(f"CREATE OR REPLACE VIEW {shown} AS SELECT version, oldest FROM {_VERSION_TABLE}")
    for table, columns in _list_tables().items():
        for sql in _build_walls(names, table, columns, role):
            run(sql)
    if role:
        run(f'GRANT USAGE ON SCHEMA "{names.tables}", "{names.views}" TO {role}')
        run(f"GRANT SELECT ON {_VERSION_TABLE}, {shown} TO {role}")


def set_row_security(run: Run, names: SchemaNames, *, is_on: bool) -> None:
    """Switch the second wall on or off, for example to measure what it costs."""
    for table in _list_tables():
        change = "ENABLE" if is_on else "DISABLE"
        run(f'ALTER TABLE "{names.tables}".{table} {change} ROW LEVEL SECURITY')


def delete_tenant_rows(run: Run) -> None:
    """Delete all rows of the tenant of this transaction."""
    for table in reversed(_list_tables()):
        if table not in _SEARCHED:  # parts of other tables
            run(f"DELETE FROM {table}")


def _list_tables() -> dict[str, tuple[str, ...]]:
    return {**{table.name: table.names for table in SHARED_TABLES}, **ENGINE_TABLES}


def _build_changes(version: int) -> Iterator[str]:
    if version == 0:
        for table in SHARED_TABLES:
            yield from build_tenant_table(table)
        yield from word_tables.build_word_table(_TENANT)
        yield from title_tables.build_title_table(_TENANT)
        yield _WRITERS
        return
    for number in range(version + 1, LATEST_VERSION + 1):
        yield from (
            f"DROP TABLE IF EXISTS {name} CASCADE" for name in DROPPED_TABLES.get(number, ())
        )
        for table in SHARED_TABLES:
            if table.since == number:
                yield from build_tenant_table(table.take_back(number))
                continue
            for column in (one for one in table.columns if one.since == number):
                definition = column.build_definition("postgres")
                yield f"ALTER TABLE {table.name} ADD COLUMN IF NOT EXISTS {definition}"
            yield from _build_indexes(table, number)
        yield from DERIVED_VALUES.get(number, ())
        if number == _COLUMNS_VERSION:
            yield ADD_WORD_COLUMNS
        if number == _INDEX_VERSION:
            yield from word_tables.build_index(_TENANT)
        if number == _TITLES_VERSION:
            yield from title_tables.build_title_table(_TENANT)


def build_tenant_table(table: Table) -> Iterator[str]:
    """Yield the statements that create a table of the store for all tenants."""
    lines, keys = [_TENANT], list[str]()
    for column in table.columns:
        if column.kind in (SERIAL, ROWID):
            lines.append(f"{column.name} BIGINT GENERATED BY DEFAULT AS IDENTITY")
            keys.append(f"PRIMARY KEY (tenant, {column.name})")
            continue
        plain = column._replace(primary=False, unique=False, constraint="")
        lines.append(plain.build_definition("postgres"))
        if column.primary or column.unique:
            kind = "PRIMARY KEY" if column.primary else "UNIQUE"
            keys.append(f"{kind} (tenant, {column.name})")
        if column.constraint:  # REFERENCES sessions (num) …
            reference = column.constraint.replace("(", "(tenant, ", 1)
            keys.append(f"FOREIGN KEY (tenant, {column.name}) {reference}")
    if table.key:
        keys.append(f"PRIMARY KEY (tenant, {table.key})")
    yield f"CREATE TABLE {table.name} ({', '.join([*lines, *keys])})"
    yield from _build_indexes(table)


def _build_indexes(table: Table, since: int | None = None) -> Iterator[str]:
    for index in table.indexes:
        if since in (None, index.since):
            unique = "UNIQUE " if index.unique else ""
            columns, where, condition = index.columns.partition(" WHERE ")
            yield (
                f"CREATE {unique}INDEX {index.name} ON {table.name} (tenant, {columns})"
                f"{where}{condition}"
            )


def _build_walls(
    names: SchemaNames, table: str, columns: Iterable[str], role: str | None
) -> Iterator[str]:
    # An index of tenants does not help a search: it would be read for all rows of the tenant.
    column = "tenant || ''" if table in _SEARCHED else "tenant"
    condition = f"{column} = {_CURRENT}"
    view = f'"{names.views}".{table}'
    yield (
        f"CREATE OR REPLACE VIEW {view} AS SELECT tenant, {', '.join(columns)} FROM {table}"
        f" WHERE {condition} WITH LOCAL CHECK OPTION"
    )
    yield f"DROP POLICY IF EXISTS tenant ON {table}"
    if table in _SEARCHED:
        demand = f"{condition} AND {_SEARCHED[table]}"
        yield f"CREATE POLICY tenant ON {table} FOR SELECT USING ({demand})"
    else:
        yield f"CREATE POLICY tenant ON {table} USING ({condition}) WITH CHECK ({condition})"
    yield f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY"
    yield f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY"
    if role:
        yield f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {role}"
        # A view reads its table with the rights of its owner, who must not bypass row-level security.
        yield f'GRANT CREATE ON SCHEMA "{names.views}" TO {role}'
        yield f"ALTER VIEW {view} OWNER TO {role}"


def _find_role(run: Run) -> str | None:
    """Return the role for the rows of tenants, or None if the login is subject to the walls itself."""
    [(bypasses,)] = run(
        "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"
    )
    return ROLE if bypasses else None
