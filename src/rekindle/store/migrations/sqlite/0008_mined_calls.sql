-- The calls of mined sessions in a separate table: session statistics are read for all sessions, calls only
-- for a few.
CREATE TABLE mined_calls (
    session INTEGER PRIMARY KEY REFERENCES sessions (num) ON DELETE CASCADE,
    calls   BLOB NOT NULL  -- calls used by candidates, as JSON, redacted
) STRICT;

INSERT INTO mined_calls (session, calls) SELECT session, calls FROM mined;
ALTER TABLE mined DROP COLUMN calls;
