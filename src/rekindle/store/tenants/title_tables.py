"""The index of the parts of titles in the tables that tenants share.

As with words, see `word_tables`, all rows are in one partition, whose policy demands the parts that a
search has set for its transaction, besides the tenant. So the index serves under row-level security.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rekindle.store.core.engine import TitleQuery, Transaction
from rekindle.store.core.migrations import load_title_split

MATCHES = "matching_title_parts"
COLUMNS = ("session", "parts")
_SETTING = "rekindle.title_parts"
_KEY = "ARRAY[hashtextextended(tenant, 0)]"
_IS_OF_TENANT = f"{_KEY} @> ARRAY[hashtextextended(current_setting('rekindle.tenant'), 0)]"
# What the policy of the partition demands besides the tenant.
IS_ASKED_FOR = (
    f"{_IS_OF_TENANT} AND parts @> nullif(current_setting('{_SETTING}', true), '')::text[]"
)
_ASK_FOR = f"SELECT set_config('{_SETTING}', (?::text[])::text, true)"
_REFERENCE = "FOREIGN KEY (tenant, session) REFERENCES sessions (tenant, num) ON DELETE CASCADE"
# Triggers, since older versions know nothing of this table.
_FUNCTION = """
CREATE OR REPLACE FUNCTION index_title() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('DELETE FROM %I.title_parts WHERE tenant = $1 AND session = $2', TG_TABLE_SCHEMA)
        USING NEW.tenant, NEW.num;
    IF NEW.title_base IS NOT NULL THEN
        EXECUTE format(
            'INSERT INTO %1$I.title_parts (tenant, session, parts)'
            ' VALUES ($1, $2, %1$I.split_title($3))',
            TG_TABLE_SCHEMA
        ) USING NEW.tenant, NEW.num, NEW.title_base;
    END IF;
    RETURN NULL;
END
$$
"""


def build_title_table(tenant: str) -> Iterator[str]:
    """Yield the statements that create and fill the table; `tenant` defines that column."""
    columns = f"{tenant}, session BIGINT NOT NULL, parts TEXT[] NOT NULL"
    yield (
        f"CREATE TABLE title_parts ({columns}, PRIMARY KEY (tenant, session), {_REFERENCE})"
        " PARTITION BY LIST (tenant)"
    )
    yield f"CREATE TABLE {MATCHES} PARTITION OF title_parts DEFAULT"
    yield load_title_split()
    yield (
        f"INSERT INTO {MATCHES} (tenant, session, parts)"
        " SELECT tenant, num, split_title(title_base) FROM sessions WHERE title_base IS NOT NULL"
    )
    yield (
        f"CREATE INDEX title_parts_found ON {MATCHES} USING gin (({_KEY}), parts)"
        " WITH (fastupdate = off)"
    )
    yield _FUNCTION
    yield (
        "CREATE TRIGGER sessions_titled AFTER INSERT ON sessions FOR EACH ROW"
        " WHEN (NEW.title_base IS NOT NULL) EXECUTE FUNCTION index_title()"
    )
    yield (
        "CREATE TRIGGER sessions_retitled AFTER UPDATE OF title_base ON sessions FOR EACH ROW"
        " WHEN (NEW.title_base IS DISTINCT FROM OLD.title_base) EXECUTE FUNCTION index_title()"
    )


def select_tenant_titles(tx: Transaction, parts: Sequence[str]) -> TitleQuery | None:
    """Build the query for the sessions of this tenant whose titles have all parts."""
    tx.run(_ASK_FOR, ([*parts],))
    return f"SELECT session FROM {MATCHES} WHERE {_IS_OF_TENANT} AND parts @> ?::text[]", [[*parts]]
