-- The same as in SQLite; the reasons stand there.
CREATE TABLE mined_calls (
    session BIGINT PRIMARY KEY REFERENCES sessions (num) ON DELETE CASCADE,
    calls   BYTEA NOT NULL  -- that candidates are made of, as JSON, redacted
);

INSERT INTO mined_calls (session, calls) SELECT session, calls FROM mined;
ALTER TABLE mined DROP COLUMN calls;
