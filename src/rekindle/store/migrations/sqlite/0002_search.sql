-- The index holds words and places, no second copy of the text. Writing it for every single message
-- costs more than the message: a search looks through the newest messages directly, and every so many
-- of them are moved into the index at once. What is in it reaches from the first id to its last.
CREATE VIRTUAL TABLE words USING fts5 (
    text, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 0'
);
