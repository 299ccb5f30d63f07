-- Delete mining results together with the row in `mined`, by a trigger. A foreign key would look up the session
-- for each of the many inserted rows.
ALTER TABLE candidates RENAME TO old_candidates;
DROP INDEX candidates_shape;
CREATE TABLE candidates (
    session INTEGER NOT NULL,
    shape   INTEGER NOT NULL,  -- a digest
    family  INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    place   TEXT NOT NULL,     -- positions of its calls among those of the session
    support INTEGER NOT NULL,  -- how often in this session
    tainted INTEGER NOT NULL,
    PRIMARY KEY (session, shape)
) STRICT, WITHOUT ROWID;
INSERT INTO candidates SELECT * FROM old_candidates;
DROP TABLE old_candidates;
CREATE INDEX candidates_shape ON candidates (shape, session);

ALTER TABLE attempts RENAME TO old_attempts;
CREATE TABLE attempts (
    session INTEGER NOT NULL,
    work    TEXT NOT NULL,
    calls   INTEGER NOT NULL,
    failed  INTEGER NOT NULL,
    PRIMARY KEY (session, work)
) STRICT, WITHOUT ROWID;
INSERT INTO attempts SELECT * FROM old_attempts;
DROP TABLE old_attempts;

ALTER TABLE mined_calls RENAME TO old_mined_calls;
CREATE TABLE mined_calls (
    session INTEGER PRIMARY KEY,
    calls   BLOB NOT NULL  -- calls used by candidates, as JSON, redacted
) STRICT;
INSERT INTO mined_calls SELECT * FROM old_mined_calls;
DROP TABLE old_mined_calls;

CREATE TRIGGER mined_gone AFTER DELETE ON mined BEGIN
    DELETE FROM candidates WHERE session = OLD.session;
    DELETE FROM attempts WHERE session = OLD.session;
    DELETE FROM mined_calls WHERE session = OLD.session;
END;
