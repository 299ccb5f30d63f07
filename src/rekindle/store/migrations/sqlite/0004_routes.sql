-- A route maps the key of a conversation to its current session.
CREATE TABLE routes (
    key          TEXT PRIMARY KEY,
    session      TEXT NOT NULL,     -- an id: the session row is created with the first message
    previous     TEXT,              -- the previous session, for /back
    created      REAL NOT NULL,
    updated      REAL NOT NULL,
    origin       TEXT NOT NULL,
    display_name TEXT NOT NULL,
    platform     TEXT NOT NULL,
    chat_type    TEXT NOT NULL,
    reset        TEXT,              -- reason of an automatic reset, until the user is notified
    tokens       TEXT NOT NULL,
    changes      INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX routes_updated ON routes (updated);

-- Received messages in order of arrival. Answered ones are kept for a while, so that a message which a
-- platform delivers twice is not answered twice.
CREATE TABLE inbox (
    num         INTEGER PRIMARY KEY AUTOINCREMENT,
    key         TEXT NOT NULL,
    platform_id TEXT,
    source      TEXT NOT NULL,
    body        TEXT NOT NULL,
    state       TEXT NOT NULL,      -- waiting, running, done, failed
    session     TEXT,               -- where the message was stored when its turn began
    position    INTEGER,
    reason      TEXT,
    time        REAL NOT NULL
) STRICT;

CREATE UNIQUE INDEX inbox_platform ON inbox (key, platform_id) WHERE platform_id IS NOT NULL;
CREATE INDEX inbox_open ON inbox (key, num) WHERE state IN ('waiting', 'running');
CREATE INDEX inbox_time ON inbox (time) WHERE state IN ('done', 'failed');

-- Which gateway works on a conversation: one at a time, and only while it renews its lease.
CREATE TABLE leases (
    key    TEXT PRIMARY KEY,
    runner TEXT NOT NULL,
    until  REAL NOT NULL
) STRICT, WITHOUT ROWID;

-- Messages to send.
CREATE TABLE outbox (
    num         INTEGER PRIMARY KEY AUTOINCREMENT,
    key         TEXT NOT NULL,
    inbox       INTEGER,            -- number of the inbox message that it answers
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
