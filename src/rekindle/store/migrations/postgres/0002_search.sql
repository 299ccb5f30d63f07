-- Words follow our own definition, not the parser of the server. Positions in a tsvector end at 16,383,
-- so a long message is indexed in parts.
CREATE TABLE words (
    id   BIGINT NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
    part INTEGER NOT NULL,
    text TSVECTOR NOT NULL,
    PRIMARY KEY (id, part)
);

CREATE INDEX words_text ON words USING gin (text);
CREATE INDEX words_long ON words (id) WHERE part > 0;
