-- Verdicts on tool calls. Derived data: may be deleted at any time.
CREATE TABLE calls (
    session    INTEGER NOT NULL REFERENCES sessions (num) ON DELETE CASCADE,
    position   INTEGER NOT NULL,  -- position of the message that makes the call
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

-- How far a session was judged, by which rules, and its state at that time.
CREATE TABLE judged (
    session      INTEGER PRIMARY KEY REFERENCES sessions (num) ON DELETE CASCADE,
    rules        TEXT NOT NULL,
    changes      INTEGER NOT NULL,
    rewinds      INTEGER NOT NULL,  -- rewinds made and restored: if this changes, the whole session is judged again
    since        INTEGER NOT NULL,  -- first position to judge again when there are new messages
    compressions TEXT NOT NULL
) STRICT;
