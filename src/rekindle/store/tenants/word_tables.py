"""The search index of words in the tables that tenants share.

PostgreSQL compares the words of a search with rows only after row-level security has let them pass.
It would not ask the index of words, since the comparison might reveal something of other rows. But it
asks an index about what the policy itself demands. So all rows of `words` are in one partition,
`matching_words`, whose policy demands the tenant, like all policies, and besides the words and ranges in
two settings. A search sets them and reads the partition; everything else reads and writes `words`.
"""

from __future__ import annotations

from collections.abc import Iterator

from rekindle.store.core.migrations import load_moves
from rekindle.store.engines.words.keys import TENANT_WORDS

MATCHES = TENANT_WORDS.table
COLUMNS = ("id", "part", "text", "project", "session", "time")
# What the policy of the partition demands besides the tenant.
IS_ASKED_FOR = (
    f"{TENANT_WORDS.keys} && nullif(current_setting('rekindle.keys', true), '')::bigint[]"
    " AND w.text @@ nullif(current_setting('rekindle.words', true), '')::tsquery"
).replace("w.", "")
_REFERENCE = "FOREIGN KEY (tenant, id) REFERENCES messages (tenant, id) ON DELETE CASCADE"
_KEYS = TENANT_WORDS.keys.replace("w.", "")


def build_word_table(tenant: str) -> Iterator[str]:
    """Yield the statements that create the table; `tenant` is the definition of that column."""
    yield (
        f"CREATE TABLE words ({tenant}, id BIGINT NOT NULL, part INTEGER NOT NULL,"
        " text TSVECTOR NOT NULL, project INTEGER, session BIGINT, time DOUBLE PRECISION,"
        f" PRIMARY KEY (tenant, id, part), {_REFERENCE})"
    )
    yield "CREATE INDEX words_long ON words (tenant, id) WHERE part > 0"
    yield from build_index(tenant)


def build_index(tenant: str) -> Iterator[str]:
    """Yield the statements that add the index of words and ranges, without rewriting any row."""
    yield f"ALTER TABLE words RENAME TO {MATCHES}"
    yield (
        f"CREATE TABLE words (LIKE {MATCHES} INCLUDING DEFAULTS INCLUDING CONSTRAINTS,"
        f" PRIMARY KEY (tenant, id, part), {_REFERENCE}) PARTITION BY LIST (tenant)"
    )
    yield f"ALTER TABLE words ATTACH PARTITION {MATCHES} DEFAULT"
    yield "DROP INDEX IF EXISTS words_text"
    yield (
        f"CREATE INDEX words_keys ON {MATCHES} USING gin ({_KEYS}, text)"
        " WITH (gin_pending_list_limit = 512)"
    )
    yield f"CREATE INDEX words_unknown ON {MATCHES} (tenant, id) WHERE project IS NULL"
    yield f"ALTER TABLE {MATCHES} SET (toast_tuple_target = 8160)"
    yield (
        f"CREATE TABLE project_numbers ({tenant}, project INTEGER NOT NULL,"
        " earlier INTEGER NOT NULL, PRIMARY KEY (tenant, project, earlier))"
    )
    yield load_moves()
    # Sessions that have moved before there was a trigger.
    yield """INSERT INTO project_numbers (tenant, project, earlier)
        SELECT DISTINCT w.tenant, p.number, w.project FROM words w
        JOIN sessions s ON s.tenant = w.tenant AND s.num = w.session,
        number_project(coalesce(s.project, s.repository, 'folder:' || s.cwd), s.num) AS p (number)
        WHERE w.project <> p.number ON CONFLICT DO NOTHING"""
