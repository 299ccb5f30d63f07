-- What only SQLite has, for a new database.

-- The index stores words and positions, not a second copy of the text. Updating it for every message costs
-- more than writing the message, so messages are indexed in batches and a search scans the newest ones
-- directly. The index covers all messages up to its highest id.
CREATE VIRTUAL TABLE words USING fts5 (
    text, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 0'
);
