-- Sums over mining results, so that the cost of a run depends only on what is new. Derived data.
CREATE TABLE tallies (
    shape    INTEGER PRIMARY KEY,
    kind     TEXT NOT NULL,
    families INTEGER NOT NULL,  -- independent sessions that had it
    support  INTEGER NOT NULL
) STRICT;

CREATE TABLE sorts (
    work   TEXT PRIMARY KEY,
    calls  INTEGER NOT NULL,
    failed INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The number of sessions in the sums. If fewer exist, because some were deleted, the sums are rebuilt.
CREATE TABLE summed (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    sessions INTEGER NOT NULL
) STRICT;

DELETE FROM mined;
DELETE FROM candidates;
DELETE FROM attempts;
INSERT INTO summed VALUES (1, 0);
CREATE INDEX mined_family ON mined (family);
DROP INDEX candidates_shape;
CREATE INDEX candidates_shape ON candidates (shape, session);
