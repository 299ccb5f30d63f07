-- Mining results, the template index, preludes and experiments.

-- Mined sessions. Derived data: may be deleted at any time.
CREATE TABLE mined (
    session INTEGER PRIMARY KEY REFERENCES sessions (num) ON DELETE CASCADE,
    rules   TEXT NOT NULL,
    changes INTEGER NOT NULL,
    family  INTEGER NOT NULL,  -- sessions that continue each other count once
    task    TEXT NOT NULL,
    judged  INTEGER NOT NULL,  -- number of judged calls, and of failed ones
    failed  INTEGER NOT NULL,
    gain    REAL,              -- error rate of the last fifth of the calls minus that of the first
    calls   BLOB NOT NULL      -- calls used by candidates, as JSON, redacted
) STRICT;

-- The candidates found in each session. Candidates of the same shape differ only in their slot values.
CREATE TABLE candidates (
    session INTEGER NOT NULL REFERENCES sessions (num) ON DELETE CASCADE,
    shape   INTEGER NOT NULL,  -- a digest
    family  INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    place   TEXT NOT NULL,     -- positions of its calls among those of the session
    support INTEGER NOT NULL,  -- how often in this session
    tainted INTEGER NOT NULL,
    PRIMARY KEY (session, shape)
) STRICT, WITHOUT ROWID;

CREATE INDEX candidates_shape ON candidates (shape, session, family, kind, support, tainted);

-- How often each kind of call was made and failed: an example helps most where many fail.
CREATE TABLE attempts (
    session INTEGER NOT NULL REFERENCES sessions (num) ON DELETE CASCADE,
    work    TEXT NOT NULL,
    calls   INTEGER NOT NULL,
    failed  INTEGER NOT NULL,
    PRIMARY KEY (session, work)
) STRICT, WITHOUT ROWID;

-- The index of the template files, for selection. It is always rebuilt from the files.
CREATE TABLE templates (
    num       INTEGER PRIMARY KEY AUTOINCREMENT,
    id        TEXT NOT NULL UNIQUE,
    revision  INTEGER NOT NULL,
    stamp     TEXT NOT NULL,     -- stamp of the file it was read from
    state     TEXT NOT NULL,
    task_type TEXT NOT NULL,
    head      TEXT NOT NULL      -- everything except the patterns, as JSON
) STRICT;

CREATE TABLE patterns (
    num      INTEGER PRIMARY KEY AUTOINCREMENT,
    template INTEGER NOT NULL REFERENCES templates (num) ON DELETE CASCADE,
    id       TEXT NOT NULL,
    kind     TEXT NOT NULL,
    tools    TEXT NOT NULL,      -- names, each between spaces
    tainted  INTEGER NOT NULL,
    score    REAL NOT NULL,
    body     TEXT NOT NULL       -- the pattern, as JSON
) STRICT;

CREATE INDEX patterns_template ON patterns (template, score);

CREATE VIRTUAL TABLE pattern_words USING fts5 (
    text, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 0'
);

-- The exact bytes of the messages that warm sessions were started with.
CREATE TABLE preludes (
    hash TEXT PRIMARY KEY,
    body BLOB NOT NULL,
    time REAL NOT NULL
) STRICT, WITHOUT ROWID;

ALTER TABLE sessions ADD COLUMN template_revision INTEGER;
ALTER TABLE sessions ADD COLUMN prelude TEXT;  -- a hash
CREATE INDEX sessions_template ON sessions (template, last_active) WHERE template IS NOT NULL;
CREATE INDEX sessions_prelude ON sessions (prelude) WHERE prelude IS NOT NULL;

-- Experiments, and the arm each session was assigned to before its first message.
CREATE TABLE trials (
    num      INTEGER PRIMARY KEY AUTOINCREMENT,
    name     TEXT NOT NULL UNIQUE,
    state    TEXT NOT NULL,
    arms     TEXT NOT NULL,      -- names and shares, as JSON
    seed     TEXT NOT NULL,
    settings TEXT NOT NULL,      -- as JSON
    started  REAL NOT NULL,
    ended    REAL
) STRICT;

CREATE TABLE assignments (
    trial INTEGER NOT NULL REFERENCES trials (num) ON DELETE CASCADE,
    root  TEXT NOT NULL,         -- the first session of a lineage: its children share the arm
    owner TEXT NOT NULL,
    arm   TEXT NOT NULL,
    time  REAL NOT NULL,
    PRIMARY KEY (trial, root)
) STRICT, WITHOUT ROWID;
