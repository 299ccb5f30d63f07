-- What only SQLite has, for a new database.

-- The index stores words and positions, not a second copy of the text. Updating it for every message costs
-- more than writing the message, so messages are indexed in batches and a search scans the newest ones
-- directly. The index covers all messages up to its highest id.
CREATE VIRTUAL TABLE words USING fts5 (
    text, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 0'
);

CREATE VIRTUAL TABLE pattern_words USING fts5 (
    text, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 0'
);

INSERT INTO counts_state (id, sessions) VALUES (1, 0);
CREATE TRIGGER mining_results_deleted AFTER DELETE ON mining_results BEGIN
    DELETE FROM candidates WHERE session = OLD.session;
    DELETE FROM call_type_counts WHERE session = OLD.session;
    DELETE FROM mining_calls WHERE session = OLD.session;
END;
