-- A route points a conversation's key at its current session.
CREATE TABLE routes (
    key          TEXT PRIMARY KEY,
    session      TEXT NOT NULL,     -- an id: its row comes with its first message
    previous     TEXT,              -- the session before: the way back
    created      REAL NOT NULL,
    updated      REAL NOT NULL,
    origin       TEXT NOT NULL,
    display_name TEXT NOT NULL,
    platform     TEXT NOT NULL,
    chat_type    TEXT NOT NULL,
    reset        TEXT,              -- why it was reset by itself, until the user is told
    tokens       TEXT NOT NULL,
    changes      INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX routes_updated ON routes (updated);

-- What came in and is not answered yet, in the order of its arrival; answered rows stay for a while,
-- so that a platform which says something twice is not answered twice.
CREATE TABLE inbox (
    num         INTEGER PRIMARY KEY AUTOINCREMENT,
    key         TEXT NOT NULL,
    platform_id TEXT,
    source      TEXT NOT NULL,
    body        TEXT NOT NULL,
    state       TEXT NOT NULL,      -- waiting, running, done, failed
    session     TEXT,               -- where it went when its turn began
    position    INTEGER,
    reason      TEXT,
    time        REAL NOT NULL
) STRICT;

CREATE UNIQUE INDEX inbox_platform ON inbox (key, platform_id) WHERE platform_id IS NOT NULL;
CREATE INDEX inbox_open ON inbox (key, num) WHERE state IN ('waiting', 'running');
CREATE INDEX inbox_time ON inbox (time) WHERE state IN ('done', 'failed');

-- Who works on a conversation. One at a time, and only for as long as it says that it is alive.
CREATE TABLE leases (
    key    TEXT PRIMARY KEY,
    runner TEXT NOT NULL,
    until  REAL NOT NULL
) STRICT, WITHOUT ROWID;

-- What has to reach somebody.
CREATE TABLE outbox (
    num         INTEGER PRIMARY KEY AUTOINCREMENT,
    key         TEXT NOT NULL,
    inbox       INTEGER,            -- what it answers
    target      TEXT NOT NULL,
    text        TEXT NOT NULL,
    state       TEXT NOT NULL,      -- waiting, sent, failed
    attempts    INTEGER NOT NULL DEFAULT 0,
    next_try    REAL NOT NULL,
    platform_id TEXT,
    reason      TEXT,
    time        REAL NOT NULL
) STRICT;

CREATE INDEX outbox_open ON outbox (next_try, num) WHERE state = 'waiting';
CREATE INDEX outbox_key ON outbox (key, num);
CREATE INDEX outbox_time ON outbox (time) WHERE state IN ('sent', 'failed');
