-- What was made of the tool calls. All of it is derived: it may be thrown away at any time.
CREATE TABLE calls (
    session    INTEGER NOT NULL REFERENCES sessions (num) ON DELETE CASCADE,
    position   INTEGER NOT NULL,  -- of the message that makes the call
    number     INTEGER NOT NULL,
    id         TEXT NOT NULL,
    tool       TEXT NOT NULL,
    work       TEXT NOT NULL,
    digest     INTEGER NOT NULL,
    outcome    TEXT NOT NULL,
    failed     INTEGER,
    error_kind TEXT,
    fault      TEXT,
    rule       TEXT NOT NULL,
    confidence REAL NOT NULL,
    duration   REAL,
    answered   INTEGER,
    PRIMARY KEY (session, position, number)
) STRICT, WITHOUT ROWID;

-- How far a session is judged, by which rules, and what it was like then.
CREATE TABLE judged (
    session      INTEGER PRIMARY KEY REFERENCES sessions (num) ON DELETE CASCADE,
    rules        TEXT NOT NULL,
    changes      INTEGER NOT NULL,
    rewinds      INTEGER NOT NULL,  -- made and taken back: when that changes, all is judged anew
    since        INTEGER NOT NULL,  -- the first position to look at again when there is more
    compressions TEXT NOT NULL
) STRICT;
