"""Judge what became of a whole session."""
