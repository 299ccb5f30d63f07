-- `position` orders the messages of a session; a unique index rejects two messages at one position.
-- Message ids follow the order of arrival: new rows go to the end of the file, and small ids keep the
-- search index small. A session number is never reused.
CREATE TABLE sessions (
    num              INTEGER PRIMARY KEY AUTOINCREMENT,
    id               TEXT NOT NULL UNIQUE,
    source           TEXT NOT NULL,
    owner            TEXT NOT NULL,
    user_name        TEXT,
    model            TEXT,
    model_config     TEXT,
    title            TEXT,
    title_base       TEXT,     -- the title without its number, case-folded: the same for "Plan" and "plan #2"
    title_number     INTEGER,
    parent           TEXT,     -- an id: the parent may be outside this store
    forked_at        INTEGER,
    started          REAL NOT NULL,
    last_active      REAL NOT NULL,
    ended            REAL,
    end_reason       TEXT,
    next_position    INTEGER NOT NULL,
    message_count    INTEGER NOT NULL,
    tool_call_count  INTEGER NOT NULL,
    tokens_input     INTEGER NOT NULL DEFAULT 0,
    tokens_output    INTEGER NOT NULL DEFAULT 0,
    tokens_read      INTEGER NOT NULL DEFAULT 0,
    tokens_write     INTEGER NOT NULL DEFAULT 0,
    tokens_reasoning INTEGER NOT NULL DEFAULT 0,
    cost_nano        INTEGER NOT NULL DEFAULT 0,
    template         TEXT,
    arm              TEXT,
    cwd              TEXT,
    git_branch       TEXT,
    preview          TEXT,
    archived         REAL,
    pruned           REAL,
    changes          INTEGER NOT NULL DEFAULT 0,  -- incremented by every UPDATE of the row
    is_escaped       INTEGER NOT NULL DEFAULT 0  -- 1 if a text in this row must be unescaped
) STRICT;

-- One index for lists of all sources and of one: a second would have to be written with every message.
CREATE INDEX sessions_recent ON sessions (last_active, source) WHERE pruned IS NULL;
CREATE INDEX sessions_owner ON sessions (owner, last_active) WHERE owner <> '';
CREATE UNIQUE INDEX sessions_title ON sessions (owner, title)
    WHERE title IS NOT NULL AND pruned IS NULL;
CREATE INDEX sessions_lineage ON sessions (title_base, title_number) WHERE title IS NOT NULL;
CREATE INDEX sessions_parent ON sessions (parent) WHERE parent IS NOT NULL;
CREATE INDEX sessions_pruned ON sessions (pruned) WHERE pruned IS NOT NULL;

CREATE TABLE messages (
    id          INTEGER PRIMARY KEY,
    session     INTEGER NOT NULL REFERENCES sessions (num),
    position    INTEGER NOT NULL,
    role        TEXT NOT NULL,
    time        REAL NOT NULL,
    rewind      INTEGER,   -- the rewind that removed it from the conversation
    origin      INTEGER,   -- the message that a fork copied it from
    calls       INTEGER NOT NULL DEFAULT 0,
    answers     TEXT,      -- id of the call that this message is the result of
    platform_id TEXT,
    tools       TEXT,      -- names of the tools it calls or has results of, each between spaces
    body        TEXT,      -- everything except plain text content, as JSON
    content     TEXT
) STRICT;

CREATE UNIQUE INDEX messages_place ON messages (session, position);
-- Not unique: a rewrite may repeat messages. `append` checks for duplicates in its own transaction.
CREATE INDEX messages_platform ON messages (session, platform_id) WHERE platform_id IS NOT NULL;

CREATE TABLE rewinds (
    num      INTEGER PRIMARY KEY AUTOINCREMENT,
    session  INTEGER NOT NULL REFERENCES sessions (num) ON DELETE CASCADE,
    kind     TEXT NOT NULL,
    since    INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    time     REAL NOT NULL,
    restored REAL
) STRICT;

CREATE INDEX rewinds_session ON rewinds (session, num);

CREATE TABLE imports (
    path  TEXT PRIMARY KEY,
    stamp TEXT NOT NULL,
    time  REAL NOT NULL
) STRICT, WITHOUT ROWID;
