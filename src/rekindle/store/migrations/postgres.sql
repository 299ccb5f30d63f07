-- What only PostgreSQL has, for a new database.

-- Words follow our own definition, not the parser of the server. Positions in a tsvector end at 16,383,
-- so a long message is indexed in parts.
CREATE TABLE words (
    id   BIGINT NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
    part INTEGER NOT NULL,
    text TSVECTOR NOT NULL,
    -- As in the rows of the message and its session, so that a search need not read those of each match.
    project INTEGER,
    session BIGINT,
    time    DOUBLE PRECISION,
    PRIMARY KEY (id, part)
);

CREATE INDEX words_long ON words (id) WHERE part > 0;

-- The number of the last transaction of each writer: shows whether a commit without a reply succeeded.
CREATE TABLE writers (
    name   TEXT COLLATE "C" PRIMARY KEY,
    number BIGINT NOT NULL,
    time   DOUBLE PRECISION NOT NULL
);
