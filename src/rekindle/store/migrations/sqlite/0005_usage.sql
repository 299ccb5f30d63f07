-- Usage of each model in a session. Usage that is not listed here (imported with the session, or counted by
-- an older version) belongs to the model of the session.
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

ALTER TABLE routes ADD COLUMN usage TEXT NOT NULL DEFAULT '{}';  -- per model, over all sessions
ALTER TABLE routes ADD COLUMN shown TEXT;  -- the sessions listed last, for selection by number

ALTER TABLE inbox ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0;  -- how often its turn was started
-- Messages that crash the process every time are dropped, but kept for inspection.
CREATE INDEX inbox_undeliverable ON inbox (num) WHERE state = 'undeliverable';

-- The chat of each platform for messages that belong to no conversation.
CREATE TABLE homes (
    platform TEXT PRIMARY KEY,
    source   TEXT NOT NULL
) STRICT, WITHOUT ROWID;
