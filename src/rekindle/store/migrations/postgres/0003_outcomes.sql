-- The same tables as in SQLite; see the comments there.
CREATE TABLE calls (
    session    BIGINT NOT NULL REFERENCES sessions (num) ON DELETE CASCADE,
    position   BIGINT NOT NULL,
    number     BIGINT NOT NULL,
    id         TEXT NOT NULL,
    tool       TEXT NOT NULL,
    work       TEXT NOT NULL,
    digest     BIGINT NOT NULL,
    outcome    TEXT NOT NULL,
    failed     BIGINT,
    error_kind TEXT,
    fault      TEXT,
    rule       TEXT NOT NULL,
    confidence DOUBLE PRECISION NOT NULL,
    duration   DOUBLE PRECISION,
    answered   BIGINT,
    PRIMARY KEY (session, position, number)
);

CREATE TABLE judged (
    session      BIGINT PRIMARY KEY REFERENCES sessions (num) ON DELETE CASCADE,
    rules        TEXT NOT NULL,
    changes      BIGINT NOT NULL,
    rewinds      BIGINT NOT NULL,
    since        BIGINT NOT NULL,
    compressions TEXT NOT NULL
);
