-- The search index of words in PostgreSQL, for a new database and for the upgrade to version 21.

-- Besides its words, each row has keys of the ranges of ids that it is in: 2,048 ids, and 16 times as many
-- three times over. The two lowest bits of a key are its level. A search for words in a range then reads
-- what the range has of them, however long the whole list of a word is. The same keys with the number of the
-- project above them do so for the messages of a project in a range; those of a message whose project is
-- unknown have a 1 there. Parts of long messages have negative keys, too. The keys stand first: a scan
-- begins at the range, not at the oldest match.
CREATE INDEX IF NOT EXISTS words_keys ON words USING gin ((CASE WHEN part = 0 THEN ARRAY[
        (id >> 11) << 2, ((id >> 15) << 2) | 1, ((id >> 19) << 2) | 2, ((id >> 23) << 2) | 3,
        (coalesce(project, 1)::bigint << 32) | ((id >> 11) << 2),
        (coalesce(project, 1)::bigint << 32) | ((id >> 15) << 2) | 1,
        (coalesce(project, 1)::bigint << 32) | ((id >> 19) << 2) | 2,
        (coalesce(project, 1)::bigint << 32) | ((id >> 23) << 2) | 3]
    ELSE ARRAY[
        (id >> 11) << 2, ((id >> 15) << 2) | 1, ((id >> 19) << 2) | 2, ((id >> 23) << 2) | 3,
        (coalesce(project, 1)::bigint << 32) | ((id >> 11) << 2),
        (coalesce(project, 1)::bigint << 32) | ((id >> 15) << 2) | 1,
        (coalesce(project, 1)::bigint << 32) | ((id >> 19) << 2) | 2,
        (coalesce(project, 1)::bigint << 32) | ((id >> 23) << 2) | 3,
        -1 - ((id >> 11) << 2), -1 - (((id >> 15) << 2) | 1), -1 - (((id >> 19) << 2) | 2),
        -1 - (((id >> 23) << 2) | 3),
        -1 - ((coalesce(project, 1)::bigint << 32) | ((id >> 11) << 2)),
        -1 - ((coalesce(project, 1)::bigint << 32) | ((id >> 15) << 2) | 1),
        -1 - ((coalesce(project, 1)::bigint << 32) | ((id >> 19) << 2) | 2),
        -1 - ((coalesce(project, 1)::bigint << 32) | ((id >> 23) << 2) | 3)] END), text)
    WITH (gin_pending_list_limit = 512); -- kB that every search reads besides, instead of 4 MB

-- Messages of a version that knows nothing of projects here.
CREATE INDEX IF NOT EXISTS words_unknown ON words (id) WHERE project IS NULL;

-- The words of a match are read to rank it: in the page of its row, if it has room for them.
ALTER TABLE words SET (toast_tuple_target = 8160);
