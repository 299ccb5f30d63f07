-- The same tables as in SQLite; see the comments there.
CREATE TABLE tallies (
    shape    BIGINT PRIMARY KEY,
    kind     TEXT NOT NULL,
    families BIGINT NOT NULL,
    support  BIGINT NOT NULL
);

CREATE TABLE sorts (
    work   TEXT COLLATE "C" PRIMARY KEY,
    calls  BIGINT NOT NULL,
    failed BIGINT NOT NULL
);

CREATE TABLE summed (
    one      BIGINT PRIMARY KEY CHECK (one = 1),
    sessions BIGINT NOT NULL
);

DELETE FROM mined;
DELETE FROM candidates;
DELETE FROM attempts;
INSERT INTO summed VALUES (1, 0);
CREATE INDEX mined_family ON mined (family);
DROP INDEX candidates_shape;
CREATE INDEX candidates_shape ON candidates (shape, session);
