-- The same tables as in SQLite; see the comments there.
CREATE TABLE usage (
    session          BIGINT NOT NULL REFERENCES sessions (num) ON DELETE CASCADE,
    model            TEXT COLLATE "C" NOT NULL,
    tokens_input     BIGINT NOT NULL,
    tokens_output    BIGINT NOT NULL,
    tokens_read      BIGINT NOT NULL,
    tokens_write     BIGINT NOT NULL,
    tokens_reasoning BIGINT NOT NULL,
    cost_nano        BIGINT NOT NULL,
    PRIMARY KEY (session, model)
);

ALTER TABLE routes ADD COLUMN usage TEXT NOT NULL DEFAULT '{}';
ALTER TABLE routes ADD COLUMN shown TEXT;

ALTER TABLE inbox ADD COLUMN attempts BIGINT NOT NULL DEFAULT 0;
CREATE INDEX inbox_undeliverable ON inbox (num) WHERE state = 'undeliverable';

CREATE TABLE homes (
    platform TEXT COLLATE "C" PRIMARY KEY,
    source   TEXT NOT NULL
);
