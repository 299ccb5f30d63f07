-- The same as in SQLite; see the comments there.
CREATE TABLE mined_calls (
    session BIGINT PRIMARY KEY REFERENCES sessions (num) ON DELETE CASCADE,
    calls   BYTEA NOT NULL  -- calls used by candidates, as JSON, redacted
);

INSERT INTO mined_calls (session, calls) SELECT session, calls FROM mined;
ALTER TABLE mined DROP COLUMN calls;
