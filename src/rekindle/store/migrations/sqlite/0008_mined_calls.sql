-- The calls of a session that was looked through, apart: what a session was like is asked for of all,
-- its calls only of a few.
CREATE TABLE mined_calls (
    session INTEGER PRIMARY KEY REFERENCES sessions (num) ON DELETE CASCADE,
    calls   BLOB NOT NULL  -- that candidates are made of, as JSON, redacted
) STRICT;

INSERT INTO mined_calls (session, calls) SELECT session, calls FROM mined;
ALTER TABLE mined DROP COLUMN calls;
