-- What each model took of a session, as it was asked. What is not said here (it was brought in with
-- the session, or counted by an older version) went to the session's own model.
CREATE TABLE usage (
    session          INTEGER NOT NULL REFERENCES sessions (num) ON DELETE CASCADE,
    model            TEXT NOT NULL,
    tokens_input     INTEGER NOT NULL,
    tokens_output    INTEGER NOT NULL,
    tokens_read      INTEGER NOT NULL,
    tokens_write     INTEGER NOT NULL,
    tokens_reasoning INTEGER NOT NULL,
    cost_nano        INTEGER NOT NULL,
    PRIMARY KEY (session, model)
) STRICT, WITHOUT ROWID;

ALTER TABLE routes ADD COLUMN usage TEXT NOT NULL DEFAULT '{}';  -- of each model, in all sessions
ALTER TABLE routes ADD COLUMN shown TEXT;  -- the sessions listed last, which a number picks from

ALTER TABLE inbox ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0;  -- how often its turn was begun
-- What ended the program each time is given up, and stays to be looked at.
CREATE INDEX inbox_undeliverable ON inbox (num) WHERE state = 'undeliverable';

-- Where each platform's news go that belong to no conversation.
CREATE TABLE homes (
    platform TEXT PRIMARY KEY,
    source   TEXT NOT NULL
) STRICT, WITHOUT ROWID;
