-- What only PostgreSQL has, for a new database.

-- Words follow our own definition, not the parser of the server. Positions in a tsvector end at 16,383,
-- so a long message is indexed in parts.
CREATE TABLE words (
    id   BIGINT NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
    part INTEGER NOT NULL,
    text TSVECTOR NOT NULL,
    PRIMARY KEY (id, part)
);

CREATE INDEX words_text ON words USING gin (text);
CREATE INDEX words_long ON words (id) WHERE part > 0;

ALTER TABLE patterns ADD COLUMN words TSVECTOR NOT NULL;
CREATE INDEX patterns_words ON patterns USING gin (words);

-- The number of the last transaction of each writer: shows whether a commit without a reply succeeded.
CREATE TABLE writers (
    name   TEXT COLLATE "C" PRIMARY KEY,
    number BIGINT NOT NULL,
    time   DOUBLE PRECISION NOT NULL
);

INSERT INTO counts_state (id, sessions) VALUES (1, 0);
CREATE FUNCTION mining_results_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM candidates WHERE session = OLD.session;
    DELETE FROM call_type_counts WHERE session = OLD.session;
    DELETE FROM mining_calls WHERE session = OLD.session;
    RETURN NULL;
END $$;

CREATE TRIGGER mining_results_deleted AFTER DELETE ON mining_results
    FOR EACH ROW EXECUTE FUNCTION mining_results_deleted();
