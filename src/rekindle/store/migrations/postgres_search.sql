-- The search index of titles in PostgreSQL, for a new database and for the upgrade to version 20.

-- All runs of three characters in a title, in a table of its own: every message updates the row of its
-- session, and would write them again. A trigger, since older versions know nothing of this table.
CREATE TABLE title_parts (
    session BIGINT PRIMARY KEY REFERENCES sessions (num) ON DELETE CASCADE,
    parts   TEXT[] NOT NULL
);

CREATE INDEX title_parts_found ON title_parts USING gin (parts) WITH (fastupdate = off);

CREATE OR REPLACE FUNCTION index_title() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('DELETE FROM %I.title_parts WHERE session = $1', TG_TABLE_SCHEMA) USING NEW.num;
    IF NEW.title_base IS NOT NULL THEN
        EXECUTE format(
            'INSERT INTO %1$I.title_parts VALUES ($1, %1$I.split_title($2))', TG_TABLE_SCHEMA
        ) USING NEW.num, NEW.title_base;
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER sessions_titled AFTER INSERT ON sessions FOR EACH ROW
    WHEN (NEW.title_base IS NOT NULL) EXECUTE FUNCTION index_title();
CREATE TRIGGER sessions_retitled AFTER UPDATE OF title_base ON sessions FOR EACH ROW
    WHEN (NEW.title_base IS DISTINCT FROM OLD.title_base) EXECUTE FUNCTION index_title();
