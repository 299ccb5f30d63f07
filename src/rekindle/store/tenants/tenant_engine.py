"""The PostgreSQL engine for the rows of one tenant."""

from __future__ import annotations

from functools import lru_cache

from psycopg import errors as pg

from rekindle.errors import StoreReadOnly
from rekindle.store.core.engine import Transaction
from rekindle.store.core.migrations import LATEST_VERSION, refuse_newer
from rekindle.store.engines.postgres import (
    UPGRADE_LOCK,
    Connection,
    PostgresEngine,
    PostgresTransaction,
)
from rekindle.store.engines.postgres_search import find_tenant_messages

from .shared_tables import ROLE, SETTING, SchemaNames, build_schema_names, create_or_upgrade
from .title_tables import select_tenant_titles

_SET_TENANT = (
    "SELECT set_config('search_path', %s, true), set_config(%s, %s, true),"
    " set_config('role', %s, true)"
)
_SELECT_LOGIN = """SELECT current_schema(), current_user, rolsuper OR rolbypassrls
    FROM pg_roles WHERE rolname = current_user"""


@lru_cache(maxsize=1024)
def _to_tenant_sql(sql: str) -> str:
    """Convert a statement; a conflict is one with a row of the same tenant."""
    converted = PostgresTransaction.convert_sql(sql)
    return converted.replace("ON CONFLICT (", "ON CONFLICT (tenant, ")


class TenantTransaction(PostgresTransaction):
    """Statements on the rows of one tenant."""

    __slots__ = ()
    shares_numbers = True  # all tenants draw them from one sequence
    convert_sql = staticmethod(_to_tenant_sql)


class TenantEngine(PostgresEngine):
    """The rows of one tenant in tables that all tenants share.

    Tenant, role and views are set for each transaction, so that connections can be pooled by a proxy
    that gives each transaction another one.
    """

    _transaction_type = TenantTransaction
    find = staticmethod(find_tenant_messages)
    select_titles = staticmethod(select_tenant_titles)

    def __init__(
        self, url: str, tenant: str, *, durability: str, readonly: bool, busy_seconds: float
    ) -> None:
        self.tenant = tenant
        self._settings: tuple[str, ...] = ()
        super().__init__(url, durability=durability, readonly=readonly, busy_seconds=busy_seconds)

    def _open(self) -> None:
        with self._readers.borrow() as connection:
            row = connection.execute(_SELECT_LOGIN).fetchone()
            assert row is not None
            schema, login, bypasses = row
            names = build_schema_names(schema)
            version, oldest = _read_tenant_version(connection, names)
            connection.rollback()
        refuse_newer(self.location, version, oldest)
        if version < LATEST_VERSION:
            if self._readonly:
                raise StoreReadOnly(f"{self.location} has not been migrated to this version yet")
            self._upgrade_tables(names, needs_role=bypasses)
        self._settings = (f'"{names.views}"', SETTING, self.tenant, ROLE if bypasses else login)

    def _upgrade_tables(self, names: SchemaNames, *, needs_role: bool) -> None:
        with self._connector.connect() as connection:
            if needs_role:
                _create_role(connection)
            tx = PostgresTransaction(connection)
            tx.run("SELECT pg_advisory_xact_lock(?)", (UPGRADE_LOCK,))
            create_or_upgrade(tx.run, names)

    def _begin(self, connection: Connection) -> None:
        connection.execute(_SET_TENANT, self._settings)

    def measure_sizes(self, tx: Transaction) -> tuple[int, int]:
        """Return the bytes of the tenant's rows; those on disk are shared with others."""
        [(text,)] = tx.run(
            "SELECT coalesce(sum(coalesce(pg_column_size(content), 0)"
            " + coalesce(pg_column_size(body), 0)), 0)::bigint FROM messages"
        )
        [(index,)] = tx.run("SELECT coalesce(sum(pg_column_size(text)), 0)::bigint FROM words")
        return text + index, index

    def compact(self) -> None:
        """Do nothing: the server's autovacuum cares for tables that all tenants share."""


def _read_tenant_version(connection: Connection, names: SchemaNames) -> tuple[int, int | None]:
    table = f'"{names.tables}".rekindle_version'
    known = connection.execute("SELECT to_regclass(%s)", (table,)).fetchone()
    if known is None or known[0] is None:
        return 0, None
    rows = PostgresTransaction(connection).run(f"SELECT version, oldest FROM {table}")
    return (rows[0][0], rows[0][1]) if rows else (0, None)


def _create_role(connection: Connection) -> None:
    """Create the role if it is missing; another database of the server may do so at this moment."""
    exists = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (ROLE,)).fetchone()
    if exists is None:
        try:
            connection.execute(f"CREATE ROLE {ROLE} NOLOGIN")  # pyright: ignore
        except (pg.DuplicateObject, pg.UniqueViolation):
            connection.rollback()
    connection.commit()
